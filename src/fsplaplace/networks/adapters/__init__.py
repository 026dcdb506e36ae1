"""One file for each network library: how to see its networks as one pure function."""

from typing import Any

import equinox as eqx

from fsplaplace.networks._model import Mask, Model
from fsplaplace.networks.adapters import _equinox, _flax_linen, _flax_nnx, _function, _haiku, _torch
from fsplaplace.networks.adapters._torch import copy_to_torch as copy_to_torch

# `call` of the models of Equinox modules without state.
EQUINOX_CALL = _equinox.CALL


def adapt(network: Any, mask: Mask | None) -> Model:
    """The network as a `Model`, by its type."""
    if isinstance(network, tuple) and len(network) == 2:
        function, values = network
        if isinstance(function, eqx.Module) and isinstance(values, eqx.nn.State):
            return _equinox.adapt_with_state(function, values, mask=mask)
        if _flax_linen.is_module(function):
            return _flax_linen.adapt(function, values, mask=mask)
        if _haiku.is_transformed(function):
            return _haiku.adapt(function, values, mask=mask)
        if callable(function) and not callable(values):
            return _function.adapt(function, values, mask=mask)
    if isinstance(network, eqx.Module):
        return _equinox.adapt(network, mask=mask)
    if _flax_nnx.is_module(network):
        return _flax_nnx.adapt(network, mask=mask)
    if _torch.is_module(network):
        return _torch.adapt(network, mask=mask)
    if _flax_linen.is_module(network) or _haiku.is_transformed(network):
        raise TypeError(
            f"as_model: {type(network).__name__} holds no parameters; pass the pair of it and what its init returned"
        )
    raise TypeError(
        f"as_model: cannot read a network of type {type(network).__module__}.{type(network).__name__}; pass an "
        "Equinox, Flax NNX or torch module, a pair (Linen module, variables), (Haiku transformed, params) or "
        "(Equinox module, state), or a pair (apply, params) with apply(params, x) on a batch"
    )
