"""Whether stated probabilities come true: quantiles of regressions, confidences of classifications."""

from typing import TYPE_CHECKING

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.metrics import expected_calibration_error
from fsplaplace.plotting._axes import BLUE, GREY, ORANGE, one_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@checked(finite=True)
def plot_calibration(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    num_levels: int = 19,
    ax: "Axes | None" = None,
) -> "Axes":
    """Share of targets below each predicted quantile, against the quantile's level; the diagonal is perfect.

    Args:
        y: targets.
        mean: of the predictive distribution of a target.
        std: of the same, with the noise: the square root of `total_variance`.
        num_levels: number of quantile levels, evenly spaced inside (0, 1).
        ax: the axes; a new figure by default.

    Returns the axes. Above the diagonal at low levels and below it at high ones: over-confident.

    Examples:
        >>> from fsplaplace import plotting
        >>> axes = plotting.plot_calibration([0.0, 1.0], [0.0, 0.5], [1.0, 1.0])
    """
    values = [np.asarray(part, dtype=float).ravel() for part in (y, mean, std)]
    if len({value.shape for value in values}) != 1 or values[0].size == 0:
        raise ValueError(
            f"plot_calibration: y, mean and std have {[v.size for v in values]} values; pass as many of each"
        )
    if not np.all(values[2] > 0):
        raise ValueError(
            f"plot_calibration: std has values down to {values[2].min():.3g}; pass positive standard deviations"
        )
    ax = one_axes(ax)
    levels = np.linspace(0, 1, num_levels + 2)[1:-1]
    reached = scipy.stats.norm.cdf((values[0] - values[1]) / values[2])
    observed = np.mean(reached[None, :] <= levels[:, None], axis=1)
    _draw_diagonal(ax)
    ax.plot(levels, observed, "o-", color=BLUE, markersize=4, label=f"observed (n = {values[0].size})")
    ax.set(xlabel="quantile level", ylabel="share of targets below")
    ax.legend(frameon=False, fontsize="small")
    return ax


@checked(finite=True)
def plot_reliability(
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    num_bins: int = 10,
    ax: "Axes | None" = None,
) -> "Axes":
    """Accuracy in bins of the confidence in the predicted class, against that confidence; the diagonal is perfect.

    Args:
        labels: true classes.
        probabilities: predicted, one column per class.
        num_bins: bins of equal width in the confidence.
        ax: the axes; a new figure by default.

    Returns the axes; the legend states the expected calibration error, grey bars the share of points in each bin.

    Examples:
        >>> from fsplaplace import plotting
        >>> axes = plotting.plot_reliability([0, 1], [[0.9, 0.1], [0.3, 0.7]])
    """
    truth, predicted = np.asarray(labels).ravel(), np.asarray(probabilities, dtype=float)
    error = float(expected_calibration_error(truth, predicted, num_bins=num_bins))
    ax = one_axes(ax)
    confidence, right = predicted.max(axis=1), predicted.argmax(axis=1) == truth
    edges = np.linspace(0, 1, num_bins + 1)
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    filled = counts > 0
    accuracy = np.bincount(bins, right, num_bins)[filled] / counts[filled]
    centre = np.bincount(bins, confidence, num_bins)[filled] / counts[filled]
    ax.bar(
        edges[:-1],
        counts / counts.sum(),
        width=1 / num_bins,
        align="edge",
        color=GREY,
        alpha=0.3,
        label="share of points",
    )
    _draw_diagonal(ax)
    ax.plot(centre, accuracy, "o-", color=ORANGE, markeredgecolor="black", label=f"accuracy (ECE {error:.3f})")
    ax.set(xlabel="confidence", ylabel="accuracy")
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return ax


def _draw_diagonal(ax: "Axes") -> None:
    ax.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="perfect")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
