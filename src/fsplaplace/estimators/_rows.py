"""Training rows in one order, with their weights; and the scale of their columns."""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fsplaplace.host import padded_size

# Observations that a row may stand for: beyond, float32 cannot tell the noise of its mean from none.
_MOST_WEIGHT = 1e9
# Observations for each row from which the weights look like shares of one.
_LEAST_MEAN_WEIGHT = 0.1


def check_weights(weights: Float[np.ndarray, " n"], *, caller: str) -> None:
    """Refuse weights that no count can be, and warn of those that look like shares: a weight is a number of observations."""
    largest = float(np.max(weights, initial=0.0))
    if largest > _MOST_WEIGHT:
        raise ValueError(
            f"{caller}: sample_weight has values up to {largest:.3g}; a weight is the number of observations that a row stands for, at "
            f"most {_MOST_WEIGHT:g}; divide sample_weight by its mean"
        )
    used = weights[weights > 0]
    if used.size and np.mean(used) < _LEAST_MEAN_WEIGHT:
        warnings.warn(
            f"{caller}: sample_weight sums to {np.sum(used):.3g} over {used.size} rows; a weight is the number of observations that a row "
            "stands for, so that these rows count as hardly any data; if only their ratios are meant, pass sample_weight / "
            "sample_weight.mean()",
            UserWarning,
            stacklevel=4,
        )


class WeightedRows(NamedTuple):
    """Distinct rows, sorted, with the number of observations each stands for.

    The order and the merging make a fit depend on the data as a set: shuffled rows give the same fit, and a row with
    weight 2 the same as that row twice.
    """

    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, "n q"]
    weights: Float[np.ndarray, " n"]

    @classmethod
    def collect(
        cls, X: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n q"], weights: Float[np.ndarray, " n"]
    ) -> "WeightedRows":
        """Rows of weight zero are left out, rows that repeat are merged."""
        used = weights > 0
        table, index = np.unique(np.column_stack([X, y])[used], axis=0, return_inverse=True)
        merged = np.bincount(index.ravel(), weights[used], minlength=table.shape[0])
        return cls(table[:, : X.shape[1]], table[:, X.shape[1] :], merged)

    @property
    def targets(self) -> Float[np.ndarray, "..."]:
        """y, of shape (n,) where there is one column."""
        return self.y[:, 0] if self.y.shape[1] == 1 else self.y

    @property
    def weighted(self) -> bool:
        """Whether any row stands for other than one observation."""
        return not np.all(self.weights == 1.0)

    def some(self, most: int, generator: np.random.Generator) -> "WeightedRows":
        """At most so many rows, by chance, in their order."""
        count = self.X.shape[0]
        chosen = np.arange(count) if count <= most else np.sort(generator.choice(count, most, replace=False))
        return WeightedRows(self.X[chosen], self.y[chosen], self.weights[chosen])

    def padded(self) -> "WeightedRows":
        """With rows of weight zero up to a round number, so that data sets of similar size share compiled programs."""
        missing = padded_size(self.X.shape[0]) - self.X.shape[0]
        repeat = lambda values: np.concatenate([values, np.repeat(values[:1], missing, axis=0)])  # noqa: E731
        return WeightedRows(repeat(self.X), repeat(self.y), np.concatenate([self.weights, np.zeros(missing)]))


class Scale(NamedTuple):
    """Location and scale of columns."""

    mean: Float[np.ndarray, " d"]
    std: Float[np.ndarray, " d"]

    @classmethod
    def of(cls, values: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]) -> "Scale":
        """Weighted means and standard deviations; one for a column that does not vary."""
        mean = np.average(values, axis=0, weights=weights)
        off = values - mean
        size = np.max(np.abs(off), axis=0, initial=0.0)
        # In units of the largest: squares of 1e-200 are zero.
        size = np.where(size > 0, size, 1.0)
        std = size * np.sqrt(np.average((off / size) ** 2, axis=0, weights=weights))
        constant = std <= 1e-12 * np.abs(mean)
        return cls(mean, np.where(constant, 1.0, std))

    @classmethod
    def none(cls, width: int) -> "Scale":
        """Columns as they are."""
        return cls(np.zeros(width), np.ones(width))

    def apply(self, values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        return (values - self.mean) / self.std

    def invert(self, values: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        return values * self.std + self.mean
