"""What a posterior is made from, and the named places at which it is looked at."""

import dataclasses
import functools
import itertools
from typing import Literal

import numpy as np
from jaxtyping import Float, PRNGKeyArray, Shaped
from scipy.spatial import KDTree

from fsplaplace.context import Segments, throughout
from fsplaplace.host import host_generator
from fsplaplace.laplace import _choices
from fsplaplace.laplace._data import Rows
from fsplaplace.laplace._observed import Observed
from fsplaplace.likelihoods import Likelihood, Noise
from fsplaplace.networks import Model
from fsplaplace.prior import Prior

Name = Literal["context", "guard", "training", "new"]


@dataclasses.dataclass(frozen=True)
class Problem:
    """Everything that the caller states.

    Attributes:
        model: the trained network.
        prior: over its function.
        likelihood: of new targets given its outputs.
        observed: kinds of observations, each with rows and a likelihood.
        data: the inputs of all of them, n rows; with targets if they are of one kind.
        context: C, the points where the prior is enforced, (m, ...), none twice.
        guards: points off the context set at which choices are judged, (g, ...).
        guards_given: whether the caller chose the guard points.
        budget: bytes that any single stage may take.
        data_share: share of the rows that the likelihood's curvature is computed from.
    """

    model: Model
    prior: Prior
    likelihood: Likelihood
    observed: tuple[Observed, ...]
    data: Rows
    context: Float[np.ndarray, "m ..."]
    guards: Float[np.ndarray, "g ..."]
    guards_given: bool
    budget: float
    data_share: float = 1.0

    @functools.cached_property
    def of_values(self) -> bool:
        """Whether values of the function are all that was observed."""
        return len(self.observed) == 1 and self.observed[0].of_values

    @functools.cached_property
    def of_derivatives(self) -> bool:
        """Whether derivatives are among what was observed."""
        return any(kind.operator.order > 0 for kind in self.observed)

    @property
    def num_targets(self) -> int:
        """Numbers that were observed in all."""
        return sum(kind.num_targets for kind in self.observed)

    @functools.cached_property
    def noise(self) -> Noise | None:
        """Gaussian noise of all values; None for other likelihoods, or without values."""
        return next((kind.noise for kind in self.observed if kind.of_values), None)


