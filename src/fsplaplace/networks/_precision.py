"""Whether the numbers that a network computes in can tell its inputs apart."""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

# Neighbouring numbers farther apart than this share of a column's range show in a posterior: context points and kernel
# distances are computed from the rounded inputs.
_COARSEST = 1e-4


class PrecisionWarning(UserWarning):
    """Inputs or targets lie so far from zero, for their range, that they lose digits that matter."""


class Steps(NamedTuple):
    """Numbers of a dtype in each column.

    Attributes:
        spacing: of neighbouring numbers where the column is farthest from zero.
        spread: of the column.
        share: the one over the other; 0 for a column that never varies.
    """

    spacing: Float[np.ndarray, " d"]
    spread: Float[np.ndarray, " d"]
    share: Float[np.ndarray, " d"]

    @property
    def coarse(self) -> Bool[np.ndarray, " d"]:
        """Columns with so few numbers that rounding shows."""
        return self.share > _COARSEST


class Extent:
    """The smallest and the largest value of each column, of values as the caller gave them.

    Args:
        origin: subtracted from all values, in float64; None for zero.

    Attributes:
        low: (d,), or None before the first rows.
        high: (d,), or None before the first rows.
    """

    def __init__(self, origin: ArrayLike | None = None):
        self._origin = None if origin is None else np.asarray(origin, np.float64)
        self.low: Float[np.ndarray, " d"] | None = None
        self.high: Float[np.ndarray, " d"] | None = None

    def include(self, values: ArrayLike) -> None:
        """Widen the extent to these rows."""
        rows = np.asarray(values)
        rows = rows.reshape(rows.shape[0], -1)
        low, high = (each.astype(np.float64) for each in (rows.min(axis=0), rows.max(axis=0)))
        if self._origin is not None:
            low, high = low - self._origin, high - self._origin
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)

    def coarseness(self, dtype, *, argument: str = "X") -> str | None:
        """What to say if numbers of this dtype are coarse for some column."""
        if self.low is None or self.high is None:
            return None
        spacing, spread, share = self.steps(dtype)
        worst = int(np.argmax(share))
        if share[worst] <= _COARSEST:
            return None
        wider = (
            "" if np.dtype(dtype).itemsize == 8 else ', or run in float64: jax.config.update("jax_enable_x64", True)'
        )
        remedy = (
            "subtract a number from y and from the prior's mean"
            if argument == "y"
            else f"subtract a centre from all inputs, for instance {argument}.mean(axis=0)"
        )
        return (
            f"{argument}: column {worst} goes from {self.low[worst]:.10g} to {self.high[worst]:.10g}, a range of "
            f"{spread[worst]:.3g}, but numbers of {np.dtype(dtype).name} are {spacing[worst]:.3g} apart there "
            f"({share[worst]:.1g} of the range), so that they are rounded; {remedy}, or use FSPRegressor or FSPClassifier, "
            f"which standardise{wider}"
        )

    def steps(self, dtype) -> Steps:
        """How numbers of this dtype divide the range of each column."""
        if self.low is None or self.high is None:
            raise ValueError("an extent without rows has no columns; include some first")
        reach, spread = np.maximum(np.abs(self.low), np.abs(self.high)), self.high - self.low
        # What is too large for the dtype has no neighbours; it is refused elsewhere.
        with np.errstate(over="ignore", invalid="ignore"):
            spacing = np.spacing(reach.astype(dtype)).astype(np.float64)
        known = (spread > 0) & np.isfinite(spacing)
        share = np.where(known, spacing, 0.0) / np.where(known, spread, 1.0)
        return Steps(spacing, spread, share)

    def warn(self, dtype, *, argument: str = "X") -> str | None:
        """Say so, and give back what was said, if numbers of this dtype are coarse for some column."""
        if said := self.coarseness(dtype, argument=argument):
            warnings.warn(said, PrecisionWarning, stacklevel=2)
        return said


def warn_if_coarse(values: ArrayLike, dtype, *, argument: str = "X", origin: ArrayLike | None = None) -> str | None:
    """A `PrecisionWarning`, and its text, if numbers of this dtype are coarse for the range of some column of the values."""
    extent = Extent(origin)
    extent.include(values)
    return extent.warn(dtype, argument=argument)


def warn_if_coarse_targets(values: ArrayLike, dtype) -> str | None:
    """The same for targets, if they are floating-point numbers."""
    numbers = np.asarray(values)
    return warn_if_coarse(numbers, dtype, argument="y") if numbers.ndim and numbers.dtype.kind == "f" else None
