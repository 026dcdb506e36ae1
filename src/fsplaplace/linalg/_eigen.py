"""Eigenpairs of a small symmetric matrix, and its low-rank factor."""

import numpy as np
from jaxtyping import Float

_ROUNDING = 1e-16


def eigenpairs(
    matrix: Float[np.ndarray, "n n"], *, rtol: float = 0.0
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "n k"]]:
    r"""Eigenvalues, from the largest down, and eigenvectors of a symmetric matrix, in float64 on the host.

    Args:
        matrix: $K$.
        rtol: eigenvalues of less than `rtol` times the largest may be left out, with an error of a hundredth of that in
            the rest.

    Time $O(n^3)$, memory $O(n^2)$; time $O(n^2 k)$ where $k$ of at most a quarter of the eigenpairs are enough.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    matrix = (matrix + matrix.T) / 2
    few = _few_rows(matrix, 0.01 * rtol)
    if few is None:
        eigenvalues, eigenvectors = np.linalg.eigh(matrix)
        return eigenvalues[::-1], eigenvectors[:, ::-1]
    # With K = L L^T and L^T L = U D U^T, the eigenvectors of K are L U D^{-1/2}.
    eigenvalues, rotation = np.linalg.eigh(few @ few.T)
    largest_first = np.flatnonzero(eigenvalues > _ROUNDING * eigenvalues[-1])[::-1]
    eigenvalues, rotation = eigenvalues[largest_first], rotation[:, largest_first]
    return eigenvalues, few.T @ (rotation / np.sqrt(eigenvalues))


def psd_factor(
    matrix: Float[np.ndarray, "n n"], *, rtol: float = 0.0
) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " k"]]:
    r"""Columns $B = V \lambda_+^{1/2}$ with $B B^\top$ equal to the positive part of a symmetric matrix.

    Returns the columns ordered from the largest eigenvalue down, and the eigenvalues with their signs, so that the
    caller can see how negative the matrix is before it drops a column. `rtol` and cost as for `eigenpairs`.
    """
    eigenvalues, eigenvectors = eigenpairs(matrix, rtol=rtol)
    return eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0)), eigenvalues


def _few_rows(matrix: Float[np.ndarray, "n n"], tolerance: float) -> Float[np.ndarray, "k n"] | None:
    """Rows of L^T with K = L L^T to a Frobenius norm of `tolerance` times the largest eigenvalue, by Cholesky steps with
    pivots, or None where more than a quarter of them, or more than float64, would be needed."""
    n = matrix.shape[0]
    remaining = np.diagonal(matrix).copy()
    # The largest eigenvalue is at least n times the mean of all entries, and at least each diagonal entry.
    allowed = tolerance * max(n * float(np.mean(matrix)), float(np.max(remaining)))
    if allowed <= _ROUNDING * n * np.sum(remaining):
        return None
    rows = np.zeros((n // 4, n))
    for step in range(n // 4):
        if np.sum(remaining) <= allowed:
            rows = rows[:step]
            # Small diagonal entries bound the others only if nothing is negative.
            return rows if np.linalg.norm(matrix - rows.T @ rows) <= allowed else None
        pivot = int(np.argmax(remaining))
        rows[step] = (matrix[pivot] - rows[:step, pivot] @ rows[:step]) / np.sqrt(remaining[pivot])
        remaining = np.maximum(remaining - rows[step] ** 2, 0.0)
        remaining[pivot] = 0.0
    return None
