"""The prior of an estimator, with a linear part if the evidence prefers it."""

import itertools
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.linalg import solve_triangular

from fsplaplace.estimators._rows import WeightedRows
from fsplaplace.host import host_generator
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.prior import Prior, moments
from fsplaplace.tuning import FittedPrior, fit_prior

# Rows that decide between candidates: as many as the restarts of `fit_prior` see. A trend that 300 rows do not show is one
# that the other part follows from all of them.
_DECIDING_ROWS = 300
# What the linear part must gain in nats: a part more has been fitted to the same targets.
_NATS_PER_PART = 1.0
# Rows for each column without which no linear part is tried: a plane through about as many rows as columns misses none of them, and its
# evidence then takes the noise for small (10 x 10: 90 % intervals covered 76 %).
_ROWS_PER_SLOPE = 2
# Factors of the kernel, of a linear part and of the noise variance that are tried before a linear part is fitted.
_TRENDS = tuple(itertools.product((1.0, 0.3, 0.03), (0.03, 0.1, 0.3, 1.0), (0.5, 1.0, 2.0)))
_NUGGET = 1e-10


class BestPrior(NamedTuple):
    """The candidate of the highest evidence.

    Attributes:
        fitted: its prior, likelihood and report.
        said: the warnings of that fit alone.
    """

    fitted: FittedPrior
    said: tuple[warnings.WarningMessage, ...]


def fit_best(
    candidates: Sequence[Prior], rows: WeightedRows, likelihood: Likelihood, *, key: PRNGKeyArray, **options
) -> BestPrior:
    """The first candidate fitted to all rows, or the second, which has a linear part more, if its evidence is higher.

    Args:
        candidates: one prior, or that and one with a linear part, which must gain a nat; with less than two rows for each
            column the first.
        rows: the data.
        likelihood: of the targets, whose noise is fitted along.
        key: of `fit_prior` and of the choice of rows.
        options: of `fit_prior`.

    Time: that of `fit_prior`; if a linear part may gain, twice as much up to 300 rows, and beyond that also of both on 300 of them.
    """
    plain = _fit(candidates[0], rows, likelihood, key=key, **options)
    if len(candidates) == 1 or rows.X.shape[0] < _ROWS_PER_SLOPE * rows.X.shape[1]:
        return plain
    few = rows.X.shape[0] <= _DECIDING_ROWS
    some = rows if few else rows.some(_DECIDING_ROWS, host_generator(key))
    fitted = plain.fitted.likelihood
    if isinstance(fitted, Gaussian) and trend_gain(plain.fitted.prior, fitted, some) < 0:
        return plain
    more = options if few else {**options, "restarts": 1}
    before = plain if few else _fit(candidates[0], some, likelihood, key=key, **more)
    trended = _fit(candidates[1], some, likelihood, key=key, **more)
    if not trended.fitted.report.value > before.fitted.report.value + _NATS_PER_PART:
        return plain
    return trended if few else _fit(candidates[1], rows, likelihood, key=key, **options)


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
