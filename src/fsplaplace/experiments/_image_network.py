"""The paper's convolutional network for images of 28 x 28 pixels."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray


class ConvolutionalNetwork(eqx.Module):
    """Three convolutions (3 x 3, same padding) with ReLU and 2 x 2 max-pooling, a dense layer of 128, and one output per class.

    Attributes:
        convolutions: with 16, 32 and 64 channels.
        dense: the two fully connected layers.
    """

    convolutions: tuple[eqx.nn.Conv2d, ...]
    dense: tuple[eqx.nn.Linear, ...]

    def __init__(
        self,
        *,
        key: PRNGKeyArray,
        shape: tuple[int, int, int] = (28, 28, 1),
        channels: tuple[int, ...] = (16, 32, 64),
        width: int = 128,
        num_classes: int = 10,
    ):
        keys = jr.split(key, len(channels) + 2)
        height, breadth, first = shape
        # In single precision whatever mode JAX runs in: that is what images are trained in.
        make = {"padding": "SAME", "dtype": jnp.float32}
        pairs = zip((first, *channels[:-1]), channels, keys[2:], strict=True)
        self.convolutions = tuple(eqx.nn.Conv2d(before, after, 3, key=k, **make) for before, after, k in pairs)
        size = channels[-1] * (height >> len(channels)) * (breadth >> len(channels))
        self.dense = (
            eqx.nn.Linear(size, width, key=keys[0], dtype=jnp.float32),
            eqx.nn.Linear(width, num_classes, key=keys[1], dtype=jnp.float32),
        )

    def __call__(self, x: Float[Array, "height breadth channels"]) -> Float[Array, " classes"]:
        x = jnp.moveaxis(x, -1, 0)
        for convolution in self.convolutions:
            # Pooling first, of which ReLU is a monotone function: a quarter of the values to cut off.
            x = jax.nn.relu(max_pool(convolution(x)))
        return self.dense[1](jax.nn.relu(self.dense[0](x.ravel())))


def max_pool(x: Float[Array, "channels height breadth"]) -> Float[Array, "channels half_height half_breadth"]:
    """2 x 2 max-pooling by strided slices: on the CPU its gradient takes two thirds of the time of a pooling window's."""
    height, breadth = (size // 2 * 2 for size in x.shape[1:])
    corners = [x[:, i:height:2, j:breadth:2] for i in (0, 1) for j in (0, 1)]
    return jnp.maximum(jnp.maximum(corners[0], corners[1]), jnp.maximum(corners[2], corners[3]))
