"""Noise whose scale varies with the inputs, one function for each target."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fsplaplace.estimators._kernels import kernel_by_name
from fsplaplace.host import scattered
from fsplaplace.prior import Prior
from fsplaplace.tuning import LogVariance, fit_log_variance

# What varying noise must gain in nats over constant noise: it has a kernel of its own, whose parameters were fitted.
LEAST_GAIN = 3.0
# Rows whose residuals are used: an evaluation of their evidence takes a tenth of a second.
_MOST_ROWS = 500


class NoiseProfile(NamedTuple):
    """What the scale of the noise is multiplied by.

    Attributes:
        logs: the logarithm of the squared factor, one process for each target.
    """

    logs: tuple[LogVariance, ...]

    @classmethod
    def of(cls, X: Float[np.ndarray, "n d"], squares: Float[np.ndarray, "n q"]) -> "NoiseProfile":
        """From squared residuals in units of their variances; of many rows some."""
        some = scattered(len(X), _MOST_ROWS)
        prior = Prior(kernel_by_name("matern32", X.shape[1], ard=True))
        return cls(tuple(fit_log_variance(prior, X[some], column[some]) for column in squares.T))

    @property
    def in_fit(self) -> bool:
        """True: the posterior is fitted anew with it."""
        return True

    @property
    def gain(self) -> float:
        """Log evidence above that of constant noise, in nats, over all targets."""
        return sum(log.gain for log in self.logs)

    def relative(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n q"]:
        """The factors at scaled inputs. Time: 500 evaluations of a kernel for each."""
        return np.sqrt(np.stack([log.variance(x) for log in self.logs], axis=1))
