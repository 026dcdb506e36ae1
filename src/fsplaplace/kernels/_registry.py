"""Kernels that the library knows, by their type."""

import numpy as np
from gpjax.kernels import AbstractKernel
from gpjax.parameters import val

from ._entry import STARTS, DataSummary, KernelEntry, Start
from ._gpjax import ENTRIES

_UNKNOWN = KernelEntry()
_entries = dict(ENTRIES)


def register_kernel(kernel: type[AbstractKernel], entry: KernelEntry) -> None:
    """Teach the library a kernel: covariances, length scales, smoothness, starts of a fit and descriptions.

    Args:
        kernel: the class of a scalar GPJax kernel. Its subclasses may override the kernel function, so they inherit
            only what follows from the parameters: starts and remarks.
        entry: what to know about it; replaces an earlier entry.
    """
    _entries[kernel] = entry


def exact_entry(kernel: AbstractKernel) -> KernelEntry:
    """What is known about kernels of exactly this type: for all that follows from the kernel function."""
    return _entries.get(type(kernel), _UNKNOWN)


def nearest_entry(kernel: AbstractKernel) -> KernelEntry:
    """What is known about the type or its nearest registered base: for all that follows from the parameters."""
    return next((_entries[kind] for kind in type(kernel).__mro__ if kind in _entries), _UNKNOWN)


def parameter_starts(kernel: AbstractKernel, data: DataSummary) -> dict[str, Start]:
    """First value and bounds of the kernel's parameters, by name, from what the data says."""
    starts = nearest_entry(kernel).starts or STARTS
    nodes = {name: getattr(kernel, name, None) for name in starts}
    return {name: starts[name](data, np.shape(val(node))) for name, node in nodes.items() if node is not None}
