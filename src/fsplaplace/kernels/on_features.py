"""A kernel on the features of a frozen network: what the network maps alike is alike to the prior."""

import dataclasses
import importlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gpjax.kernels import RBF, AbstractKernel, Linear
from gpjax.parameters import PositiveReal, val
from gpjax.typing import Array as AnyArray
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float
from paramax import non_trainable, unwrap

from fsplaplace.arguments import checked
from fsplaplace.host import cast

from ._entry import KernelEntry, Remarks
from ._pairs import Pairs
from ._registry import register_kernel
from .convolutional_features import RandomConvolutions
from .engine import covariance, variance

# Below it features are those of a blank input, whose direction means nothing.
_SMALLEST_LENGTH = 1e-12


class OnFeatures(AbstractKernel):
    r"""$k(x, y) = k_\mathrm{base}(\varphi(x), \varphi(y))$, $\varphi$ the outputs of a network whose weights never change.

    Two inputs are as alike as their features are. On images a base kernel on pixels finds hardly any two alike; features of a
    network, even of one with random weights (`RandomConvolutions`), tell strokes and textures whatever their exact place.

    Args:
        network: anything `fsplaplace.as_model` takes, or a `RandomConvolutions`; its outputs are the features. Random, or trained
            on other data: what was trained on the same labels has seen them, and the evidence is then no evidence.
        base: any scalar GPJax kernel, on the features.
        shape: the shape of one input, for instance (28, 28, 1); a prior sees inputs flattened.
        unit_length: divide features by their length, so that contrast and size of an input do not count; otherwise by the square
            root of their number.

    Features are computed once for each input and in the network's own precision. Parameters of `base` can be fitted, weights of
    the network cannot. Cost: one pass through the network for each input, and that of `base` on features.

    Examples:
        >>> network = fsp.kernels.RandomConvolutions((8, 8, 1), channels=(4, 8), key=jr.key(0))
        >>> kernel = fsp.kernels.OnFeatures(network, base=RBF(lengthscale=0.5))
        >>> fsp.kernels.covariance(kernel, jnp.ones((2, 64)), jnp.zeros((3, 64))).shape
        (2, 3)
    """

    network: Any = None
    base: Any = None
    shape: tuple[int, ...] = eqx.field(static=True, default=())
    unit_length: bool = eqx.field(static=True, default=True)
    precision: str = eqx.field(static=True, default="float32")

    @checked
    def __init__(
        self,
        network: Any,
        base: AbstractKernel | None = None,
        *,
        shape: Sequence[int] | None = None,
        unit_length: bool = True,
    ):
        if isinstance(network, RandomConvolutions):
            shape = network.shape if shape is None else shape
        else:
            network = FrozenNetwork(_as_model(network))
        if shape is None:
            raise ValueError("OnFeatures: shape is None; pass the shape of one input, for instance (28, 28, 1)")
        if not len(shape) or min(shape) < 1:
            raise ValueError(
                f"OnFeatures: shape is {tuple(shape)}; pass the sizes of one input, each 1 or more, for instance (28, 28, 1)"
            )
        base = RBF(lengthscale=PositiveReal(jnp.asarray(0.5))) if base is None else base
        if getattr(base, "num_outputs", None) is not None:
            raise ValueError(f"OnFeatures: base is a {type(base).__name__} with several outputs; pass a scalar kernel")
        self.network, self.base = non_trainable(network), base
        self.shape, self.unit_length = tuple(int(size) for size in shape), unit_length
        self.precision = str(_dtype(network))
        super().__init__(n_dims=math.prod(self.shape))
        _check_network(self)

    def features(self, x: Float[AnyArray, "n d"]) -> Float[Array, "n k"]:
        r"""$\varphi(x)$ at n inputs, flattened or not; in the inputs' dtype."""
        x = jnp.asarray(x)
        # Whoever computes in double precision has doubled the weights, too: a network made in single would gain nothing by it.
        network = cast(unwrap(self.network), self.precision)
        images = x.reshape(x.shape[0], *self.shape).astype(self.precision)
        outputs = jnp.asarray(network(images)).reshape(x.shape[0], -1)
        if self.unit_length:
            squares = jnp.sum(outputs**2, axis=1, keepdims=True)
            scaled = outputs * lax.rsqrt(jnp.maximum(squares, _SMALLEST_LENGTH**2))
        else:
            scaled = outputs / math.sqrt(outputs.shape[1])
        # XLA would otherwise compute them anew for each pair.
        return lax.optimization_barrier(scaled.astype(jnp.promote_types(x.dtype, jnp.float32)))

    @property
    def num_features(self) -> int:
        """k."""
        example = jax.ShapeDtypeStruct((1, math.prod(self.shape)), jnp.float32)
        return jax.eval_shape(self.features, example).shape[1]

    def __call__(self, x: Float[AnyArray, " d"], y: Float[AnyArray, " d"]) -> Float[Array, ""]:
        """The covariance of one pair of inputs."""
        first, second = self.features(jnp.stack([x.reshape(-1), y.reshape(-1)]))
        return jnp.asarray(self.base(first, second))


