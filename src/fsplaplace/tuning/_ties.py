"""Length scales that move together: fewer parameters where the data cannot tell the columns apart."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fsplaplace.tuning._optimize import Box, curvature
from fsplaplace.tuning._problem import Evidence

# A direction in which the likelihood is flat counts as known to this fraction of its hyperprior's precision.
_FLATTEST = 1e-2


class Ties(NamedTuple):
    """A problem's vector from a shorter one: entry i is `reduced[owner[i]] + offset[i]`.

    Attributes:
        owner: the reduced entry of each entry.
        offset: what an entry differs by from the reduced one, always.
    """

    owner: Int[np.ndarray, " P"]
    offset: Float[np.ndarray, " P"]

    @classmethod
    def none(cls, size: int) -> "Ties":
        """Every entry is its own."""
        return cls(np.arange(size), np.zeros(size))

    @classmethod
    def of(cls, groups: Sequence[Int[np.ndarray, " k"]], start: Float[np.ndarray, " P"], box: Box) -> "Ties":
        """Entries of a group keep their differences at the start: length scales stay in proportion to their columns."""
        owner, offset = np.arange(start.size), np.zeros(start.size)
        for group in groups:
            free = group[~box.fixed[group]]
            if free.size:
                owner[free] = free[0]
                offset[free] = start[free] - start[free].mean()
        return cls(np.unique(owner, return_inverse=True)[1], offset)

    @property
    def counts(self) -> Int[np.ndarray, " r"]:
        """Number of entries that share each reduced one."""
        return np.bincount(self.owner)

    def expand(self, reduced: Float[np.ndarray, " r"]) -> Float[np.ndarray, " P"]:
        return reduced[self.owner] + self.offset

    def reduce(self, vector: Float[np.ndarray, " P"]) -> Float[np.ndarray, " r"]:
        """The nearest reduced vector."""
        return np.bincount(self.owner, vector - self.offset) / self.counts

    def box(self, box: Box) -> Box:
        """Bounds of the reduced vector: those that keep every entry within its own."""
        size = self.counts.size
        lower, upper, unit = np.full(size, -np.inf), np.full(size, np.inf), np.ones(size)
        np.maximum.at(lower, self.owner, box.lower - self.offset)
        np.minimum.at(upper, self.owner, box.upper - self.offset)
        unit[self.owner] = box.unit
        return Box(lower, np.maximum(lower, upper), unit)


class TiedProblem(NamedTuple):
    """A marginal likelihood as a function of the reduced vector; a length scale that is shared has one hyperprior.

    Attributes:
        problem: of the whole vector, with the hyperprior of each entry divided by the number that share it.
        ties: how the whole vector comes from the reduced one.
    """

    problem: Evidence
    ties: Ties

    @classmethod
    def of(cls, problem: Evidence, ties: Ties) -> "TiedProblem":
        return cls(problem.with_precision(1 / ties.counts[ties.owner]), ties)

    def __call__(self, reduced: Float[np.ndarray, " r"]) -> tuple[float, Float[np.ndarray, " r"]]:
        value, gradient = self.problem(self.ties.expand(reduced))
        return value, np.bincount(self.ties.owner, gradient)

    def take(self, rows: np.ndarray) -> "TiedProblem":
        """Of some of the rows."""
        return self._replace(problem=self.problem.take(rows))

    def log_evidence(self, reduced: Float[np.ndarray, " r"], box: Box) -> float:
        r"""The log marginal likelihood with the parameters integrated out, by Laplace's method at their maximum.

        $$\log p(y \mid \hat v) + \log p(\hat v) - \tfrac12 \log\det(H / 2\pi),$$

        H the curvature in units of the hyperpriors. Entries without a hyperprior count with a precision of one. Two
        evaluations per entry.
        """
        free = ~box.fixed
        precision = np.bincount(self.ties.owner, np.asarray(self.problem.penalty.precision))[free]
        scale = np.where(precision > 0, precision, 1.0) ** -0.5
        matrix = curvature(self, reduced, free, box) * scale * scale[:, None]
        if not np.all(np.isfinite(matrix)):
            return -np.inf
        eigenvalues = np.maximum(np.linalg.eigvalsh(matrix), _FLATTEST)
        return self(reduced)[0] - 0.5 * float(np.sum(np.log(eigenvalues)))
