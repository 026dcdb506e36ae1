"""Haiku: a transformed function and its parameters, called on a batch."""

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from fsplaplace.networks._model import Mask, Model, join, split


def is_transformed(network: Any) -> bool:
    """Whether `hk.transform` made this; never imports Haiku."""
    haiku = sys.modules.get("haiku")
    return haiku is not None and isinstance(network, haiku.Transformed | haiku.TransformedWithState)


@dataclasses.dataclass(frozen=True)
class _Call:
    apply: Callable
    takes_rng: bool

    def __call__(self, params: PyTree, frozen: PyTree, x):
        return self.apply(join(params, frozen), *((None,) if self.takes_rng else ()), x)


@dataclasses.dataclass(frozen=True)
class _CallWithState:
    apply: Callable
    takes_rng: bool
    name: str

    def __call__(self, params: PyTree, frozen: PyTree, x):
        weights, state = frozen
        weights = join(params, weights)
        outputs, updated = self.apply(weights, state, *((None,) if self.takes_rng else ()), x)
        before, after = _leaves(state), _leaves(updated)
        # Haiku hands an entry that was not set back as the same object, so a new object is an update.
        changed = [path for path in after if after[path] is not before.get(path)]
        if changed:
            raise ValueError(
                f"{self.name} updates its state at {', '.join(changed[:3])}, as BatchNorm with is_training=True does; "
                "call it in inference mode inside the transformed function"
            )
        return outputs


def adapt(transformed: Any, params: PyTree, *, mask: Mask | None) -> Model:
    """`(transformed, params)`, or `(transformed, (params, state))` with the state held fixed; no random numbers."""
    import haiku as hk

    name = _name(transformed)
    arguments = list(inspect.signature(transformed.apply).parameters)
    if isinstance(transformed, hk.TransformedWithState):
        if not isinstance(params, tuple) or len(params) != 2:
            raise ValueError(f"{name} has state; pass (transformed, (params, state)), the pair that its init returns")
        weights, state = jax.tree.map(jnp.asarray, params)
        bayesian, rest = split(weights, mask, name=name)
        return Model(bayesian, (rest, state), _CallWithState(transformed.apply, arguments[2:3] == ["rng"], name), name)
    weights = jax.tree.map(jnp.asarray, params)
    return Model(*split(weights, mask, name=name), _Call(transformed.apply, arguments[1:2] == ["rng"]), name)


def _name(transformed: Any) -> str:
    name = getattr(getattr(transformed.apply, "_original_fn", None), "__name__", "<lambda>")
    return "haiku function" if name == "<lambda>" else name


def _leaves(tree: PyTree) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