class FrozenNetwork(eqx.Module):
    """A network of any library as features. Files cannot hold it, because it is code: `save` says what to do instead.

    Attributes:
        model: what `fsplaplace.as_model` made of it.
    """

    model: Any

    def __call__(self, x: Float[Array, "n ..."]) -> Float[Array, "n k"]:
        return self.model(x)


class OnColumns(NamedTuple):
    """Kernels and inputs with features written out as columns.

    Attributes:
        kernels: as those given, with every `OnFeatures` replaced by its base on the columns of its features.
        x: the inputs, if any kernel acts on them, and features beside them.
    """

    kernels: tuple[AbstractKernel, ...]
    x: Float[Array, "n c"]


def has_features(kernels: Sequence[AbstractKernel]) -> bool:
    """Whether any of the kernels, or any part of one, is on features."""
    return any(map(_has_on_features, kernels))


def on_columns(kernels: Sequence[AbstractKernel], x: Float[AnyArray, "n d"]) -> OnColumns | None:
    """Kernels on columns that hold the features of these inputs, for whoever evaluates the kernels many times; None without any.

    A network is passed once for each kernel that is on it, whatever the number of pairs. Memory: the features.
    """
    if not has_features(kernels):
        return None
    x = jnp.asarray(x)
    columns = [x] if any(_acts_on_inputs(kernel) for kernel in kernels) else []
    width = x.shape[1] if columns else 0

    def replaced(node: Any) -> Any:
        nonlocal width
        if _is_on_features(node):
            features = _features_in_blocks(node, x)
            columns.append(features)
            start, width = width, width + features.shape[1]
            return _moved(node.base, start, features.shape[1])
        if isinstance(node, AbstractKernel) and not _has_on_features(node):
            return _moved(node, 0, x.shape[1])
        return node

    def leaf(node: Any) -> bool:
        return isinstance(node, AbstractKernel) and (_is_on_features(node) or not _has_on_features(node))

    changed = tuple(jax.tree.map(replaced, kernel, is_leaf=leaf) for kernel in kernels)
    return OnColumns(changed, jnp.concatenate([part.astype(columns[-1].dtype) for part in columns], axis=1))


def with_bases_of(kernel: AbstractKernel, fitted: AbstractKernel) -> AbstractKernel:
    """The kernel with the parameters of what `on_columns` made of it, after those were fitted."""
    nodes, structure = jax.tree.flatten(kernel, is_leaf=_is_on_features)
    bases = [node.base if _is_on_features(node) else node for node in nodes]
    counts = [len(jax.tree.leaves(base)) for base in bases]
    values = jax.tree.leaves(fitted)
    starts = np.cumsum([0, *counts])
    new = []
    for node, base, start, stop in zip(nodes, bases, starts[:-1], starts[1:], strict=True):
        part = jax.tree.unflatten(jax.tree.structure(base), values[start:stop])
        new.append(_with_base(node, part) if _is_on_features(node) else part)
    return jax.tree.unflatten(structure, new)


def linear_features(kernel: AbstractKernel, x: Float[AnyArray, "n d"]) -> Float[Array, "n k"] | None:
    r"""Columns F with $F F^\top = k(x, x)$ if the base is linear on all features: the factor needs no decomposition; else None."""
    if not isinstance(kernel, OnFeatures) or type(kernel.base) is not Linear or kernel.base.active_dims != slice(None):
        return None
    return jnp.sqrt(jnp.asarray(val(kernel.base.variance))) * _features_in_blocks(kernel, x)


def _with_base(node: OnFeatures, base: AbstractKernel) -> OnFeatures:
    changed = object.__new__(OnFeatures)
    for field in dataclasses.fields(node):
        object.__setattr__(changed, field.name, base if field.name == "base" else getattr(node, field.name))
    return changed


