// The data card: which columns are inputs, which is the target, and what was left out.

import { element, refill, find } from "./dom.mjs";
import { targetNames } from "./loading.mjs";

/** Fills the card. `choose(inputs, targets)` is called with names of columns, `mode(name)` to switch between function and field. */
export function showData({ table, rows, state, choose, mode, close }) {
  const field = state.mode === "field";
  const switcher = element("div", { class: "row" }, element("label", { for: "mode" }, "This is"), element("select", { id: "mode", on: { change: (event) => mode(event.target.value) } },
    element("option", { value: "function", selected: !field }, "a function: one value at every input"),
    element("option", { value: "field", selected: field }, "a vector field: an arrow at every place in a plane")));
  if (!table) {
    refill(find("data-body"), switcher, element("p", { class: "soft" }, "No data yet: open or drop a CSV file, or choose an example above. It stays in this page."));
    return;
  }
  const names = table.columns.map(({ name }) => name);
  const targetChoice = (k) => element("select", { id: `target-${k}`, "aria-label": field ? ["east component", "north component"][k] : "target", on: {
    change: (event) => {
      const targets = state.targets.with(k, event.target.value);
      choose(state.inputs.filter((name) => !targets.includes(name)), targets);
    },
  } }, ...targetNames(table).map((name) => element("option", { value: name, selected: name === state.targets[k] }, name)));
  const others = names.filter((name) => !state.targets.includes(name));
  const inputs = element("div", { class: "chips", role: "group", "aria-label": "inputs" }, ...others.map((name, k) => element("label", {},
    element("input", { type: "checkbox", id: `use-${k}`, checked: state.inputs.includes(name), on: {
      change: (event) => choose(event.target.checked ? others.filter((other) => other === name || state.inputs.includes(other)) : state.inputs.filter((other) => other !== name), state.targets),
    } }), name)));
  refill(find("data-body"),
    element("p", {}, element("b", {}, table.file), ` · ${table.totalRows.toLocaleString("en-GB")} rows · ${table.columns.length} columns of numbers `),
    switcher,
    element("div", { class: "row" }, field ? "arrows" : "target", ...state.targets.map((_, k) => targetChoice(k))),
    element("div", { class: "row" }, field ? "place in the plane (two)" : "inputs", inputs),
    element("ul", {}, ...[...table.notes, ...rows.notes].map((note) => element("li", {}, note))),
    element("div", { class: "row" }, element("button", { type: "button", id: "close-data", on: { click: close } }, "Put the data away")));
}
