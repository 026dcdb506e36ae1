"""JAX twins of torch's convolutions and poolings, with torch's signatures and its NCHW layout."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np


def conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, ndim):
    """`conv1d` and `conv2d`: input (n, c, ...), weight (c_out, c / groups, ...)."""
    if isinstance(padding, str):
        pads = padding.upper() if padding == "valid" else [_same(k, d) for k, d in _kernels(weight, dilation, ndim)]
    else:
        pads = [(p, p) for p in _sizes(padding, ndim)]
    spatial = "HW"[:ndim]
    output = jax.lax.conv_general_dilated(
        input,
        weight,
        window_strides=_sizes(stride, ndim),
        padding=pads,
        rhs_dilation=_sizes(dilation, ndim),
        dimension_numbers=("NC" + spatial, "OI" + spatial, "NC" + spatial),
        feature_group_count=groups,
    )
    return output if bias is None else output + bias.reshape(1, -1, *[1] * ndim)


def max_pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False, *, ndim):
    """`max_pool1d` and `max_pool2d`: the gradient goes to the first of equal values, as in torch."""
    if all(step == 1 for step in _sizes(dilation, ndim)):
        return _pool(input, -jnp.inf, jax.lax.max, kernel_size, stride, padding, ndim)
    return _dilated_max_pool(input, kernel_size, stride, padding, dilation, ndim)


def avg_pool(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, *, ndim
):
    """`avg_pool1d` and `avg_pool2d`."""
    places = {"kernel": kernel_size, "stride": stride, "padding": padding, "ndim": ndim}
    pool = functools.partial(_pool, initial=0.0, reduce=jax.lax.add, **places)
    if divisor_override is not None:
        return pool(input) / divisor_override
    if count_include_pad:
        return pool(input) / math.prod(_sizes(kernel_size, ndim))
    return pool(input) / pool(jnp.ones(input.shape[-ndim:], input.dtype))


def adaptive_avg_pool(input, output_size, *, ndim):
    """`adaptive_avg_pool1d` and `adaptive_avg_pool2d`: means over bins from floor(i L / o) to ceil((i + 1) L / o)."""
    targets = _sizes(output_size, ndim)
    for axis, target in zip(range(-ndim, 0), targets, strict=True):
        length = input.shape[axis]
        matrix = _bin_means(length, length if target is None else target).astype(input.dtype)
        input = jnp.moveaxis(jnp.tensordot(input, matrix, axes=(axis, 0)), -1, axis)
    return input


def _bin_means(length: int, bins: int) -> np.ndarray:
    matrix = np.zeros((length, bins))
    for i in range(bins):
        start, stop = i * length // bins, -(-(i + 1) * length // bins)
        matrix[start:stop, i] = 1.0 / (stop - start)
    return matrix


def _pool(input, initial, reduce, kernel, stride, padding, ndim):
    lead = input.ndim - ndim
    windows, strides = _windows(kernel, stride, ndim)
    return jax.lax.reduce_window(
        input,
        # A concrete value: by it JAX recognises the maximum and the sum, which it can differentiate.
        np.asarray(initial, input.dtype),
        reduce,
        (1,) * lead + windows,
        (1,) * lead + strides,
        [(0, 0)] * lead + [(p, p) for p in _sizes(padding, ndim)],
    )


def _dilated_max_pool(input, kernel, stride, padding, dilation, ndim):
    """One shifted copy of the input per place in the window: JAX has no derivative of a dilated window's maximum."""
    windows, strides = _windows(kernel, stride, ndim)
    spread = _sizes(dilation, ndim)
    pads = [(0, 0)] * (input.ndim - ndim) + [(p, p) for p in _sizes(padding, ndim)]
    padded = jnp.pad(input, pads, constant_values=-jnp.inf)
    extents = [n - d * (k - 1) for n, d, k in zip(padded.shape[-ndim:], spread, windows, strict=True)]
    copies = []
    for place in itertools.product(*map(range, windows)):
        starts = [d * i for d, i in zip(spread, place, strict=True)]
        cuts = (slice(start, start + n, step) for start, n, step in zip(starts, extents, strides, strict=True))
        copies.append(padded[(..., *cuts)])
    stacked = jnp.stack(copies)
    return jnp.take_along_axis(stacked, jnp.argmax(stacked, axis=0)[None], axis=0)[0]


def _windows(kernel, stride, ndim: int) -> tuple[tuple, tuple]:
    windows = _sizes(kernel, ndim)
    # Torch's default stride is the window; its traced graphs also write an empty list for it.
    return windows, windows if stride is None or stride == () else _sizes(stride, ndim)


def _kernels(weight, dilation, ndim):
    return zip(weight.shape[2:], _sizes(dilation, ndim), strict=True)


def _same(kernel: int, dilation: int) -> tuple[int, int]:
    total = dilation * (kernel - 1)
    return total // 2, total - total // 2


def _sizes(value, ndim: int) -> tuple:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * ndim
