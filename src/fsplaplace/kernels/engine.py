"""Covariance matrices of GPJax kernels through shared matrices of squared distances."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from gpjax.kernels import (
    RBF,
    AbstractKernel,
    Constant,
    DenseKernelComputation,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    PoweredExponential,
    ProductKernel,
    RationalQuadratic,
    SumKernel,
    White,
)
from gpjax.kernels.computations import AbstractKernelComputation
from gpjax.parameters import val
from jaxtyping import Array, Bool, Float

from . import _profiles as profiles
from ._distance import squared_distance
from ._periodic import periodic_features


def covariance(kernel: AbstractKernel, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """Covariance matrix K_ij = k(x_i, y_j) of a scalar kernel.

    Stationary GPJax kernels and their sums and products are elementwise functions of squared distances,
    which are computed once per set of columns (and per length-scale vector) and shared. Any other kernel,
    also inside a sum or product, is evaluated by its own GPJax engine.

    Args:
        kernel: a GPJax kernel with one output.
        x: n points, one per row.
        y: m points, one per row.

    Returns:
        The n x m covariance matrix, in the common dtype of points and kernel parameters: within 1e-5 k(0, 0)
        of the exact values in float32, 1e-10 k(0, 0) in float64. Gradients are finite where points coincide.

    Cost: one n x m x d matrix product for each set of columns, and n m per sub-kernel.
    """
    return covariances((kernel,), x, y)[0]


def covariances(
    kernels: Sequence[AbstractKernel], x: Float[Array, "n d"], y: Float[Array, "m d"]
) -> list[Float[Array, "n m"]]:
    """`covariance` of several kernels on the same points, which share their distances."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"x has shape {x.shape} and y {y.shape}; pass points as rows (n, d) and (m, d)")
    dtype = _common_dtype(kernels, x, y)
    pairs = _Pairs(x.astype(dtype), y.astype(dtype))
    return [_evaluate(kernel, pairs) for kernel in kernels]


def variance(kernel: AbstractKernel, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """Prior variance k(x_i, x_i) of a scalar kernel, the diagonal of `covariance(kernel, x, x)`.

    Args:
        kernel: a GPJax kernel with one output.
        x: n points, one per row.

    Returns:
        The n variances. Cost: n for stationary kernels, n d for others.
    """
    x = jnp.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"x has shape {x.shape}; pass points as rows (n, d)")
    return _diagonal(kernel, x.astype(_common_dtype(kernel, x)))


@dataclasses.dataclass(frozen=True)
class GemmComputation(AbstractKernelComputation):
    """GPJax compute engine that calls `covariance`, for `RBF(compute_engine=GemmComputation())`."""

    def _cross_covariance(
        self, kernel: AbstractKernel, x: Float[Array, "n d"], y: Float[Array, "m d"]
    ) -> Float[Array, "n m"]:
        return covariance(kernel, x, y)

    def _diagonal(self, kernel: AbstractKernel, inputs: Float[Array, "n d"]) -> lx.AbstractLinearOperator:
        diagonal = lx.DiagonalLinearOperator(variance(kernel, inputs))
        return lx.TaggedLinearOperator(diagonal, lx.positive_semidefinite_tag)


class _Pairs:
    """Two sets of points and the squared distances already computed between them."""

    def __init__(self, x: Float[Array, "n d"], y: Float[Array, "m d"]):
        self.x, self.y = x, y
        self.shape = (x.shape[0], y.shape[0])
        self._distances: dict[Any, Array] = {}

    def scaled_distance(self, kernel: Any) -> Float[Array, "n m"]:
        """|x_i - y_j|² over the kernel's columns, in units of its length scales."""
        lengthscale = jnp.asarray(val(kernel.lengthscale))
        columns = str(kernel.active_dims)  # lists and slices, neither hashable
        if lengthscale.size == 1:
            # Isotropic kernels of any length scale share the plain distance.
            plain = self._once(columns, lambda: self._distance(kernel, None))
            return plain / jnp.square(lengthscale.reshape(()))
        return self._once((columns, id(kernel.lengthscale)), lambda: self._distance(kernel, lengthscale))

    def coincident(self) -> Bool[Array, "n m"]:
        """True where all columns of two points agree (GPJax's white noise ignores active_dims, too)."""
        return self._once(str(slice(None)), lambda: squared_distance(self.x, self.y)) == 0.0

    def _distance(self, kernel, lengthscale):
        return squared_distance(kernel.slice_input(self.x), kernel.slice_input(self.y), lengthscale)

    def _once(self, key, compute: Callable[[], Array]) -> Array:
        if key not in self._distances:
            self._distances[key] = compute()
        return self._distances[key]


