"""One dtype rule: compute in the parameters' dtype, and small dense problems in float64."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

T = TypeVar("T")


def cast(tree: T, dtype) -> T:
    """The tree with its floating-point arrays in another dtype."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


def to_double(tree: T) -> T:
    """The tree in float64. Call it inside `with jax.enable_x64(True)`."""
    return cast(tree, jnp.float64)


def double_precision(tree: T) -> T:
    """The tree in float64 when the user runs JAX in x64 mode, else unchanged."""
    return to_double(tree) if jax.config.jax_enable_x64 else tree
