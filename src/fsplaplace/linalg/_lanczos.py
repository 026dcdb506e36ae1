"""Lanczos with full re-orthogonalisation and an embedded LDL^T factorisation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def lanczos_inverse_factor(
    matvec: Callable[[Float[Array, " n"]], Float[Array, " n"]],
    start: Float[Array, " n"],
    *,
    rank: int,
    tolerance: float,
) -> tuple[Float[Array, "n rank"], Int[Array, ""]]:
    r"""Columns $L$ with $L L^\top \approx K^+$ from products with a positive semi-definite $K$.

    Lanczos builds $K V \approx V T$ with $T$ tridiagonal; $T = \bar L D \bar L^\top$ is updated along the way,
    and $V \bar L^{-\top} D^{-1/2}$ are the columns (the conjugate-gradient directions, normalised):

    $$c_k = v_k - \ell_k c_{k-1}, \quad \ell_k = \beta_{k-1} / d_{k-1}, \quad d_k = \alpha_k - \ell_k \beta_{k-1},
    \quad L_{:,k} = c_k / \sqrt{d_k}.$$

    The iteration ends when the pivot $d_k$ or the next off-diagonal $\beta_k$ falls below
    `tolerance` times the largest $\alpha$ seen: beyond that the Krylov space is exhausted and a further
    direction would be rounding. Columns after the end are zero.

    A single Krylov space holds one direction per *distinct* eigenvalue, so a block-diagonal matrix with equal
    blocks needs one call per block.

    Args:
        matvec: $v \mapsto K v$.
        start: the first Lanczos vector; need not be normalised.
        rank: the most columns to return.
        tolerance: relative size at which a pivot counts as zero.

    Returns:
        The columns, shape (n, rank), and how many of them are used.

    Time: `rank` products plus $O(n\,\mathrm{rank}^2)$; memory $O(n\,\mathrm{rank})$. After Golub and Van Loan
    (2013), Sections 10.1 and 11.3.5.
    """
    size = start.shape[0]
    norm = jnp.linalg.norm(start)
    first = start / jnp.where(norm > 0, norm, 1.0)

    def proceed(state):
        *_, used, alive = state
        return alive & (used < rank)

    def step(state):
        basis, columns, vector, direction, pivot, beta, scale, used, _ = state
        basis = basis.at[:, used].set(vector)
        product = matvec(vector)
        alpha = vector @ product
        scale = jnp.maximum(scale, jnp.abs(alpha))
        ratio = jnp.where(used > 0, beta / pivot, 0.0)
        pivot = alpha - ratio * beta
        direction = vector - ratio * direction
        valid = pivot > tolerance * scale
        columns = columns.at[:, used].set(jnp.where(valid, direction / jnp.sqrt(jnp.where(valid, pivot, 1.0)), 0.0))
        # Twice is enough: one pass of Gram-Schmidt loses orthogonality, the second restores it to rounding.
        residual = product - basis @ (basis.T @ product)
        residual = residual - basis @ (basis.T @ residual)
        beta = jnp.linalg.norm(residual)
        alive = valid & (beta > tolerance * scale)
        vector = residual / jnp.where(beta > 0, beta, 1.0)
        return basis, columns, vector, direction, pivot, beta, scale, used + valid, alive

    zero = jnp.zeros((), start.dtype)
    state = (
        jnp.zeros((size, rank), start.dtype),
        jnp.zeros((size, rank), start.dtype),
        first,
        jnp.zeros_like(start),
        jnp.ones((), start.dtype),
        zero,
        zero,
        jnp.zeros((), jnp.int32),
        norm > 0,
    )
    _, columns, *_, used, _ = jax.lax.while_loop(proceed, step, state)
    return columns, used
