"""Features of images from a convolutional network with random weights."""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from fsplaplace.arguments import KeyLike, checked
from fsplaplace.host import host_generator


class RandomConvolutions(eqx.Module):
    r"""A convolutional network with random weights that are never trained, whose outputs are features of an image.

    Layers of 3 x 3 convolutions (the border is padded with zeros), ReLU and averages over 2 x 2 pixels; weights are Gaussian with
    variance 2 / fan-in (He et al. 2015), which keeps the size of the activations, and there are no biases. The last layer's
    activations at all places are the features: what they say of an image is which strokes and textures are where, roughly.

    Args:
        shape: of one image, (height, width, channels).
        channels: of each layer; each halves height and width.
        key: of the weights.

    Cost: that of one pass for each image. For `OnFeatures`.

    Examples:
        >>> network = fsp.kernels.RandomConvolutions((28, 28, 1), key=jr.key(0))
        >>> network(jnp.zeros((2, 28, 28, 1))).shape
        (2, 1152)
    """

    weights: tuple[Any, ...]
    shape: tuple[int, ...] = eqx.field(static=True)

    @checked
    def __init__(self, shape: Sequence[int], *, channels: Sequence[int] = (32, 64, 128), key: KeyLike):
        sizes = tuple(int(size) for size in shape)
        if len(sizes) != 3 or min(sizes) < 1:
            raise ValueError(f"RandomConvolutions: shape is {sizes}; pass (height, width, channels)")
        if not len(channels) or min(channels) < 1:
            raise ValueError(
                f"RandomConvolutions: channels is {tuple(channels)}; pass one layer or more, each with 1 channel or more"
            )
        if min(sizes[:2]) >> len(channels) < 1:
            raise ValueError(
                f"RandomConvolutions: {len(channels)} layers halve {sizes[0]} x {sizes[1]} pixels to none; pass fewer channels"
            )
        self.shape = sizes
        generator, weights, before = host_generator(key), [], sizes[2]
        for after in channels:
            size = (3, 3, before, int(after))
            spread = math.sqrt(2 / (9 * before))
            weights.append(jax.device_put((spread * generator.standard_normal(size)).astype(np.float32)))
            before = int(after)
        self.weights = tuple(weights)

    def __call__(self, x: Float[Array, "n height width channels"]) -> Float[Array, "n features"]:
        """Features of n images."""
        for weight in self.weights:
            layout = ("NHWC", "HWIO", "NHWC")
            x = lax.conv_general_dilated(x, weight.astype(x.dtype), (1, 1), "SAME", dimension_numbers=layout)
            x = _average(jax.nn.relu(x))
        return x.reshape(x.shape[0], -1)


def _average(x: Float[Array, "n height width channels"]) -> Float[Array, "n half_height half_width channels"]:
    """Averages over 2 x 2 pixels, by strided slices: faster on the CPU than a window."""
    height, width = (size // 2 * 2 for size in x.shape[1:3])
    corners = [x[:, i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]
    return jnp.asarray((corners[0] + corners[1] + corners[2] + corners[3]) / 4)
