"""Starting values and bounds of kernel parameters, from the data."""

import functools
from typing import Any, Literal, NamedTuple

import numpy as np
from gpjax.kernels import MultiOutputKernel, ProductKernel, SumKernel
from gpjax.parameters import val
from jaxtyping import Float
from scipy.signal import lombscargle
from scipy.spatial.distance import cdist

from fsplaplace.host import scattered
from fsplaplace.kernels import Helmholtz, Start, nearest_entry, parameter_starts
from fsplaplace.prior import Prior
from fsplaplace.tuning._hyperpriors import FLAT, LogNormal, lengthscale_prior, size_prior

# Rows that are surveyed: all pairs of them are compared.
_MOST_ROWS = 500


class ParameterStart(NamedTuple):
    """What the data says about one parameter.

    Attributes:
        value: where a search starts.
        lower: the lowest value allowed.
        upper: the highest value allowed.
        hyperprior: its distribution before the targets are seen.
        kind: "lengthscale" in units of the inputs, "period", or "size".
    """

    value: Float[np.ndarray, "..."]
    lower: Float[np.ndarray, "..."]
    upper: Float[np.ndarray, "..."]
    hyperprior: LogNormal = FLAT
    kind: Literal["lengthscale", "period", "size"] = "size"


class Starts(NamedTuple):
    """What the data says about a prior's parameters.

    Attributes:
        by_id: first value and bounds, each of the parameter's shape, by the `id` of the parameter.
        constant_columns: columns of X that never change.
    """

    by_id: dict[int, ParameterStart]
    constant_columns: list[int]

    def with_size_scale(self, scale: float) -> "Starts":
        """With hyperpriors of this scale for sizes, where they have one."""
        narrowed = {
            key: start._replace(hyperprior=start.hyperprior._replace(scale=scale))
            if start.kind == "size" and np.isfinite(start.hyperprior.scale)
            else start
            for key, start in self.by_id.items()
        }
        return self._replace(by_id=narrowed)


def starts_from_data(
    prior: Prior,
    X: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n q"],
    within: Float[np.ndarray, " q"] | float = 0.0,
) -> Starts:
    """Length scales from distances between rows, variances from the targets', periods from a periodogram.

    Args:
        prior: whose parameters are to start.
        X: inputs, one per row.
        y: targets without their mean, averaged over rows of equal inputs.
        within: variance of the targets around those averages.
    """
    survey = _Survey(X, y, within)
    found: dict[int, ParameterStart] = {}
    for kernel, outputs in zip(prior.blocks.kernels, prior.blocks.outputs, strict=True):
        _visit(kernel, survey.of_outputs(outputs), survey.variance_of(outputs), 1.0, found)
    return Starts(found, survey.constant_columns)


def redundant_parameters(prior: Prior) -> frozenset[int]:
    """The `id` of parameters that say nothing the others do not say already: all but one scale of a product."""
    return frozenset(id(node) for kernel in prior.blocks.kernels for node in _redundant(kernel))


def _redundant(kernel: Any) -> list:
    match kernel:
        case SumKernel():
            return [node for part in kernel.kernels for node in _redundant(part)]
        case ProductKernel():
            others = [node for part in kernel.kernels[1:] for node in _own_scale(part)]
            return others + [node for part in kernel.kernels for node in _redundant(part)]
        case Helmholtz():
            potentials = [part for part in (kernel.potential, kernel.stream) if part is not None]
            return [node for part in potentials for node in _redundant(part)]
        case MultiOutputKernel():
            # The coregionalisation matrix has the scale.
            latent = kernel.latent_kernels
            return [node for part in latent for node in (*_own_scale(part), *_redundant(part))]
        case _:
            return []


