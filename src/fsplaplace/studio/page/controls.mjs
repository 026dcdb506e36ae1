// The kernel builder: terms that are added, factors that are multiplied, and a slider for every number.

import { element } from "./dom.mjs";
import { hasDerivative } from "./helmholtz.mjs";
import { KERNELS, columnsOf } from "./kernels.mjs";
import { rounded } from "./numbers.mjs";
import { mustBePositive, slider } from "./slider.mjs";
import { slotsOf } from "./state.mjs";
import { firstKernel, firstValues, isSquare, sliderLimits } from "./summary.mjs";

const TITLES = {
  terms: null,
  potential: "Potential: sources and sinks (no curl)",
  stream: "Stream function: swirls (no divergence)",
};
// A word that is a kernel with a long length scale, not a kernel of its own.
const SLOWLY = "varies slowly";

/**
 * The builder for a state. `edit(change)` is called with a function that changes a copy of the state and, true for a change of
 * structure, false for a number; `refuse(text)` with what is wrong with a typed number.
 */
export function builder(state, summary, { edit, refuse }) {
  return slotsOf(state).map((slot) => {
    const field = slot !== "terms", terms = state[slot];
    const children = terms.flatMap((factors, t) => [
      t ? element("p", { class: "operator", "aria-label": "plus" }, "+") : null,
      termCard({ slot, t, factors, field, state, summary, edit, refuse }),
    ]);
    const add = wordMenu({
      id: `add-${slot}`, label: terms.length ? "+ add a term that…" : "+ add a kernel…", field,
      choose: (kind, slow) => edit((next) => next[slot].push([firstKernel(kind, summary, { field, slow })]), true),
    });
    return element("div", { class: "slot" }, TITLES[slot] ? element("h3", {}, TITLES[slot]) : "", ...children.filter(Boolean), add);
  });
}

function termCard({ slot, t, factors, field, state, summary, edit, refuse }) {
  const cards = factors.flatMap((kernel, f) => [
    f ? element("p", { class: "operator", "aria-label": "times" }, "×") : null,
    factorCard({ slot, t, f, kernel, field, state, summary, edit, refuse }),
  ]);
  const multiply = wordMenu({
    id: `times-${slot}-${t}`, label: "× multiply by one that…", field,
    choose: (kind, slow) => edit((next) => next[slot][t].push(firstKernel(kind, summary, { factor: true, field, slow })), true),
  });
  return element("div", { class: "term", role: "group", "aria-label": `term ${t + 1}` }, ...cards.filter(Boolean), multiply);
}

function factorCard({ slot, t, f, kernel, field, state, summary, edit, refuse }) {
  const places = { factor: f > 0, field }, entry = KERNELS[kernel.kind], path = `${slot}-${t}-${f}`;
  const kinds = Object.keys(KERNELS).filter((kind) => !field || hasDerivative({ kind }));
  const choice = element("select", { id: `kind-${path}`, "aria-label": `kernel ${f + 1} of term ${t + 1}`, on: {
    change: (event) => edit((next) => (next[slot][t][f] = carriedOver(kernel, firstKernel(event.target.value, summary, places))), true),
  } }, ...kinds.map((kind) => element("option", { value: kind, selected: kind === kernel.kind }, `${KERNELS[kind].word} · ${kind}`)));
  const remove = element("button", { type: "button", id: `remove-${path}`, "aria-label": `remove ${entry.word} (${kernel.kind})`, title: "remove", on: {
    click: () => edit((next) => removeFactor(next, slot, t, f), true),
  } }, "✕");
  const inputs = summary.width > 1 && !field && !["White", "Constant"].includes(kernel.kind) ? inputChips({ slot, t, f, kernel, summary, edit, path, places }) : null;
  return element("div", { class: "factor" },
    element("div", { class: "factor-head" }, choice, remove),
    element("p", { class: "factor-says" }, entry.says),
    ...entry.parameters.flatMap((parameter) => parameterControls({ parameter, kernel, slot, t, f, path, places, summary, state, edit, refuse })),
    inputs ?? "");
}

