"""Kernel matrices of GPJax kernels through one matrix of squared distances."""

import functools
import operator

import lineax as lx
from gpjax.kernels import (
    RBF,
    AbstractKernel,
    DenseKernelComputation,
    Matern12,
    Matern32,
    Matern52,
    PoweredExponential,
    ProductKernel,
    RationalQuadratic,
    SumKernel,
)
from gpjax.kernels.computations import AbstractKernelComputation
from gpjax.parameters import val
from jaxtyping import Array, Float

from . import _profiles as profiles
from ._distance import squared_distance


def covariance(kernel: AbstractKernel, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """Covariance matrix k(x_i, y_j) of a scalar kernel."""
    if type(kernel) is SumKernel:
        return functools.reduce(operator.add, [covariance(part, x, y) for part in kernel.kernels])
    if type(kernel) is ProductKernel:
        return functools.reduce(operator.mul, [covariance(part, x, y) for part in kernel.kernels])
    profile = _PROFILES.get(type(kernel))
    if profile is None:
        return _fallback(kernel).cross_covariance(kernel, x, y)
    lengthscale = val(kernel.lengthscale)
    distance = squared_distance(kernel.slice_input(x) / lengthscale, kernel.slice_input(y) / lengthscale)
    return val(kernel.variance) * profile(kernel, distance)


def variance(kernel: AbstractKernel, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """Prior variance k(x_i, x_i) of a scalar kernel."""
    return lx.diagonal(kernel.diagonal(x))


class GemmComputation(AbstractKernelComputation):
    """GPJax compute engine that calls `covariance`."""

    def _cross_covariance(self, kernel, x, y):
        return covariance(kernel, x, y)


_PROFILES = {
    RBF: lambda kernel, s: profiles.rbf(s),
    Matern12: lambda kernel, s: profiles.matern12(s),
    Matern32: lambda kernel, s: profiles.matern32(s),
    Matern52: lambda kernel, s: profiles.matern52(s),
    RationalQuadratic: lambda kernel, s: profiles.rational_quadratic(s, val(kernel.alpha)),
    PoweredExponential: lambda kernel, s: profiles.powered_exponential(s, val(kernel.power)),
}


def _fallback(kernel):
    engine = kernel.compute_engine
    return DenseKernelComputation() if isinstance(engine, GemmComputation) else engine
