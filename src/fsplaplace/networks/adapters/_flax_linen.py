"""Flax Linen: a module and its variables, called on a batch."""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from fsplaplace.networks._model import Mask, Model, join, split


def is_module(network: Any) -> bool:
    """Whether this is a Linen module; never imports Flax, which a Linen module has already done."""
    linen = sys.modules.get("flax.linen")
    return linen is not None and isinstance(network, linen.Module)


@dataclasses.dataclass(frozen=True)
class _Call:
    module: Any
    name: str

    def __call__(self, params: PyTree, frozen: PyTree, x):
        from flax import errors

        weights, collections = frozen
        variables = {"params": join(params, weights), **collections}
        try:
            return self.module.apply(variables, x)
        except errors.ModifyScopeVariableError as error:
            raise ValueError(
                f"{self.name} has a layer in training mode, as BatchNorm with use_running_average=False: {error}; "
                "build it in inference mode, so that it is a function of one input"
            ) from error
        except errors.InvalidRngError as error:
            raise ValueError(
                f"{self.name} has a random layer, as Dropout with deterministic=False: {error}; "
                "build it in inference mode"
            ) from error


def adapt(module: Any, variables: PyTree, *, mask: Mask | None) -> Model:
    """The module with its `params` collection as weights and every other collection (`batch_stats`) held fixed."""
    from flax.core import unfreeze

    name = type(module).__name__
    variables = jax.tree.map(jnp.asarray, unfreeze(variables))
    if not isinstance(variables, dict) or "params" not in variables:
        seen = sorted(variables) if isinstance(variables, dict) else type(variables).__name__
        raise ValueError(f"{name}: variables have no 'params' collection ({seen}); pass (module, module.init(key, x))")
    params, rest = split(variables.pop("params"), mask, name=name)
    return Model(params, (rest, variables), _Call(module, name), name)
