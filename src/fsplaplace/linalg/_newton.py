"""Newton's method that cannot overshoot."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Fractions of a step to choose from: the whole one nearly always, a small one far from the minimum.
_SIZES = 0.5 ** np.arange(10)


def damped_newton(
    objective: Callable[[Float[Array, " r"]], Float[Array, ""]],
    propose: Callable[[Float[Array, " r"]], Float[Array, " r"]],
    start: Float[Array, " r"],
    *,
    max_steps: int = 100,
    tolerance: float = 1e-10,
) -> Float[Array, " r"]:
    r"""The minimum of a convex function, by $x \leftarrow x + s\,(N(x) - x)$ with the largest s = 1, 1/2, 1/4, ... that improves.

    It may be called under `jax.jit`. Derivatives do not pass through it: take one more step of your own, whose derivative
    at the minimum is that of the minimum itself.

    Args:
        objective: the function.
        propose: $N(x)$, where a whole Newton step from x leads.
        start: the first x.
        max_steps: number of steps at most.
        tolerance: stop when a step gains less than this, relative to one plus the absolute value of the objective.

    Time: one proposal and ten evaluations per step.
    """

    def step(carry):
        point, value, _, count = carry
        candidates = point + jnp.asarray(_SIZES, point.dtype)[:, None] * (propose(point) - point)
        values = jax.vmap(objective)(candidates)
        # The longest step that improves: the best of all would prefer short ones by rounding near the minimum.
        improves = values < value
        best, stay = jnp.argmax(improves), ~jnp.any(improves)
        point, new = jnp.where(stay, point, candidates[best]), jnp.where(stay, value, values[best])
        return point, new, value - new, count + 1

    def unfinished(carry):
        _, value, gain, count = carry
        return (count < max_steps) & (gain > tolerance * (1 + jnp.abs(value)))

    first = (start, objective(start), jnp.asarray(jnp.inf, start.dtype), 0)
    return jax.lax.stop_gradient(jax.lax.while_loop(unfinished, step, jax.lax.stop_gradient(first))[0])
