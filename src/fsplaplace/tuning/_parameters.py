"""The free parameters of a prior and its noise as one vector without constraints."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gpjax.mean_functions import AbstractMeanFunction, Constant, SumMeanFunction
from gpjax.parameters import NonNegativeReal, PositiveReal, val
from jaxtyping import Array, Float
from paramax import AbstractUnwrappable, NonTrainable

from fsplaplace.host import to_device
from fsplaplace.means import Linear
from fsplaplace.prior import Prior

_POSITIVE = (PositiveReal, NonNegativeReal)


class Place(NamedTuple):
    """Where a parameter lives: its leaf in the flattened prior, its name, shape, and whether it is a logarithm here."""

    leaf: int
    name: str
    shape: tuple[int, ...]
    positive: bool

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


class ParameterSpace(eqx.Module):
    """Maps a vector to a prior: logarithms of positive parameters, other parameters in the space GPJax keeps them in.

    Parameters wrapped in `paramax.non_trainable`, and any mean that is not a GPJax mean function, are left alone. The
    parameters of a mean that is linear in them are in `mean_places`, not in the vector: they have a closed form.
    """

    prior: Prior
    places: tuple[Place, ...] = eqx.field(static=True)
    mean_places: tuple[Place, ...] = eqx.field(static=True)

    def __init__(self, prior: Prior, *, skip: frozenset[int] = frozenset(), profile_mean: bool = True):
        """`skip`: the `id` of nodes to leave alone although they could be trained; `profile_mean=False`: the parameters
        of a linear mean belong to the vector, too."""
        self.prior = prior
        found = [
            Place(leaf, name, jnp.shape(_raw(node)), isinstance(node, _POSITIVE))
            for leaf, (name, node) in enumerate(_named_leaves(prior))
            if _is_free(node) and id(node) not in skip
        ]
        kernel = [place for place in found if place.name.startswith("kernel")]
        mean = [place for place in found if place.name.startswith("mean")]
        mean = mean if isinstance(prior.mean, AbstractMeanFunction) else []
        linear = profile_mean and _is_linear(prior.mean)
        self.places = tuple(kernel if linear else kernel + mean)
        self.mean_places = tuple(mean if linear else [])

    @property
    def size(self) -> int:
        """Number of entries of the vector."""
        return sum(place.size for place in self.places)

    @property
    def moves_mean(self) -> bool:
        """Whether parameters of the mean are in the vector."""
        return any(place.name.startswith("mean") for place in self.places)

    def nodes(self) -> list:
        """The prior's own node of each parameter of the vector."""
        leaves = _leaves(self.prior)
        return [leaves[place.leaf] for place in self.places]

    def values(self, prior: Prior) -> list[np.ndarray]:
        """Each parameter of a prior of this structure: positive ones constrained, others as GPJax keeps them."""
        leaves = _leaves(prior)
        return [
            np.asarray(val(leaves[place.leaf]) if place.positive else _raw(leaves[place.leaf]), dtype=float)
            for place in self.places
        ]

    def mean_values(self, prior: Prior) -> list[np.ndarray]:
        """The same for the parameters of a linear mean."""
        leaves = _leaves(prior)
        return [np.asarray(_raw(leaves[place.leaf]), dtype=float) for place in self.mean_places]

    def to_vector(self, values: list[np.ndarray]) -> Float[np.ndarray, " P"]:
        """The vector of the given values."""
        parts = [
            np.ravel(np.log(value) if place.positive else value)
            for place, value in zip(self.places, values, strict=True)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def to_prior(self, vector: Float[Array, " P"]) -> Prior:
        """The prior with these parameters; differentiable. Positive ones are plain arrays in it."""
        return self._replace(
            {place.leaf: jnp.exp(part) if place.positive else part for place, part in self._split(vector)},
        )

    def mean_design(self, X: Float[Array, "n d"]) -> tuple[Prior, Float[Array, "n q k"]]:
        r"""The prior with its mean's linear parameters at zero, and $H = \partial \mu(X) / \partial \beta$."""
        count = sum(place.size for place in self.mean_places)
        origin = jnp.zeros(count, X.dtype)
        at = lambda beta: self.with_mean(beta).mean_at(X)  # noqa: E731
        return self.with_mean(origin), jax.jacfwd(at)(origin)

    def with_mean(self, beta: Float[Array, " k"]) -> Prior:
        """The prior with these parameters of its linear mean."""
        parts, start = {}, 0
        for place in self.mean_places:
            parts[place.leaf] = beta[start : start + place.size].reshape(place.shape)
            start += place.size
        return self._replace(parts)

    def fitted(self, vector: Float[np.ndarray, " P"], beta: Float[np.ndarray, " k"], like: Prior) -> Prior:
        """The prior with these parameters, wrapped and typed as those of `like`."""
        targets = _leaves(like)
        # The vector's parameters first, then those of the mean on top.
        raw = [part for _, part in self._split(np.asarray(vector))]
        start = 0
        for place in self.mean_places:
            raw.append(np.reshape(beta[start : start + place.size], place.shape))
            start += place.size
        leaves = list(targets)
        for place, part in zip((*self.places, *self.mean_places), raw, strict=True):
            node = targets[place.leaf]
            dtype = _raw(node).dtype
            if place.positive:
                leaves[place.leaf] = _with_raw(node, to_device(_inverse_softplus(np.asarray(np.exp(part))), dtype))
            else:
                leaves[place.leaf] = _with_raw(node, to_device(part, dtype))
        return jax.tree.unflatten(jax.tree.structure(like, is_leaf=_is_wrapped), leaves)

    def _split(self, vector):
        start = 0
        for place in self.places:
            yield place, vector[start : start + place.size].reshape(place.shape)
            start += place.size

    def _replace(self, parts: dict[int, Array]) -> Prior:
        leaves = _leaves(self.prior)
        positive = {place.leaf for place in self.places if place.positive}
        for leaf, part in parts.items():
            leaves[leaf] = part if leaf in positive else _with_raw(leaves[leaf], part)
        return jax.tree.unflatten(jax.tree.structure(self.prior, is_leaf=_is_wrapped), leaves)


def _named_leaves(prior: Prior) -> list[tuple[str, Any]]:
    paths, _ = jax.tree_util.tree_flatten_with_path(prior, is_leaf=_is_wrapped)
    return [(jax.tree_util.keystr(path).lstrip("."), node) for path, node in paths]


def _leaves(prior: Prior) -> list:
    return jax.tree.leaves(prior, is_leaf=_is_wrapped)


def _is_wrapped(node) -> bool:
    return isinstance(node, AbstractUnwrappable)


def _is_free(node) -> bool:
    if isinstance(node, NonTrainable):
        return False
    if _is_wrapped(node):
        nested = jax.tree.leaves(node, is_leaf=lambda part: isinstance(part, NonTrainable))
        return len(nested) == 1 and eqx.is_inexact_array(nested[0])
    return eqx.is_inexact_array(node)


def _raw(node) -> Array:
    """The array a parameter is stored as."""
    return jax.tree.leaves(node)[0] if jax.tree.leaves(node) else jnp.zeros(())


def _with_raw(node, value):
    return jax.tree.unflatten(jax.tree.structure(node), [value])


def _inverse_softplus(value: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """How GPJax keeps a positive number; on the host, where nothing is compiled."""
    return np.asarray(np.log(-np.expm1(-value)) + value)


def _is_linear(mean) -> bool:
    """Whether the mean is linear in its free parameters."""
    if isinstance(mean, SumMeanFunction):
        return all(_is_linear(part) for part in mean.means)
    return isinstance(mean, Constant | Linear)
