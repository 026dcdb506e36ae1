// Covariance matrices of kernels, their sums and products, and of the Helmholtz kernel.

import { helmholtzPair } from "./helmholtz.mjs";
import { KERNELS } from "./kernels.mjs";

/** How many values a function with this kernel has at a point: two for a vector field. */
export function numOutputs(kernel) {
  return kernel.kind === "Helmholtz" ? 2 : 1;
}

/** k(x, y) of a scalar kernel as a function of two arrays of points and the offsets of two rows. */
export function pairFunction(kernel, width) {
  if (kernel.kind === "sum" || kernel.kind === "product") {
    const parts = kernel.parts.map((part) => pairFunction(part, width));
    if (parts.length === 1) return parts[0];
    if (kernel.kind === "sum") {
      return (a, i, b, j) => {
        let total = 0;
        for (let p = 0; p < parts.length; p++) total += parts[p](a, i, b, j);
        return total;
      };
    }
    return (a, i, b, j) => {
      let total = 1;
      for (let p = 0; p < parts.length; p++) total *= parts[p](a, i, b, j);
      return total;
    };
  }
  return KERNELS[kernel.kind].pair(kernel, width);
}

/**
 * The matrix of all pairs of rows of `x` (n points of `width` numbers) and `y` (by default `x`, then symmetric).
 * A vector field gives 2n x 2m, the two components of a point side by side. Cost: one kernel value for each pair.
 */
export function covariance(kernel, width, x, y = x) {
  const n = x.length / width, m = y.length / width;
  const symmetric = x === y;
  if (kernel.kind === "Helmholtz") return fieldCovariance(kernel, x, y, n, m);
  const pair = pairFunction(kernel, width);
  const values = new Float64Array(n * m);
  for (let i = 0; i < n; i++) {
    const last = symmetric ? i + 1 : m;
    for (let j = 0; j < last; j++) values[i * m + j] = pair(x, i * width, y, j * width);
  }
  if (symmetric) for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) values[j * m + i] = values[i * m + j];
  return values;
}

/** The diagonal of `covariance(kernel, width, x)`. */
export function variance(kernel, width, x) {
  const n = x.length / width;
  if (kernel.kind === "Helmholtz") {
    const pair = helmholtzPair(kernel), block = new Float64Array(4), values = new Float64Array(2 * n);
    for (let i = 0; i < n; i++) {
      pair(x, 2 * i, x, 2 * i, block);
      values[2 * i] = block[0];
      values[2 * i + 1] = block[3];
    }
    return values;
  }
  const pair = pairFunction(kernel, width);
  return Float64Array.from({ length: n }, (_, i) => pair(x, i * width, x, i * width));
}

function fieldCovariance(kernel, x, y, n, m) {
  const pair = helmholtzPair(kernel), block = new Float64Array(4);
  const values = new Float64Array(4 * n * m), columns = 2 * m;
  const symmetric = x === y;
  for (let i = 0; i < n; i++) {
    const last = symmetric ? i + 1 : m;
    for (let j = 0; j < last; j++) {
      pair(x, 2 * i, y, 2 * j, block);
      for (let a = 0; a < 2; a++) {
        for (let b = 0; b < 2; b++) {
          values[(2 * i + a) * columns + 2 * j + b] = block[2 * a + b];
          if (symmetric) values[(2 * j + b) * columns + 2 * i + a] = block[2 * a + b];
        }
      }
    }
  }
  return values;
}
