"""PyTorch modules: traced once in evaluation mode, then one pure JAX function of a batch in torch's own layout."""

import dataclasses
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from fsplaplace.networks._model import Mask, Model, join, split
from fsplaplace.networks._units import InUnits
from fsplaplace.networks.adapters._torch._program import Program
from fsplaplace.networks.adapters._torch._trace import trace


def is_module(network: Any) -> bool:
    """Whether this is a `torch.nn.Module`; never imports torch, which the module has already done."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(network, torch.nn.Module)


@dataclasses.dataclass(frozen=True)
class _Call:
    program: Program

    def __call__(self, params: PyTree, frozen: PyTree, x):
        weights, buffers = frozen
        return self.program.run({**buffers, **join(params, weights)}, x)


def adapt(module: Any, *, mask: Mask | None) -> Model:
    """The module with its parameters as weights, named as in `state_dict`; buffers are held fixed.

    Without a mask, parameters with `requires_grad=False` are held fixed, too.
    """
    name = type(module).__name__
    program, tensors = trace(module)
    arrays = {path: _to_jax(tensor, name, path) for path, tensor in tensors.items()}
    weights = {path: arrays.pop(path) for path, _ in module.named_parameters() if path in arrays}
    if mask is None:
        mask = {path: tensors[path].requires_grad for path in weights}
    params, rest = split(weights, mask, name=name)
    return Model(params, (rest, arrays), _Call(program), name)


def copy_to_torch(model: Model, module: Any) -> Any:
    """Write the weights of a model that was made from a torch module into that module, in place, and return it.

    Args:
        model: made by `fsplaplace.as_model` from this module (or one of the same architecture), and trained since.
        module: the `torch.nn.Module` to receive the weights; its buffers stay as they are.
    """
    import torch

    # With centre, scale or mean the module's own parts are one level further in.
    call, frozen = (model.call.call, model.frozen[0]) if isinstance(model.call, InUnits) else (model.call, model.frozen)
    if not isinstance(call, _Call):
        raise ValueError(f"copy_to_torch: {model.name} was not made from a torch module")
    weights = eqx.combine(model.params, frozen[0])
    parameters = dict(module.named_parameters())
    for path, value in weights.items():
        if path not in parameters or tuple(parameters[path].shape) != value.shape:
            seen = tuple(parameters[path].shape) if path in parameters else "no such parameter"
            raise ValueError(
                f"copy_to_torch: {path} has shape {value.shape} in the model, but {seen} in {type(module).__name__}; "
                "pass the module that the model was made from"
            )
    with torch.no_grad():
        for path, value in weights.items():
            parameters[path].copy_(torch.from_numpy(np.array(value)))
    return module


def _to_jax(tensor: Any, name: str, path: str) -> jax.Array:
    if str(tensor.dtype) == "torch.float64" and jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise ValueError(
            f"{name}: {path} is float64, but JAX runs in 32 bits; call module.float(), or "
            'jax.config.update("jax_enable_x64", True) first'
        )
    return jnp.asarray(tensor.detach().cpu().numpy().copy())
