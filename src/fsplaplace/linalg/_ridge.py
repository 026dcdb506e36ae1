"""Ridge-regularised least squares, relative to the size of the matrix, in float64."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def minimum_norm_solve(
    matrix: Float[Array, "n p"], targets: Float[np.ndarray, "n r"], *, delta: float
) -> tuple[Float[Array, "r p"], Float[Array, "n r"]]:
    r"""Rows $s_j^\top$ of $S_0 = J^\top (J J^\top + \delta \lVert J \rVert^2 I)^{-1} B$ for a wide matrix, and $J S_0$.

    The Gram matrix squares the condition number, and in float32 its rounding would be larger than the useful
    values of $\delta$ (around 1e-10): hence float64 inside, whatever the matrix's dtype, which the solution gets.

    Args:
        matrix: $J$, of shape (n, p) with n at most a few thousand.
        targets: $B$, of shape (n, r).
        delta: the ridge, relative to the square of the largest singular value of $J$.

    Returns:
        $S_0^\top$, of shape (r, p), and $J S_0$, of shape (n, r).

    Time $O(n^2 p + n^3 + n p r)$, memory $O(n p + r p)$.
    """
    with jax.enable_x64(True):
        gram = np.asarray(_gram(matrix))
        eigenvalues, eigenvectors = np.linalg.eigh(gram)
        damped = np.maximum(eigenvalues, 0.0) + delta * max(eigenvalues[-1], 0.0)
        # A zero matrix (no weight moves the output) has no direction to solve along: the answer is zero.
        inverse = np.divide(1.0, damped, out=np.zeros_like(damped), where=damped > 0)
        coefficients = eigenvectors @ (inverse[:, None] * (eigenvectors.T @ targets))
        return _combine(coefficients, matrix), jnp.asarray(gram @ coefficients)


def ridge(
    matrix: Float[np.ndarray, "n k"], targets: Float[np.ndarray, "n r"], *, delta: float
) -> Float[np.ndarray, "k r"]:
    r"""$\arg\min_T \lVert M T - B \rVert^2 + \delta \lVert M \rVert^2 \lVert T \rVert^2$ for a tall matrix, by its SVD.

    Time $O(n k^2)$, memory $O(n k)$.
    """
    left, singular, right = np.linalg.svd(np.asarray(matrix, dtype=np.float64), full_matrices=False)
    damped = singular**2 + delta * singular[0] ** 2
    filtered = np.divide(singular, damped, out=np.zeros_like(damped), where=damped > 0)
    return right.T @ (filtered[:, None] * (left.T @ np.asarray(targets, dtype=np.float64)))


@eqx.filter_jit
def _gram(matrix):
    matrix = matrix.astype(jnp.float64)
    return matrix @ matrix.T


@eqx.filter_jit
def _combine(coefficients, matrix):
    return (coefficients.T @ matrix.astype(jnp.float64)).astype(matrix.dtype)
