"""One file for each network library: how to see its networks as one pure function."""

from typing import Any

import equinox as eqx

from fsplaplace._model import Mask, Model
from fsplaplace.adapters import _equinox, _flax_nnx, _function


def adapt(network: Any, mask: Mask | None) -> Model:
    """The network as a `Model`, by its type."""
    if isinstance(network, tuple) and len(network) == 2 and callable(network[0]) and not callable(network[1]):
        return _function.adapt(*network, mask=mask)
    if isinstance(network, eqx.Module):
        return _equinox.adapt(network, mask=mask)
    if _flax_nnx.is_module(network):
        return _flax_nnx.adapt(network, mask=mask)
    raise TypeError(
        f"as_model: cannot read a network of type {type(network).__module__}.{type(network).__name__}; pass an Equinox or "
        "Flax NNX module, or a pair (apply, params) with apply(params, x) on a batch"
    )
