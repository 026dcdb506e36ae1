"""The periodic kernel as a radial kernel on circles."""

import jax.numpy as jnp
from gpjax.kernels import Periodic
from gpjax.parameters import val
from jax import lax
from jaxtyping import Array, Float

# Leading bits of the period that a cycle count of up to 2^12 (2^26) multiplies without rounding.
_LEADING_BITS = {4: (8, 11), 8: (11, 26)}


def periodic_features(
    kernel: Periodic, x: Float[Array, "n d"], y: Float[Array, "m d"]
) -> tuple[Float[Array, "n 2c"], Float[Array, "m 2c"]]:
    """Points on circles whose squared distances are sum_k (sin(π (x_k - y_k) / p) / ℓ_k)².

    With φ(t) = (cos t, sin t) / 2ℓ, |φ(2πa/p) - φ(2πb/p)|² = sin²(π (a - b) / p) / ℓ²: n + m sines and cosines
    replace n m sines.

    Args:
        kernel: GPJax periodic kernel that acts on c columns.
        x: n points, one per row.
        y: m points, one per row.

    Returns:
        The features of x and of y. Cost: (n + m) c.
    """
    x, y = kernel.slice_input(x), kernel.slice_input(y)
    period, lengthscale = val(kernel.period), val(kernel.lengthscale)
    # Few cycles from the origin, so that the phase keeps its digits.
    centre = lax.stop_gradient(jnp.mean(y, axis=0))

    def features(points):
        phase = 2.0 * jnp.pi * _remainder(points - centre, period) / period
        return jnp.concatenate(
            [jnp.cos(phase) / (2.0 * lengthscale), jnp.sin(phase) / (2.0 * lengthscale)], axis=1
        )

    return features(x), features(y)


def _remainder(t, period):
    """t minus whole periods. The period is split (Cody and Waite) so that the subtraction does not round."""
    cycles = lax.stop_gradient(jnp.round(t / period))
    leading = lax.stop_gradient(lax.reduce_precision(period, *_LEADING_BITS[t.dtype.itemsize]))
    return (t - cycles * leading) - cycles * (period - leading)
