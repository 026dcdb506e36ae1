"""Equinox modules: called on one example, as is their convention."""

import equinox as eqx
import jax

from fsplaplace._model import Mask, Model, split


def adapt(network: eqx.Module, *, mask: Mask | None) -> Model:
    """The module in inference mode, mapped over the rows of a batch."""
    name = type(network).__name__
    nodes = jax.tree_util.tree_leaves_with_path(network, is_leaf=_is_stateful)
    for path, node in nodes:
        if _is_stateful(node):
            raise ValueError(
                f"{name} has a {type(node).__name__} at {jax.tree_util.keystr(path)}, which keeps state across a batch; "
                "close over its state in inference mode and pass (apply, params)"
            )
    return Model(*split(eqx.nn.inference_mode(network), mask, name=name), _call, name)


def _is_stateful(node) -> bool:
    return isinstance(node, eqx.nn.StatefulLayer) and node.is_stateful()


def _call(params, frozen, x):
    network = eqx.combine(params, frozen)
    # The lambda spares JAX from formatting the whole module for its debug information, at every trace.
    return jax.vmap(lambda row: network(row))(x)
