"""Starting values and bounds of kernel parameters, from the data."""

from typing import Any, NamedTuple

import numpy as np
from gpjax.kernels import (
    AbstractKernel,
    Constant,
    Linear,
    MultiOutputKernel,
    Periodic,
    Polynomial,
    ProductKernel,
    SumKernel,
    White,
)
from gpjax.parameters import val
from jaxtyping import Float
from scipy.signal import lombscargle
from scipy.spatial.distance import cdist

from fsplaplace.kernels import Helmholtz
from fsplaplace.prior import Prior

_MOST_ROWS = 500


class Start(NamedTuple):
    """A first value and bounds, in the parameter's own units, each of the parameter's shape."""

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Starts(NamedTuple):
    """Starts by the `id` of the parameter, and columns of X that never change."""

    by_id: dict[int, Start]
    constant_columns: list[int]


def starts_from_data(prior: Prior, X: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n q"]) -> Starts:
    """Length scales from distances between rows, variances from the targets', periods from a periodogram."""
    survey = _Survey(X, y)
    found: dict[int, Start] = {}
    if isinstance(prior.kernel, tuple):
        for output, kernel in enumerate(prior.kernel):
            survey.use_output(output)
            _visit(kernel, survey, survey.variance, 1.0, found)
    else:
        _visit(prior.kernel, survey, survey.variance, 1.0, found)
    return Starts(found, survey.constant_columns)


def redundant_parameters(prior: Prior) -> frozenset[int]:
    """The `id` of parameters that say nothing the others do not say already: all but one scale of a product."""
    parts = prior.kernel if isinstance(prior.kernel, tuple) else (prior.kernel,)
    return frozenset(id(node) for part in parts for node in _redundant(part))


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
    """What the data says about scales."""

    def __init__(self, X: np.ndarray, y: np.ndarray):
        step = -(-X.shape[0] // _MOST_ROWS)
        self.rows, self.targets = X[::step], y[::step]
        self.columns = np.arange(X.shape[1])
        self.ranges = np.ptp(X, axis=0)
        self.constant_columns = np.flatnonzero(self.ranges == 0).tolist()
        differences = np.abs(self.rows[:, None, :] - self.rows[None]).transpose(2, 0, 1)
        self.medians = np.array([_median_positive(part) for part in differences])
        self.output_variances = np.var(y, axis=0)
        self.output = None
        self.covariance = np.atleast_2d(np.cov(y, rowvar=False, bias=True))

    def use_output(self, output: int) -> None:
        self.output = output

    @property
    def variance(self) -> float:
        values = self.output_variances
        return float(values.mean() if self.output is None else values[self.output])

    def active(self, kernel) -> np.ndarray:
        return self.columns[kernel.active_dims]

    def lengthscale(self, columns: np.ndarray, shape: tuple[int, ...]) -> Start:
        """The median distance, alone or per column; from a fraction of the distance between neighbours to far beyond
        the range."""
        varying = columns[self.ranges[columns] > 0]
        if varying.size == 0:
            return Start(*(np.ones(shape) for _ in range(3)))
        if int(np.prod(shape)) == 1:
            distances = cdist(self.rows[:, varying], self.rows[:, varying])
            median = _median_positive(distances)
            near = np.where(distances > 0, distances, np.inf).min(axis=1)
            near = float(np.median(near[np.isfinite(near)]))
            lower = min(0.1 * near, 1e-2 * median)
            upper = 100 * float(np.linalg.norm(self.ranges[varying]))
            return Start(*(np.full(shape, value) for value in (median / 2, lower, upper)))
        spread = np.sqrt(varying.size)
        used = self.ranges[columns] > 0
        median = np.where(used, self.medians[columns], 1.0)
        value = np.where(used, spread * median / 2, 1.0)
        lower, upper = 1e-2 * median, 100 * spread * self.ranges[columns]
        return Start(value, np.where(used, lower, 1.0), np.where(used, upper, 1.0))

    def period(self, columns: np.ndarray) -> tuple[float, float, float]:
        """The highest peak of the periodogram of the detrended targets, with bounds."""
        column = columns[np.argmax(self.ranges[columns])]
        span = float(self.ranges[column]) or 1.0
        x = self.rows[:, column]
        values = self.targets.mean(axis=1) if self.output is None else self.targets[:, self.output]
        gaps = np.diff(np.unique(x))
        spacing = float(np.median(gaps)) if gaps.size else span
        bounds = (max(spacing, 1e-4 * span), 2 * span)
        if columns.size > 1 or x.size < 8:
            return (span / 3, *bounds)
        values = values - np.polyval(np.polyfit((x - x.mean()) / span, values, 1), (x - x.mean()) / span)
        if not np.any(values):
            return (span / 3, *bounds)
        frequencies = np.linspace(1.0, max(2.0, span / (2 * spacing)), 2000) / span
        power = lombscargle(x - x.mean(), values, 2 * np.pi * frequencies)
        return (float(1 / frequencies[np.argmax(power)]), *bounds)


def _visit(kernel: Any, survey: _Survey, variance: float, spread: float, found: dict) -> None:
    """Starts of one kernel that is to explain `variance`; `spread` sets terms of a sum on different length scales."""
    if isinstance(kernel, SumKernel):
        count = len(kernel.kernels)
        for position, part in enumerate(kernel.kernels):
            shrink = 10.0 ** (-position / max(1, count - 1))
            _visit(part, survey, variance / count, spread * shrink, found)
    elif isinstance(kernel, ProductKernel):
        first, *others = kernel.kernels
        for part in others:
            variance = variance / _scale_of(part)
            _visit(part, survey, 1.0, spread, found)
        _visit(first, survey, variance, spread, found)
    elif isinstance(kernel, Helmholtz):
        parts = [part for part in (kernel.potential, kernel.stream) if part is not None]
        for part in parts:
            scale = survey.lengthscale(survey.active(kernel), ()).value * spread
            _visit(part, survey, float(variance / len(parts) * scale**2), spread, found)
    elif isinstance(kernel, MultiOutputKernel):
        for matrix, latent in kernel.components:
            _coregionalisation(matrix, survey, _scale_of(latent) * len(kernel.components), found)
            _visit(latent, survey, 1.0, spread, found)
    else:
        _leaf(kernel, survey, variance, spread, found)


def _leaf(kernel: AbstractKernel, survey: _Survey, variance: float, spread: float, found: dict) -> None:
    columns = survey.active(kernel)
    if (node := getattr(kernel, "variance", None)) is not None:
        size = variance
        if isinstance(kernel, Linear | Polynomial):
            size = variance / max(float(np.mean(np.sum(survey.rows[:, columns] ** 2, axis=1))), 1e-300)
        elif isinstance(kernel, White):
            size = 0.1 * variance
        _place(found, node, size, 1e-6 * size, 1e4 * size)
    if isinstance(kernel, Constant):
        _place(found, kernel.constant, variance, 0.0, 1e4 * variance)
    if (node := getattr(kernel, "lengthscale", None)) is not None:
        shape = np.shape(val(node))
        if isinstance(kernel, Periodic):
            # Its length scale is in units of the period's phase, not of the inputs.
            _place(found, node, 1.0, 0.05, 50.0)
        else:
            start = survey.lengthscale(columns, shape)
            value = np.clip(start.value * spread, start.lower, start.upper)
            found[id(node)] = start._replace(value=value)
    if (node := getattr(kernel, "period", None)) is not None:
        _place(found, node, *survey.period(columns))
    if (node := getattr(kernel, "alpha", None)) is not None:
        _place(found, node, 1.0, 1e-2, 1e3)


def _coregionalisation(matrix, survey: _Survey, scale: float, found: dict) -> None:
    """W and kappa from the principal components of the targets."""
    eigenvalues, vectors = np.linalg.eigh(survey.covariance / scale)
    top = vectors[:, ::-1][:, : matrix.rank] * np.sqrt(np.maximum(eigenvalues[::-1][: matrix.rank], 0.0))
    variances = np.diag(survey.covariance) / scale
    found[id(matrix.W)] = Start(
        top, -30 * np.sqrt(variances)[:, None] + 0 * top, 30 * np.sqrt(variances)[:, None] + 0 * top
    )
    rest = np.maximum(variances - np.sum(top**2, axis=1), 0.05 * variances)
    found[id(matrix.kappa)] = Start(rest, 1e-6 * variances, 1e4 * variances)


def _place(found: dict, node, value: float, lower: float, upper: float) -> None:
    shape = np.shape(val(node))
    found[id(node)] = Start(*(np.full(shape, number) for number in (value, lower, upper)))


def _own_scale(kernel: Any) -> list:
    """The parameters that scale the whole of a factor and nothing else."""
    if isinstance(kernel, SumKernel | ProductKernel | MultiOutputKernel):
        return []
    return [node for name in ("variance", "constant") if (node := getattr(kernel, name, None)) is not None]


def _scale_of(kernel: Any) -> float:
    return float(np.prod([np.asarray(val(node), dtype=float) for node in _own_scale(kernel)]))


def _median_positive(distances: np.ndarray) -> float:
    positive = distances[distances > 0]
    return float(np.median(positive)) if positive.size else 1.0