function parameterControls({ parameter, kernel, slot, t, f, path, places, summary, state, edit, refuse }) {
  const { name, label, unit, choices } = parameter, value = kernel[name], id = `${path}-${name}`;
  if (choices) {
    return [element("div", { class: "slider" }, element("label", { for: id }, label), element("select", { id, on: {
      change: (event) => edit((next) => (next[slot][t][f][name] = Number(event.target.value)), true),
    } }, ...choices.map((choice) => element("option", { value: choice, selected: choice === value }, String(choice)))))];
  }
  const columns = columnsOf(kernel, summary.width), several = Array.isArray(value);
  const square = isSquare(parameter), seen = (x) => (square ? rounded(Math.sqrt(x), 5) : x), kept = (x) => (square ? rounded(x * x, 8) : x);
  return (several ? value : [value]).map((number, k) => {
    const column = several ? columns[k] : null;
    const made = slider({
      id: several ? `${id}-${k}` : id, label: several ? `${label} of ${summary.inputs[column]}` : label,
      unit: unitText(unit, places, summary, several ? [column] : columns), value: seen(number),
      limits: sliderLimits(kernel, parameter, several ? column : 0, summary, places).map(square ? Math.sqrt : (x) => x),
      check: name === "power" ? (x) => (x > 0 && x <= 2 ? null : "must be above zero and at most 2") : mustBePositive,
      refuse,
      change: (x) => edit((next) => {
        const target = next[slot][t][f];
        if (several) target[name][k] = kept(x);
        else target[name] = kept(x);
      }, false),
    });
    return made.root;
  });
}

/** What a number is measured in, by the names of the columns; nothing where it has no unit. */
function unitText(unit, { factor, field }, summary, columns) {
  const x = [...new Set(columns.map((k) => summary.units[k]))].join(", "), y = summary.targets.join(", ");
  if (unit === "x") return `in ${x}`;
  if (unit === "y²" && factor) return "as a factor";
  if (unit === "y²" && field) return `${y} times ${summary.units[0]}`;
  if (unit === "y²") return `in ${y}`;
  if (unit === "y²/x²") return factor ? `per ${x}` : `${y} per ${x}`;
  return unit === "1/x²" ? `per squared ${x}` : "";
}

/** Which inputs a kernel sees: buttons that are pressed or not; one stays. */
function inputChips({ slot, t, f, kernel, summary, edit, path, places }) {
  const seen = columnsOf(kernel, summary.width);
  return element("div", { class: "chips", role: "group", "aria-label": `inputs of ${kernel.kind}` }, ...summary.inputs.map((input, column) =>
    element("button", { type: "button", id: `input-${path}-${column}`, "aria-pressed": String(seen.includes(column)), on: {
      click: () => edit((next) => seeColumn(next[slot][t][f], column, summary, places), true),
    } }, input)));
}

function seeColumn(kernel, column, summary, places) {
  const before = columnsOf(kernel, summary.width);
  const after = before.includes(column) ? before.filter((k) => k !== column) : [...before, column].sort((a, b) => a - b);
  if (!after.length) return;
  if (Array.isArray(kernel.lengthscale)) {
    const first = firstValues(kernel.kind, summary, places).lengthscale;
    kernel.lengthscale = after.map((k) => (before.includes(k) ? kernel.lengthscale[before.indexOf(k)] : rounded(first[k], 3)));
  }
  if (after.length === summary.width) delete kernel.columns;
  else kernel.columns = after;
}

/** Another kind of kernel with the old one's length scale, size and inputs where it has them. */
function carriedOver(old, fresh) {
  const alike = (name) => name in old && name in fresh && (name !== "lengthscale" || (old.kind === "Periodic") === (fresh.kind === "Periodic"));
  for (const name of ["lengthscale", "variance", "period"]) {
    const free = ["Linear", "Polynomial"];
    if (alike(name) && !free.includes(old.kind) && !free.includes(fresh.kind)) fresh[name] = structuredClone(old[name]);
  }
  if (old.columns && Array.isArray(fresh.lengthscale) && fresh.lengthscale.length !== old.columns.length) fresh.lengthscale = old.columns.map((k) => fresh.lengthscale[k]);
  if (old.columns) fresh.columns = [...old.columns];
  return fresh;
}

function removeFactor(next, slot, t, f) {
  next[slot][t].splice(f, 1);
  if (!next[slot][t].length) next[slot].splice(t, 1);
}

/** A menu of what functions do, in words. */
function wordMenu({ id, label, field, choose }) {
  const kinds = Object.keys(KERNELS).filter((kind) => !field || hasDerivative({ kind }));
  const options = kinds.map((kind) => element("option", { value: kind }, `${KERNELS[kind].word} · ${kind}: ${KERNELS[kind].says}`));
  options.splice(1, 0, element("option", { value: SLOWLY }, `${SLOWLY} · RBF with a long length scale`));
  return element("select", { id, class: "add", "aria-label": label, on: { change: (event) => {
    const { value } = event.target;
    if (value) choose(value === SLOWLY ? "RBF" : value, value === SLOWLY);
  } } }, element("option", { value: "" }, label), ...options);
}
