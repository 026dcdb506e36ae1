// Fit by evidence: the parameters that make the data most likely, by BFGS on their logarithms.

import { covariance, numOutputs } from "./covariance.mjs";
import { KERNELS } from "./kernels.mjs";
import { logEvidence } from "./process.mjs";
import { NotPositiveDefinite, cholesky, dot, inverseFromFactor, solveLower, solveUpper } from "./matrix.mjs";

const STEP = 1e-4, MOST_STEPS = 60, FLAT = 1e-4;

/**
 * Maximises the log evidence over every positive parameter of the kernel, the noise and the (constant) mean.
 *
 * The mean has a closed form at every step (generalised least squares). The gradient needs one inverse and, for each parameter,
 * two kernel matrices: ½ Σ (α αᵀ - C⁻¹)_ij ∂C_ij/∂θ. `limits(name, value)` gives the bounds of a parameter; `pause` is awaited
 * between steps, so that the page stays alive, and returns false to stop. Returns {kernel, noise, mean, logEvidence, steps}.
 */
export async function fitByEvidence({ kernel, noise, data, limits, pause }) {
  const places = parameterPlaces(kernel);
  const start = [...places.map((place) => place.get(kernel)), noise];
  const bounds = [...places.map((place, k) => limits(place.name, start[k])), limits("noise", noise)];
  const low = bounds.map(([least]) => Math.log(least)), high = bounds.map(([, most]) => Math.log(most));
  const clip = (point) => point.map((value, k) => Math.min(Math.max(value, low[k]), high[k]));
  const at = (point) => places.reduce((tree, place, k) => place.set(tree, Math.exp(point[k])), kernel);
  const value = (point) => profile(at(point), data, Math.exp(2 * point[point.length - 1]));

  let point = clip(start.map(Math.log)), now = value(point);
  if (!now) throw new NotPositiveDefinite("the fit cannot start here: the covariance matrix is not positive definite; try more noise");
  let slope = gradient(point, now, at, data), metric = identity(point.length), steps = 0;
  for (; steps < MOST_STEPS; steps++) {
    if (!(await pause(steps, now.logEvidence))) break;
    // A parameter at its bound that would leave it is held; the others move.
    const held = point.map((x, k) => (x <= low[k] && slope[k] < 0) || (x >= high[k] && slope[k] > 0));
    const free = slope.map((g, k) => (held[k] ? 0 : g));
    let direction = metric.map((row, i) => (held[i] ? 0 : dot(row, 0, free, 0, free.length)));
    if (!(dot(direction, 0, free, 0, free.length) > 0)) {
      metric = identity(point.length);
      direction = free;
    }
    const longest = Math.max(...direction.map(Math.abs));
    if (!(longest > 1e-9)) break;
    let length = Math.min(1, 1.5 / longest), next = null, moved = null;
    for (let halvings = 0; halvings < 12 && !next; halvings++, length *= 0.35) {
      moved = clip(point.map((x, k) => x + length * direction[k]));
      const tried = value(moved);
      if (tried && tried.logEvidence > now.logEvidence) next = tried;
    }
    if (!next) break;
    const gain = next.logEvidence - now.logEvidence;
    const newSlope = gradient(moved, next, at, data);
    metric = bfgs(metric, moved.map((x, k) => x - point[k]), newSlope.map((g, k) => slope[k] - g));
    [point, slope, now] = [moved, newSlope, next];
    if (gain < FLAT) break;
  }
  return { kernel: at(point), noise: Math.exp(point[point.length - 1]), mean: now.mean, logEvidence: now.logEvidence, steps };
}

/**
 * The kernel with the best of 40 periods between twice the spacing of the data and their range: the evidence has a peak at
 * every multiple of a period, and a search from elsewhere ends on the nearest one. Kernels without a period come back as they are.
 */
export function bestPeriod(kernel, data, mean, noise, { spacing, range }) {
  const place = parameterPlaces(kernel).find(({ name }) => name === "period");
  if (!place) return kernel;
  const shortest = Math.log(2.5 * Math.min(...spacing)), longest = Math.log(Math.max(...range));
  const tries = [kernel, ...Array.from({ length: 40 }, (_, k) => place.set(kernel, Math.exp(shortest + ((longest - shortest) * k) / 39)))];
  const few = thinned(data, numOutputs(kernel));
  const values = tries.map((tried) => evidenceOr(tried, few, mean, noise));
  return tries[values.indexOf(Math.max(...values))];
}

/** Every so many-th row, at most 120: enough to tell periods apart. */
function thinned({ x, width, y }, outputs) {
  const rows = y.length / outputs, step = Math.ceil(rows / 120);
  const kept = (values, size) => Float64Array.from({ length: Math.ceil(rows / step) * size }, (_, i) => values[Math.floor(i / size) * step * size + (i % size)]);
  return { x: kept(x, width), width, y: kept(y, outputs) };
}

