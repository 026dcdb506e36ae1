// The best parameters of a kernel for the data on the page, within bounds that fit them.

import { bestPeriod, fitByEvidence } from "./fit.mjs";
import { rounded } from "./numbers.mjs";
import { logEvidence } from "./process.mjs";

const breath = () => new Promise((resolve) => setTimeout(resolve, 0));

/**
 * Fits a kernel: {kernel, noise, mean, logEvidence, steps}, rounded to five digits, so that what is shown is what is computed with.
 * The page stays alive in between; `token.stopped` ends the search, `progress(steps, value)` hears of every step.
 */
export async function bestParameters(kernel, { summary, rows, state }, token, progress = () => {}) {
  const size = summary.size ** 2, shortest = Math.min(...summary.spacing);
  const limits = (name, value) => ({
    noise: [1e-3 * summary.size, 3 * summary.size],
    lengthscale: [value / 300, value * 300],
    period: [Math.max(value / 20, 2 * shortest), value * 20],
    power: [0.2, 2],
    alpha: [0.02, 100],
  })[name] ?? [Math.min(value, size) * 1e-5, Math.max(value, size) * 1e5];
  const start = bestPeriod(kernel, rows, state.mean, Math.max(state.noise, 0.2 * summary.size), summary);
  const pause = async (steps, value) => {
    progress(steps, value);
    await breath();
    return !token.stopped;
  };
  const found = await fitByEvidence({ kernel: start, noise: state.noise, data: rows, limits, pause });
  const tidied = { kernel: tidy(found.kernel), noise: rounded(found.noise, 5), mean: found.mean.map((value) => rounded(value, 6)), steps: found.steps };
  return { ...tidied, logEvidence: logEvidence(tidied.kernel, rows, tidied.mean, tidied.noise ** 2) };
}

/** The kernel with all its numbers rounded. */
function tidy(value, name = "") {
  if (typeof value === "number") return rounded(value, 5);
  if (name === "columns" || value === null || typeof value === "string") return value;
  if (Array.isArray(value)) return value.map((part) => tidy(part));
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, tidy(part, key)]));
}
