"""Low-rank factor of a small symmetric matrix by its eigendecomposition."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


@eqx.filter_jit
def psd_factor(matrix: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    r"""Columns $B = V \lambda_+^{1/2}$ with $B B^\top$ equal to the positive part of a symmetric matrix.

    Returns the columns ordered from the largest eigenvalue down, and the eigenvalues with their signs, so
    that the caller can see how negative the matrix is before it drops a column.

    Time $O(n^3)$, memory $O(n^2)$.
    """
    eigenvalues, eigenvectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    eigenvalues, eigenvectors = eigenvalues[::-1], eigenvectors[:, ::-1]
    return eigenvectors * jnp.sqrt(jnp.maximum(eigenvalues, 0.0)), eigenvalues