def _features_in_blocks(kernel: OnFeatures, x: Float[AnyArray, "n d"], rows: int = 512) -> Float[Array, "n k"]:
    """`OnFeatures.features`, outside of compiled code a few hundred inputs at a time: activations are larger than features."""
    if isinstance(x, Tracer) or x.shape[0] <= rows:
        return kernel.features(x)
    host = np.asarray(x)
    padded = np.concatenate([host, np.broadcast_to(host[-1:], (-len(host) % rows, host.shape[1]))])
    run = jax.jit(lambda part: kernel.features(part))
    parts = [np.asarray(run(padded[start : start + rows])) for start in range(0, len(padded), rows)]
    return jax.device_put(np.concatenate(parts)[: len(host)])


def _is_on_features(node: Any) -> bool:
    return isinstance(node, OnFeatures)


def _has_on_features(kernel: AbstractKernel) -> bool:
    return any(map(_is_on_features, jax.tree.leaves(kernel, is_leaf=_is_on_features)))


def _acts_on_inputs(kernel: AbstractKernel) -> bool:
    """Whether any part of a kernel is not on features."""
    parts = getattr(kernel, "kernels", None)
    if parts is not None:
        return any(_acts_on_inputs(part) for part in parts)
    return not _is_on_features(kernel)


def _moved(kernel: AbstractKernel, start: int, width: int) -> AbstractKernel:
    """The kernel on columns `start` to `start + width` as it was on all columns; of a sum or product, each part of it."""

    def leaf(node: Any) -> bool:
        return isinstance(node, AbstractKernel) and node is not kernel

    nodes, structure = jax.tree.flatten(kernel, is_leaf=leaf)
    moved = jax.tree.unflatten(structure, [_moved(node, start, width) if leaf(node) else node for node in nodes])
    if isinstance(kernel.active_dims, slice):
        dims = range(start, start + width)[kernel.active_dims]
        columns = slice(dims.start, dims.stop, dims.step)
    else:
        columns = [start + dim % width for dim in kernel.active_dims]
    object.__setattr__(moved, "active_dims", columns)
    return moved


def _as_model(network: Any) -> Any:
    """A network of any library as one function of a batch; the room of networks is above this one."""
    return importlib.import_module("fsplaplace.networks").as_model(network)


def _check_network(kernel: OnFeatures) -> None:
    """Refuse a network for inputs of another shape, and one that is no function of one input."""
    network = unwrap(kernel.network)
    try:
        shape = jax.eval_shape(network, jax.ShapeDtypeStruct((3, *kernel.shape), _dtype(network))).shape
    except (TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        raise ValueError(
            f"OnFeatures: the network cannot take inputs of shape {kernel.shape}: {str(error).splitlines()[0]}; pass their "
            "shape as the network wants it (channels first or last), as shape"
        ) from error
    if len(shape) < 2 or shape[0] != 3:
        raise ValueError(
            f"OnFeatures: the network returned shape {shape} for 3 inputs; make it return one row for each"
        )
    if isinstance(network, FrozenNetwork):
        generator = np.random.default_rng(0)
        network.model.check_rows_independent(generator.uniform(size=(3, *kernel.shape)).astype(_dtype(network)))


def _dtype(network: Any) -> Any:
    return next(leaf.dtype for leaf in jax.tree.leaves(network) if eqx.is_inexact_array(leaf))


def _on_features_covariance(kernel: OnFeatures, pairs: Pairs) -> Float[Array, "n m"]:
    x = kernel.features(pairs.x)
    return covariance(kernel.base, x, x if pairs.y is pairs.x else kernel.features(pairs.y))


def _remarks(kernel: OnFeatures, ranges: Float[np.ndarray, " d"] | None) -> Remarks:
    """In words: what is alike, and how fast likeness falls with the distance between features."""
    network = unwrap(kernel.network)
    base, name = kernel.base, network.model.name if isinstance(network, FrozenNetwork) else type(network).__name__
    scale = "of length one" if kernel.unit_length else "over the root of their number"
    said = [
        f"inputs of shape {kernel.shape} are alike as far as {kernel.num_features:,} features ({scale}) of a frozen network "
        f"({name}) are: {type(base).__name__} on features."
    ]
    length = getattr(base, "lengthscale", None)
    if length is not None and np.size(val(length)) == 1:
        value = float(np.asarray(val(length)).reshape(()))
        said.append(f"functions change over a distance of about {value:.3g} between features.")
        if kernel.unit_length and value > 2:
            return Remarks(
                tuple(said),
                (
                    f"the length scale {value:.3g} is longer than the largest distance between features of length one, 2",
                ),
            )
    return Remarks(tuple(said))


register_kernel(
    OnFeatures,
    KernelEntry(
        covariance=_on_features_covariance,
        variance=lambda kernel, x: variance(kernel.base, kernel.features(x)),
        # Along single columns of the inputs there is no length scale to state.
        kind="scale-free",
        scale=None,
        remarks=_remarks,
    ),
)
