"""Two processes compared where both are known: nats lost for a new target, and the single inputs where they differ most."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Moments(NamedTuple):
    """A process at some points, flattened over points and outputs.

    Attributes:
        mean: (kq,).
        variance: (kq,).
    """

    mean: Float[np.ndarray, " kq"]
    variance: Float[np.ndarray, " kq"]

    def first(self, count: int) -> "Moments":
        """The first of them."""
        return Moments(self.mean[:count], self.variance[:count])

    def beside(self, other: "Moments") -> "Moments":
        """These, and then others."""
        return Moments(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))


class Divergence(NamedTuple):
    """Mean Kullback-Leibler divergence for a new target.

    Attributes:
        forward: from the exact process: what the log predictive density loses.
        symmetric: the mean of both directions, for which spikes between context points are as wrong as false confidence.
    """

    forward: float
    symmetric: float


class Extremes(NamedTuple):
    """How far a process is from the exact one at the single inputs where it is farthest, over points and outputs.

    Attributes:
        smallest: standard deviation of a new target over the exact process's.
        largest: the same.
        apart: distance of the means, in the exact process's standard deviations of a new target.
    """

    smallest: float
    largest: float
    apart: float


def divergence(exact: Moments, found: Moments, noise: float | Float[np.ndarray, " kq"]) -> Divergence:
    """Of two processes for a new target with noise of this variance, the mean over points."""
    wanted, given = exact.variance + noise, found.variance + noise
    squared = (exact.mean - found.mean) ** 2
    forward = np.mean((squared + wanted) / given - 1 + np.log(given / wanted))
    backward = np.mean((squared + given) / wanted - 1 + np.log(wanted / given))
    return Divergence(0.5 * float(forward), 0.25 * float(forward + backward))


def extremes(exact: Moments, found: Moments, noise: float | Float[np.ndarray, " kq"]) -> Extremes:
    """Of two processes for a new target with noise of this variance."""
    wanted = np.sqrt(exact.variance + noise)
    ratios, apart = np.sqrt(found.variance + noise) / wanted, np.abs(found.mean - exact.mean) / wanted
    return Extremes(float(np.min(ratios)), float(np.max(ratios)), float(np.max(apart)))


def typical(noise: Float[np.ndarray, "n q"]) -> Float[np.ndarray, " q"]:
    """The harmonic mean for each output: rows that say nothing have no part in it."""
    return 1.0 / np.mean(1.0 / noise, axis=0)
