"""Partial Cholesky factorisation with pivots, from single columns of the matrix."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def pivoted_cholesky(
    column: Callable[[Int[Array, ""]], Float[Array, " n"]],
    diagonal: Float[Array, " n"],
    *,
    rank: int,
    rtol: float,
    captured: float = 1.0,
) -> tuple[Float[Array, "n rank"], Float[Array, " n"]]:
    r"""Columns $B$ with $K - B B^\top \succeq 0$ and its trace made small greedily.

    Each step takes the row with the largest remaining diagonal entry as pivot and removes it, so $K$ is only
    read through `rank` of its columns. The residual stays positive semi-definite: $B B^\top$ never exceeds
    $K$.

    Args:
        column: index $i \mapsto K_{:,i}$.
        diagonal: $\mathrm{diag}\,K$.
        rank: the most columns to compute.
        rtol: stop when the largest remaining diagonal entry is below `rtol` times the largest of $K$.
        captured: stop when $B B^\top$ has this share of the trace of $K$.

    Returns:
        $B$, shape (n, rank), with zero columns after the end, and the diagonal of the residual.

    Time $O(n\,\mathrm{rank}^2)$ and `rank` columns of $K$; memory $O(n\,\mathrm{rank})$: linear in $n$.
    """
    threshold, missing = rtol * jnp.max(diagonal), (1 - captured) * jnp.sum(diagonal)

    def proceed(state):
        _, remaining, step = state
        return (step < rank) & (jnp.max(remaining) > threshold) & (jnp.sum(remaining) > missing)

    def advance(state):
        factor, remaining, step = state
        pivot = jnp.argmax(remaining)
        residual = column(pivot) - factor @ factor[pivot]
        # remaining[pivot] and residual[pivot] agree in exact arithmetic; the former is never negative.
        new = residual / jnp.sqrt(remaining[pivot])
        remaining = jnp.maximum(remaining - new**2, 0.0).at[pivot].set(0.0)
        return factor.at[:, step].set(new), remaining, step + 1

    factor = jnp.zeros((diagonal.shape[0], rank), diagonal.dtype)
    factor, remaining, _ = jax.lax.while_loop(proceed, advance, (factor, diagonal, 0))
    return factor, remaining
