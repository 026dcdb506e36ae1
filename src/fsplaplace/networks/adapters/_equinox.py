"""Equinox modules: called on one example, as is their convention."""

import equinox as eqx
import jax

from fsplaplace.networks._model import Mask, Model, OneByOne, join, split


def adapt(network: eqx.Module, *, mask: Mask | None) -> Model:
    """The module in inference mode, mapped over the rows of a batch."""
    name = type(network).__name__
    for path, layer in _stateful_layers(network):
        raise ValueError(
            f"{name} has a {type(layer).__name__} at {path}, which keeps state; pass the pair (network, state) with "
            "the network in inference mode"
        )
    return Model(*split(eqx.nn.inference_mode(network), mask, name=name), CALL, name)


def adapt_with_state(network: eqx.Module, state: eqx.nn.State, *, mask: Mask | None) -> Model:
    """The module in inference mode with its state held fixed, mapped over the rows of a batch."""
    name = type(network).__name__
    for path, layer in _stateful_layers(network):
        if getattr(layer, "inference", True) is False:
            raise ValueError(
                f"{name} has a {type(layer).__name__} at {path} in training mode, which depends on the batch; pass "
                "(equinox.nn.inference_mode(network), state)"
            )
    params, frozen = split(eqx.nn.inference_mode(network), mask, name=name)
    return Model(params, (frozen, state), OneByOne(_call_with_state), name)


def _stateful_layers(network: eqx.Module):
    for path, node in jax.tree_util.tree_leaves_with_path(network, is_leaf=_is_stateful):
        if _is_stateful(node):
            yield jax.tree_util.keystr(path), node


def _is_stateful(node) -> bool:
    return isinstance(node, eqx.nn.StatefulLayer) and node.is_stateful()


def _call(params, frozen, row):
    return join(params, frozen)(row)


CALL = OneByOne(_call)


def _call_with_state(params, frozen, row):
    rest, state = frozen
    # A State may be written to once only; the copy keeps the model's own fresh.
    fresh = jax.tree.map(lambda leaf: leaf, state)
    return join(params, rest)(row, fresh)[0]
