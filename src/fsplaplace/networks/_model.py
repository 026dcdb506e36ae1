"""A network as one pure function of its weights and a batch of inputs."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike
from paramax import AbstractUnwrappable, NonTrainable, unwrap

from fsplaplace.arguments import check_numbers, check_squares, refuse_fork, warn_if_grey_levels
from fsplaplace.host import to_device
from fsplaplace.operators import Operator

Mask = PyTree | Callable[[str], bool]


@dataclasses.dataclass(frozen=True)
class OneByOne:
    """`call` of a network that takes one example: no row of a batch can see another."""

    one: Callable[[PyTree, PyTree, Array], Array]

    def __call__(self, params: PyTree, frozen: PyTree, x: Float[Array | np.ndarray, "n ..."]) -> Array:
        # The lambda spares JAX from formatting the whole network for its debug information, at every trace.
        return jax.vmap(lambda row: self.one(params, frozen, row))(x)


@dataclasses.dataclass(frozen=True)
class Through:
    """`call` of a network seen through an operator, one row at a time."""

    call: Callable[[PyTree, PyTree, Array], Array]
    name: str

    def __call__(self, params: PyTree, frozen: PyTree, x: Float[Array | np.ndarray, "n ..."]) -> Float[Array, "n k"]:
        inner, operator = frozen

        def network(point):
            if jnp.shape(point) != x.shape[1:]:
                raise ValueError(
                    f"operator {self.name} evaluates its function at an array of shape {jnp.shape(point)}, but a point has "
                    f"shape {x.shape[1:]}; write it for one point, `lambda f: lambda x: ...`"
                )
            return self.call(params, inner, point[None]).reshape(-1)

        return jax.vmap(lambda row: jnp.ravel(operator(network)(row)))(x)


class Model(eqx.Module):
    r"""$f(w, x)$: weights, and how to evaluate them on a batch.

    Build one with `fsplaplace.as_model`. Calling it, `model(x)`, gives the outputs at its own weights, flattened to
    (n, q).

    Attributes:
        params: the weights the posterior is over, a pytree.
        frozen: what the network needs besides: weights outside the mask, and parts that are not arrays.
        call: `call(params, frozen, x)`, a function of a batch.
        name: the network's type, for messages.
        origin: subtracted from inputs by `check_inputs`, in float64, before they are cast to the weights' dtype: the network
            is then a function of what is left. None, as `as_model` makes it: nothing is subtracted.
    """

    params: PyTree[Array]
    frozen: PyTree
    call: Callable[[PyTree, PyTree, Array], Array] = eqx.field(static=True)
    name: str = eqx.field(static=True)
    origin: Float[Array, " d"] | None = None

    @classmethod
    def refusal(cls, value) -> str:
        """What an error says of a value that is no model."""
        return f"must be a Model, but got {type(value).__name__}; wrap the network with fsplaplace.as_model"

    def __check_init__(self):
        leaves = [leaf for leaf in jax.tree.leaves(self.params) if eqx.is_array(leaf)]
        if not leaves:
            raise ValueError(f"{self.name} has no floating-point weights to be Bayesian about; check `mask`")
        if complex_ones := [leaf for leaf in leaves if not jnp.issubdtype(leaf.dtype, jnp.floating)]:
            raise ValueError(f"{self.name} has weights of dtype {complex_ones[0].dtype}; use real ones")
        if len(kinds := {str(leaf.dtype) for leaf in leaves}) > 1:
            raise ValueError(f"{self.name} mixes weights of dtypes {sorted(kinds)}; cast them to one dtype")
        if not kinds <= {"float32", "float64"}:
            raise ValueError(
                f"{self.name} has weights of dtype {kinds.pop()}; cast them to float32 or float64 (inside, the network may compute in "
                "another dtype)"
            )

    def __call__(self, x: Float[Array | np.ndarray, "n ..."]) -> Float[Array, "n q"]:
        refuse_fork()
        return _evaluate(self, x)

    def evaluate(self, params: PyTree[Array], x: Float[Array, "n ..."]) -> Float[Array, "n q"]:
        r"""$f(w, x)$ at other weights, outputs flattened to (n, q)."""
        outputs = self.call(params, self.frozen, x)
        if not isinstance(outputs, jax.Array) or not jnp.issubdtype(outputs.dtype, jnp.floating):
            seen = f"dtype {outputs.dtype}" if isinstance(outputs, jax.Array) else f"a {type(outputs).__name__}"
            raise TypeError(f"{self.name} returned {seen}; make it return one array of floating-point outputs")
        if outputs.ndim == 0 or outputs.shape[0] != x.shape[0]:
            raise ValueError(
                f"{self.name} returned shape {outputs.shape} for {x.shape[0]} rows; make it return one row for each"
            )
        return outputs.reshape(x.shape[0], -1)

    @property
    def weights(self) -> Float[Array, " p"]:
        """The weights as one vector."""
        return ravel_pytree(self.params)[0]

    @property
    def unravel(self) -> Callable[[Float[Array, " p"]], PyTree[Array]]:
        """From a vector of all weights back to the pytree."""
        return ravel_pytree(self.params)[1]

    @functools.cached_property
    def num_params(self) -> int:
        """p, the number of weights the posterior is over."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))

    def num_outputs(self, x: Float[Array | np.ndarray, "n ..."]) -> int:
        """q, the width of the flattened output for inputs like these."""
        return _num_outputs(*self.shapes, tuple(x.shape[1:]))

    @functools.cached_property
    def shapes(self) -> tuple:
        """The network's structure and leaves with shapes for arrays: what may be cached by."""
        leaves = [
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, jax.Array | np.ndarray) else leaf
            for leaf in jax.tree.leaves(self)
        ]
        return jax.tree.structure(self), tuple(leaves)

    @functools.cached_property
    def dtype(self):
        """The weights' dtype: what everything about this network is computed in."""
        return jax.tree.leaves(self.params)[0].dtype

    def with_params(self, params: PyTree[Array]) -> "Model":
        """The same network at other weights."""
        return eqx.tree_at(lambda model: model.params, self, params)

    def through(self, operator: Operator) -> "Model":
        r"""The network seen through an operator: outputs $L[f(\cdot, w)](x)$ of the same weights w."""
        return Model(self.params, (self.frozen, operator), Through(self.call, operator.name), self.name, self.origin)

    @property
    def operator_name(self) -> str | None:
        """The operator that the network is seen through, for messages; None if there is none."""
        return self.call.name if isinstance(self.call, Through) else None

    def check_inputs(self, x: ArrayLike, *, argument: str = "X") -> Float[Array, "n ..."]:
        """Inputs in the weights' dtype, or an error that says what is wrong with them."""
        checked = Model.check_on_host(self, x, argument=argument)
        return checked if isinstance(checked, Tracer) else to_device(checked)

    def check_on_host(self, x: ArrayLike, *, argument: str = "X") -> Float[Array | np.ndarray, "n ..."]:
        """The same as a NumPy array, unless the inputs are traced."""
        if isinstance(x, Tracer):
            inputs = jnp.asarray(x, self.dtype)
            return inputs if self.origin is None else inputs - self.origin
        values, dtype = check_numbers(x, argument), self.dtype
        if values.ndim < 2 or values.size == 0:
            what = "row" if values.ndim < 2 or values.shape[0] == 0 else "column"
            raise ValueError(f"{argument} has shape {values.shape}; pass at least one {what}, as (n, d)")
        warn_if_grey_levels(values, argument)
        if self.origin is not None:
            values = values.astype(np.float64) - np.asarray(self.origin, np.float64)
        with np.errstate(over="ignore"):  # a number too large for the weights' dtype is infinite below
            values = values.astype(dtype)
        if not np.all(np.isfinite(values)):
            bad = int(np.argmin(np.isfinite(values.reshape(len(values), -1)).all(axis=1)))
            raise ValueError(f"{argument} has NaN or infinite values (first in row {bad}); remove or impute those rows")
        check_squares(values, argument)
        return values

    def check_weights(self) -> None:
        """Refuse weights that are not finite."""
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.params):
            if not isinstance(leaf, Tracer) and not np.all(np.isfinite(np.asarray(leaf))):
                raise ValueError(
                    f"{self.name} has NaN or infinite weights in {jax.tree_util.keystr(path) or 'its parameters'}; train it anew, "
                    "or load it again"
                )

    def check_outputs(self, x: Float[Array | np.ndarray, "n ..."], *, argument: str) -> None:
        """Refuse outputs, and their derivatives in the weights, that are not finite at these inputs.

        Time: one forward and one backward pass.
        """
        outputs, pull = jax.vjp(lambda params: self.evaluate(params, jnp.asarray(x, self.dtype)), self.params)
        self._check_finite(np.asarray(outputs), argument)
        if not all(np.all(np.isfinite(np.asarray(leaf))) for leaf in jax.tree.leaves(pull(jnp.ones_like(outputs)))):
            raise ValueError(
                f"{self.name} has NaN or infinite derivatives in its weights at {argument}, as sqrt has at 0; check its formula there"
            )

    def _check_finite(self, outputs: np.ndarray, argument: str) -> None:
        finite = np.isfinite(outputs.reshape(len(outputs), -1)).all(axis=1)
        if not finite.all():
            raise ValueError(
                f"{self.name} returns NaN or infinite outputs at row {int(np.argmin(finite))} of {argument}; check its formula there"
            )

    def check_rows_independent(self, x: Float[Array | np.ndarray, "n ..."]) -> None:
        """Refuse a network whose output for one row depends on the other rows of the batch."""
        if isinstance(self.call, OneByOne):
            return
        few = np.asarray(x)[:3]
        together = np.asarray(self(to_device(few)))
        self._check_finite(together, "X")
        if (width := self.num_outputs(x)) != together.shape[1]:
            detail = f"{width} outputs for one row, {together.size} for {few.shape[0]}"
        else:
            # Each row with copies of itself for company: the same shape again, hence no second compilation.
            copies = (np.broadcast_to(row, few.shape) for row in few)
            alone = np.stack([np.asarray(self(to_device(rows)))[0] for rows in copies])
            difference = float(np.max(np.abs(together - alone)))
            if difference <= 1e3 * float(jnp.finfo(self.dtype).eps) * (1.0 + float(np.max(np.abs(alone)))):
                return
            detail = f"outputs move by {difference:.3g} with the other rows"
        raise ValueError(
            f"{self.name} depends on the batch ({detail}), as BatchNorm does in training mode; put it in inference mode "
            "so that it is a function of one input"
        )


