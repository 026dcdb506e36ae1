r"""Kronecker factors of the generalised Gauss-Newton matrix, layer by layer (K-FAC, "expand").

For a layer $z = W a + b$ used once per input, the block of its weights is approximated by $G \otimes A$ and that of its
bias by $G$, with

$$A = \frac{1}{nT} \sum_{i,t} a_{it} a_{it}^\top, \qquad G = \sum_{i,t} J_{z_{it}}^\top H_i J_{z_{it}},$$

t over the positions at which a convolution applies its weights (one for a linear layer). Weight and bias are separate
blocks, as in laplace-torch.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import Model, release_code
from fsplaplace.networks.adapters import _equinox

_BLOCK_ROWS = 500


class LayerFactors(NamedTuple):
    """A and G of one layer, and where its kernel and bias are in the vector of all weights (-1: no bias)."""

    name: str
    input_factor: Float[np.ndarray, "i i"]
    output_factor: Float[np.ndarray, "o o"]
    weight_slot: int
    bias_slot: int


def kronecker_factors(model: Model, likelihood: Likelihood, X: Float[Array, "n ..."], targets) -> list[LayerFactors]:
    """The factors of every layer. Time: q reverse passes per row; memory: the factors and one block of rows."""
    layers = check_layers(model)
    totals = None
    for start in range(0, X.shape[0], _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        block = _block_factors(model, likelihood.rows(rows), X[rows], targets[rows], tuple(path for path, _ in layers))
        host = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), block)
        totals = host if totals is None else jax.tree.map(np.add, totals, host)
    assert totals is not None
    slots = _slots(model)
    return [
        LayerFactors(path, inputs / X.shape[0], outputs, slots[path + ".weight"], slots.get(path + ".bias", -1))
        for (path, _), (inputs, outputs) in zip(layers, totals, strict=True)
    ]


def check_layers(model: Model) -> list[tuple[str, Any]]:
    """The network's linear and convolutional layers with their paths; anything else with weights is refused by name."""
    if model.call != _equinox.CALL:
        raise ValueError(
            f"K-FAC: {model.name} is not an Equinox network, so its layers cannot be seen; use structure='diagonal' or "
            "'full', or wrap an Equinox module"
        )
    network = release_code(eqx.combine(model.params, model.frozen))
    layers = [(path, node) for path, node in _nodes(network) if _is_layer(node)]
    covered = {path + part for path, _ in layers for part in (".weight", ".bias")}
    for path in _slots(model):
        if path not in covered:
            owner = path.rpartition(".")[0]
            kind = next((type(node).__name__ for at, node in _modules(network) if at == owner), "a bare array")
            raise ValueError(
                f"K-FAC: {model.name} has weights at {path} ({kind}), but only Linear and ungrouped Conv layers have Kronecker "
                "factors; use structure='diagonal' or 'full', or leave them out with `mask`"
            )
    slots = _slots(model)
    layers = [(path, node) for path, node in layers if path + ".weight" in slots]
    for path, node in layers:
        if node.bias is not None and path + ".bias" not in slots:
            raise ValueError(f"K-FAC: the mask has {path}.weight but not its bias; mask whole layers")
    return layers


def factor_bytes(model: Model) -> int:
    """Bytes of all factors and their eigenvectors."""
    sizes = [(math.prod(node.weight.shape[1:]), node.weight.shape[0]) for _, node in check_layers(model)]
    return sum(3 * 8 * (i * i + o * o) + 8 * i * o for i, o in sizes)


class _Recorder(eqx.Module):
    """A layer that notes its input and adds a probe to its output, whose derivative is that of the output."""

    layer: Any
    probe: Array
    inputs: list = eqx.field(static=True)

    def __call__(self, x, **kwargs):
        self.inputs.append(x)
        return self.layer(x, **kwargs) + self.probe