function evidenceOr(kernel, data, mean, noise) {
  try {
    return logEvidence(kernel, data, mean, noise ** 2);
  } catch (error) {
    if (error instanceof NotPositiveDefinite) return -Infinity;
    throw error;
  }
}

/** The log evidence with the best constant mean, and what its gradient needs; null where the matrix has no factor. */
function profile(kernel, data, noiseVariance) {
  const n = data.y.length, outputs = numOutputs(kernel);
  const matrix = covariance(kernel, data.width, data.x);
  for (let i = 0; i < n; i++) matrix[i * n + i] += noiseVariance;
  let lower;
  try {
    lower = cholesky(matrix, n).lower;
  } catch (error) {
    if (error instanceof NotPositiveDefinite) return null;
    throw error;
  }
  // One column of ones for each output, orthogonalised in turn; with two outputs the mean is found one after the other twice.
  const white = solveLower(lower, n, data.y), mean = new Array(outputs).fill(0);
  const ones = mean.map((_, q) => solveLower(lower, n, Float64Array.from({ length: n }, (_, i) => (i % outputs === q ? 1 : 0))));
  for (let sweep = 0; sweep < (outputs > 1 ? 20 : 1); sweep++) {
    ones.forEach((column, q) => {
      const move = dot(column, 0, white, 0, n) / dot(column, 0, column, 0, n);
      mean[q] += move;
      for (let i = 0; i < n; i++) white[i] -= move * column[i];
    });
  }
  let logDeterminant = 0;
  for (let i = 0; i < n; i++) logDeterminant += 2 * Math.log(lower[i * n + i]);
  const logEvidence = -0.5 * (dot(white, 0, white, 0, n) + logDeterminant + n * Math.log(2 * Math.PI));
  return Number.isFinite(logEvidence) ? { logEvidence, mean, lower, weights: solveUpper(lower, n, white) } : null;
}

function gradient(point, { lower, weights }, at, data) {
  const n = data.y.length, sensitivity = inverseFromFactor(lower, n);
  for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) sensitivity[i * n + j] = weights[i] * weights[j] - sensitivity[i * n + j];
  const last = point.length - 1, noiseVariance = Math.exp(2 * point[last]);
  let trace = 0;
  for (let i = 0; i < n; i++) trace += sensitivity[i * n + i];
  return point.map((_, k) => {
    if (k === last) return noiseVariance * trace;
    const moved = (step) => covariance(at(point.map((x, j) => (j === k ? x + step : x))), data.width, data.x);
    const up = moved(STEP), down = moved(-STEP);
    let total = 0;
    for (let i = 0; i < n * n; i++) total += sensitivity[i] * (up[i] - down[i]);
    return (0.5 * total) / (2 * STEP);
  });
}

/** The inverse Hessian after a step in the point and a change of the (negated) slope. */
function bfgs(metric, step, change) {
  const n = step.length, curvature = dot(step, 0, change, 0, n);
  if (!(curvature > 1e-12)) return metric;
  const image = metric.map((row) => dot(row, 0, change, 0, n));
  const size = 1 + dot(change, 0, image, 0, n) / curvature;
  return metric.map((row, i) => row.map((h, j) => h + (size * step[i] * step[j] - image[i] * step[j] - step[i] * image[j]) / curvature));
}

function identity(n) {
  return Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => (i === j ? 1 : 0)));
}

/** Where the positive numbers of a kernel are: `get(kernel)` reads one, `set(kernel, value)` is a kernel with it changed. */
export function parameterPlaces(kernel) {
  if (kernel.parts) {
    return kernel.parts.flatMap((part, index) => {
      const found = within(part, (tree) => tree.parts[index], (tree, changed) => ({ ...tree, parts: tree.parts.with(index, changed) }));
      // The sizes of a product's factors only multiply each other: the first has all of it.
      const again = kernel.kind === "product" && index > 0 && !part.parts && part.kind !== "Polynomial";
      return again ? found.filter(({ name }) => !["variance", "constant"].includes(name)) : found;
    });
  }
  if (kernel.kind === "Helmholtz") {
    return ["potential", "stream"].filter((name) => kernel[name])
      .flatMap((name) => within(kernel[name], (tree) => tree[name], (tree, changed) => ({ ...tree, [name]: changed })));
  }
  return KERNELS[kernel.kind].parameters.filter(({ choices }) => !choices).flatMap(({ name }) => {
    if (!Array.isArray(kernel[name])) return [{ name, get: (tree) => tree[name], set: (tree, value) => ({ ...tree, [name]: value }) }];
    return kernel[name].map((_, k) => ({ name, get: (tree) => tree[name][k], set: (tree, value) => ({ ...tree, [name]: tree[name].with(k, value) }) }));
  });
}

function within(part, read, replace) {
  return parameterPlaces(part).map(({ name, get, set }) => ({
    name,
    get: (tree) => get(read(tree)),
    set: (tree, value) => replace(tree, set(read(tree), value)),
  }));
}
