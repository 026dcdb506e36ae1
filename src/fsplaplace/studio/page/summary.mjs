// What data say about sizes: ranges, spacings and spreads, from which every slider gets its first value and its limits.

import { KERNELS } from "./kernels.mjs";
import { rounded } from "./numbers.mjs";
import { column, median, spacingOf } from "./sentences.mjs";

// A slider goes this many times below and above its first value.
const DOWN = 100, UP = 30;

/** The summary of rows {x, width, y}, inputs measured in `units`; without data, one input from 0 to 10 and targets of size one. */
export function summarise(rows, inputs = [], targets = [], units = inputs) {
  if (!rows) return { inputs: ["x"], units: ["x"], targets: ["y"], width: 1, low: [0], high: [10], middle: [5], range: [10], size: 1, mean: [0], meanSquare: 33, spacing: [0.5] };
  const columns = inputs.map((_, k) => column(rows.x, rows.width, k));
  const outputs = targets.map((_, q) => column(rows.y, targets.length, q));
  const low = columns.map((values) => Math.min(...values)), high = columns.map((values) => Math.max(...values));
  const average = (values) => values.reduce((total, value) => total + value, 0) / values.length;
  const mean = outputs.map(average);
  const squares = outputs.map((values, q) => average(values.map((value) => (value - mean[q]) ** 2)));
  const perRow = columns[0].map((_, i) => columns.reduce((total, values) => total + values[i] ** 2, 0));
  return {
    inputs, units, targets, width: inputs.length, low, high, mean: mean.map((value) => rounded(value)),
    middle: columns.map((values) => median(values)),
    range: low.map((least, k) => high[k] - least || 1),
    // A constant target has no spread; one is as good a guess as any.
    size: Math.sqrt(average(squares)) || 1,
    meanSquare: average(perRow) || 1,
    spacing: columns.map((values, k) => spacingOf(values) || (high[k] - low[k]) / 20 || 0.05),
  };
}

/** The plane of a vector field without data. */
export function emptyPlane() {
  return { inputs: ["x", "y"], units: ["x", "y"], targets: ["east", "north"], width: 2, low: [-2, -2], high: [2, 2], middle: [0, 0], range: [4, 4], size: 1, mean: [0, 0], meanSquare: 2.7, spacing: [0.2, 0.2] };
}

/**
 * The kernel of this kind with first values for its parameters. `factor` says that it multiplies another kernel, which has the
 * size already; `field` that it is the kernel of a potential, whose derivative is the data.
 */
export function firstKernel(kind, summary, { factor = false, field = false, slow = false } = {}) {
  const first = firstValues(kind, summary, { factor, field });
  const kernel = { kind };
  for (const parameter of KERNELS[kind].parameters) {
    const round = isSquare(parameter) ? (value) => rounded(rounded(Math.sqrt(value), 3) ** 2, 8) : (value) => rounded(value, 3);
    const value = first[parameter.name];
    kernel[parameter.name] = Array.isArray(value) ? value.map(round) : round(value);
  }
  if (slow) kernel.lengthscale = Array.isArray(kernel.lengthscale) ? kernel.lengthscale.map((v) => rounded(5 * v, 3)) : rounded(5 * kernel.lengthscale, 3);
  return kernel;
}

/** First values by parameter: a fifth of the range for length scales, a quarter for periods, the targets' spread for sizes. */
export function firstValues(kind, summary, { factor, field }) {
  const { size, meanSquare, range, width } = summary;
  const lengths = range.map((span) => (span / 5) * Math.sqrt(width));
  const isotropic = field || width === 1;
  const length = field ? Math.sqrt(lengths[0] * lengths[lengths.length - 1]) : lengths[0];
  // The gradient of a function of variance v and length scale ℓ has variance v / ℓ²; two potentials share it.
  const amplitude = factor ? 1 : field ? (size * length) ** 2 / 2 : size ** 2;
  const degree = 2;
  const values = { lengthscale: isotropic ? length : lengths, variance: amplitude, period: Math.max(...range) / 4, alpha: 1, power: 1.5, constant: amplitude, degree, order: 1, bias_variance: 1, weight_variance: 10 / Math.max(...range) ** 2 };
  if (kind === "Periodic") values.lengthscale = 1;
  if (kind === "Linear") values.variance = (factor ? 1 : size ** 2) / meanSquare;
  if (kind === "Polynomial") {
    values.shift = factor ? 1 : size ** (2 / degree) / 2;
    values.variance = values.shift / meanSquare;
  }
  return values;
}

/** Lowest and highest value of a slider for the k-th number of a parameter. */
export function sliderLimits(kernel, parameter, k, summary, places) {
  if (parameter.low) return [parameter.low, parameter.high];
  const first = firstValues(kernel.kind, summary, places)[parameter.name];
  const middle = Array.isArray(first) ? first[k] : first;
  // A variance is shown as a standard deviation, which needs the square of the span.
  const power = isSquare(parameter) ? 2 : 1;
  return [middle / DOWN ** power, middle * UP ** power];
}

/** Whether a parameter is shown as its square root, in units that a person knows. */
export function isSquare(parameter) {
  return parameter.unit.startsWith("y²");
}
