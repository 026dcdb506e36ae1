r"""A variance that varies with the inputs: a process for its logarithm, fitted to squared residuals by evidence."""

import math
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import check_finite, check_numbers, checked
from fsplaplace.host import in_float64, one_blas_thread, pad_rows, to_device, to_double
from fsplaplace.prior import Prior
from fsplaplace.tuning._ard import expand_lengthscales
from fsplaplace.tuning._label_evidence import LabelEvidence, Squares
from fsplaplace.tuning._optimize import maximize
from fsplaplace.tuning._problem import set_up
from fsplaplace.tuning._repeats import distinct_rows
from fsplaplace.tuning._ties import TiedProblem, Ties

# Mean and variance of the logarithm of a chi-squared variable with one degree of freedom.
_LOG_CHI_MEAN, _LOG_CHI_VARIANCE = -1.2703628454614782, math.pi**2 / 2
# A square below this fraction of the mean one is rounding, or a residual that happens to be zero.
_LEAST_SQUARE = 1e-6
# With fewer rows than this for each length scale they move together: a square says less of a variance than a target of a mean.
_ROWS_PER_LENGTHSCALE = 40
# New inputs whose covariances are held at once.
_BLOCK = 1024


class LogVariance(NamedTuple):
    r"""$\log v(x) = c + k(x, X)\, a$, the mode of a process given squared residuals.

    Attributes:
        prior: of the logarithm, with its fitted parameters.
        X: the inputs of the squares.
        coefficients: a.
        constant: c.
        gain: log evidence above that of a constant variance, in nats.
    """

    prior: Prior
    X: Float[np.ndarray, "n d"]
    coefficients: Float[np.ndarray, " n"]
    constant: float
    gain: float

    def variance(self, x: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """v at new inputs. Time $O(m n)$."""
        found = []
        with jax.enable_x64(True):
            prior = to_double(self.prior)
            for start in range(0, len(x), _BLOCK):
                part = x[start : start + _BLOCK]
                # One shape for all blocks, whose program is compiled once.
                padded = to_device(pad_rows(np.asarray(part, np.float64), _BLOCK))
                cross = np.asarray(prior.covariance(padded, to_device(self.X)))[: len(part), 0, :, 0]
                found.append(np.exp(self.constant + cross @ self.coefficients))
        return np.concatenate([np.zeros(0), *found])


@checked
def fit_log_variance(prior: Prior, X: ArrayLike, squares: ArrayLike) -> LogVariance:
    r"""A process for $\log v(x)$ from squares $u_i \sim v(x_i)\, \chi^2_1$, its kernel by Laplace's evidence.

    The kernel has one length scale per input from 40 rows for each of them on, else they move together. The search starts from
    $\log u_i$, whose noise is known: mean -1.27 and variance $\pi^2 / 2$.

    Args:
        prior: of the logarithm, with one output and mean zero.
        X: inputs, (n, d).
        squares: squared residuals, (n,); of rows with equal inputs the first counts.

    Time $O(n^3)$ for each of about 50 evaluations.
    """
    inputs = check_numbers(X, "fit_log_variance: X").astype(float)
    values = check_numbers(squares, "fit_log_variance: squares").astype(float)
    check_finite(inputs, "fit_log_variance: X")
    check_finite(values, "fit_log_variance: squares")
    if values.shape != inputs.shape[:1] or np.any(values < 0) or not np.any(values > 0):
        raise ValueError(
            f"fit_log_variance: squares has shape {values.shape} and values from {np.min(values, initial=0):.3g}; pass {len(inputs)} "
            "numbers, none of them negative and some above zero"
        )
    first = np.sort(np.unique(inputs, axis=0, return_index=True)[1])
    return _fitted(prior, inputs[first], np.maximum(values[first], _LEAST_SQUARE * values.mean()))


@in_float64
def _fitted(prior: Prior, X: Float[np.ndarray, "n d"], squares: Float[np.ndarray, " n"]) -> LogVariance:
    logs = np.log(squares) - _LOG_CHI_MEAN
    constant = float(logs.mean())
    rows = distinct_rows(X, (logs - constant)[:, None], np.ones(len(X)), np.full((len(X), 1), _LOG_CHI_VARIANCE))
    with one_blas_thread():
        prior = expand_lengthscales(prior, X.shape[1])
        known = set_up(prior, rows, noise_scale=None, shared_constant=False, hyperpriors=True, logits=True)
        evidence = LabelEvidence.of(known.problem, Squares(squares * math.exp(-constant)))
        together = len(X) < _ROWS_PER_LENGTHSCALE * X.shape[1]
        ties = Ties.of(known.lengthscales, known.start, known.box) if together else Ties.none(known.start.size)
        tied = TiedProblem.of(evidence, ties)
        best = maximize(tied, ties.reduce(known.start), ties.box(known.box), max_steps=60)
        vector = known.box.clip(ties.expand(best.vector))
        fitted = evidence.space.fitted(vector, np.zeros(0), prior)
        at_best = evidence.solved(vector)
    assert at_best.coefficients is not None
    level = math.log(float(np.mean(squares)))
    plain = -0.5 * len(X) * (level - constant + 1)
    return LogVariance(fitted, X, at_best.coefficients[:, 0], constant, best.value - plain)
