"""A marginal likelihood to maximise: its data, the vector of its parameters, where they start and their bounds."""

import math
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from fsplaplace.host import to_device
from fsplaplace.prior import BlockStructure, Prior
from fsplaplace.tuning._hyperpriors import LOGIT_SIZE_SCALE, Penalty, noise_prior
from fsplaplace.tuning._kernel_tiles import KernelTiles
from fsplaplace.tuning._mean_rows import mean_design, mean_of, mean_pull_back
from fsplaplace.tuning._optimize import Box
from fsplaplace.tuning._parameters import ParameterSpace
from fsplaplace.tuning._profile import Profile, profile
from fsplaplace.tuning._repeats import DistinctRows
from fsplaplace.tuning._starts import ParameterStart, redundant_parameters, starts_from_data

# Noise as a fraction of the targets' standard deviation: first value and bounds. Below the lower one the posterior is
# ill-conditioned in float32; copies of records, which would drive it there, are not observations (`observation_weights`).
NOISE = (0.3, 1e-4, 3.0)
# The same where a search begins with most of the targets noise and the length scales at the middle of their hyperprior. A function that is
# new at each row explains few rows in many columns as well as noise does, and a search with little noise ends there (diabetes, 100 x 10:
# a Matern function with a length scale of 0.7 standard deviations, which no network can hold).
NOISY = 0.8
# Constant columns that are named one by one; images have hundreds.
_NAMED_COLUMNS = 10


@runtime_checkable
class Evidence(Protocol):
    """What a search maximises: a function of one vector with its gradient, of rows of which some can be taken."""

    @property
    def space(self) -> ParameterSpace: ...
    @property
    def rows(self) -> DistinctRows: ...
    @property
    def design(self) -> Float[np.ndarray, "n q k"]: ...
    @property
    def penalty(self) -> Penalty: ...
    @property
    def num_rows(self) -> int: ...
    def __call__(self, vector: Float[np.ndarray, " P"]) -> tuple[float, Float[np.ndarray, " P"]]: ...
    def evaluate(self, vector: Float[np.ndarray, " P"]) -> "Evaluation": ...
    def take(self, rows: np.ndarray) -> "Evidence": ...
    def with_precision(self, factor: Float[np.ndarray, " P"]) -> "Evidence": ...


class MarginalLikelihood(NamedTuple):
    r"""Log marginal likelihood and hyperprior of one vector: the prior's parameters, then logarithms of the noise.

    The kernel is evaluated and differentiated in tiles of one shape, and all else is LAPACK's, so that the next number of rows
    compiles nothing.

    Attributes:
        space: the prior's parameters.
        rows: the data.
        mean: the prior's, at the rows; where it has parameters in the vector, `space` computes it anew.
        design: columns of the mean whose coefficients have a closed form.
        penalty: log density of the hyperpriors.
        noise_shape: () or (q,) for noise that is part of the vector, None if it is known.
        tiles: of the rows.
    """

    space: ParameterSpace
    rows: DistinctRows
    mean: Float[np.ndarray, "n q"]
    design: Float[np.ndarray, "n q k"]
    penalty: Penalty
    noise_shape: tuple[int, ...] | None
    tiles: KernelTiles

    def __call__(self, vector: Float[np.ndarray, " P"]) -> tuple[float, Float[np.ndarray, " P"]]:
        """Value with the hyperpriors, and its gradient."""
        found, noise = self._profile(vector, derivatives=True)
        if found.slope is None:
            return math.nan, np.full(vector.shape, np.nan)
        assert found.noise_slope is not None
        assert found.weights is not None
        at = to_device(vector[: self.space.size])
        gradient = self.tiles.pull_back(self.space, at, found.slope)
        if self.space.moves_mean:
            gradient += mean_pull_back(self.space, at, self.rows.X, self._blocks.from_blocks(found.weights)[:, :, 0])
        if self.noise_shape is not None:
            # In the logarithm of the scale: twice the variance times the derivative in that.
            each = 2 * self._noise_blocks(noise) * found.noise_slope
            between = self._blocks.by_output(each).sum(axis=0) if self.noise_shape else each.sum()
            within = self.rows.log_within_slope(noise)
            gradient = np.append(gradient, between + (within.sum(axis=0) if self.noise_shape else within.sum()))
        value = found.value + float(np.sum(self.rows.log_within(noise)))
        return value + self.penalty(vector), gradient + self.penalty.gradient(vector)

    def evaluate(self, vector: Float[np.ndarray, " P"]) -> "Evaluation":
        """The log marginal likelihood itself, and the mean's coefficients."""
        found, noise = self._profile(vector, derivatives=False)
        errors = np.sqrt(np.maximum(np.diagonal(found.beta_covariance), 0.0))
        return Evaluation(found.value + float(np.sum(self.rows.log_within(noise))), found.beta, errors)

    def take(self, rows: np.ndarray) -> "MarginalLikelihood":
        """The marginal likelihood of some of the rows."""
        some = DistinctRows(*(part[rows] for part in self.rows))
        tiles = KernelTiles.of(some.X, self.space.prior.blocks, separate=self.tiles.separate)
        return self._replace(rows=some, mean=self.mean[rows], design=self.design[rows], tiles=tiles)

    def with_precision(self, factor: Float[np.ndarray, " P"]) -> "MarginalLikelihood":
        """With the precision of each entry's hyperprior multiplied."""
        return self._replace(penalty=self.penalty._replace(precision=self.penalty.precision * factor))

    @property
    def num_rows(self) -> int:
        """Number of distinct inputs."""
        return self.rows.X.shape[0]

    @property
    def _blocks(self) -> BlockStructure:
        blocks = self.space.prior.blocks
        return blocks.separated() if self.tiles.separate else blocks

    def _profile(self, vector, *, derivatives: bool) -> tuple[Profile, Float[np.ndarray, "..."]]:
        """At these parameters, and the variance of the noise."""
        size, blocks = self.space.size, self._blocks
        noise = np.ones(())
        if self.noise_shape is not None:
            noise = np.asarray(np.exp(2 * vector[size:].reshape(self.noise_shape)))
        at = to_device(vector[:size])
        mean = mean_of(self.space, at, self.rows.X) if self.space.moves_mean else self.mean
        residual = blocks.to_blocks((self.rows.y - mean)[:, :, None])
        found = profile(
            self.tiles.covariance(self.space, at),
            self._noise_blocks(noise),
            residual,
            blocks.to_blocks(self.design).reshape(*residual.shape, self.design.shape[2]),
            derivatives=derivatives,
        )
        return found, noise

    def _noise_blocks(self, noise: Float[np.ndarray, "..."]) -> Float[np.ndarray, "b N"]:
        """The variance of the noise of each row of the blocks."""
        each = np.broadcast_to(noise / self.rows.precision, self.mean.shape)
        return self._blocks.to_blocks(each[:, :, None])[:, :, 0]


