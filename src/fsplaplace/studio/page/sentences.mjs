// What a prior believes, in sentences: `fsplaplace.describe`, word for word.

import { numOutputs, pairFunction, variance } from "./covariance.mjs";
import { KERNELS } from "./kernels.mjs";
import { general } from "./numbers.mjs";

// The same thresholds as in Python: a length scale this many times the range, below this share of the spacing; a size this far off.
const LONG = 3, SHORT = 0.5, FAR = 5;

/**
 * Sentences and warnings about a prior. `data` is {x, width, y} as for `condition`, or null; then `width` says how many inputs.
 */
export function describe(kernel, mean, data, width = 1) {
  const columns = data ? Array.from({ length: data.width }, (_, k) => column(data.x, data.width, k)) : null;
  const own = describeKernel(kernel, data ? data.width : width, columns);
  const size = describeSize(kernel, mean, data, data ? data.width : width);
  const structure = numOutputs(kernel) > 1 ? "2 correlated outputs" : "one output";
  return {
    sentences: [`Gaussian-process prior, ${nameOf(kernel)}; ${structure}.`, ...own.sentences, ...size.sentences],
    warnings: [...own.warnings, ...size.warnings],
  };
}

/** The kernel's name as Python's `describe` writes it. */
export function nameOf(kernel) {
  if (!kernel.parts) return kernel.kind;
  return `(${kernel.parts.map(nameOf).join(kernel.kind === "sum" ? " + " : " x ")})`;
}

/** Length scales (one for each input) and smoothness of every additive component that has a length scale. */
export function components(kernel, width) {
  if (kernel.kind === "Helmholtz") {
    return [kernel.potential, kernel.stream].filter(Boolean)
      .flatMap((base) => components(base, width).map((part) => ({ ...part, smoothness: part.smoothness - 1 })));
  }
  return factorsOf(kernel).filter((factors) => factors.length).map((factors) => ({
    lengthscales: Array.from({ length: width }, (_, k) =>
      factors.reduce((total, factor) => total + lengthscalesOf(factor, width)[k] ** -2, 0) ** -0.5),
    smoothness: Math.min(...factors.map((factor) => KERNELS[factor.kind].smoothness(factor))),
  }));
}

/** Sum of products as lists of factors; a scale-free kernel is the empty product, white noise no term. */
function factorsOf(kernel) {
  if (kernel.kind === "sum") return kernel.parts.flatMap(factorsOf);
  if (kernel.kind === "product") {
    return kernel.parts.map(factorsOf).reduce((left, right) => left.flatMap((a) => right.map((b) => [...a, ...b])), [[]]);
  }
  return { noise: [], "scale-free": [[]], scaled: [[kernel]] }[KERNELS[kernel.kind].kind];
}

function lengthscalesOf(kernel, width) {
  const known = KERNELS[kernel.kind].lengthscales;
  return known ? known(kernel, width) : probedLengthscales(kernel, width);
}

/** Distance from the origin along each axis at which the correlation falls to e^-1/2, as an RBF's does at ℓ. */
function probedLengthscales(kernel, width) {
  const count = 200, step = Math.log(1e8) / (count - 1), pair = pairFunction(kernel, width);
  const origin = new Float64Array(width);
  return Array.from({ length: width }, (_, axis) => {
    let before = null;
    for (let k = 0; k < count; k++) {
      const distance = 1e-4 * Math.exp(step * k), point = new Float64Array(width);
      point[axis] = distance;
      const correlation = pair(origin, 0, point, 0) / Math.sqrt(pair(origin, 0, origin, 0) * pair(point, 0, point, 0));
      const decay = -Math.log(Math.min(Math.max(correlation, 2.2250738585072014e-308), 1 - 2 ** -53));
      if (decay > 0.5 && before) {
        const fraction = (Math.log(0.5) - Math.log(before.decay)) / (Math.log(decay) - Math.log(before.decay));
        return before.distance * Math.exp(step * Math.min(Math.max(fraction, 0), 1));
      }
      before = { distance, decay };
    }
    return Infinity;
  });
}

function describeKernel(kernel, width, columns) {
  const sentences = [], warnings = [];
  const ranges = columns && columns.map((values) => Math.max(...values) - Math.min(...values));
  const parts = components(kernel, width);
  parts.forEach(({ lengthscales: row, smoothness }, index) => {
    const label = parts.length > 1 ? `component ${index + 1}: ` : "";
    sentences.push(`${label}functions change over a distance of about ${several(row)}; they are ${inWords(smoothness)}.`);
    if (columns) warnings.push(...againstData(row, columns, ranges, label));
  });
  for (const periodic of periodicParts(kernel)) {
    const { period } = periodic;
    sentences.push(`functions repeat with period ${general(period, 4)}.`);
    const longest = ranges && Math.max(...ranges);
    if (ranges && period > longest) {
      warnings.push(
        `the period ${general(period, 3)} is longer than the data's range of ${general(longest, 3)}, which then shows no repetition`,
      );
    }
  }
  return { sentences, warnings };
}

