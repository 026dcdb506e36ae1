// The numbers behind the two pictures: functions drawn from the prior, its band, and the posterior beside it.

import { covariance, numOutputs, variance } from "./covariance.mjs";
import { condition, drawFactor, drawFrom, posterior } from "./process.mjs";
import { normals } from "./random.mjs";
import { kernelOf } from "./state.mjs";

// Points along the line that functions are drawn at, and points along each side of a vector field.
export const LINE_POINTS = 200;
export const FIELD_POINTS = 13;
// Share of the data's range that is shown beyond it on each side.
const BEYOND = 0.12;

/**
 * Everything to draw for a state: {points, prior: {mean, sd, factor}, posterior or null, given or null, fault}.
 * `fault` says in words what could not be computed. Cost at 200 points and 200 rows: about ten million multiplications.
 */
export function computePicture(state, summary, rows) {
  const kernel = kernelOf(state), field = state.mode === "field";
  const { points, numPoints } = field ? planePoints(summary) : linePoints(state, summary);
  const outputs = numOutputs(kernel), mean = state.mean;
  const picture = { points, numPoints, outputs, kernel, prior: null, posterior: null, given: null, fault: null };
  try {
    const own = variance(kernel, summary.width, points);
    picture.prior = {
      mean: Float64Array.from(own, (_, i) => mean[i % outputs]),
      sd: own.map((value) => Math.sqrt(Math.max(value, 0))),
      factor: drawFactor(covariance(kernel, summary.width, points), numPoints, outputs),
    };
    if (rows) {
      picture.given = condition(kernel, rows, mean, state.noise ** 2);
      const found = posterior(picture.given, points, true);
      picture.posterior = { mean: found.mean, sd: found.variance.map(Math.sqrt), factor: drawFactor(found.covariance, numPoints, outputs) };
    }
  } catch (error) {
    picture.fault = error.message;
  }
  return picture;
}

/** `count` functions of a part of a picture; `turn` (radians) moves through the functions without a jump. */
export function functionsOf(part, count, seed, turn = 0) {
  const n = part.mean.length, cos = Math.cos(turn), sin = Math.sin(turn);
  return Array.from({ length: count }, (_, k) => {
    const here = normals(seed * 1000 + 2 * k, n), there = turn ? normals(seed * 1000 + 2 * k + 1, n) : null;
    const noise = there ? here.map((value, i) => cos * value + sin * there[i]) : here;
    return drawFrom(part.factor, noise).map((value, i) => value + part.mean[i]);
  });
}

function linePoints(state, summary) {
  const { axis, at } = state, { width } = summary;
  const span = summary.high[axis] - summary.low[axis] || 1;
  const low = summary.low[axis] - BEYOND * span, high = summary.high[axis] + BEYOND * span;
  const points = new Float64Array(LINE_POINTS * width);
  for (let i = 0; i < LINE_POINTS; i++) {
    for (let k = 0; k < width; k++) points[i * width + k] = k === axis ? low + ((high - low) * i) / (LINE_POINTS - 1) : at[k];
  }
  return { points, numPoints: LINE_POINTS };
}

function planePoints(summary) {
  const points = [];
  const place = (k, i) => summary.low[k] - 0.05 * summary.range[k] + (1.1 * summary.range[k] * i) / (FIELD_POINTS - 1);
  for (let j = 0; j < FIELD_POINTS; j++) for (let i = 0; i < FIELD_POINTS; i++) points.push(place(0, i), place(1, j));
  return { points: Float64Array.from(points), numPoints: FIELD_POINTS ** 2 };
}
