"""Minimum-norm solution of a wide linear system with a relative ridge."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


@eqx.filter_jit
def minimum_norm_solve(
    matrix: Float[Array, "n p"], targets: Float[Array, "n r"], *, delta: float
) -> Float[Array, "r p"]:
    r"""Rows $s_j^\top$ of $S_0 = J^\top (J J^\top + \delta \lVert J \rVert^2 I)^{-1} B$.

    The Gram matrix squares the condition number, so call this in float64: in float32 its rounding is larger
    than the useful values of $\delta$ (around 1e-10).

    Args:
        matrix: $J$, of shape (n, p) with n at most a few thousand.
        targets: $B$, of shape (n, r).
        delta: the ridge, relative to the square of the largest singular value of $J$.

    Returns:
        $S_0^\top$, of shape (r, p).

    Time $O(n^2 p + n^3 + n p r)$, memory $O(n p + r p)$.
    """
    eigenvalues, eigenvectors = jnp.linalg.eigh(matrix @ matrix.T)
    damped = jnp.maximum(eigenvalues, 0.0) + delta * jnp.maximum(eigenvalues[-1], 0.0)
    # A zero matrix (no weight moves the output) has no direction to solve along: the answer is zero.
    inverse = jnp.where(damped > 0, 1.0 / jnp.where(damped > 0, damped, 1.0), 0.0)
    coefficients = eigenvectors @ (inverse[:, None] * (eigenvectors.T @ targets))
    return coefficients.T @ matrix