class _Survey:
    """What the data says about scales, for all columns and outputs."""

    def __init__(self, X: np.ndarray, y: np.ndarray, within: np.ndarray | float):
        some = scattered(X.shape[0], _MOST_ROWS)
        self.rows, self.targets = X[some], y[some]
        self.columns = np.arange(X.shape[1])
        self.ranges = np.ptp(X, axis=0)
        self.constant_columns = np.flatnonzero(self.ranges == 0).tolist()
        # Averages that do not vary leave a kernel little to explain, but a start needs a size.
        self.output_variances = np.maximum(np.var(y, axis=0), 1e-2 * within)
        self.covariance = np.atleast_2d(np.cov(y, rowvar=False, bias=True))

    @functools.cached_property
    def medians(self) -> Float[np.ndarray, " d"]:
        """Median distance between rows along each column: only kernels with a length scale for each ask for it."""
        return np.array([_median_positive(np.abs(column[:, None] - column)) for column in self.rows.T])

    def variance_of(self, outputs: tuple[int, ...]) -> float:
        return float(self.output_variances[list(outputs)].mean())

    def of_outputs(self, outputs: tuple[int, ...]) -> "_View":
        return _View(self, self.targets[:, list(outputs)].mean(axis=1))


class _View(NamedTuple):
    """The survey as the kernel of some outputs sees it.

    Attributes:
        survey: of all columns and outputs.
        targets: the mean over those outputs, at the surveyed rows.
    """

    survey: _Survey
    targets: Float[np.ndarray, " k"]

    def for_kernel(self, kernel: Any, variance: float, spread: float) -> "_Summary":
        """What one kernel without parts asks; see `_visit`."""
        return _Summary(self.survey, self.targets, self.survey.columns[kernel.active_dims], variance, spread)


class _InInputUnits(Start):
    """The start of a length scale in units of the inputs, which not every parameter of that name is."""


class _Summary(NamedTuple):
    """The `fsplaplace.kernels.DataSummary` of one kernel.

    Attributes:
        survey: of all columns and outputs.
        targets: the mean over the kernel's outputs, at the surveyed rows.
        columns: the columns that the kernel acts on.
        variance: what the kernel is to explain.
        spread: multiplies the start of length scales.
    """

    survey: _Survey
    targets: Float[np.ndarray, " k"]
    columns: np.ndarray
    variance: float
    spread: float

    @property
    def mean_square(self) -> float:
        return float(np.mean(np.sum(self.survey.rows[:, self.columns] ** 2, axis=1)))

    def lengthscale(self, shape: tuple[int, ...]) -> Start:
        """Half the median distance between rows, times `spread`.

        Bounds go from a fraction of the distance between neighbours to ten thousand times the range, where a column of
        no influence is flat to rounding.
        """
        start = self._one_lengthscale() if int(np.prod(shape)) == 1 else self._lengthscale_per_column()
        value = np.clip(start.value * self.spread, start.lower, start.upper)
        return _InInputUnits(value, start.lower, start.upper)

    def lengthscale_prior(self, shape: tuple[int, ...]) -> LogNormal:
        """Relative to the range of each column; for one length scale of all columns to the root of their mean square."""
        ranges = self.survey.ranges[self.columns]
        varying = ranges[ranges > 0]
        if varying.size == 0:
            return FLAT
        one = float(np.sqrt(np.mean(varying**2)))
        return lengthscale_prior(one if int(np.prod(shape)) == 1 else np.where(ranges > 0, ranges, one), varying.size)

    def _one_lengthscale(self) -> Start:
        varying = self.columns[self.survey.ranges[self.columns] > 0]
        if varying.size == 0:
            return Start(1.0, 1.0, 1.0)
        rows = self.survey.rows[:, varying]
        distances = cdist(rows, rows)
        median = _median_positive(distances)
        near = np.where(distances > 0, distances, np.inf).min(axis=1)
        near = float(np.median(near[np.isfinite(near)]))
        upper = 1e4 * float(np.linalg.norm(self.survey.ranges[varying]))
        return Start(median / 2, min(0.1 * near, 1e-2 * median), upper)

    def _lengthscale_per_column(self) -> Start:
        ranges = self.survey.ranges[self.columns]
        used = ranges > 0
        # Distances over d columns are about sqrt(d) times those along one.
        spread = np.sqrt(np.sum(used))
        median = np.where(used, self.survey.medians[self.columns], 1.0)
        parts = (spread * median / 2, 1e-2 * median, 1e4 * spread * ranges)
        return Start(*(np.where(used, part, 1.0) for part in parts))

    def period(self) -> Start:
        """The highest peak of the periodogram of the detrended targets."""
        column = self.columns[np.argmax(self.survey.ranges[self.columns])]
        span = float(self.survey.ranges[column]) or 1.0
        x = self.survey.rows[:, column]
        gaps = np.diff(np.unique(x))
        spacing = float(np.median(gaps)) if gaps.size else span
        third = Start(span / 3, max(spacing, 1e-4 * span), 2 * span)
        if self.columns.size > 1 or x.size < 8:
            return third
        centred = x - x.mean()
        values = self.targets - np.polyval(np.polyfit(centred / span, self.targets, 1), centred / span)
        if not np.any(values):
            return third
        frequencies = np.linspace(1.0, max(2.0, span / (2 * spacing)), 2000) / span
        power = lombscargle(centred, values, 2 * np.pi * frequencies)
        return third._replace(value=float(1 / frequencies[np.argmax(power)]))


