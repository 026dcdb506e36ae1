"""The prior of an estimator: smoother, or with a linear part, if the evidence prefers it."""

import itertools
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.linalg import solve_triangular

from fsplaplace.estimators._rows import Scale, WeightedRows
from fsplaplace.host import host_generator
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.prior import Prior, moments
from fsplaplace.tuning import FittedPrior, fit_prior

# Rows that decide between candidates: as many as the restarts of `fit_prior` see. A trend that 300 rows do not show is one
# that the other part follows from all of them.
_DECIDING_ROWS = 300
# What another prior must gain in nats: it has been fitted to the same targets, a linear part with a parameter more.
_LEAST_GAIN = 1.0
# Noise in standard deviations of the targets above which rows hardly tell how smooth a function is: a fit more would be for nothing.
_LITTLE_NOISE = 0.05
# Rows for each column without which no linear part is tried: a plane through about as many rows as columns misses none of them, and its
# evidence then takes the noise for small (10 x 10: 90 % intervals covered 76 %).
_ROWS_PER_SLOPE = 2
# Factors of the kernel, of a linear part and of the noise variance that are tried before a linear part is fitted.
_TRENDS = tuple(itertools.product((1.0, 0.3, 0.03), (0.03, 0.1, 0.3, 1.0), (0.5, 1.0, 2.0)))
_NUGGET = 1e-10


class PriorCandidate(NamedTuple):
    """One smoothness that the evidence may choose.

    Attributes:
        prior: without a linear part.
        trended: with one; None for none.
    """

    prior: Prior
    trended: Prior | None = None


class BestPrior(NamedTuple):
    """The candidate of the highest evidence.

    Attributes:
        fitted: its prior, likelihood and report.
        said: the warnings of that fit alone.
    """

    fitted: FittedPrior
    said: tuple[warnings.WarningMessage, ...]


def fit_best(
    ways: Sequence[PriorCandidate], rows: WeightedRows, likelihood: Likelihood, *, key: PRNGKeyArray, **options
) -> BestPrior:
    """The first candidate fitted to all rows; or a smoother one, or one with a linear part, if its evidence is higher by a nat.

    Smoother ones are tried if the first leaves little noise: more of it hides how smooth a function is. A linear part is tried if
    there are two rows for each column.

    Args:
        ways: from rough to smooth.
        rows: the data.
        likelihood: of the targets, whose noise is fitted along.
        key: of `fit_prior` and of the choice of rows.
        options: of `fit_prior`.

    Time: that of `fit_prior`; for each further candidate as much again up to 300 rows, and beyond that of two fits to 300 of them.
    """
    contest = _Contest.of(rows, likelihood, key, options)
    way, best = ways[0], contest.fit(ways[0].prior)
    for other in ways[1:]:
        if not _shows_smoothness(best.fitted.likelihood, rows):
            break
        better = contest.better(way.prior, best, other.prior)
        if better is None:
            break
        way, best = other, better
    if way.trended is None or rows.X.shape[0] < _ROWS_PER_SLOPE * rows.X.shape[1]:
        return best
    noise = best.fitted.likelihood
    if isinstance(noise, Gaussian) and trend_gain(best.fitted.prior, noise, contest.some) < 0:
        return best
    return contest.better(way.prior, best, way.trended) or best


def _shows_smoothness(likelihood: Likelihood, rows: WeightedRows) -> bool:
    """Whether the noise of any target is small enough to see how smooth the function below it is."""
    if not isinstance(likelihood, Gaussian):
        return False
    spread = Scale.of(rows.y, rows.weights).std
    return bool(np.min(np.asarray(likelihood.scale, np.float64) / spread) < _LITTLE_NOISE)


class _Contest(NamedTuple):
    """Priors that are compared by the evidence of the same rows.

    Attributes:
        rows: all of them.
        some: those that decide.
        likelihood: whose noise is fitted along.
        key: of `fit_prior`.
        options: of `fit_prior`.
    """

    rows: WeightedRows
    some: WeightedRows
    likelihood: Likelihood
    key: PRNGKeyArray
    options: dict[str, Any]

    @classmethod
    def of(cls, rows: WeightedRows, likelihood: Likelihood, key: PRNGKeyArray, options: dict[str, Any]) -> "_Contest":
        few = rows.X.shape[0] <= _DECIDING_ROWS
        some = rows if few else rows.some(_DECIDING_ROWS, host_generator(key))
        return cls(rows, some, likelihood, key, options)

    def fit(self, prior: Prior) -> BestPrior:
        """To all rows."""
        return _fit(prior, self.rows, self.likelihood, key=self.key, **self.options)

    def better(self, prior: Prior, best: BestPrior, other: Prior) -> BestPrior | None:
        """Another prior fitted to all rows, if it gains a nat on the deciding ones over the one that is best so far."""
        if self.some is self.rows:
            before, after = best, self.fit(other)
        else:
            before, after = (
                _fit(each, self.some, self.likelihood, key=self.key, **{**self.options, "restarts": 1})
                for each in (prior, other)
            )
        if not after.fitted.report.value > before.fitted.report.value + _LEAST_GAIN:
            return None
        return after if self.some is self.rows else self.fit(other)


def trend_gain(prior: Prior, likelihood: Gaussian, rows: WeightedRows) -> float:
    r"""What a linear part would add to the log evidence at least, the kernel's length scales being as they are.

    The largest of $\log \mathcal N(y;\, 0,\, a K + v X X^\top / d + s \sigma^2 I)$ over a few a, v and s, less that of a = 1, v = 0, s = 1.
    Nothing is compiled. Time: 37 Cholesky factors of the rows' covariance.
    """
    K = moments.covariance(prior, rows.X)
    n, q = rows.y.shape
    K = K.reshape(n, q, n, q)[:, 0, :, 0]
    line = rows.X @ rows.X.T / rows.X.shape[1]
    gain = 0.0
    for target, noise in zip(rows.y.T, np.broadcast_to(np.asarray(likelihood.scale, np.float64) ** 2, q), strict=True):
        own = np.diag(noise / rows.weights)
        found = [_log_density(target, a * K + v * line + s * own) for a, v, s in _TRENDS]
        gain += max(found) - _log_density(target, K + own)
    return gain


def _log_density(target: Float[np.ndarray, " n"], covariance: Float[np.ndarray, "n n"]) -> float:
    """Up to a constant; minus infinity if the matrix has no Cholesky factor."""
    try:
        lower = np.linalg.cholesky(covariance + _NUGGET * np.mean(np.diagonal(covariance)) * np.eye(len(target)))
    except np.linalg.LinAlgError:
        return -np.inf
    white = solve_triangular(lower, target, lower=True)
    return float(-0.5 * white @ white - np.sum(np.log(np.diagonal(lower))))


def _fit(prior: Prior, rows: WeightedRows, likelihood: Likelihood, **options) -> BestPrior:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = fit_prior(
            prior, rows.X, rows.targets, likelihood, standard_errors=False, weights=rows.weights, **options
        )
    return BestPrior(fitted, tuple(caught))
