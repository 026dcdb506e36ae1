"""The exact Gaussian process given some of what was observed."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fsplaplace.host import scattered
from fsplaplace.laplace import _choices
from fsplaplace.laplace._observed import Observed
from fsplaplace.laplace._problem import Problem
from fsplaplace.operators import value
from fsplaplace.prior import moments


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


class Given(NamedTuple):
    """The rows of one kind that the exact process is conditioned on.

    Attributes:
        kind: what was observed.
        inputs: where.
        targets: flattened.
        noise: the variance of their noise.
    """

    kind: Observed
    inputs: Float[np.ndarray, "s ..."]
    targets: Float[np.ndarray, " sk"]
    noise: Float[np.ndarray, " sk"]

    @classmethod
    def of(cls, kind: Observed, most: int) -> "Given":
        rows = scattered(kind.data.num_rows, most)
        part = kind.data.take(rows)
        assert kind.noise is not None
        targets = np.asarray(part.targets, dtype=np.float64)
        return cls(kind, part.inputs, targets.ravel(), kind.noise.variance[rows].ravel())

    @property
    def width(self) -> int:
        """Targets of each row."""
        return self.kind.num_outputs

    def positions(self, rows: Int[np.ndarray, " k"]) -> Int[np.ndarray, " kq"]:
        """Where the targets of some rows are among the flattened ones."""
        return (rows[:, None] * self.width + np.arange(self.width)).ravel()


class Joint(NamedTuple):
    """A process at all points that matter."""

    mean: Float[np.ndarray, " K"]
    covariance: Float[np.ndarray, "K K"]

    def given(self, at: Int[np.ndarray, " k"], targets: Float[np.ndarray, " k"], noise) -> Moments:
        """Conditioned on noisy targets at some of the points."""
        cross = self.covariance[:, at]
        gain = np.linalg.solve(self.covariance[np.ix_(at, at)] + np.diag(noise), cross.T)
        variance = np.diagonal(self.covariance) - np.sum(cross * gain.T, axis=1)
        return Moments(self.mean + (targets - self.mean[at]) @ gain, np.maximum(variance, 0.0))


def joint_with(problem: Problem, where: Float[np.ndarray, "k ..."], given: list[Given]) -> "Joint":
    """The prior of the function at some points and of what was observed."""
    prior = problem.prior
    if problem.of_values:
        everywhere = np.concatenate([where, given[0].inputs])
        return Joint(*moments.joint(prior, everywhere))
    parts = [(value, where), *((part.kind.operator, part.inputs) for part in given)]
    means = [moments.mean(prior, where), *(part.kind.mean(part.inputs) for part in given)]
    return Joint(np.concatenate([each.ravel() for each in means]), moments.covariance_of(prior, parts))


def shares(kinds: tuple[Observed, ...], *, few: bool = False) -> list[int]:
    """For each kind the most rows that the exact process is given: all where that is cheap."""
    total = sum(kind.num_targets for kind in kinds)
    targets = _choices.SAMPLE_TARGETS if few else _choices.num_targets(total, 1)
    share = min(1.0, targets / total)
    # A few boundary values say more than thousands of residuals: they are not thinned out with those.
    least = _choices.FEWEST_OF_A_KIND if len(kinds) > 1 else 1
    return [
        min(
            max(round(share * kind.num_targets) // kind.num_outputs, least),
            max(1, _choices.MOST_EVALUATIONS // kind.operator.num_evaluations),
        )
        for kind in kinds
    ]


def near_data(problem: Problem, points: Float[np.ndarray, "k ..."]) -> Moments:
    """The exact process of many data: at each point given the rows that the prior relates to it most.

    Time cubic in those rows, for each point; linear in n.
    """
    prior, data, q = problem.prior, problem.data, problem.prior.num_outputs
    assert problem.noise is not None
    rows = scattered(data.num_rows, _choices.MOST_NEIGHBOURHOOD)
    given, noise = data.take(rows), problem.noise.variance[rows]
    targets = np.asarray(given.targets, dtype=np.float64).reshape(len(rows), q)
    related = moments.relation(prior, points, given.inputs)
    most = min(max(1, _choices.SAMPLE_TARGETS // q), len(rows))
    found = []
    for point, relation in zip(points, related, strict=True):
        near = np.argpartition(-relation, most - 1)[:most]
        where = np.concatenate([point[None], given.inputs[near]])
        process = Joint(*moments.joint(prior, where)).given(
            q + np.arange(most * q), targets[near].ravel(), noise[near].ravel()
        )
        found.append(Moments(process.mean[:q], process.variance[:q]))
    return Moments(*(np.concatenate(part) for part in zip(*found, strict=True)))


def typical(noise: Float[np.ndarray, "n q"]) -> Float[np.ndarray, " q"]:
    """The harmonic mean for each output: rows that say nothing have no part in it."""
    return 1.0 / np.mean(1.0 / noise, axis=0)
