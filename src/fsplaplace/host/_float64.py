"""One dtype rule: compute in the parameters' dtype, and small dense problems in float64."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

T = TypeVar("T")


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


def to_double(tree: T) -> T:
    """The tree in float64. Call it inside `with jax.enable_x64(True)`."""
    return cast(tree, jnp.float64)


def double_precision(tree: T) -> T:
    """The tree in float64 when the user runs JAX in x64 mode, else unchanged."""
    return to_double(tree) if jax.config.read("jax_enable_x64") else tree
