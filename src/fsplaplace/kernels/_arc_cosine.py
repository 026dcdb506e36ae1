"""The arc-cosine kernel without the arc cosine, whose derivative is infinite where two points coincide.

With φ(x) = (√w x, √b) and the angle θ between φ(x) and φ(y), k = v / π (|φ(x)| |φ(y)|)^n J_n(θ). Points of the unit
sphere at squared distance s = 2 - 2 cos θ have θ = 2 atan2(√s, √(4 - s)): `squared_distance` makes s accurate where θ
is small, and as functions of s the J_n are closed under d/ds, so that only J_0 has the root's singularity:

    J_0 = π - θ,   J_1 = sin θ + (π - θ) cos θ,   J_2 = 3 sin θ cos θ + (π - θ) (1 + 2 cos² θ),
    dJ_1/ds = -J_0 / 2,   dJ_2/ds = -2 J_1.
"""

import jax
import jax.numpy as jnp
from gpjax.kernels import ArcCosine
from gpjax.parameters import val
from jax import lax
from jaxtyping import Array, Float

from ._distance import squared_distance

# Below it a square root would have an infinite derivative; float32 still holds it.
_FLOOR = 1e-36


def arc_cosine(kernel: ArcCosine, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """Covariances of all pairs, with finite gradients where points coincide.

    Args:
        kernel: GPJax's arc-cosine kernel.
        x: n points, one per row.
        y: m points, one per row.

    Returns:
        The n x m covariance matrix. Cost: one n x m x d matrix product.
    """
    x_norm, x_direction = _polar(kernel, x)
    y_norm, y_direction = _polar(kernel, y)
    angular = (_order_0, _order_1, _order_2)[kernel.order](squared_distance(x_direction, y_direction))
    return val(kernel.variance) / jnp.pi * jnp.outer(x_norm**kernel.order, y_norm**kernel.order) * angular


def arc_cosine_variance(kernel: ArcCosine, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """The diagonal: J_n(0) / π is 1, 1 and 3 for the orders 0, 1 and 2. Cost: n d."""
    squares = jnp.sum(_features(kernel, x) ** 2, axis=1)
    return val(kernel.variance) * (1.0, 1.0, 3.0)[kernel.order] * squares**kernel.order


def _features(kernel: ArcCosine, x):
    x = jnp.asarray(kernel.slice_input(x))
    bias = jnp.broadcast_to(_root(jnp.asarray(val(kernel.bias_variance), x.dtype)), (x.shape[0], 1))
    return jnp.concatenate([_root(jnp.asarray(val(kernel.weight_variance), x.dtype)) * x, bias], axis=1)


def _polar(kernel: ArcCosine, x):
    features = _features(kernel, x)
    norm = _root(jnp.sum(features**2, axis=1))
    # XLA would otherwise fuse the features into the loop over pairs and compute them n m times.
    return lax.optimization_barrier((norm, features / norm[:, None]))


def _root(values):
    return jnp.sqrt(jnp.maximum(values, _FLOOR))


def _sin_and_cos(s):
    # sin θ = 2 sin θ/2 cos θ/2 with sin θ/2 = √s / 2.
    return 0.5 * _root(s) * _root(4.0 - s), 1.0 - 0.5 * s


def _order_0(s: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.pi - 2.0 * jnp.arctan2(_root(s), _root(4.0 - s))


@jax.custom_jvp
def _order_1(s: Float[Array, "..."]) -> Float[Array, "..."]:
    sine, cosine = _sin_and_cos(s)
    return sine + _order_0(s) * cosine


@_order_1.defjvp
def _order_1_jvp(primals, tangents):
    (s,), (ds,) = primals, tangents
    return _order_1(s), -0.5 * _order_0(s) * ds


@jax.custom_jvp
def _order_2(s: Float[Array, "..."]) -> Float[Array, "..."]:
    sine, cosine = _sin_and_cos(s)
    return 3.0 * sine * cosine + _order_0(s) * (1.0 + 2.0 * cosine**2)


@_order_2.defjvp
def _order_2_jvp(primals, tangents):
    (s,), (ds,) = primals, tangents
    return _order_2(s), -2.0 * _order_1(s) * ds