class Evaluation(NamedTuple):
    """The log marginal likelihood at some parameters.

    Attributes:
        value: the log marginal likelihood, without hyperpriors.
        mean: coefficients of the mean.
        mean_errors: their standard errors.
    """

    value: float
    mean: Float[np.ndarray, " k"]
    mean_errors: Float[np.ndarray, " k"]


class SetUp(NamedTuple):
    """What a search needs.

    Attributes:
        problem: what to maximise.
        start: first values from the data, inside the box.
        noisy: the same with most of the targets noise, and a function smooth enough to be told from it.
        given: the caller's own values, as near to them as the box allows.
        box: bounds.
        lengthscales: the entries of each vector of length scales, one array per kernel that has more than one.
        periods: the entries that are periods.
        notes: what the user should know about the data.
    """

    problem: Evidence
    start: Float[np.ndarray, " P"]
    noisy: Float[np.ndarray, " P"]
    given: Float[np.ndarray, " P"]
    box: Box
    lengthscales: list[Int[np.ndarray, " k"]]
    periods: list[int]
    notes: list[str]


def set_up(
    prior: Prior,
    rows: DistinctRows,
    *,
    noise_scale: Float[np.ndarray, "..."] | None,
    shared_constant: bool,
    hyperpriors: bool,
    logits: bool = False,
) -> SetUp:
    """The problem in float64; call it inside `in_float64`.

    Args:
        prior: in float64.
        rows: the data; the precisions are those of known variances if `noise_scale` is None.
        noise_scale: the caller's scale if the noise is to be fitted.
        shared_constant: take a constant out of the targets of all outputs, beyond the prior's mean.
        hyperpriors: whether anything is known about the parameters before the targets are seen.
        logits: whether the targets stand for labels, and their own evidence will be maximised.
    """
    space = ParameterSpace(prior, skip=redundant_parameters(prior))
    origin, mean, design = mean_design(space, rows.X)
    if shared_constant:
        design = np.concatenate([design, np.ones((*rows.y.shape, 1))], axis=2)
    residual = _least_squares_residual(rows.y - mean, design)
    within = rows.scatter.sum(axis=0) / rows.number.sum(axis=0)
    found = starts_from_data(prior, rows.X, residual, within)
    if logits:
        found = found.with_size_scale(LOGIT_SIZE_SCALE)
    ranges = _ranges(space, found.by_id, _spread(residual, within, noise_scale), noise_scale)
    box = ranges.box
    space = eqx.tree_at(lambda tree: tree.prior, space, origin)
    precision = np.where(box.fixed, 0.0, ranges.hyperprior_scale**-2.0) if hyperpriors else np.zeros_like(box.lower)
    noise_shape = None if noise_scale is None else np.shape(noise_scale)
    # Outputs share a block only if they share the noise, too.
    separate = np.broadcast_shapes(noise_shape or (), rows.precision.shape)[1] > 1
    problem = MarginalLikelihood(
        space, rows, mean, design, Penalty(ranges.hyperprior_location, precision), noise_shape,
        KernelTiles.of(rows.X, origin.blocks, separate=separate),
    )  # fmt: skip
    # One length scale for all columns does not see those that never change.
    notes = _constant_column_notes(found.constant_columns) if ranges.lengthscales else []
    return SetUp(
        problem, box.clip(ranges.start), box.clip(ranges.noisy), box.clip(ranges.given), box, ranges.lengthscales,
        ranges.periods, notes,
    )  # fmt: skip


