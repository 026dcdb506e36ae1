// Small controls beside the kernel: noise and mean, and the place of a slice through several inputs.

import { complain, element } from "./dom.mjs";
import { mustBePositive, slider } from "./slider.mjs";

/** Sliders for the noise and for the mean of every target. */
export function noiseControls(state, summary, edit) {
  const noise = slider({
    id: "noise-slider", label: "noise (standard deviation)", unit: `in ${summary.targets.join(", ")}`, value: state.noise,
    limits: [summary.size / 1000, 3 * summary.size], check: mustBePositive, refuse: complain,
    change: (value) => edit((next) => (next.noise = value), false),
  });
  const means = state.mean.map((value, q) => slider({
    id: `mean-${q}`, label: state.mean.length > 1 ? `mean of ${summary.targets[q]}` : "mean", unit: `in ${summary.targets[q]}`, value, linear: true,
    limits: [Math.min(0, summary.mean[q] - 3 * summary.size), Math.max(0, summary.mean[q] + 3 * summary.size)], check: () => null, refuse: complain,
    change: (moved) => edit((next) => (next.mean[q] = moved), false),
  }));
  return [noise, ...means].map(({ root }) => root);
}

/** Which input the functions are drawn along, and where the others are held; nothing for a single input. */
export function sliceControls(state, summary, edit) {
  if (summary.width === 1) return [];
  const axis = element("div", { class: "row" }, element("label", { for: "axis" }, "Draw along "), element("select", { id: "axis", on: {
    change: (event) => edit((next) => (next.axis = Number(event.target.value)), true),
  } }, ...summary.inputs.map((name, k) => element("option", { value: k, selected: k === state.axis }, name))));
  const others = summary.inputs.map((name, k) => (k === state.axis ? null : slider({
    id: `at-${k}`, label: `at ${name}`, unit: "", value: state.at[k], linear: true,
    limits: [summary.low[k], summary.high[k] > summary.low[k] ? summary.high[k] : summary.low[k] + 1], check: () => null, refuse: complain,
    change: (value) => edit((next) => (next.at[k] = value), false),
  }).root));
  return [axis, ...others.filter(Boolean)];
}
