"""JAX twins of the torch functions and tensor methods that can be translated, under torch's names and signatures.

`TABLE` is the list: what is not in it is refused by name. Nothing here imports torch.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fsplaplace.networks.adapters._torch import _windows as windows


def linear(input, weight, bias=None):
    output = input @ weight.T
    return output if bias is None else output + bias


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    return weight[input.astype(jnp.int32)]


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """By the running statistics: the mode in which a row does not depend on the others."""
    shape = (1, -1, *[1] * (input.ndim - 2))
    scale = jax.lax.rsqrt(running_var + eps)
    output = (input - running_mean.reshape(shape)) * scale.reshape(shape)
    return _affine(output, weight, bias, shape)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    axes = tuple(range(-len(normalized_shape), 0))
    return _affine(_standardise(input, axes, eps), weight, bias, normalized_shape)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    grouped = input.reshape(input.shape[0], num_groups, -1)
    output = _standardise(grouped, -1, eps).reshape(input.shape)
    return _affine(output, weight, bias, (1, -1, *[1] * (input.ndim - 2)))


def _standardise(input, axes, eps):
    centred = input - jnp.mean(input, axes, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axes, keepdims=True) + eps)


def _affine(output, weight, bias, shape):
    output = output if weight is None else output * weight.reshape(shape)
    return output if bias is None else output + bias.reshape(shape)


def dropout(input, p=0.5, training=True, inplace=False):
    """In evaluation mode; `ONLY` refuses the other."""
    return input


def unchanged(input):
    return input


def relu(input, inplace=False):
    return jax.nn.relu(input)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    return jnp.where(input > 0, input, negative_slope * input)


def elu(input, alpha=1.0, inplace=False):
    return jax.nn.elu(input, alpha)


def selu(input, inplace=False):
    return jax.nn.selu(input)


def gelu(input, approximate="none"):
    return jax.nn.gelu(input, approximate=approximate == "tanh")


def silu(input, inplace=False):
    return jax.nn.silu(input)


def mish(input, inplace=False):
    return input * jnp.tanh(jax.nn.softplus(input))


def softplus(input, beta=1.0, threshold=20.0):
    scaled = beta * input
    return jnp.where(scaled > threshold, input, jax.nn.softplus(scaled) / beta)


def softsign(input):
    return jax.nn.soft_sign(input)


def logsigmoid(input):
    return jax.nn.log_sigmoid(input)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    # Not jnp.clip: at the bounds torch's derivative is 0.
    return jnp.where(input <= min_val, min_val, jnp.where(input >= max_val, max_val, input)).astype(input.dtype)


def relu6(input, inplace=False):
    return hardtanh(input, 0.0, 6.0)


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    return jax.nn.softmax(input, axis=dim)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return jax.nn.log_softmax(input, axis=dim)


def add(input, other, *, alpha=1):
    return input + (other if alpha == 1 else alpha * other)


def sub(input, other, *, alpha=1):
    return input - (other if alpha == 1 else alpha * other)


def rsub(input, other):
    return other - input


def clamp(input, min=None, max=None):
    return jnp.clip(input, min, max)


def mean(input, dim=None, keepdim=False):
    return jnp.mean(input, axis=dim, keepdims=keepdim)


def sum_(input, dim=None, keepdim=False):
    return jnp.sum(input, axis=dim, keepdims=keepdim)


def flatten(input, start_dim=0, end_dim=-1):
    start, end = start_dim % input.ndim, end_dim % input.ndim
    return input.reshape(*input.shape[:start], math.prod(input.shape[start : end + 1]), *input.shape[end + 1 :])


def unflatten(input, dim, unflattened_size):
    dim = dim % input.ndim
    return input.reshape(*input.shape[:dim], *unflattened_size, *input.shape[dim + 1 :])


def reshape(input, *shape):
    return input.reshape(_unpacked(shape))


def permute(input, *dims):
    return jnp.transpose(input, _unpacked(dims))


def transpose(input, dim0, dim1):
    return jnp.swapaxes(input, dim0, dim1)


def squeeze(input, dim=None):
    if dim is None:
        return jnp.squeeze(input)
    dims = dim if isinstance(dim, tuple) else (dim,)
    return jnp.squeeze(input, axis=tuple(d for d in dims if input.shape[d] == 1))


def unsqueeze(input, dim):
    return jnp.expand_dims(input, dim)


def cat(tensors, dim=0):
    return jnp.concatenate(tensors, axis=dim)


def stack(tensors, dim=0):
    return jnp.stack(tensors, axis=dim)


def chunk(input, chunks, dim=0):
    size = -(-input.shape[dim] // chunks)
    return tuple(jnp.split(input, list(range(size, input.shape[dim], size)), axis=dim))


def expand(input, *sizes):
    sizes = _unpacked(sizes)
    lead = len(sizes) - input.ndim
    kept = (s if s != -1 else input.shape[i - lead] for i, s in enumerate(sizes))
    return jnp.broadcast_to(input, tuple(kept))


def size(input, dim=None):
    return input.shape if dim is None else input.shape[dim]


def attribute(input, name):
    return getattr(input, name)


def to_integer(input):
    return input.astype(jnp.int32)


def _unpacked(values: tuple) -> tuple:
    """`view(2, 3)` and `view((2, 3))` are the same call."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], tuple | list) else values


