"""Weak log-normal distributions of hyper-parameters: what a length scale, a variance or a noise is before data is seen."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped


class LogNormal(NamedTuple):
    """The logarithm of a parameter is normal.

    Attributes:
        location: mean of the logarithm, in whatever shape the parameter has.
        scale: standard deviation of the logarithm; infinite for a parameter that nothing is known about.
    """

    location: float | Float[np.ndarray, "..."]
    scale: float


# Nothing is known.
FLAT = LogNormal(0.0, math.inf)
# The kernel explains about the variance that it is there for: a factor of 50 either way is one in twenty.
_SIZE_SCALE = 2.0
# The same of logits, whose evidence grows without end with the size of a function that separates the classes: a factor of 7
# either way. Of 0.5, 1 and 2 the best log loss within the first training folds of wine, iris, breast cancer and two moons.
LOGIT_SIZE_SCALE = 1.0
# The noise is about a seventh of the targets' standard deviation, within a factor of seven with probability 0.95.
_NOISE_LOCATION, _NOISE_SCALE = math.log(0.15), 1.0


def lengthscale_prior(span: float | Float[np.ndarray, " d"], num_columns: int) -> LogNormal:
    r"""$\log \ell \sim \mathcal N(\sqrt 2 + \tfrac12 \log d + \log r,\, 3)$ for columns of range r.

    Distances grow with $\sqrt d$, and with them the length scale at which a function of d inputs is as simple as one of a
    single input: Hvarfner, Hellsten and Nardi (2024), Vanilla Bayesian optimization performs great in high dimensions.
    """
    return LogNormal(math.sqrt(2) + 0.5 * math.log(num_columns) + np.log(span), math.sqrt(3))


def size_prior(value: float | Shaped[np.ndarray, "..."]) -> LogNormal:
    """Of a positive parameter whose size the data suggests."""
    return LogNormal(np.log(value), _SIZE_SCALE)


def noise_prior(spread: float | Float[np.ndarray, "..."]) -> LogNormal:
    """Of the noise's standard deviation for targets of this standard deviation."""
    return LogNormal(_NOISE_LOCATION + np.log(spread), _NOISE_SCALE)


class Penalty(NamedTuple):
    r"""The log density of independent normal entries up to a constant, $-\tfrac12 \sum_i \tau_i (v_i - m_i)^2$.

    Attributes:
        location: m.
        precision: τ, zero for entries that nothing is known about.
    """

    location: Float[np.ndarray, " P"]
    precision: Float[np.ndarray, " P"]

    def __call__(self, vector: Float[np.ndarray, " P"]) -> float:
        return -0.5 * float(np.sum(self.precision * (vector - self.location) ** 2))

    def gradient(self, vector: Float[np.ndarray, " P"]) -> Float[np.ndarray, " P"]:
        return -self.precision * (vector - self.location)
