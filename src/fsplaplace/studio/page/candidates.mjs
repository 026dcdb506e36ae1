// Kernels to compare by their evidence, each with the length scale, size and noise that the sliders have now.

import { KERNELS } from "./kernels.mjs";
import { kernelOf, slotsOf, sumOf } from "./state.mjs";
import { firstKernel } from "./summary.mjs";

const SUMS = [[["Linear"], ["Matern32"]], [["RBF"], ["Periodic"]], [["RBF", "Periodic"]], [["Linear"], ["RBF", "Periodic"]]];
const NOT_ALONE = ["Constant", "White"];
const SMOOTH = ["RBF", "Matern52", "Matern32"];

/** The candidates: [{id, name, word, kernel}], the state's own kernel first. */
export function candidates(state, summary) {
  const own = { id: "current", name: "as built now", word: "", kernel: kernelOf(state) };
  return [own, ...(state.mode === "field" ? fields(state, summary) : functions(state, summary))];
}

function functions(state, summary) {
  const known = parametersOf(state);
  const make = (terms) => sumOf(terms.map((kinds) => kinds.map((kind, f) => with_(firstKernel(kind, summary, { factor: f > 0 }), known, f > 0, terms.length))));
  const single = Object.keys(KERNELS).filter((kind) => !NOT_ALONE.includes(kind))
    .map((kind) => ({ id: kind, name: kind, word: KERNELS[kind].word, kernel: make([[kind]]) }));
  const several = SUMS.map((terms) => {
    const name = terms.map((kinds) => kinds.join(" × ")).join(" + ");
    return { id: name, name, word: "", kernel: make(terms) };
  });
  return [...single, ...several];
}

function fields(state, summary) {
  const known = parametersOf(state);
  const make = (kind) => with_(firstKernel(kind, summary, { field: true }), known, false, 1);
  return SMOOTH.flatMap((kind) => [
    { id: `${kind} both`, name: `${kind}, both parts`, word: "sources and swirls", kernel: { kind: "Helmholtz", potential: make(kind), stream: make(kind) } },
    { id: `${kind} stream`, name: `${kind}, stream only`, word: "swirls only", kernel: { kind: "Helmholtz", potential: null, stream: make(kind) } },
    { id: `${kind} potential`, name: `${kind}, potential only`, word: "sources only", kernel: { kind: "Helmholtz", potential: make(kind), stream: null } },
  ]);
}

/** The first length scale, size and period among the state's kernels that see all inputs. */
function parametersOf(state) {
  const kernels = slotsOf(state).flatMap((slot) => state[slot]).flat().filter((kernel) => !kernel.columns);
  const first = (name, fits) => kernels.find((kernel) => name in kernel && fits(kernel))?.[name];
  return {
    lengthscale: first("lengthscale", ({ kind }) => kind !== "Periodic"),
    variance: first("variance", ({ kind }) => !["Linear", "Polynomial", "White"].includes(kind)),
    period: first("period", () => true),
  };
}

/** The kernel with those of the known numbers that mean the same in it; the terms of a sum share the variance. */
function with_(kernel, known, factor, terms) {
  const changed = { ...kernel };
  const free = ["Linear", "Polynomial"].includes(kernel.kind);
  if ("lengthscale" in kernel && kernel.kind !== "Periodic" && known.lengthscale) changed.lengthscale = structuredClone(known.lengthscale);
  if ("variance" in kernel && !free && !factor && known.variance) changed.variance = known.variance / terms;
  if ("period" in kernel && known.period) changed.period = known.period;
  return changed;
}
