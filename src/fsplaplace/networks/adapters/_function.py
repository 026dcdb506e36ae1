"""A pair of a function and its parameters."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from fsplaplace.networks._model import Mask, Model, join, split


@dataclasses.dataclass(frozen=True)
class _Call:
    apply: Callable

    def __call__(self, params, frozen, x):
        return self.apply(join(params, frozen), x)


def adapt(apply: Callable, params: PyTree, *, mask: Mask | None) -> Model:
    """`apply(params, x)` on a batch."""
    name = getattr(apply, "__name__", type(apply).__name__)
    params = jax.tree.map(jnp.asarray, params)
    return Model(*split(params, mask, name=name), _Call(apply), name)