function againstData(row, columns, ranges, label) {
  const warnings = [];
  const varying = row.map((scale, k) => ranges[k] > 0 && Number.isFinite(scale));
  row.forEach((scale, k) => {
    if (!varying[k] || !(scale > LONG * ranges[k])) return;
    warnings.push(
      `${label}the length scale ${general(scale, 3)} along column ${k} is ${general(scale / ranges[k], 3)} ` +
      `times the data's range of ${general(ranges[k], 3)}: there functions are almost straight lines`,
    );
  });
  if (columns.length === 1 && varying[0]) {
    const spacing = spacingOf(columns[0]);
    if (row[0] < SHORT * spacing) {
      warnings.push(
        `${label}the length scale ${general(row[0], 3)} is shorter than the distance between neighbouring inputs, about ` +
        `${general(spacing, 3)}: data cannot tell functions from noise`,
      );
    }
  }
  if (columns.length > 1 && varying.some(Boolean) && row.every((scale, k) => !varying[k] || scale < 0.02 * ranges[k])) {
    warnings.push(`${label}every length scale is below 2 % of the data's range: most pairs of inputs are uncorrelated`);
  }
  return warnings;
}

function describeSize(kernel, mean, data, width) {
  const outputs = numOutputs(kernel);
  const variances = variance(kernel, width, data ? data.x : new Float64Array(width));
  const std = perOutput(variances, outputs).map((values) => Math.sqrt(average(values)));
  const centre = mean.some((value) => value !== 0) ? `the mean is about ${several(mean)}` : "the mean is zero";
  const sentences = [`${centre}; 95 % of values lie within ${several(std.map((value) => 2 * value))} of it.`], warnings = [];
  if (!data) return { sentences, warnings };
  const targets = perOutput(data.y, outputs);
  const spread = targets.map((values) => Math.sqrt(average(values.map((value) => (value - average(values)) ** 2))));
  sentences.push(`prior standard deviation ${several(std)}, the data's ${several(spread)}.`);
  std.forEach((own, output) => {
    const label = outputs > 1 ? `output ${output}: ` : "", theirs = spread[output];
    const gap = Math.abs(average(targets[output].map((value) => value - mean[output])));
    if (own < theirs / FAR) warnings.push(`${label}the prior's standard deviation ${general(own, 3)} is far below the data's ${general(theirs, 3)}`);
    if (own > 2 * FAR * theirs) warnings.push(`${label}the prior's standard deviation ${general(own, 3)} is far above the data's ${general(theirs, 3)}`);
    if (gap > 2 * own) {
      warnings.push(
        `${label}the data's mean is ${general(gap, 3)} away from the prior's, ${general(gap / own, 2)} prior standard deviations: ` +
        "centre y, or give the prior a mean",
      );
    }
  });
  return { sentences, warnings };
}

function periodicParts(kernel) {
  if (kernel.kind === "Helmholtz") return [kernel.potential, kernel.stream].filter(Boolean).flatMap(periodicParts);
  if (kernel.parts) return kernel.parts.flatMap(periodicParts);
  return kernel.kind === "Periodic" ? [kernel] : [];
}

function inWords(order) {
  if (order === Infinity) return "infinitely smooth";
  const times = Math.ceil(order) - 1;
  if (times < 0) return "not continuous";
  return ["continuous but rough (no derivative)", "once differentiable", "twice differentiable"][times] ?? `${times} times differentiable`;
}

/** One number, a few, or their range. */
function several(values) {
  const [first] = values;
  const near = (value) => value === first || (Number.isFinite(first) && Math.abs(value - first) <= 1e-8 + 1e-5 * Math.abs(first));
  if (values.every(near)) return general(first, 3);
  if (values.length <= 4) return `(${values.map((value) => general(value, 3)).join(", ")})`;
  return `${general(Math.min(...values), 3)} to ${general(Math.max(...values), 3)} (median ${general(median(values), 3)})`;
}

/** The median distance between neighbours. */
export function spacingOf(values) {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  return sorted.length > 1 ? median(sorted.slice(1).map((value, k) => value - sorted[k])) : 0;
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : 0.5 * (sorted[middle - 1] + sorted[middle]);
}

function average(values) {
  let total = 0;
  for (const value of values) total += value;
  return total / values.length;
}

function perOutput(values, outputs) {
  return Array.from({ length: outputs }, (_, q) => Array.from({ length: values.length / outputs }, (_, i) => values[i * outputs + q]));
}

/** One column of a table of numbers stored row after row. */
export function column(x, width, k) {
  return Array.from({ length: x.length / width }, (_, i) => x[i * width + k]);
}