@dataclasses.dataclass(frozen=True)
class Places:
    """Named inputs at which outputs and features are looked at, side by side in one array.

    Attributes:
        context: at most 500 of the context points.
        guard: at most 500 of the guard points.
        training: at most 500 of the training inputs.
        targets: of those training inputs, read in the same pass over the data; without columns if there are several kinds.
        new: inputs like those to come, at which the loss against the exact process is estimated.
    """

    context: Float[np.ndarray, "c ..."]
    guard: Float[np.ndarray, "g ..."]
    training: Float[np.ndarray, "t ..."]
    targets: Shaped[np.ndarray, "t ..."]
    new: Float[np.ndarray, "k ..."]

    @classmethod
    def of(cls, problem: Problem) -> "Places":
        """The places of a problem; one pass over data that are not held."""
        most = _choices.MOST_POINTS
        some = problem.data.spread(most)
        fresh = evenly(new_inputs(problem.data, problem.guards), _choices.MOST_JUDGED_ROWS // problem.prior.num_outputs)
        # Outside the box of the context points every prediction says so by itself.
        fresh = np.clip(fresh, problem.context.min(axis=0), problem.context.max(axis=0))
        return cls(evenly(problem.context, most), evenly(problem.guards, most), some.inputs, some.targets, fresh)

    @functools.cached_property
    def stacked(self) -> Float[np.ndarray, "k ..."]:
        """All points: context, guard, training, new."""
        return np.concatenate([self.context, self.guard, self.training, self.new])

    @functools.cached_property
    def slices(self) -> dict[Name, slice]:
        """Where the points of each place are among the stacked ones."""
        sizes: dict[Name, np.ndarray] = {
            "context": self.context, "guard": self.guard, "training": self.training, "new": self.new,
        }  # fmt: skip
        ends = np.cumsum([0, *map(len, sizes.values())]).tolist()
        return {name: slice(*part) for name, part in zip(sizes, itertools.pairwise(ends), strict=True)}

    def slice(self, name: Name) -> slice:
        """Where the points of a place are among the stacked ones."""
        return self.slices[name]

    def split(self, values: Shaped[np.ndarray, "k ..."]) -> dict[Name, Shaped[np.ndarray, "s ..."]]:
        """Values at the stacked points, by place."""
        return {name: values[part] for name, part in self.slices.items()}


def evenly(x: Shaped[np.ndarray, "n ..."], most: int) -> Shaped[np.ndarray, "k ..."]:
    """At most `most` of the rows, evenly spaced."""
    return x[:: -(-x.shape[0] // max(1, most))]


def distinct(points: Float[np.ndarray, "m ..."]) -> Float[np.ndarray, "k ..."]:
    """Points without exact repetitions, in their order: a repeated point adds nothing to the prior."""
    _, first = np.unique(points.reshape(points.shape[0], -1), axis=0, return_index=True)
    return points[np.sort(first)]


def default_context(model: Model, data: Rows, key: PRNGKeyArray) -> Float[np.ndarray, "m d"]:
    """500 points throughout the data."""
    if len(data.row_shape) != 1:
        raise ValueError(
            f"laplace: there are no default context points for inputs of shape {data.row_shape}; pass context_points, for instance "
            "images from another data set"
        )
    points = throughout(data.held().inputs).sample(_choices.NUM_CONTEXT, key=key)
    return distinct(np.asarray(points, dtype=model.dtype))


def with_training(
    points: Float[np.ndarray, "m ..."], data: Rows, *, most: int, key: PRNGKeyArray
) -> Float[np.ndarray, "k ..."]:
    """The points and the training inputs, or `most` random ones of more."""
    index = np.arange(data.num_rows)
    if data.num_rows > most:
        index = host_generator(key).permutation(data.num_rows)[:most]
    return distinct(np.concatenate([points, data.take(index).inputs]))


def default_guards(points: Float[np.ndarray, "m ..."], data: Rows, key: PRNGKeyArray) -> Float[np.ndarray, "g ..."]:
    """Points off the context set: between random pairs of its points, and between neighbouring training inputs."""
    generator, total = host_generator(key), _choices.NUM_GUARDS
    local = len(data.row_shape) == 1 and data.num_rows > 1
    count = int(_choices.SHARE_ACROSS * total) if local else total
    first, second = generator.integers(0, points.shape[0], (2, count))
    weight = generator.uniform(size=count).astype(points.dtype).reshape(-1, *[1] * (points.ndim - 1))
    across = (1 - weight) * points[first] + weight * points[second]
    if not local:
        return across
    near = Segments(data.held().inputs, neighbours=_choices.NEIGHBOURS).sample(total - count, key=key)
    return generator.permutation(np.concatenate([across, near]))


def new_inputs(data: Rows, guards: Float[np.ndarray, "g ..."]) -> Float[np.ndarray, "k ..."]:
    """Inputs like those to come: from a training input no farther than its sixth neighbour, in a direction between two others.

    They lie among the rows as another draw would: as far from the nearest, and at it if rows repeat. Distances are in standard
    deviations of the columns. Guard points stand in for inputs that are no vectors, and for those of a single row.
    """
    if len(data.row_shape) != 1 or data.num_rows < 2:
        return evenly(guards, _choices.NUM_NEW)
    generator, given = np.random.default_rng(0), data.held().inputs
    if len(once := distinct(given)) > max(1.0, _choices.MOSTLY_DISTINCT * len(given)):
        given = once
    rows = given.astype(np.float64)
    spread = rows.std(axis=0)
    rows = rows / np.where(spread > 0, spread, 1.0)
    first, second, third = generator.integers(0, len(rows), (3, _choices.NUM_NEW))
    nearest = min(_choices.NEIGHBOURS, len(rows) - 1)
    distance = np.asarray(KDTree(rows).query(rows[first], nearest + 1)[0])[:, nearest:]
    direction = rows[second] - rows[third]
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    # Uniform in a ball of as many dimensions as the rows fill.
    variances = np.linalg.eigvalsh(np.atleast_2d(np.cov(rows.T)))
    dimension = np.sum(variances) ** 2 / np.sum(variances**2) if np.any(variances > 0) else 1.0
    share = generator.uniform(size=(_choices.NUM_NEW, 1)) ** (1 / dimension)
    step = np.divide(direction, length, out=np.zeros_like(direction), where=length > 0) * share * distance
    return given[first] + (step * spread).astype(given.dtype)