@eqx.filter_jit
def _block_factors(model: Model, likelihood, X, targets, paths: tuple[str, ...]):
    """Sums over the rows: of the mean over positions of a a^T, and of J^T H J, for each layer."""
    network = release_code(eqx.combine(model.params, model.frozen))
    where = lambda tree: [node for path, node in _nodes(tree) if path in paths]  # noqa: E731
    layers = where(network)

    def one(row, curvature):
        shapes = _output_shapes(network, layers, where, row)

        def run(probes):
            seen: list[list] = [[] for _ in layers]
            recorders = [_Recorder(*parts) for parts in zip(layers, probes, seen, strict=True)]
            outputs = eqx.tree_at(where, network, recorders, is_leaf=_is_layer)(row)
            _check_once(paths, seen)
            return outputs.reshape(-1), [inputs[0] for inputs in seen]

        probes = [jnp.zeros(shape, model.dtype) for shape in shapes]
        outputs, pull, inputs = jax.vjp(run, probes, has_aux=True)
        slopes = jax.vmap(pull)(jnp.eye(outputs.shape[0], dtype=outputs.dtype))[0]
        factors = []
        for layer, a, g in zip(layers, inputs, slopes, strict=True):
            patches = _patches(layer, a)
            g = g.reshape(g.shape[0], g.shape[1], -1)
            output_factor = jnp.einsum("cot,cd,dpt->op", g, curvature, g)
            factors.append((patches.T @ patches / patches.shape[0], output_factor))
        return factors

    curvatures = likelihood.curvature(model(X), targets)
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), jax.vmap(one)(X, curvatures))


def _output_shapes(network, layers, where, row):
    """The shape of each layer's output, noted in an abstract evaluation."""
    shapes: list = [None] * len(layers)

    class Shape(eqx.Module):
        layer: Any
        index: int = eqx.field(static=True)

        def __call__(self, x, **kwargs):
            out = self.layer(x, **kwargs)
            shapes[self.index] = out.shape
            return out

    noted = eqx.tree_at(where, network, [Shape(layer, index) for index, layer in enumerate(layers)], is_leaf=_is_layer)
    eqx.filter_eval_shape(noted, row)
    return shapes


def _check_once(paths, seen) -> None:
    for path, inputs in zip(paths, seen, strict=True):
        if len(inputs) != 1:
            raise ValueError(
                f"K-FAC: the layer at {path} is used {len(inputs)} times per input, but K-FAC is for layers used once; use "
                "structure='diagonal' or 'full'"
            )


def _patches(layer, a) -> Float[Array, "t i"]:
    """The inputs that the layer's weights multiply, one row per position."""
    if isinstance(layer, eqx.nn.Linear):
        return a.reshape(1, -1)
    patches = jax.lax.conv_general_dilated_patches(
        a[None],
        filter_shape=layer.kernel_size,
        window_strides=layer.stride,
        padding=layer.padding,
        rhs_dilation=layer.dilation,
    )[0]
    return patches.reshape(patches.shape[0], -1).T


def _is_layer(node) -> bool:
    if isinstance(node, eqx.nn.Conv):
        return node.groups == 1
    return isinstance(node, eqx.nn.Linear)


def _nodes(tree) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_layer)
    return [(jax.tree_util.keystr(path), node) for path, node in leaves]


def _modules(tree) -> list[tuple[str, Any]]:
    """Every module that has arrays of its own, with its path."""

    def has_arrays(node):
        return isinstance(node, eqx.Module) and any(eqx.is_array(value) for value in vars(node).values())

    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=has_arrays)
    return [(jax.tree_util.keystr(path), node) for path, node in leaves]


def _slots(model: Model) -> dict[str, int]:
    """Where each array of weights starts in the vector of all weights, by its path."""
    leaves = jax.tree_util.tree_leaves_with_path(model.params)
    starts = np.cumsum([0, *[leaf.size for _, leaf in leaves]])
    return {jax.tree_util.keystr(path): int(start) for (path, _), start in zip(leaves, starts, strict=False)}