class _Ranges(NamedTuple):
    """Vectors of what is known before the search, in the order of the search's vector.

    Attributes:
        start: first values from the data.
        noisy: the same with more noise and longer length scales.
        given: the caller's values.
        box: bounds.
        hyperprior_location: of each entry.
        hyperprior_scale: of each entry, infinite if nothing is known.
        lengthscales: entries of each vector of length scales.
        periods: entries that are periods.
    """

    start: Float[np.ndarray, " P"]
    noisy: Float[np.ndarray, " P"]
    given: Float[np.ndarray, " P"]
    box: Box
    hyperprior_location: Float[np.ndarray, " P"]
    hyperprior_scale: Float[np.ndarray, " P"]
    lengthscales: list[Int[np.ndarray, " k"]]
    periods: list[int]


def _ranges(space: ParameterSpace, by_id: dict[int, ParameterStart], spread, noise_scale) -> _Ranges:
    """`spread`: standard deviation of the targets for each noise scale."""
    values, found, lengthscales, periods, entry = space.values(space.prior), [], [], [], 0
    for place, value, node in zip(space.places, values, space.nodes(), strict=True):
        reach = 10.0 * (1.0 + np.abs(value))
        near = (1e-4 * value, 1e4 * value) if place.positive else (value - reach, value + reach)
        start = by_id.get(id(node), ParameterStart(value, *near))
        found.append(start)
        entries = np.arange(entry, entry + place.size)
        entry += place.size
        if start.kind == "lengthscale" and place.size > 1:
            lengthscales.append(entries)
        if start.kind == "period":
            periods.extend(entries.tolist())
    shaped = lambda numbers: [  # noqa: E731
        np.broadcast_to(number, place.shape) for place, number in zip(space.places, numbers, strict=True)
    ]
    first, lower, upper = (
        space.to_vector(shaped([getattr(start, name) for start in found])) for name in ("value", "lower", "upper")
    )
    longer = [np.exp(start.hyperprior.location) if start.kind == "lengthscale" else start.value for start in found]
    given, noisy = space.to_vector(values), space.to_vector(shaped(longer))
    flat = lambda numbers: np.concatenate([np.zeros(0), *map(np.ravel, shaped(numbers))])  # noqa: E731
    location = flat([start.hyperprior.location for start in found])
    scale = flat([start.hyperprior.scale for start in found])
    logarithmic = flat([place.positive for place in space.places]).astype(bool)
    if noise_scale is not None:
        noise = np.ravel(np.log(noise_scale))
        ends = [np.ravel(np.log(fraction * spread)) for fraction in NOISE]
        expected = noise_prior(spread)
        first, lower, upper = (np.append(*pair) for pair in zip((first, lower, upper), ends, strict=True))
        noisy = np.append(noisy, np.ravel(np.log(NOISY * spread)))
        given, location = np.append(given, noise), np.append(location, np.ravel(expected.location))
        scale = np.append(scale, np.full(noise.size, expected.scale))
        logarithmic = np.append(logarithmic, np.full(noise.size, True))
    # Logarithms move in their own unit; anything else in a tenth of what it may move at all.
    unit = np.where(logarithmic, 1.0, np.maximum(0.1 * (upper - lower), 1e-300))
    return _Ranges(first, noisy, given, Box(lower, upper, unit), location, scale, lengthscales, periods)


def _spread(
    residual: Float[np.ndarray, "n q"], within: Float[np.ndarray, " q"], noise_scale: np.ndarray | None
) -> Float[np.ndarray, "..."]:
    """Standard deviation of single targets around the best linear mean: one, or one per output as the noise."""
    each = np.sqrt(np.var(residual, axis=0) + within)
    if noise_scale is None or noise_scale.ndim == 0:
        return np.full((), np.sqrt(np.var(residual) + np.mean(within)))
    return np.maximum(each, 1e-3 * np.sqrt(np.mean(each**2)))


def _constant_column_notes(columns: list[int]) -> list[str]:
    if not columns:
        return []
    named = ", ".join(map(str, columns[:_NAMED_COLUMNS]))
    more = f" and {len(columns) - _NAMED_COLUMNS} more" if len(columns) > _NAMED_COLUMNS else ""
    if len(columns) == 1:
        return [f"column {named} of X is constant, so the data says nothing about its length scale; drop it"]
    return [f"columns {named}{more} of X are constant, so the data says nothing about their length scales; drop them"]


def _least_squares_residual(
    y: Float[np.ndarray, "n q"], design: Float[np.ndarray, "n q k"]
) -> Float[np.ndarray, "n q"]:
    """What a kernel has to explain: the targets without the best linear mean."""
    if design.shape[2] == 0:
        return y
    columns = design.reshape(y.size, -1)
    residual = y - (columns @ np.linalg.lstsq(columns, y.ravel(), rcond=None)[0]).reshape(y.shape)
    # A mean that explains the targets to rounding leaves no scale to start from.
    return residual if np.std(residual) > 1e-8 * np.std(y) else y
