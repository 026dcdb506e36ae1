"""One dtype rule: compute in the parameters' dtype, and small dense problems in float64."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

P = ParamSpec("P")
T = TypeVar("T")


def in_float64(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: the function works in float64, whatever mode the process runs JAX in.

    Inside, x64 mode is on, and the floating-point arrays among the arguments are float64, also those within pytrees such as
    a prior or a likelihood. Dicts come in with their keys sorted; what is no pytree, for instance an estimator, comes in as
    it is. What the function returns is not cast back. Cost: one copy of every array that was not float64.
    """

    @functools.wraps(function)
    def double(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.enable_x64(True):
            args, kwargs = to_double((args, kwargs))
            return function(*args, **kwargs)

    return double


def cast(tree: T, dtype) -> T:
    """The tree with its floating-point arrays in another dtype."""

    def convert(leaf):
        if not eqx.is_inexact_array(leaf) or leaf.dtype == dtype:
            return leaf
        # Through NumPy outside of a trace: a conversion compiled for every shape would dominate a first call.
        return leaf.astype(dtype) if isinstance(leaf, Tracer) else to_device(leaf, dtype)

    return jax.tree.map(convert, tree)


def to_device(values, dtype=None) -> jax.Array:
    """The host array as a JAX array. `jnp.asarray` would compile a program for each new shape."""
    return jax.device_put(np.asarray(values, dtype))


def take_rows(values: jax.Array, index) -> jax.Array:
    """`values[index]`; through NumPy outside of a trace, where each new shape would compile several programs."""
    if isinstance(values, Tracer) or isinstance(index, Tracer):
        return values[index]
    return to_device(np.asarray(values)[np.asarray(index) if isinstance(index, jax.Array) else index])


def to_double(tree: T) -> T:
    """The tree in float64. It stays so inside `in_float64` only: without x64 mode JAX has no float64."""
    return cast(tree, jnp.float64)


def double_precision(tree: T) -> T:
    """The tree in float64 when the user runs JAX in x64 mode, else unchanged."""
    return to_double(tree) if jax.config.read("jax_enable_x64") else tree
