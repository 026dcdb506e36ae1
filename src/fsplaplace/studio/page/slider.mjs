// One number as a slider on a logarithmic scale and a field to type it in.

import { element } from "./dom.mjs";
import { general, rounded } from "./numbers.mjs";

const STEPS = 400;

/**
 * A labelled slider with a number field. Returns {root, show(value)}.
 *
 * `limits` are the ends of the slider; a typed number may lie beyond them. `linear` makes the scale linear. `check(value)` returns
 * what is wrong with a typed number, or null; a wrong one is refused in words by `refuse(text)`, and the old value stays.
 */
export function slider({ id, label, unit, value, limits, linear = false, check, change, refuse }) {
  const [low, high] = linear ? limits : limits.map(Math.log);
  const inner = linear ? (x) => x : Math.log, outer = linear ? (x) => x : Math.exp;
  const spoken = (x) => (unit ? `${general(x, 4)}, ${unit}` : general(x, 4));
  let current = value;
  const range = element("input", { type: "range", id, min: 0, max: STEPS, step: 1 });
  const typed = element("input", { type: "number", id: `${id}-number`, step: "any", "aria-label": `${label}${unit ? `, ${unit}` : ""}, as a number` });

  function show(x) {
    current = x;
    range.value = String(Math.round((STEPS * (inner(x) - low)) / (high - low)));
    range.setAttribute("aria-valuetext", spoken(x));
    if (document.activeElement !== typed) typed.value = String(x);
    typed.removeAttribute("aria-invalid");
  }
  range.addEventListener("input", () => {
    const span = high - low, moved = outer(low + (span * range.value) / STEPS);
    // Near zero a linear slider would show rounding errors.
    current = linear && Math.abs(moved) < 1e-9 * span ? 0 : rounded(moved);
    typed.value = String(current);
    typed.removeAttribute("aria-invalid");
    range.setAttribute("aria-valuetext", spoken(current));
    change(current);
  });
  typed.addEventListener("change", () => {
    const number = typed.value.trim() === "" ? NaN : Number(typed.value);
    const wrong = Number.isFinite(number) ? check(number) : "is not a number";
    if (wrong) {
      typed.setAttribute("aria-invalid", "true");
      refuse(`${label} ${Number.isFinite(number) ? `${number} ` : ""}${wrong}; it stays ${general(current, 4)}`);
      typed.value = String(current);
      return;
    }
    show(number);
    typed.value = String(number);
    change(number);
  });
  show(value);
  const caption = element("label", { for: id }, label, element("span", { class: "unit", title: unit ?? "" }, unit ?? ""));
  return { root: element("div", { class: "slider" }, caption, range, typed), show };
}

/** For `check`: what is wrong with a number that must be positive. */
export function mustBePositive(value) {
  return value > 0 ? null : "must be above zero";
}
