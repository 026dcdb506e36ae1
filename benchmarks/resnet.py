"""A ResNet-18 for 32 x 32 images with group normalisation, as a plain function of its weights."""

import jax
import jax.numpy as jnp
import jax.random as jr

STAGES = (64, 128, 256, 512)
_GROUPS = 8


def resnet18(num_outputs: int, *, key):
    """`(apply, params)`: 11 million weights, inputs (n, 32, 32, 3), outputs (n, q)."""
    keys = iter(jr.split(key, 64))

    def kernel(size, channels_in, channels_out):
        scale = (2 / (size * size * channels_in)) ** 0.5
        return scale * jr.normal(next(keys), (size, size, channels_in, channels_out))

    def norm(channels):
        return {"scale": jnp.ones(channels), "shift": jnp.zeros(channels)}

    blocks, width = [], STAGES[0]
    for channels in STAGES:
        for _ in range(2):
            block = {"first": kernel(3, width, channels), "first_norm": norm(channels),
                     "second": kernel(3, channels, channels), "second_norm": norm(channels)}  # fmt: skip
            if width != channels:
                block["shortcut"] = kernel(1, width, channels)
            blocks.append(block)
            width = channels
    head = {"weight": jr.normal(next(keys), (width, num_outputs)) / width**0.5, "bias": jnp.zeros(num_outputs)}
    stem = {"kernel": kernel(3, 3, STAGES[0]), "norm": norm(STAGES[0])}
    return _apply, {"stem": stem, "blocks": blocks, "head": head}


def _apply(params, x):
    x = jax.nn.relu(_normalise(_convolve(x, params["stem"]["kernel"], 1), params["stem"]["norm"]))
    for block in params["blocks"]:
        stride = 2 if "shortcut" in block else 1
        inner = jax.nn.relu(_normalise(_convolve(x, block["first"], stride), block["first_norm"]))
        inner = _normalise(_convolve(inner, block["second"], 1), block["second_norm"])
        x = jax.nn.relu(inner + (_convolve(x, block["shortcut"], stride) if "shortcut" in block else x))
    return x.mean(axis=(1, 2)) @ params["head"]["weight"] + params["head"]["bias"]


def _convolve(x, kernel, stride: int):
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _normalise(x, norm):
    n, height, width, channels = x.shape
    groups = x.reshape(n, height, width, _GROUPS, channels // _GROUPS)
    mean, variance = (f(groups, axis=(1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
    scaled = (groups - mean) / jnp.sqrt(variance + 1e-5)
    return scaled.reshape(x.shape) * norm["scale"] + norm["shift"]
