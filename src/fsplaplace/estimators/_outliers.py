"""Single values so far from all others that they set the scale of their column."""

import warnings

import numpy as np
from jaxtyping import Float

# Interquartile ranges from the median: a standard normal, and a log-normal with a scale of 1, stay below 100 of them in a million rows.
_FAR = 1000.0
# The share of the rows up to which values are single ones; more of them are a distribution.
_MOST_SHARE = 0.1
# Quantiles whose distance is taken for the interquartile range if half of the values are the same.
_WIDER = (0.1, 0.9)
# Of the median.
_LEAST_SPREAD = 1e-9


class OutlierWarning(UserWarning):
    """A few values hide what all others say."""


def warn_of_outliers(values: Float[np.ndarray, "n k"], names: list[str], *, caller: str) -> None:
    """Name the worst value that is more than 1,000 interquartile ranges from its column's median, with the way out.

    A column of which half the values are the same has the range of four fifths of its values instead, and is not looked at if these are the
    same, too.

    Args:
        values: columns.
        names: what a sentence calls each of them.
        caller: the estimator's name.
    """
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    low_wide, high_wide = np.quantile(values, _WIDER, axis=0)
    spread = np.where(high > low, high - low, high_wide - low_wide)
    # Roundings of a constant are no spread.
    varies = spread > _LEAST_SPREAD * np.abs(middle)
    with np.errstate(over="ignore"):
        far = np.divide(np.abs(values - middle), spread, out=np.zeros_like(values), where=varies & (spread > 0))
    count = np.sum(far > _FAR, axis=0)
    far[:, (count == 0) | (count > max(1.0, _MOST_SHARE * len(values)))] = 0.0
    row, column = np.unravel_index(np.argmax(far), far.shape)
    if far[row, column] == 0.0:
        return
    name = names[int(column)]
    others = f" and {count[column] - 1} more" if count[column] > 1 else ""
    target = name == "y" or name.startswith("y[")
    robust = (
        "pass its logarithm, or use fsplaplace.train and fsplaplace.laplace with fsplaplace.likelihoods.StudentT, for which a row far off "
        "counts little"
        if target
        else "pass its logarithm or its rank (sklearn.preprocessing.QuantileTransformer)"
    )
    warnings.warn(
        f"{caller}: {name} has {values[row, column]:.6g} in row {row}{others}, {far[row, column]:.2g} interquartile ranges from the median "
        f"{middle[column]:.4g}; it sets the scale of all other values, which then look alike. If it is a mistake, remove that row; if "
        f"not, {robust}",
        OutlierWarning,
        stacklevel=2,
    )
