"""The prior of an estimator: the candidate that the evidence prefers, fitted to the rows."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import PRNGKeyArray

from fsplaplace.estimators._rows import WeightedRows
from fsplaplace.host import host_generator
from fsplaplace.likelihoods import Likelihood
from fsplaplace.prior import Prior
from fsplaplace.tuning import FittedPrior, fit_prior

# Rows that decide between candidates: as many as the restarts of `fit_prior` see. A trend that 300 rows do not show is one
# that the other part follows from all of them.
_DECIDING_ROWS = 300
# What a candidate must gain in nats on the one before it: a part more has been fitted to the same targets.
_NATS_PER_PART = 1.0


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
    """Fit every candidate to some rows, and the one of the highest evidence to all.

    Args:
        candidates: from the simplest on; each must gain a nat on the best before it.
        rows: the data.
        likelihood: of the targets, whose noise is fitted along.
        key: of `fit_prior` and of the choice of rows.
        options: of `fit_prior`.

    Time: that of `fit_prior` on all rows once, and for each of several candidates on at most 300 of them.
    """
    if len(candidates) == 1:
        return _fit(candidates[0], rows, likelihood, key=key, **options)
    few = rows.X.shape[0] <= _DECIDING_ROWS
    some = rows if few else rows.some(_DECIDING_ROWS, host_generator(key))
    more = options if few else {**options, "restarts": 1}
    chosen, best = 0, _fit(candidates[0], some, likelihood, key=key, **more)
    for number, candidate in enumerate(candidates[1:], 1):
        found = _fit(candidate, some, likelihood, key=key, **more)
        if found.fitted.report.value > best.fitted.report.value + _NATS_PER_PART:
            chosen, best = number, found
    return best if few else _fit(candidates[chosen], rows, likelihood, key=key, **options)


def _fit(prior: Prior, rows: WeightedRows, likelihood: Likelihood, **options) -> BestPrior:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = fit_prior(
            prior, rows.X, rows.targets, likelihood, standard_errors=False, weights=rows.weights, **options
        )
    return BestPrior(fitted, tuple(caught))