def _visit(kernel: Any, view: _View, variance: float, spread: float, found: dict[int, ParameterStart]) -> None:
    """Find the starts of one kernel.

    Args:
        kernel: a kernel, which may have parts.
        view: the data.
        variance: what the kernel is to explain.
        spread: multiplies the start of length scales, so that terms of a sum begin on different ones.
        found: where starts are put, by the `id` of the parameter.
    """
    if isinstance(kernel, SumKernel):
        count = len(kernel.kernels)
        for position, part in enumerate(kernel.kernels):
            shrink = 10.0 ** (-position / max(1, count - 1))
            _visit(part, view, variance / count, spread * shrink, found)
    elif isinstance(kernel, ProductKernel):
        first, *others = kernel.kernels
        for part in others:
            variance = variance / _scale_of(part)
            _visit(part, view, 1.0, spread, found)
        _visit(first, view, variance, spread, found)
    elif isinstance(kernel, Helmholtz):
        parts = [part for part in (kernel.potential, kernel.stream) if part is not None]
        scale = view.for_kernel(kernel, variance, 1.0).lengthscale(()).value * spread
        for part in parts:
            _visit(part, view, float(variance / len(parts) * scale**2), spread, found)
    elif isinstance(kernel, MultiOutputKernel):
        for matrix, latent in kernel.components:
            _coregionalisation(matrix, view.survey, _scale_of(latent) * len(kernel.components), found)
            _visit(latent, view, 1.0, spread, found)
    else:
        summary = view.for_kernel(kernel, variance, spread)
        for name, start in parameter_starts(kernel, summary).items():
            node = getattr(kernel, name)
            shape = np.shape(val(node))
            value, lower, upper = (np.broadcast_to(part, shape) for part in start)
            parts = ParameterStart(value, lower, upper)
            if isinstance(start, _InInputUnits):
                parts = parts._replace(hyperprior=summary.lengthscale_prior(shape), kind="lengthscale")
            elif name == "period":
                parts = parts._replace(kind="period")
            else:
                parts = parts._replace(hyperprior=size_prior(parts.value))
            found[id(node)] = parts


def _coregionalisation(matrix, survey: _Survey, scale: float, found: dict) -> None:
    """W and kappa from the principal components of the targets."""
    eigenvalues, vectors = np.linalg.eigh(survey.covariance / scale)
    top = vectors[:, ::-1][:, : matrix.rank] * np.sqrt(np.maximum(eigenvalues[::-1][: matrix.rank], 0.0))
    variances = np.diag(survey.covariance) / scale
    found[id(matrix.W)] = ParameterStart(
        top, -30 * np.sqrt(variances)[:, None] + 0 * top, 30 * np.sqrt(variances)[:, None] + 0 * top
    )
    rest = np.maximum(variances - np.sum(top**2, axis=1), 0.05 * variances)
    found[id(matrix.kappa)] = ParameterStart(rest, 1e-6 * variances, 1e4 * variances)


def _own_scale(kernel: Any) -> list:
    """The parameters that scale the whole of a factor and nothing else."""
    if isinstance(kernel, SumKernel | ProductKernel | MultiOutputKernel):
        return []
    name = nearest_entry(kernel).scale
    node = None if name is None else getattr(kernel, name, None)
    return [] if node is None else [node]


def _scale_of(kernel: Any) -> float:
    return float(np.prod([np.asarray(val(node), dtype=float) for node in _own_scale(kernel)]))


def _median_positive(distances: np.ndarray) -> float:
    positive = distances[distances > 0]
    return float(np.median(positive)) if positive.size else 1.0
