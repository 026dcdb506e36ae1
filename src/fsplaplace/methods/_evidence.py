"""The Laplace evidence as a function of the prior precision and the noise, and its maximiser."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from fsplaplace.methods._curvature import Curvature

# Starting points for the precision, the best of which is refined: the evidence can have more than one mode.
_STARTS = np.logspace(-4, 6, 21)
# Beyond these the prior is a point or flat to any data.
_BOUNDS = (np.log(1e-8), np.log(1e10))


class EvidenceAt(NamedTuple):
    """The log evidence, and where: precisions of the groups, and the factor on the noise precision."""

    value: float
    precision: Float[np.ndarray, " groups"]
    noise_factor: float


class Evidence:
    r"""$\log p(y \mid w) - \frac12 \sum_g \delta_g \lVert w_g \rVert^2 - \frac12 \log\det(I + c P^{-1} \Lambda)$.

    Scaling a Gaussian's noise precision by c multiplies the curvature and the squared residuals, so that one
    curvature serves every noise.
    """

    def __init__(
        self, curvature: Curvature, squared_norms, log_likelihood: float, chi_squared: float, num_targets: int
    ):
        self.curvature, self.squared_norms = curvature, squared_norms
        self.log_likelihood, self.chi_squared, self.num_targets = log_likelihood, chi_squared, num_targets

    def at(self, precision: Float[np.ndarray, " groups"], noise_factor: float = 1.0) -> EvidenceAt:
        return EvidenceAt(self._value(precision, noise_factor)[0], np.asarray(precision), noise_factor)

    def _value(self, precision, factor):
        log_det, log_det_slopes, log_det_slope = self.curvature.log_det(precision, factor)
        fit = self.log_likelihood + 0.5 * (self.num_targets * np.log(factor) - (factor - 1) * self.chi_squared)
        penalty = 0.5 * precision * self.squared_norms
        slope = 0.5 * (self.num_targets - factor * self.chi_squared - log_det_slope)
        return fit - penalty.sum() - 0.5 * log_det, -penalty - 0.5 * log_det_slopes, slope

    def negative(self, logs: Float[np.ndarray, " parameters"]) -> tuple[float, Float[np.ndarray, " parameters"]]:
        """Minus the evidence and its gradient, in the logs of the precisions and, last, of the noise factor if it is there."""
        count = self.curvature.num_groups
        factor = float(np.exp(logs[count])) if logs.size > count else 1.0
        value, slopes, slope = self._value(np.exp(logs[:count]), factor)
        return -value, -np.append(slopes, [slope] * (logs.size - count))


def maximise_evidence(evidence: Evidence, *, tune_noise: bool) -> EvidenceAt:
    """The maximiser over the precisions, and the noise if asked: a coarse scan of one precision, then L-BFGS."""
    groups = evidence.curvature.num_groups
    scanned = [evidence.at(np.full(groups, start)).value for start in _STARTS]
    start = np.append(np.full(groups, np.log(_STARTS[int(np.argmax(scanned))])), [0.0] * tune_noise)
    result = minimize(
        evidence.negative, start, jac=True, method="L-BFGS-B", bounds=[_BOUNDS] * start.size,
        options={"ftol": 1e-12, "gtol": 1e-8, "maxiter": 200},
    )  # fmt: skip
    best = np.exp(result.x)
    return evidence.at(best[:groups], float(best[groups]) if tune_noise else 1.0)