_POOLS = {
    f"{name}{ndim}d": functools.partial(function, ndim=ndim)
    for name, function in (
        ("conv", windows.conv),
        ("max_pool", windows.max_pool),
        ("avg_pool", windows.avg_pool),
        ("adaptive_avg_pool", windows.adaptive_avg_pool),
    )
    for ndim in (1, 2)
}

TABLE: dict[str, Callable] = {
    **_POOLS,
    **{f.__name__: f for f in (linear, embedding, batch_norm, layer_norm, group_norm)},
    **{f.__name__: f for f in (relu, leaky_relu, elu, selu, gelu, silu, mish, softplus, softsign, logsigmoid)},
    **{f.__name__: f for f in (hardtanh, relu6, softmax, log_softmax, add, sub, rsub, clamp, mean)},
    **{f.__name__: f for f in (flatten, unflatten, reshape, permute, transpose, squeeze, unsqueeze)},
    **{f.__name__: f for f in (cat, stack, chunk, expand, size)},
    **{name: dropout for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")},
    **{name: unchanged for name in ("identity", "contiguous", "clone")},
    **{name: getattr(jnp, name) for name in ("tanh", "exp", "log", "sqrt", "abs", "sin", "cos", "square", "matmul")},
    "sigmoid": jax.nn.sigmoid,
    "sum": sum_,
    "mul": operator.mul,
    "div": operator.truediv,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "neg": operator.neg,
    "pow": operator.pow,
    "mm": jnp.matmul,
    "bmm": jnp.matmul,
    "view": reshape,
    "concat": cat,
    "t": jnp.transpose,
    "getitem": operator.getitem,
    "getattr": attribute,
    "long": to_integer,
    "int": to_integer,
}  # fmt: skip

# Results that share memory with their input in torch: an in-place operation on one changes the other.
VIEWS = frozenset(
    {"flatten", "unflatten", "reshape", "view", "permute", "transpose", "t", "squeeze", "unsqueeze", "chunk", "expand"}
    | {"getitem", "getattr", "contiguous", "identity"}
    | {name for name in TABLE if "dropout" in name}
)

ATTRIBUTES = frozenset({"shape", "ndim", "T", "mT"})

# Options with one translatable value.
ONLY: dict[str, dict[str, Any]] = {
    "batch_norm": {"training": False},
    "embedding": {"max_norm": None},
    "softmax": {"dtype": None},
    "log_softmax": {"dtype": None},
    **{name: {"training": False} for name in TABLE if "dropout" in name},
    **{f"max_pool{ndim}d": {"ceil_mode": False, "return_indices": False} for ndim in (1, 2)},
    **{f"avg_pool{ndim}d": {"ceil_mode": False} for ndim in (1, 2)},
}
