// Log evidence as bars: one for each candidate, filled in one after the other so that a moving slider never waits for them.

import { element, find } from "./dom.mjs";
import { readable } from "./numbers.mjs";
import { median } from "./sentences.mjs";

/** `results` are [{id, name, word, value or null, fitted}]; `adopt(id)` is called by a click on a bar. */
export function drawBars(results, adopt) {
  const list = find("bars");
  if (list.children.length !== results.length || results.some(({ id }, k) => list.children[k].dataset.id !== id)) build(list, results, adopt);
  const known = results.map(({ value }) => value).filter(Number.isFinite);
  // Bars are empty where a candidate is twice as far behind the best as half of them are: the worst would flatten all others.
  const best = Math.max(...known), span = Math.max(10, 2 * median(known.map((value) => best - value)));
  results.forEach(({ id, name, value, fitted, kernelName }, k) => {
    const item = list.children[k], button = item.firstElementChild;
    const behind = best - value, finite = Number.isFinite(value);
    button.className = [id === "current" ? "current" : "", finite && behind < 1e-9 ? "best" : "", fitted ? "fitted" : ""].join(" ");
    button.querySelector(".fill").style.transform = `scaleX(${finite ? Math.max(0, 1 - behind / span) : 0})`;
    button.querySelector(".value").textContent = finite ? value.toFixed(1).replace("-", "−") : value === null ? "…" : "none";
    if (id === "current") button.querySelector(".name small").textContent = ` ${kernelName}`;
    button.setAttribute("aria-label", finite
      ? `${name}: log evidence ${readable(value, 5)}${behind < 1e-9 ? ", the best" : `, ${readable(behind, 3)} behind the best`}${fitted ? ", fitted" : ""}${id === "current" ? "" : "; use this kernel"}`
      : `${name}: log evidence ${value === null ? "not computed yet" : "cannot be computed"}`);
  });
}

function build(list, results, adopt) {
  list.replaceChildren(...results.map(({ id, name, word }) => {
    const button = element("button", { type: "button", title: id === "current" ? "" : "use this kernel", on: { click: () => adopt(id) } },
      element("span", { class: "name" }, name, element("small", {}, word ? ` · ${word}` : "")),
      element("span", { class: "track" }, element("span", { class: "fill" })),
      element("span", { class: "value" }));
    const item = element("li", {}, button);
    item.dataset.id = id;
    return item;
  }));
}
