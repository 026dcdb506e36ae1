r"""The noise for which the expected log-likelihood is highest, judged by training rows that are predicted from all others.

The score is $E_q \log p(y \mid f) = -\tfrac12 \log 2\pi s^2 - \tfrac{1}{2 s^2} \left((y - m)^2 + v\right)$ with mean m and variance v of the
function. Over many rows it is highest at $s^2 = \overline{(y - m)^2 + v}$: noise that holds the epistemic variance as well. The evidence
estimates the noise of the targets alone, so that a method with honest v and little noise scores far below zero. Here the mean is over training rows, each left out in closed form.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fsplaplace.estimators import FSPRegressor
from fsplaplace.laplace import Posterior
from fsplaplace.likelihoods import Gaussian
from fsplaplace.methods.gp import GPPosterior


class LeftOut(NamedTuple):
    """Training rows as all others predict them.

    Attributes:
        off: targets less means, (n,).
        variance: epistemic variances, (n,).
        weights: number of observations that each row stands for, (n,).
    """

    off: Float[np.ndarray, " n"]
    variance: Float[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]

    @property
    def noise_variance(self) -> float:
        """For which the expected log-likelihood of these rows is highest."""
        return float(np.average(self.off**2 + self.variance, weights=self.weights))


def left_out_of_estimator(fitted: FSPRegressor) -> LeftOut | None:
    """At most 1,000 rows that an estimator of one target was fitted to, in its standardised units; None if there is no closed form."""
    if isinstance(fitted.posterior_, GPPosterior):
        return left_out_of_process(fitted.posterior_)
    if not isinstance(fitted.posterior_, Posterior):
        return None
    left = fitted._left_out(fitted._rows)
    if left is None:
        return None
    return LeftOut(left.off[:, 0], left.variance[:, 0], fitted._rows.weights)


def left_out_of_process(posterior: GPPosterior) -> LeftOut:
    r"""With $A = (K + \sigma^2 I)^{-1} = P^\top P$ and $a = A (y - \mu)$: row i is off by $a_i / A_{ii}$ with variance $1 / A_{ii} - \sigma^2$."""
    precision = np.sum(np.asarray(posterior.precision_root, float)[0] ** 2, axis=0)
    noise = _noise_variance(posterior)
    coefficients = np.asarray(posterior.coefficients, float)[0, :, 0]
    return LeftOut(coefficients / precision, np.maximum(1 / precision - noise, 0.0), np.ones(precision.size))


def _noise_variance(posterior: Posterior | GPPosterior) -> float:
    """Of one output with constant noise."""
    assert isinstance(posterior.likelihood, Gaussian)
    return float(np.mean(np.asarray(posterior.likelihood.scale, float) ** 2))
