"""Ridge-regularised least squares with many rows and few unknowns, from blocks of rows, in float64."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve
from scipy.linalg.blas import dsymv, dsyrk  # pyright: ignore[reportAttributeAccessIssue] - compiled, without stubs
from scipy.linalg.lapack import dpotrf  # pyright: ignore[reportAttributeAccessIssue] - compiled, without stubs
from scipy.sparse.linalg import LinearOperator, eigsh

from fsplaplace.linalg._ridge import Probe


class NormalSolution(NamedTuple):
    """A ridge solution: its rows, its relative misfit to the targets in each column, and the relative ridge used."""

    rows: Float[np.ndarray, "r p"]
    misfit: Float[np.ndarray, " r"]
    delta: float


def normal_equations(
    blocks: Iterable[tuple[Float[np.ndarray, "b p"], Float[np.ndarray, "b r"]]],
    *,
    deltas: Sequence[float],
    probe: Probe | None = None,
) -> NormalSolution:
    r"""Rows of $S_0^\top = (J^\top J + \delta \lVert J \rVert^2 I)^{-1} J^\top B$, from blocks of rows of $J$ and $B$.

    The same solution as `minimum_norm_solve`'s, from the p x p side. One Cholesky factorisation for each ridge costs
    less than a single eigendecomposition up to about thirty of them.

    Args:
        blocks: rows of $J$ and of $B$ that belong together; read once.
        deltas: the ridge, relative to the square of the largest singular value of $J$, at least what float64 resolves:
            one value, or several in rising order, of which the one with the lowest loss at the probe is taken (the
            first minimum: the search ends after two that are worse).
        probe: further rows of the matrix, and the loss of what a solution reaches there; needed for several values.

    Time $O(n p^2 + p^3 + p^2 r)$, memory $O(p^2 + p r)$ whatever the number of rows.
    """
    if probe is None and len(deltas) > 1:
        raise ValueError(f"{len(deltas)} values of delta need a probe to choose between them")
    gram, pulled, size = _accumulate(blocks)
    largest = _largest_eigenvalue(gram)
    smallest = 10 * gram.shape[0] * np.finfo(np.float64).eps
    candidates = list(dict.fromkeys(max(delta, smallest) for delta in deltas))
    delta, space = candidates[0], np.empty_like(gram)
    if probe is not None and len(candidates) > 1:
        seeds = np.asarray(probe.matrix, dtype=np.float64).T
        delta = _lowest(
            candidates, lambda each: probe.loss(_solve(gram, each * largest, seeds, space).T @ pulled), patience=2
        )
    solution = _solve(gram, delta * largest, pulled, space)
    # |J s - b|^2 from what is already summed: (J^T J) s = J^T b - delta |J|^2 s.
    residual = size - np.sum(pulled * solution, axis=0) - delta * largest * np.sum(solution**2, axis=0)
    misfit = np.sqrt(np.divide(np.maximum(residual, 0.0), size, out=np.zeros_like(size), where=size > 0))
    return NormalSolution(solution.T, misfit, delta)


def _accumulate(blocks):
    r"""$J^\top J$ (its lower triangle), $J^\top B$ and the squared norms of the columns of $B$."""
    stream = iter(blocks)
    first = next(stream, None)
    if first is None:
        raise ValueError("normal_equations: there are no blocks; pass at least one")
    unknowns, columns = first[0].shape[1], first[1].shape[1]
    gram = np.zeros((unknowns, unknowns), order="F")
    pulled, size = np.zeros((unknowns, columns)), np.zeros(columns)
    for matrix, targets in itertools.chain([first], stream):
        matrix, targets = np.asarray(matrix, dtype=np.float64), np.asarray(targets, dtype=np.float64)
        gram = dsyrk(1.0, matrix.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
        pulled += matrix.T @ targets
        size += np.sum(targets**2, axis=0)
    return gram, pulled, size


def _largest_eigenvalue(gram) -> float:
    if not np.any(np.diagonal(gram)):
        return 0.0
    product = LinearOperator(gram.shape, matvec=lambda v: dsymv(1.0, gram, v, lower=1), dtype=gram.dtype)  # pyright: ignore[reportCallIssue] - scipy's own call
    start = np.sqrt(np.diagonal(gram))
    if gram.shape[0] < 3:
        return float(np.linalg.eigvalsh(gram)[-1])
    return float(eigsh(product, k=1, v0=start, return_eigenvectors=False)[0])


def _lowest(candidates: Sequence[float], loss: Callable[[float], float], *, patience: int) -> float:
    """The candidate with the lowest loss, given up after so many worse ones: a ridge too large only gets worse."""
    losses: list[float] = []
    for candidate in candidates:
        losses.append(loss(candidate))
        if len(losses) - 1 - int(np.argmin(losses)) >= patience:
            break
    return candidates[int(np.argmin(losses))]


def _solve(gram, ridge: float, right, space):
    """The solution of a system with the ridge on the diagonal; `space` is overwritten with the factor."""
    if ridge == 0.0:
        # A zero matrix (no weight moves the output) has no direction to solve along: the answer is zero.
        return np.zeros_like(right)
    np.copyto(space, gram)
    np.einsum("ii->i", space)[:] += ridge
    factor, failed = dpotrf(space, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise FloatingPointError(f"normal_equations: the matrix is not finite (pivot {failed} of {gram.shape[0]})")
    return cho_solve((factor, True), right, check_finite=False)
