"""Squared Euclidean distances between two sets of points."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

EXPLICIT_WIDTH = 8  # up to this many columns explicit differences cost no more than a matrix product


def squared_distance(x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """|x_i - y_j|² for all pairs."""
    if x.shape[1] <= EXPLICIT_WIDTH:
        return sum(jnp.square(x[:, None, k] - y[None, :, k]) for k in range(x.shape[1]))
    centre = lax.stop_gradient(jnp.mean(y, axis=0))
    x, y = x - centre, y - centre
    product = jnp.matmul(x, y.T, precision=lax.Precision.HIGHEST)
    norms = jnp.sum(x * x, axis=1)[:, None] + jnp.sum(y * y, axis=1)[None, :]
    return jax.nn.relu(norms - 2.0 * product)
