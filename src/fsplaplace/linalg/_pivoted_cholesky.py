"""Partial Cholesky factorisation with pivots, from some columns of the matrix at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# Columns that are read together: enough to make one matrix product of their updates.
_TOGETHER = 32
# A pivot from the columns at hand is taken while its diagonal entry is at least this share of the largest.
_NEARLY_LARGEST = 0.7


def pivoted_cholesky(
    columns: Callable[[Int[Array, " b"]], Float[Array, "n b"]],
    diagonal: Float[Array, " n"],
    *,
    rank: int,
    rtol: float,
    captured: float = 1.0,
) -> tuple[Float[Array, "n rank"], Float[Array, " n"]]:
    r"""Columns $B$ with $K - B B^\top \succeq 0$ and its trace made small greedily.

    Each step takes a row whose remaining diagonal entry is the largest, or nearly, as pivot and removes it, so $K$ is
    only read through a few times `rank` of its columns. Candidates come in blocks of 32 rows with the largest remaining
    entries, so that most of the work is matrix products. The residual stays positive semi-definite: $B B^\top$ never
    exceeds $K$.

    Args:
        columns: indices $i \mapsto K_{:,i}$.
        diagonal: $\mathrm{diag}\,K$.
        rank: the most columns to compute.
        rtol: stop when the largest remaining diagonal entry is below `rtol` times the largest of $K$.
        captured: stop when $B B^\top$ has this share of the trace of $K$.

    Returns:
        $B$, shape (n, rank), with zero columns after the end, and the diagonal of the residual.

    Time $O(n\,\mathrm{rank}^2)$ and a few times `rank` columns of $K$; memory $O(n\,\mathrm{rank})$: linear in $n$.
    """
    size = diagonal.shape[0]
    together = min(_TOGETHER, size, rank)
    threshold, missing = rtol * jnp.max(diagonal), (1 - captured) * jnp.sum(diagonal)

    def unfinished(remaining, step):
        return (step < rank) & (jnp.max(remaining) > threshold) & (jnp.sum(remaining) > missing)

    def block(state):
        factor, remaining, step = state
        candidates = jax.lax.top_k(remaining, together)[1]
        residual = columns(candidates).T - factor[:, candidates].T @ factor

        def advance(carry):
            panel, remaining, taken, _ = carry
            choice = jnp.argmax(remaining[candidates])
            pivot = candidates[choice]
            # remaining[pivot] and the residual's entry agree in exact arithmetic; the former is never negative.
            new = (residual[choice] - panel[:, pivot] @ panel) / jnp.sqrt(remaining[pivot])
            remaining = jnp.maximum(remaining - new**2, 0.0).at[pivot].set(0.0)
            near = jnp.max(remaining[candidates]) >= _NEARLY_LARGEST * jnp.max(remaining)
            return panel.at[taken].set(new), remaining, taken + 1, near & unfinished(remaining, step + taken + 1)

        start = (jnp.zeros((together, size), diagonal.dtype), remaining, 0, jnp.asarray(True))
        panel, remaining, taken, _ = jax.lax.while_loop(lambda carry: carry[3] & (carry[2] < together), advance, start)
        return jax.lax.dynamic_update_slice(factor, panel, (step, 0)), remaining, step + taken

    # A last block may reach beyond the rank, with zeros.
    factor = jnp.zeros((rank + together, size), diagonal.dtype)
    start = (factor, diagonal, 0)
    factor, remaining, _ = jax.lax.while_loop(lambda state: unfinished(state[1], state[2]), block, start)
    return factor[:rank].T, remaining