@eqx.filter_jit
def _evaluate(model: Model, x):
    return model.evaluate(model.params, x)


@functools.lru_cache(maxsize=64)
def _num_outputs(structure, leaves, row: tuple[int, ...]) -> int:
    model: Model = jax.tree.unflatten(structure, leaves)
    inputs = jax.ShapeDtypeStruct((1, *row), model.dtype)
    return eqx.filter_eval_shape(lambda model, x: model.evaluate(model.params, x), model, inputs).shape[1]


class Code(AbstractUnwrappable):
    """A part of a network that is no array, an activation for instance: part of the program, not of its arguments.

    Attributes:
        part: the part.
    """

    part: Any = eqx.field(static=True)

    def unwrap(self) -> Any:
        return self.part


def hold_code(tree: PyTree) -> PyTree:
    """The tree with all leaves that are no arrays in `Code`, so that `jax.jit` takes it as an argument."""
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array | np.ndarray) else Code(leaf), tree)


def release_code(tree: PyTree) -> PyTree:
    """The inverse of `hold_code`: other wrappers of paramax stay."""
    is_code = lambda node: isinstance(node, Code)  # noqa: E731
    return jax.tree.map(lambda node: node.part if is_code(node) else node, tree, is_leaf=is_code)


def split(tree: PyTree, mask: Mask | None, *, name: str) -> tuple[PyTree, PyTree]:
    """Bayesian weights and the rest, by a pytree of booleans or a predicate on paths such as `.layers[0].weight`.

    What is inside `paramax.NonTrainable` belongs to the rest, whatever the mask says.
    """
    possible = jax.tree.map(_is_weight, tree, is_leaf=_is_fixed)
    possible = jax.tree.map(lambda keep, part: jax.tree.map(lambda _: keep, part), possible, tree)
    if mask is None:
        return _parted(tree, possible)
    if callable(mask):
        selected = jax.tree_util.tree_map_with_path(
            lambda path, keep: keep and bool(mask(jax.tree_util.keystr(path))), possible
        )
    else:
        if jax.tree.structure(mask) != jax.tree.structure(tree):
            raise ValueError(
                f"{name}: mask has structure {jax.tree.structure(mask)}, but the parameters have "
                f"{jax.tree.structure(tree)}; build it with jax.tree.map, or pass a function of the path"
            )
        selected = jax.tree.map(lambda wanted, keep: bool(wanted) and keep, mask, possible)
    return _parted(tree, selected)


def _parted(tree: PyTree, selected: PyTree) -> tuple[PyTree, PyTree]:
    params, rest = eqx.partition(tree, selected)
    return params, hold_code(rest)


def join(params: PyTree, frozen: PyTree) -> PyTree:
    """The inverse of `split`, with the wrappers of paramax resolved."""
    return unwrap(eqx.combine(params, frozen))


def _is_weight(node) -> bool:
    return not _is_fixed(node) and eqx.is_inexact_array(node)


def _is_fixed(node) -> bool:
    return isinstance(node, NonTrainable)
