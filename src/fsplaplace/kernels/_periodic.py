"""The periodic kernel as a radial kernel on circles."""

import jax.numpy as jnp
from gpjax.kernels import Periodic
from gpjax.parameters import val
from jax import lax
from jaxtyping import Array, Float

# (exponent, mantissa) bits of the leading part of a period, by bytes per number: a cycle count of up to
# 2^12 (float32) or 2^26 (float64) multiplies it without rounding.
_LEADING_BITS = {4: (8, 11), 8: (11, 26)}


def periodic_features(
    kernel: Periodic, x: Float[Array, "n d"], y: Float[Array, "m d"]
) -> tuple[Float[Array, "n c"], Float[Array, "m c"]]:
    """Points on circles whose squared distances are sum_k (sin(π (x_k - y_k) / p) / ℓ_k)².

    With φ(t) = (cos 2πt/p, sin 2πt/p) / 2ℓ, |φ(a) - φ(b)|² = sin²(π (a - b) / p) / ℓ²: n + m sines and
    cosines do the work of n m sines.

    Args:
        kernel: GPJax periodic kernel.
        x: n points, one per row.
        y: m points, one per row.

    Returns:
        The features of x and of y, two columns for each column the kernel acts on. Cost: (n + m) d.
    """
    x, y = jnp.asarray(kernel.slice_input(x)), jnp.asarray(kernel.slice_input(y))
    period = jnp.asarray(val(kernel.period), x.dtype).reshape(())
    radius = 0.5 / jnp.asarray(val(kernel.lengthscale), x.dtype)
    centre = lax.stop_gradient(_remote_centre(y))

    def features(points):
        phase = 2.0 * jnp.pi * _remainder(points - centre, period) / period
        circles = jnp.concatenate([radius * jnp.cos(phase), radius * jnp.sin(phase)], axis=1)
        # XLA would otherwise fuse the sines into the loop over pairs and compute them n m times.
        return lax.optimization_barrier(circles)

    return features(x), features(y)


def _remote_centre(points):
    """Mean of points far from the origin, to count fewer cycles; zero for others, where shifting would round."""
    mean = jnp.mean(points, axis=0)
    spread = jnp.max(jnp.abs(points - mean), axis=0)
    return jnp.where(jnp.abs(mean) > 2.0 * spread, mean, 0.0)


def _remainder(t, period):
    """t minus whole periods; the period is split (Cody and Waite) so that the subtraction does not round."""
    cycles = lax.stop_gradient(jnp.round(t / period))
    exponent_bits, mantissa_bits = _LEADING_BITS[t.dtype.itemsize]
    leading = lax.stop_gradient(lax.reduce_precision(period, exponent_bits, mantissa_bits))
    return (t - cycles * leading) - cycles * (period - leading)
