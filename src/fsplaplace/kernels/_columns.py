"""Whether a kernel fits the columns of its inputs: JAX reads a column that is not there as the last one, without a word."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from gpjax.kernels import AbstractKernel
from gpjax.parameters import val

from .on_features import OnFeatures


def check_columns(kernel: AbstractKernel, num_columns: int) -> None:
    """Refuse active columns that the inputs do not have, and length scales that are not one for each active column."""
    for part in _parts(kernel):
        if isinstance(part, OnFeatures):
            if math.prod(part.shape) != num_columns:
                raise ValueError(
                    f"Prior: the kernel OnFeatures is for inputs of shape {part.shape}, {math.prod(part.shape)} columns, but the "
                    f"inputs have {num_columns}; pass inputs of that shape, or make the kernel for theirs"
                )
            check_columns(part.base, part.num_features)
            continue
        name, dims = type(part).__name__, part.active_dims
        if not isinstance(dims, slice) and any(not isinstance(dim, int | np.integer) for dim in dims):
            raise TypeError(f"Prior: the kernel {name} uses active_dims={dims}; pass whole numbers, counted from 0")
        last = dims.stop if isinstance(dims, slice) else max((abs(int(dim) + (dim < 0)) + 1 for dim in dims), default=0)
        if last is not None and last > num_columns:
            raise ValueError(
                f"Prior: the kernel {name} uses active_dims={dims}, but the inputs have {num_columns} column(s), counted from "
                "0; change active_dims"
            )
        count = len(range(num_columns)[dims]) if isinstance(dims, slice) else len(dims)
        length = getattr(part, "lengthscale", None)
        shape: tuple[int, ...] = () if length is None else np.shape(val(length))
        if shape and shape not in ((1,), (count,)):
            raise ValueError(
                f"Prior: the kernel {name} has {shape[0]} length scales, but acts on {count} column(s) of the inputs; pass one, "
                "or one for each column"
            )


def _parts(kernel: Any) -> Iterator[AbstractKernel]:
    """The kernel, and every kernel inside it."""
    yield kernel
    if isinstance(kernel, OnFeatures):
        # Its base acts on other columns than those of the inputs.
        return
    inner = jax.tree.leaves(kernel, is_leaf=lambda node: isinstance(node, AbstractKernel) and node is not kernel)
    for node in inner:
        if isinstance(node, AbstractKernel) and node is not kernel:
            yield from _parts(node)
