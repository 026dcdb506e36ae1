// Three questions whose answers set the parameters: how far, how large, how noisy.

import { numOutputs, pairFunction, variance } from "./covariance.mjs";
import { element } from "./dom.mjs";
import { KERNELS, columnsOf } from "./kernels.mjs";
import { readable, rounded } from "./numbers.mjs";
import { kernelOf, slotsOf } from "./state.mjs";

/** Two values are called unrelated when their correlation is this small. */
export const UNRELATED = 0.1;

/** The form's fields for a state; `answer(name, number)` is called with each answer, `refuse(text)` with what is wrong. */
export function questionFields(state, summary, { answer, refuse }) {
  const x = summary.units[state.axis], y = summary.targets.join(" and ");
  const ask = (name, text, hint, placeholder) => {
    const field = element("input", { type: "number", id: `question-${name}`, step: "any", min: 0, placeholder: readable(placeholder, 3), on: {
      change: (event) => {
        const number = Number(event.target.value);
        if (event.target.value.trim() === "") return;
        if (!(Number.isFinite(number) && number > 0)) refuse(`“${text}” wants a number above zero, not ${event.target.value}`);
        else answer(name, number);
      },
    } });
    return element("div", { class: "question" }, element("label", { for: `question-${name}` }, text), element("small", {}, hint), field);
  };
  return [
    ask("far", `How far apart are values unrelated?`, `in ${x}; sets the length scales`, distanceNow(state, summary) ?? summary.range[state.axis] / 3),
    ask("large", `How far do values stray from their mean?`, `almost never further, in ${y}; sets the size`, 2 * sizeNow(state, summary)),
    ask("noisy", `How far off is a single measurement?`, `typically, in ${y}; sets the noise`, state.noise),
  ];
}

/** Changes the state so that its prior gives this answer. */
export function applyAnswer(state, summary, name, number) {
  if (name === "noisy") {
    state.noise = rounded(number);
    return;
  }
  const kernels = slotsOf(state).flatMap((slot) => state[slot]);
  if (name === "large") {
    const ratio = (number / 2 / sizeNow(state, summary)) ** 2;
    for (const [first] of kernels) scaleKernel(first, ratio);
    return;
  }
  for (const kernel of kernels.flat()) {
    if (!KERNELS[kernel.kind].profile) continue;
    const place = columnsOf(kernel, summary.width).indexOf(state.axis);
    if (place < 0) continue;
    const reach = reachOf(kernel);
    const old = Array.isArray(kernel.lengthscale) ? kernel.lengthscale[place] : kernel.lengthscale;
    const fresh = rounded(number / reach);
    if (Array.isArray(kernel.lengthscale)) kernel.lengthscale[place] = fresh;
    else kernel.lengthscale = fresh;
    // The gradient of a potential has variance v / ℓ², which is to stay.
    if (state.mode === "field") kernel.variance = rounded(kernel.variance * (fresh / old) ** 2);
  }
}

/** Length scales that it takes until a radial kernel's correlation is UNRELATED. */
function reachOf(kernel) {
  const { profile, shape } = KERNELS[kernel.kind], parameter = shape ? kernel[shape.name] : undefined;
  let low = 0, high = 1;
  while (profile.value(high * high, parameter) > UNRELATED && high < 1e6) high *= 2;
  for (let k = 0; k < 60; k++) {
    const middle = (low + high) / 2;
    if (profile.value(middle * middle, parameter) > UNRELATED) low = middle;
    else high = middle;
  }
  return high;
}

/** Multiplies a kernel's values by `ratio`. */
function scaleKernel(kernel, ratio) {
  if (kernel.kind === "Polynomial") {
    // (shift + v x·y)^degree has its size in both numbers.
    const root = ratio ** (1 / kernel.degree);
    kernel.shift = rounded(kernel.shift * root, 6);
    kernel.variance = rounded(kernel.variance * root, 6);
  } else if (kernel.kind === "Constant") kernel.constant = rounded(kernel.constant * ratio, 6);
  else kernel.variance = rounded(kernel.variance * ratio, 6);
}

/** The prior's standard deviation in the middle of the data, a mean over outputs. */
export function sizeNow(state, summary) {
  const own = variance(kernelOf(state), summary.width, Float64Array.from(summary.middle));
  return Math.sqrt(own.reduce((total, value) => total + value, 0) / own.length);
}

/** The distance along the drawn input at which the prior's correlation first falls to UNRELATED, or null. */
function distanceNow(state, summary) {
  const kernel = kernelOf(state);
  if (numOutputs(kernel) > 1) return null;
  const pair = pairFunction(kernel, summary.width), start = Float64Array.from(summary.middle), there = Float64Array.from(start);
  for (let k = 1; k <= 400; k++) {
    there[state.axis] = start[state.axis] + (2 * summary.range[state.axis] * k) / 400;
    const correlation = pair(start, 0, there, 0) / Math.sqrt(pair(start, 0, start, 0) * pair(there, 0, there, 0));
    if (correlation <= UNRELATED) return there[state.axis] - start[state.axis];
  }
  return null;
}
