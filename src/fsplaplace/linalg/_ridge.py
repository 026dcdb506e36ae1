"""Ridge-regularised least squares, relative to the size of the matrix, in float64, with the ridge chosen on probes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from fsplaplace.host import blas_threads_for
from fsplaplace.linalg._eigen import eigenpairs

# Rows that are copied at a time, to be multiplied.
_TOGETHER = 256


class Solution(NamedTuple):
    """A ridge solution: its rows, what it reaches at the targets' rows, and the relative ridge used."""

    rows: Float[Array, "r p"]
    reached: Float[np.ndarray, "n r"]
    delta: float


class Probe(NamedTuple):
    """Further rows at which the solution is judged: the matrix there, and a loss of what the solution reaches there."""

    matrix: Float[np.ndarray, "g k"]
    loss: Callable[[Float[np.ndarray, "g r"]], float]


def minimum_norm_solve(
    matrix: Float[Array, "N p"] | Float[np.ndarray, "N p"],
    targets: Float[np.ndarray, "n r"],
    *,
    deltas: Sequence[float],
    choose: Callable[[Float[np.ndarray, "c g r"]], int] | None = None,
    probes: Int[np.ndarray, " g"] | None = None,
) -> Solution:
    r"""Rows $s_j^\top$ of $S_0 = J^\top (J J^\top + \delta \lVert J \rVert^2 I)^{-1} B$ for a wide matrix.

    The Gram matrix squares the condition number, and in float32 its rounding would be larger than the useful
    values of $\delta$ (around 1e-10): hence float64 inside, whatever the matrix's dtype, which the solution gets.

    Args:
        matrix: $J$ in its first n rows, n at most a few thousand, and in the other N - n rows the probes.
        targets: $B$, of shape (n, r).
        deltas: the ridge, relative to the square of the largest singular value of $J$: one value, or several to
            choose from.
        choose: the position of the best solution, given what each reaches at the probes; needed for several values, and not asked for one.
        probes: rows of the matrix at which that is; all after the first n by default.

    Time $O(n^2 p + n^3 + n p r)$, memory $O(n p + r p)$; each further ridge costs $O(g n r)$.
    """
    count = targets.shape[0]
    # On the host: BLAS takes less time than XLA does, and nothing is compiled.
    exact = np.asarray(matrix, dtype=np.float64)
    fitted, probes = exact[:count], np.arange(count, len(exact)) if probes is None else probes
    with blas_threads_for(2.0 * exact.size * count):
        gram = fitted @ fitted.T
        at_probes = None if len(deltas) == 1 else _products(exact, gram, probes)
    eigenvalues, eigenvectors = eigenpairs(gram, rtol=min(deltas))
    rotated = eigenvectors.T @ targets
    seen = None if at_probes is None else at_probes @ eigenvectors
    damping = _choose(np.maximum(eigenvalues, 0.0), rotated, deltas, seen, choose)
    coefficients = eigenvectors @ (damping.filter[:, None] * rotated)
    with blas_threads_for(2.0 * fitted.size * targets.shape[1]):
        rows = np.asarray(coefficients.T @ fitted, dtype=matrix.dtype)
    return Solution(jax.device_put(rows), gram @ coefficients, damping.delta)


def _products(
    matrix: Float[np.ndarray, "N p"], gram: Float[np.ndarray, "n n"], rows: Int[np.ndarray, " g"]
) -> Float[np.ndarray, "g n"]:
    """Of some rows of the matrix with its first n, whose Gram matrix is known; no other row is multiplied or copied."""
    count = gram.shape[0]
    found, others = np.empty((rows.size, count)), np.flatnonzero(rows >= count)
    found[rows < count] = gram[rows[rows < count]]
    for part in np.array_split(others, -(-others.size // _TOGETHER)) if others.size else ():
        found[part] = matrix[rows[part]] @ matrix[:count].T
    return found


def ridge(
    matrix: Float[np.ndarray, "n k"],
    targets: Float[np.ndarray, "n r"],
    *,
    deltas: Sequence[float],
    probe: Probe | None = None,
) -> Solution:
    r"""Rows of $\arg\min_T \lVert M T - B \rVert^2 + \delta \lVert M \rVert^2 \lVert T \rVert^2$ for a tall matrix.

    Time $O(n k^2)$, memory $O(n k)$. `deltas` as for `minimum_norm_solve`.
    """
    eigenvalues, eigenvectors, rotated = _normal_equations(np.asarray(matrix), np.asarray(targets, dtype=np.float64))
    if probe is None:
        damping = _choose(eigenvalues, rotated, deltas)
    else:
        at_probe = np.asarray(probe.matrix, dtype=np.float64) @ eigenvectors
        damping = _choose(
            eigenvalues, rotated, deltas, at_probe, lambda reached: np.argmin([*map(probe.loss, reached)])
        )
    coefficients = eigenvectors @ (damping.filter[:, None] * rotated)
    return Solution(coefficients.T, matrix @ coefficients, damping.delta)  # pyright: ignore[reportArgumentType] - small, so it stays on the host


def _normal_equations(matrix, targets):
    r"""Eigenvalues and eigenvectors of $M^\top M$, and $M^\top B$ in those coordinates."""
    if matrix.dtype == np.float32:
        # Squared in float64 the matrix loses less than its own rounding, in a fifth of the time of its SVD.
        matrix = matrix.astype(np.float64)
        eigenvalues, eigenvectors = np.linalg.eigh(matrix.T @ matrix)
        return np.maximum(eigenvalues, 0.0), eigenvectors, eigenvectors.T @ (matrix.T @ targets)
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    return singular[::-1] ** 2, right[::-1].T, (singular[:, None] * (left.T @ targets))[::-1]


class _Damping(NamedTuple):
    delta: float
    filter: Float[np.ndarray, " k"]


def _choose(eigenvalues, rotated, deltas, at_probe=None, choose=None) -> _Damping:
    """The filter 1 / (lambda + delta lambda_max) chosen by what its solution reaches at the probe."""
    candidates = [_Damping(delta, _inverse(eigenvalues + delta * np.max(eigenvalues))) for delta in deltas]
    if len(candidates) == 1:
        return candidates[0]
    if choose is None:
        raise ValueError(f"{len(candidates)} values of delta need a probe to choose between them")
    return candidates[choose(np.stack([at_probe @ (damping.filter[:, None] * rotated) for damping in candidates]))]


def _inverse(damped):
    # A zero matrix (no weight moves the output) has no direction to solve along: the answer is zero.
    return np.divide(1.0, damped, out=np.zeros_like(damped), where=damped > 0)
