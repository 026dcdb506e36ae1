"""Kernels by name."""

import math
from collections.abc import Callable

import jax.numpy as jnp
from gpjax.kernels import (
    RBF,
    AbstractKernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SumKernel,
)

_STATIONARY: dict[str, Callable[..., AbstractKernel]] = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational_quadratic": RationalQuadratic,
}
KERNELS = (*_STATIONARY, "periodic", "linear", "linear+matern32")


def kernel_by_name(kernel: str | AbstractKernel, num_features: int, *, ard: bool) -> AbstractKernel:
    r"""The kernel itself, or the one of this name for standardised inputs: unit variance and length scales $\sqrt d$,
    one per input where `ard`."""
    if isinstance(kernel, AbstractKernel):
        return kernel
    if not isinstance(kernel, str) or kernel not in KERNELS:
        raise ValueError(f"kernel is {kernel!r}; pass one of {', '.join(map(repr, KERNELS))}, or a GPJax kernel")
    if kernel == "periodic":
        return Periodic()
    if kernel == "linear":
        return Linear()
    if kernel.startswith("linear+"):
        rough = kernel_by_name(kernel.removeprefix("linear+"), num_features, ard=ard)
        return SumKernel(kernels=(Linear(variance=1.0 / num_features), rough))
    scale = math.sqrt(num_features)
    return _STATIONARY[kernel](lengthscale=jnp.full((num_features,), scale) if ard and num_features > 1 else scale)
