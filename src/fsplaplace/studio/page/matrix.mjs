// Dense linear algebra: matrices are Float64Arrays, row after row.

// Added to the diagonal, as a share of its mean, until a Cholesky factor exists; rounding needs no more than the first few.
const JITTERS = [0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4];

/** A matrix has no Cholesky factor, whatever the jitter. */
export class NotPositiveDefinite extends Error {}

/**
 * Lower Cholesky factor L of A + jitter mean(diag A) I, with the smallest jitter (from `least` on) that works.
 * Returns {lower, jitter}; `lower` has zeros above the diagonal. Cost: n³ / 3 multiplications for each jitter tried.
 */
export function cholesky(matrix, n, least = 0) {
  let mean = 0;
  for (let i = 0; i < n; i++) mean += matrix[i * n + i] / n;
  if (!Number.isFinite(mean)) throw new NotPositiveDefinite("the covariance matrix has values that are not finite");
  for (const jitter of JITTERS) {
    if (jitter < least) continue;
    const lower = attempt(matrix, n, jitter * mean);
    if (lower) return { lower, jitter };
  }
  throw new NotPositiveDefinite("the covariance matrix is not positive definite, even with 1e-4 of its mean added to its diagonal");
}

function attempt(matrix, n, nugget) {
  const lower = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    const row = i * n;
    for (let j = 0; j < i; j++) {
      lower[row + j] = (matrix[row + j] - dot(lower, row, lower, j * n, j)) / lower[j * n + j];
    }
    const pivot = matrix[row + i] + nugget - dot(lower, row, lower, row, i);
    if (!(pivot > 0)) return null;
    lower[row + i] = Math.sqrt(pivot);
  }
  return lower;
}

/** Sum of a[i + k] b[j + k] for k below `count`; four partial sums, because one would wait for each addition. */
export function dot(a, i, b, j, count) {
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0, k = 0;
  for (; k + 3 < count; k += 4) {
    s0 += a[i + k] * b[j + k];
    s1 += a[i + k + 1] * b[j + k + 1];
    s2 += a[i + k + 2] * b[j + k + 2];
    s3 += a[i + k + 3] * b[j + k + 3];
  }
  for (; k < count; k++) s0 += a[i + k] * b[j + k];
  return s0 + s1 + (s2 + s3);
}

/** L⁻¹ b for each of `count` right-hand sides b, which are the rows of `rights`. Cost: n² / 2 each. */
export function solveLower(lower, n, rights, count = 1) {
  const solved = new Float64Array(count * n);
  for (let r = 0; r < count; r++) {
    const row = r * n;
    for (let i = 0; i < n; i++) {
      solved[row + i] = (rights[row + i] - dot(lower, i * n, solved, row, i)) / lower[i * n + i];
    }
  }
  return solved;
}

/** L⁻ᵀ b for one right-hand side. Cost: n² / 2. */
export function solveUpper(lower, n, right) {
  const solved = Float64Array.from(right);
  for (let i = n - 1; i >= 0; i--) {
    const value = (solved[i] /= lower[i * n + i]);
    for (let k = 0; k < i; k++) solved[k] -= lower[i * n + k] * value;
  }
  return solved;
}

/** (L Lᵀ)⁻¹, symmetric. Cost: about 2 n³ / 3. */
export function inverseFromFactor(lower, n) {
  // Row r of `columns` is column r of L⁻¹, which is zero before its r-th entry.
  const columns = new Float64Array(n * n);
  for (let r = 0; r < n; r++) {
    const row = r * n;
    columns[row + r] = 1 / lower[r * n + r];
    for (let i = r + 1; i < n; i++) {
      columns[row + i] = -dot(lower, i * n + r, columns, row + r, i - r) / lower[i * n + i];
    }
  }
  const inverse = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      inverse[i * n + j] = inverse[j * n + i] = dot(columns, i * n + i, columns, j * n + i, n - i);
    }
  }
  return inverse;
}

/** L z. Cost: n² / 2. */
export function lowerTimes(lower, n, vector) {
  const product = new Float64Array(n);
  for (let i = 0; i < n; i++) product[i] = dot(lower, i * n, vector, 0, i + 1);
  return product;
}
