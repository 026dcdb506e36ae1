"""The layers of a network in the order in which they act, read off its program: names say nothing certain about order."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core
from jaxtyping import Array, Float

from fsplaplace.networks._model import Model

# With a product of data and weights a new layer begins; what follows (bias, normalisation) belongs to the same stage.
_PRODUCTS = ("dot_general", "conv_general_dilated", "ragged_dot", "gather")
# Operations with a program inside that runs any number of times, or not at all.
_LOOPS = ("scan", "while", "cond")


class Layer(NamedTuple):
    """Arrays of weights that act together.

    Attributes:
        name: the path that the arrays share in the network's parameters.
        stage: the number of matrix products, convolutions or look-ups on the way from the input to where they act, their
            own included. Layers of one stage act side by side, or one directly after the other.
        arrays: which of the network's arrays of weights, as positions in `jax.tree.leaves(model.params)`.
    """

    name: str
    stage: int
    arrays: tuple[int, ...]


class LayerOrder(NamedTuple):
    """All layers, in the order in which they act.

    Attributes:
        layers: the first to act comes first.
        hidden_by: the operation that hides the order of the last layers ("scan", for instance), or None.
        every_output: whether each output depends on a layer of the last stage.
        fan_in: the most values that a matrix product of data and weights sums over; 0 without such a product.
    """

    layers: tuple[Layer, ...]
    hidden_by: str | None
    every_output: bool
    fan_in: int


def layer_order(model: Model, X: Float[Array | np.ndarray, "n ..."] | None = None) -> LayerOrder:
    """The layers of a network, by when data first meets their weights in its program.

    Args:
        model: the network. Arrays that share a path up to their own name are one layer; those of a flat collection are
            told apart by their stage.
        X: inputs, for their shape. Without them the width of tabular inputs is found by trying.

    Time: one trace of the network; nothing is computed.
    """
    shapes = [X.shape[1:]] if X is not None else _possible_rows(model)
    for shape in shapes:
        try:
            program = _program(model, shape)
            break
        except Exception:  # whatever a network raises for a width that is not its own
            if X is not None:
                raise
    else:
        raise ValueError(
            f"{model.name}: the order of its layers cannot be seen without inputs of the right shape; pass X, some of its inputs"
        )
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(model.params)]
    walk = _Walk()
    outputs = walk.run(
        program.jaxpr, [_Value(arrays=frozenset({index})) for index in range(len(paths))] + [_Value(stage=0)]
    )
    members: dict[tuple[str, int], list[int]] = {}
    for index, path in enumerate(paths):
        members.setdefault((_owner(path), walk.met[index].stage if index in walk.met else -1), []).append(index)
    _adopt_unused(members)
    when = lambda arrays: max((walk.met[i].time for i in arrays if i in walk.met), default=-1)  # noqa: E731
    ordered = sorted(members.items(), key=lambda item: (item[0][1], when(item[1])))
    layers = tuple(Layer(name, stage, tuple(arrays)) for (name, stage), arrays in ordered)
    last = {index for layer in layers if layer.stage == layers[-1].stage for index in layer.arrays}
    hidden = next(
        (walk.met[index].hidden_by for index in last if index in walk.met and walk.met[index].hidden_by), None
    )
    every = all(value.least >= layers[-1].stage for value in outputs)
    return LayerOrder(layers, hidden, every, walk.fan_in)


class _Value(NamedTuple):
    """What is known of an intermediate result.

    Attributes:
        arrays: weights that it was made from, as long as no data is in it.
        stage: products of data and weights before it; -1 without data.
        least: the smallest stage among parts that stand side by side in it.
    """

    arrays: frozenset[int] = frozenset()
    stage: int = -1
    least: int = 0


class _Meeting(NamedTuple):
    """Where data meets an array of weights: the stage, the position in the program, and the operation that hides more."""

    stage: int
    time: int
    hidden_by: str | None


class _Walk:
    """One pass through a program; `met` says where data last met each array of weights, `fan_in` is as in `LayerOrder`."""

    def __init__(self):
        self.met: dict[int, _Meeting] = {}
        self.time, self.fan_in = 0, 0

    def run(self, jaxpr, arguments: Iterable[_Value]) -> list[_Value]:
        values: dict[Any, _Value] = dict(zip(jaxpr.invars, arguments, strict=True))
        read = lambda atom: _Value() if isinstance(atom, core.Literal) else values.get(atom, _Value())  # noqa: E731
        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            inner = _inlined(equation)
            if inner is not None:
                results = self.run(inner, inputs)
            else:
                results = [self._apply(equation, inputs)] * len(equation.outvars)
            values.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(self, equation, inputs: list[_Value]) -> _Value:
        self.time += 1
        data = [value for value in inputs if value.stage >= 0]
        arrays = frozenset[int]().union(*(value.arrays for value in inputs))
        if not data:
            return _Value(arrays=arrays)
        name = equation.primitive.name
        loop = name in _LOOPS
        product = (name in _PRODUCTS and len(data) < len(inputs)) or (loop and bool(arrays))
        stage = max(value.stage for value in data) + product
        for index in arrays:
            self.met[index] = _Meeting(stage, self.time, name if loop else None)
        if product:
            self.fan_in = max(self.fan_in, _summed(equation))
            return _Value(stage=stage, least=stage)
        # Side by side in one array each part keeps its own stage; elsewhere the parts mix.
        mix = min if name == "concatenate" else max
        return _Value(stage=stage, least=mix(value.least for value in data))


def _inlined(equation):
    """The program of a call that only groups operations, such as `jit`; None for any other operation."""
    called = equation.params.get("call_jaxpr", equation.params.get("jaxpr"))
    if called is None or equation.primitive.name in (*_LOOPS, "reduce", "reduce_window"):
        return None
    inner = getattr(called, "jaxpr", called)
    return inner if len(inner.invars) == len(equation.invars) else None


def _summed(equation) -> int:
    """The most values that a matrix product sums over, in this operation or in a program inside it."""
    if equation.primitive.name == "dot_general":
        (axes, _), _ = equation.params["dimension_numbers"]
        return int(np.prod([equation.invars[0].aval.shape[axis] for axis in axes]))
    programs = (getattr(part, "jaxpr", part) for part in jax.tree.leaves(tuple(equation.params.values())))
    return max((_summed(inner) for part in programs if hasattr(part, "eqns") for inner in part.eqns), default=0)


def _program(model: Model, row: tuple[int, ...]):
    x = jax.ShapeDtypeStruct((2, *row), model.dtype)
    return jax.make_jaxpr(lambda params, x: model.evaluate(params, x))(model.params, x)


def _possible_rows(model: Model) -> list[tuple[int, ...]]:
    """Shapes of tabular rows: the input's width is the size of some axis of the weights, the first ones most likely."""
    arrays = [
        leaf for leaf in jax.tree.leaves((model.params, model.frozen)) if isinstance(leaf, jax.Array | np.ndarray)
    ]
    return [(size,) for size in dict.fromkeys(size for leaf in arrays for size in leaf.shape)]


def _owner(path) -> str:
    """The path without the array's own name; names with dots, as torch's, are paths, too."""
    last = getattr(path[-1], "key", None) if path else None
    inside = last.rpartition(".")[0] if isinstance(last, str) else ""
    return jax.tree_util.keystr(path[:-1]) + inside


def _adopt_unused(members: dict[tuple[str, int], list[int]]) -> None:
    """Arrays that the program does not use belong to the layer of their path, if there is just one."""
    for name, stage in [key for key in members if key[1] < 0]:
        own = [key for key in members if key[0] == name and key[1] >= 0]
        if len(own) == 1:
            members[own[0]] += members.pop((name, stage))
