"""Radial profiles: a stationary kernel as a function of the scaled squared distance.

Writing k as a function of s = |x - y|² / ℓ² and not of r = √s keeps every derivative that exists finite
at s = 0: the square root enters only where the kernel itself stops being differentiable.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# GPJax floors squared distances here before the square root; the same floor gives the same values.
_DISTANCE_FLOOR = 1e-36


def rbf(s: float | Float[Array, "..."]) -> Float[Array, "..."]:
    """exp(-s / 2)."""
    return jnp.exp(-0.5 * s)


def rational_quadratic(s: float | Float[Array, "..."], alpha: float | Float[Array, ""]) -> Float[Array, "..."]:
    """(1 + s / 2α)^-α; log1p keeps large α, where the kernel tends to the RBF, accurate."""
    return jnp.exp(-alpha * jnp.log1p(0.5 * s / alpha))


def powered_exponential(s: float | Float[Array, "..."], power: float | Float[Array, ""]) -> Float[Array, "..."]:
    """exp(-r^κ) with r = √s; log and exp vectorise on the CPU where a power does not."""
    return jnp.exp(-jnp.exp(0.5 * power * jnp.log(jnp.maximum(s, _DISTANCE_FLOOR))))


def matern12(s: float | Float[Array, "..."]) -> Float[Array, "..."]:
    """exp(-r)."""
    return _exponential(s)


def matern32(s: float | Float[Array, "..."]) -> Float[Array, "..."]:
    """(1 + u) exp(-u) with u = √3 r."""
    return _once_smooth(3.0 * s)


def matern52(s: float | Float[Array, "..."]) -> Float[Array, "..."]:
    """(1 + u + u² / 3) exp(-u) with u = √5 r."""
    return _twice_smooth(5.0 * s)


# With v = u² the Matérn family is closed under d/dv, so each member's derivative is written with the
# rougher member and no 1 / u appears before the member that really has it.
def _root(v):
    return jnp.sqrt(jnp.maximum(v, _DISTANCE_FLOOR))


def _exponential(v):
    return jnp.exp(-_root(v))


@jax.custom_jvp
def _once_smooth(v):
    u = _root(v)
    return (1.0 + u) * jnp.exp(-u)


@_once_smooth.defjvp
def _once_smooth_jvp(primals, tangents):
    (v,), (dv,) = primals, tangents
    return _once_smooth(v), -0.5 * _exponential(v) * dv


@jax.custom_jvp
def _twice_smooth(v):
    u = _root(v)
    return (1.0 + u + v / 3.0) * jnp.exp(-u)


@_twice_smooth.defjvp
def _twice_smooth_jvp(primals, tangents):
    (v,), (dv,) = primals, tangents
    return _twice_smooth(v), -_once_smooth(v) / 6.0 * dv
