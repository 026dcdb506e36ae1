"""Ridge-regularised least squares, relative to the size of the matrix, in float64, with the ridge chosen on probes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Solution(NamedTuple):
    """A ridge solution: its rows, what it reaches at the targets' rows, and the relative ridge used."""

    rows: Float[Array, "r p"]
    reached: Float[np.ndarray, "n r"]
    delta: float


class Probe(NamedTuple):
    """Further rows at which the solution is judged: the matrix there, and a loss of what the solution reaches there."""

    matrix: Float[Array, "g p"]
    loss: Callable[[Float[np.ndarray, "g r"]], float]


def minimum_norm_solve(
    matrix: Float[Array, "n p"],
    targets: Float[np.ndarray, "n r"],
    *,
    deltas: Sequence[float],
    probe: Probe | None = None,
) -> Solution:
    r"""Rows $s_j^\top$ of $S_0 = J^\top (J J^\top + \delta \lVert J \rVert^2 I)^{-1} B$ for a wide matrix.

    The Gram matrix squares the condition number, and in float32 its rounding would be larger than the useful
    values of $\delta$ (around 1e-10): hence float64 inside, whatever the matrix's dtype, which the solution gets.

    Args:
        matrix: $J$, of shape (n, p) with n at most a few thousand.
        targets: $B$, of shape (n, r).
        deltas: the ridge, relative to the square of the largest singular value of $J$: one value, or several of which
            the one with the lowest loss at the probe is taken.
        probe: where to judge; needed for several values.

    Time $O(n^2 p + n^3 + n p r)$, memory $O(n p + r p)$; each further ridge costs $O(g n r)$.
    """
    with jax.enable_x64(True):
        gram = np.asarray(_product(matrix, matrix))
        eigenvalues, eigenvectors = np.linalg.eigh(gram)
        rotated = eigenvectors.T @ targets
        probe_rotated = None if probe is None else np.asarray(_product(probe.matrix, matrix)) @ eigenvectors
        damping = _choose(np.maximum(eigenvalues, 0.0), rotated, deltas, probe_rotated, probe)
        coefficients = eigenvectors @ (damping.filter[:, None] * rotated)
        return Solution(_combine(coefficients, matrix), gram @ coefficients, damping.delta)


def ridge(
    matrix: Float[np.ndarray, "n k"],
    targets: Float[np.ndarray, "n r"],
    *,
    deltas: Sequence[float],
    probe: Probe | None = None,
) -> Solution:
    r"""Rows of $\arg\min_T \lVert M T - B \rVert^2 + \delta \lVert M \rVert^2 \lVert T \rVert^2$ for a tall matrix, by SVD.

    Time $O(n k^2)$, memory $O(n k)$. Arguments as for `minimum_norm_solve`.
    """
    left, singular, right = np.linalg.svd(np.asarray(matrix, dtype=np.float64), full_matrices=False)
    rotated = singular[:, None] * (left.T @ np.asarray(targets, dtype=np.float64))
    probe_rotated = None if probe is None else np.asarray(probe.matrix, dtype=np.float64) @ right.T
    damping = _choose(singular[::-1] ** 2, rotated[::-1], deltas, _reverse(probe_rotated), probe)
    coefficients = right.T @ (damping.filter[::-1, None] * rotated)
    return Solution(coefficients.T, matrix @ coefficients, damping.delta)


class _Damping(NamedTuple):
    delta: float
    filter: Float[np.ndarray, " k"]


def _choose(eigenvalues, rotated, deltas, probe_rotated, probe: Probe | None) -> _Damping:
    """The filter 1 / (lambda + delta lambda_max) whose solution has the lowest loss at the probe."""
    candidates = [_Damping(delta, _inverse(eigenvalues + delta * eigenvalues[-1])) for delta in deltas]
    if len(candidates) == 1:
        return candidates[0]
    if probe is None:
        raise ValueError(f"{len(candidates)} values of delta need a probe to choose between them")
    return min(candidates, key=lambda damping: probe.loss(probe_rotated @ (damping.filter[:, None] * rotated)))


def _inverse(damped):
    # A zero matrix (no weight moves the output) has no direction to solve along: the answer is zero.
    return np.divide(1.0, damped, out=np.zeros_like(damped), where=damped > 0)


def _reverse(columns):
    return None if columns is None else columns[:, ::-1]


@eqx.filter_jit
def _product(left, right):
    return left.astype(jnp.float64) @ right.astype(jnp.float64).T


@eqx.filter_jit
def _combine(coefficients, matrix):
    return (coefficients.T @ matrix.astype(jnp.float64)).astype(matrix.dtype)