# Exact types, not isinstance: a user's subclass may override the kernel function.
_RADIAL: dict[type, Callable[[Any, Array], Array]] = {
    RBF: lambda kernel, s: profiles.rbf(s),
    Matern12: lambda kernel, s: profiles.matern12(s),
    Matern32: lambda kernel, s: profiles.matern32(s),
    Matern52: lambda kernel, s: profiles.matern52(s),
    RationalQuadratic: lambda kernel, s: profiles.rational_quadratic(s, val(kernel.alpha)),
    PoweredExponential: lambda kernel, s: profiles.powered_exponential(s, val(kernel.power)),
}
_STATIONARY = (*_RADIAL, Periodic, White)


def _evaluate(kernel: Any, pairs: _Pairs) -> Float[Array, "n m"]:
    kind = type(kernel)
    if kind is SumKernel:
        return functools.reduce(operator.add, [_evaluate(part, pairs) for part in kernel.kernels])
    if kind is ProductKernel:
        return functools.reduce(operator.mul, [_evaluate(part, pairs) for part in kernel.kernels])
    if kind in _RADIAL:
        return _amplitude(kernel) * _RADIAL[kind](kernel, pairs.scaled_distance(kernel))
    if kind is Periodic:
        x, y = periodic_features(kernel, pairs.x, pairs.y)
        return _amplitude(kernel) * profiles.rbf(squared_distance(x, y))
    if kind is White:
        return jnp.where(pairs.coincident(), _amplitude(kernel), 0.0)
    if kind is Constant:
        return jnp.broadcast_to(val(kernel.constant).reshape(()), pairs.shape)
    return jnp.asarray(_own_engine(kernel).cross_covariance(kernel, pairs.x, pairs.y))


def _diagonal(kernel: Any, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    kind = type(kernel)
    if kind is SumKernel:
        return functools.reduce(operator.add, [_diagonal(part, x) for part in kernel.kernels])
    if kind is ProductKernel:
        return functools.reduce(operator.mul, [_diagonal(part, x) for part in kernel.kernels])
    if kind in _STATIONARY or kind is Constant:
        value = val(kernel.constant).reshape(()) if kind is Constant else _amplitude(kernel)
        return jnp.broadcast_to(value, x.shape[:1]).astype(x.dtype)
    return lx.diagonal(_own_engine(kernel).diagonal(kernel, x))


def _amplitude(kernel: Any) -> Float[Array, ""]:
    return jnp.asarray(val(kernel.variance)).reshape(())


def _own_engine(kernel: Any) -> AbstractKernelComputation:
    """The engine of a kernel this module does not know, which must not lead back here."""
    outputs = getattr(kernel, "num_outputs", None)
    if outputs is not None:
        raise ValueError(
            f"kernel {type(kernel).__name__} has {outputs} outputs, but a scalar kernel is wanted here; "
            "call block_covariance or block_variance on the multi-output kernel itself"
        )
    engine = kernel.compute_engine
    return DenseKernelComputation() if isinstance(engine, GemmComputation) else engine


def _common_dtype(kernels: Any, *points: Array) -> jnp.dtype:
    parameters = jax.tree.leaves(eqx.filter(kernels, eqx.is_inexact_array))
    return jnp.promote_types(jnp.result_type(*points, *parameters), jnp.float32)
