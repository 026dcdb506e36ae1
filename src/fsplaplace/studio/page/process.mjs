// The Gaussian process itself: functions drawn from it, its log evidence, and its exact posterior.

import { covariance, numOutputs, variance } from "./covariance.mjs";
import { cholesky, dot, lowerTimes, solveLower, solveUpper } from "./matrix.mjs";

// Directions of a draw below this share of the variance are not seen.
const DRAW_JITTER = 1e-9;

/**
 * A factor F of the covariance at points, F Fᵀ = Σ, to be multiplied with white noise that stays the same while a kernel's
 * parameters move. Points are eliminated from coarse to fine: from left to right, a smooth kernel would predict the right end
 * from the left, and a small step of a slider would change it wildly.
 */
export function drawFactor(matrix, numPoints, outputs = 1) {
  const order = coarseToFine(numPoints), n = numPoints * outputs;
  const rows = order.flatMap((point) => Array.from({ length: outputs }, (_, q) => point * outputs + q));
  const permuted = new Float64Array(n * n);
  for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) permuted[i * n + j] = matrix[rows[i] * n + rows[j]];
  const { lower, jitter } = cholesky(permuted, n, DRAW_JITTER);
  return { lower, rows, n, jitter };
}

/** The function that white noise (n numbers) becomes. Cost: n² / 2. */
export function drawFrom(factor, noise) {
  const values = lowerTimes(factor.lower, factor.n, noise), function_ = new Float64Array(factor.n);
  factor.rows.forEach((row, i) => (function_[row] = values[i]));
  return function_;
}

/** 0 ... n - 1, first the two ends and the middle, then the middles of what is between, and so on. */
export function coarseToFine(n) {
  const order = [], seen = new Uint8Array(n);
  const take = (index) => {
    if (!seen[index]) {
      seen[index] = 1;
      order.push(index);
    }
  };
  if (n) take(0);
  if (n > 1) take(n - 1);
  for (let parts = 2; order.length < n; parts *= 2) {
    for (let k = 1; k < parts; k += 2) take(Math.round((k * (n - 1)) / parts));
  }
  return order;
}

/**
 * The data's covariance factored: what evidence and posterior need.
 * `data` is {x, width, y}: rows of inputs, and targets with the outputs of a row side by side; `mean` is one number for each output.
 */
export function condition(kernel, data, mean, noiseVariance) {
  const outputs = numOutputs(kernel), n = data.y.length;
  const matrix = covariance(kernel, data.width, data.x);
  for (let i = 0; i < n; i++) matrix[i * n + i] += noiseVariance;
  const { lower, jitter } = cholesky(matrix, n);
  const residual = data.y.map((value, i) => value - mean[i % outputs]);
  const white = solveLower(lower, n, residual);
  let logDeterminant = 0;
  for (let i = 0; i < n; i++) logDeterminant += 2 * Math.log(lower[i * n + i]);
  const logEvidence = -0.5 * (dot(white, 0, white, 0, n) + logDeterminant + n * Math.log(2 * Math.PI));
  return { kernel, data, mean, outputs, n, lower, jitter, weights: solveUpper(lower, n, white), logEvidence };
}

/** log N(y; mean, K + σ² I). Cost: n³ / 3 multiplications. */
export function logEvidence(kernel, data, mean, noiseVariance) {
  return condition(kernel, data, mean, noiseVariance).logEvidence;
}

/**
 * Mean and variance of the function (without noise) at points, given the data; with `joint` also the covariance between points.
 * Cost: n² / 2 for each value at a point, and n for each entry of the joint covariance.
 */
export function posterior(given, points, joint = false) {
  const { kernel, data, mean, outputs, n, lower, weights } = given;
  const cross = covariance(kernel, data.width, points, data.x);
  const rows = cross.length / n;
  const features = solveLower(lower, n, cross, rows);
  const own = variance(kernel, data.width, points);
  const result = { mean: new Float64Array(rows), variance: new Float64Array(rows), covariance: null };
  for (let i = 0; i < rows; i++) {
    result.mean[i] = mean[i % outputs] + dot(cross, i * n, weights, 0, n);
    result.variance[i] = Math.max(own[i] - dot(features, i * n, features, i * n, n), 0);
  }
  if (joint) {
    const matrix = covariance(kernel, data.width, points);
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j <= i; j++) {
        matrix[i * rows + j] -= dot(features, i * n, features, j * n, n);
        matrix[j * rows + i] = matrix[i * rows + j];
      }
    }
    result.covariance = matrix;
  }
  return result;
}
