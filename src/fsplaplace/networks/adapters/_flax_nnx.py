"""Flax NNX modules: called on a batch, as is their convention."""

import dataclasses
import sys
from typing import Any

from jaxtyping import PyTree

from fsplaplace.networks._model import Mask, Model, join, split


def is_module(network: Any) -> bool:
    """Whether this is an NNX module; never imports Flax, which an NNX module has already done."""
    flax = sys.modules.get("flax.nnx")
    return flax is not None and isinstance(network, flax.Module)


@dataclasses.dataclass(frozen=True)
class _Call:
    graph: Any

    def __call__(self, params: PyTree, frozen: PyTree, x):
        from flax import nnx

        weights, others = frozen
        return nnx.merge(self.graph, join(params, weights), others)(x)


def adapt(network: Any, *, mask: Mask | None) -> Model:
    """The module with its `nnx.Param` variables as weights and every other variable held fixed."""
    from flax import nnx

    name = type(network).__name__
    for path, node in nnx.iter_graph(network):
        location = ".".join(map(str, path))
        if isinstance(node, nnx.BatchNorm) and not node.use_running_average:
            raise ValueError(
                f"{name} has a BatchNorm at {location} in training mode, which depends on the batch; "
                f"call {name}.eval() first"
            )
        if isinstance(node, nnx.Dropout) and not node.deterministic:
            raise ValueError(f"{name} has a Dropout at {location} in training mode; call {name}.eval() first")
    graph, weights, others = nnx.split(network, nnx.Param, ...)
    params, rest = split(nnx.to_pure_dict(weights), mask, name=name)
    return Model(params, (rest, others), _Call(graph), name)
