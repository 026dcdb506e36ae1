"""Length scale and smoothness of a kernel whose form is unknown, read off its correlation."""

import math

import jax.numpy as jnp
from gpjax.kernels import AbstractKernel
from jaxtyping import Array, Float

from .engine import covariance, variance

_DISTANCES = (1e-4, 1e4, 200)  # shortest, longest, how many


def probed_lengthscales(kernel: AbstractKernel, num_features: int) -> Float[Array, " d"]:
    """Distance from the origin along each axis at which the correlation falls to e^-1/2, as an RBF's does at ℓ.

    Args:
        kernel: a scalar kernel.
        num_features: number of input dimensions d.

    Returns:
        The d distances, infinite along axes where the correlation stays above. Cost: 200 d kernel values.
    """
    shortest, longest, count = _DISTANCES
    distances = jnp.geomspace(shortest, longest, count)
    steps = distances[None, :, None] * jnp.eye(num_features)[:, None, :]
    decay = _decay(kernel, steps.reshape(-1, num_features)).reshape(num_features, count)
    # -log ρ is a power of the distance for many kernels, so both are interpolated as logarithms.
    fallen = decay > 0.5
    after = jnp.maximum(jnp.argmax(fallen, axis=1), 1)
    low = jnp.take_along_axis(decay, after[:, None] - 1, axis=1)[:, 0]
    high = jnp.take_along_axis(decay, after[:, None], axis=1)[:, 0]
    fraction = (math.log(0.5) - jnp.log(low)) / (jnp.log(high) - jnp.log(low))
    step = math.log(longest / shortest) / (count - 1)
    crossing = distances[after - 1] * jnp.exp(step * jnp.clip(fraction, 0.0, 1.0))
    return jnp.where(jnp.any(fallen, axis=1), crossing, jnp.inf)


def probed_smoothness(kernel: AbstractKernel) -> float:
    """Half the exponent κ with which 1 - ρ(h) ~ h^κ leaves zero; infinity if κ is 2, as for every ν above 1.

    Args:
        kernel: a scalar kernel with concrete parameters.

    Returns:
        ν, resolved below 1. Cost: that of the length scales.
    """
    width = _width(kernel)
    scales = probed_lengthscales(kernel, width)
    axis = int(jnp.argmin(scales))
    if not math.isfinite(scales[axis]):
        return math.inf
    steps = scales[axis] * jnp.array([1 / 40, 1 / 20])[:, None] * jnp.eye(width)[axis]
    near, far = _decay(kernel, steps)
    exponent = math.log2(far / near)
    return exponent / 2 if exponent < 1.9 else math.inf


def _decay(kernel: AbstractKernel, points: Float[Array, "n d"]) -> Float[Array, " n"]:
    """-log of the correlation between the origin and each point."""
    origin = jnp.zeros((1, points.shape[1]), points.dtype)
    scale = jnp.sqrt(variance(kernel, origin) * variance(kernel, points))
    correlation = covariance(kernel, origin, points)[0] / scale
    smallest = jnp.finfo(correlation.dtype).tiny
    return -jnp.log(jnp.clip(correlation, smallest, 1.0 - jnp.finfo(correlation.dtype).epsneg))


def _width(kernel: AbstractKernel) -> int:
    """The fewest input dimensions that hold the kernel's columns."""
    if isinstance(kernel.active_dims, list):
        return max(kernel.active_dims) + 1
    return kernel.active_dims.stop or kernel.n_dims or 1
