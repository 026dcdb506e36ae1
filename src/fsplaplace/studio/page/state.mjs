// What the page shows, as one plain record: it is what a click changes and what the address of the page holds.
//
// {mode: "function" or "field", terms, potential, stream, noise, mean, inputs, targets, axis, at, draws, seed}
// `terms` is a sum of products: a list of lists of kernels; `potential` and `stream` are such sums of a vector field.

import { hasDerivative } from "./helmholtz.mjs";
import { KERNELS } from "./kernels.mjs";
import { rounded } from "./numbers.mjs";
import { firstKernel } from "./summary.mjs";

/** An address, or a typed number, that describes no prior. */
export class StateError extends Error {}

/** The page before anything was changed. */
export function firstState(mode, summary) {
  const field = mode === "field";
  const kernel = (kind) => [[firstKernel(kind, summary, { field })]];
  return {
    mode, terms: field ? [] : kernel("Matern52"), potential: field ? kernel("RBF") : [], stream: field ? kernel("RBF") : [],
    noise: rounded(0.1 * summary.size, 3), mean: summary.mean, inputs: summary.inputs, targets: summary.targets,
    axis: 0, at: summary.middle.map((value) => rounded(value)), draws: 5, seed: 1,
  };
}

/** The slots of the builder: one sum of products for a function, two for a vector field. */
export function slotsOf(state) {
  return state.mode === "field" ? ["potential", "stream"] : ["terms"];
}

/** The kernel that the state describes, as `covariance` wants it. */
export function kernelOf(state) {
  if (state.mode === "field") return { kind: "Helmholtz", potential: sumOf(state.potential), stream: sumOf(state.stream) };
  return sumOf(state.terms);
}

/** A sum of products without needless brackets; null if it is empty. */
export function sumOf(terms) {
  const parts = terms.map((factors) => (factors.length === 1 ? factors[0] : { kind: "product", parts: factors }));
  if (!parts.length) return null;
  return parts.length === 1 ? parts[0] : { kind: "sum", parts };
}

/** The reverse of `sumOf`, for kernels that are sums of products. */
export function termsOf(kernel) {
  if (!kernel) return [];
  const parts = kernel.kind === "sum" ? kernel.parts : [kernel];
  return parts.map((part) => (part.kind === "product" ? part.parts : [part]));
}

/** The state as the part of an address after #. */
export function toHash(state) {
  return "#" + encodeURIComponent(JSON.stringify(state)).replaceAll("%22", "'").replaceAll("%2C", ",").replaceAll("%3A", ":");
}

/** The state of an address, every part of it checked, or null if the address has none. */
export function fromHash(hash) {
  if (hash.length < 2) return null;
  let read;
  try {
    read = JSON.parse(decodeURIComponent(hash.slice(1).replaceAll("'", "%22")));
  } catch {
    throw new StateError("the address of this page holds no prior that can be read");
  }
  return checkedState(read);
}

/** The same state if everything in it is possible, else an error that says what is not. */
export function checkedState(read) {
  const fail = (what) => {
    throw new StateError(`the address of this page holds a prior that is not possible: ${what}`);
  };
  if (read === null || typeof read !== "object") fail("no record");
  if (!["function", "field"].includes(read.mode)) fail("neither a function nor a field");
  const names = (list, what, most) => Array.isArray(list) && list.length >= 1 && list.length <= most && list.every((name) => typeof name === "string") ? list.map(String) : fail(`no names of ${what}`);
  const inputs = names(read.inputs, "inputs", 100), targets = names(read.targets, "targets", 2);
  const finite = (list, length, what) => Array.isArray(list) && list.length === length && list.every(Number.isFinite) ? list.map(Number) : fail(what);
  const whole = (value, low, high, what) => Number.isInteger(value) && value >= low && value <= high ? value : fail(what);
  const sum = (terms, what) => {
    if (!Array.isArray(terms) || terms.length > 8) fail(`${what} is not a list of terms`);
    return terms.map((factors) => {
      if (!Array.isArray(factors) || !factors.length || factors.length > 6) fail(`${what} has an empty product`);
      return factors.map((kernel) => checkedKernel(kernel, inputs.length, fail));
    });
  };
  const state = {
    mode: read.mode, terms: sum(read.terms, "the kernel"), potential: sum(read.potential, "the potential"), stream: sum(read.stream, "the stream function"),
    noise: positive(read.noise) ? read.noise : fail(`the noise is ${read.noise}`),
    mean: finite(read.mean, targets.length, "the mean is not a number"), inputs, targets,
    axis: whole(read.axis, 0, inputs.length - 1, "there is no such input to draw along"),
    at: finite(read.at, inputs.length, "the slice is not at numbers"),
    draws: whole(read.draws, 1, 20, "the number of functions is not 1 to 20"), seed: whole(read.seed, 0, 1e9, "the seed is no number"),
  };
  if (state.mode === "field") {
    if (inputs.length !== 2 || targets.length !== 2) fail("a vector field needs two inputs and two targets");
    for (const kernel of [sumOf(state.potential), sumOf(state.stream)]) if (kernel && !hasDerivative(kernel)) fail("a potential without derivative");
  } else if (targets.length !== 1) fail("a function has one target");
  if (!slotsOf(state).some((slot) => state[slot].length)) fail("it has no kernel");
  return state;
}

function checkedKernel(read, width, fail) {
  if (read === null || typeof read !== "object" || !Object.hasOwn(KERNELS, read.kind)) fail("a kernel that is not known");
  const kernel = { kind: read.kind };
  if (read.columns !== undefined) {
    const fine = Array.isArray(read.columns) && read.columns.length && read.columns.every((k, i) => Number.isInteger(k) && k >= 0 && k < width && read.columns.indexOf(k) === i);
    kernel.columns = fine ? [...read.columns] : fail(`inputs of ${read.kind} that do not exist`);
  }
  const seen = kernel.columns?.length ?? width;
  for (const { name, choices, high } of KERNELS[read.kind].parameters) {
    const value = read[name], several = Array.isArray(value) ? value : [value];
    if (Array.isArray(value) && (name !== "lengthscale" || value.length !== seen)) fail(`${read.kind} has ${value.length} values of ${name}`);
    if (choices ? !choices.includes(value) : !several.every(positive)) fail(`${read.kind} has ${name} ${value}`);
    if (name === "power" && value > high) fail(`${read.kind} has power ${value}; it is at most ${high}`);
    kernel[name] = Array.isArray(value) ? several.map(Number) : value;
  }
  return kernel;
}

function positive(value) {
  return typeof value === "number" && Number.isFinite(value) && value > 0;
}
