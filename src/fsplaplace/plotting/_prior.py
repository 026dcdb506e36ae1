"""Functions drawn from a prior, over the data."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, checked
from fsplaplace.prior import Prior

_MOST_PANELS = 6
_POINTS = 120


@checked(finite=True)
def plot_prior(
    prior: Prior,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    key: KeyLike,
    ax: Any = None,
    num_samples: int = 5,
    output: int = 0,
    margin: float = 0.2,
    num_features: int = 1,
) -> Any:
    """Draw functions from a prior before any training: does the data look like one of them?

    Lines are draws, the band is the prior's mean and two standard deviations, dots are the data. In more than one
    dimension each panel is a slice through the data's median along one dimension (the first six), and the dots are
    the data projected onto it.

    Args:
        prior: the prior.
        X: inputs, (n, d); without them the slices run over [-3, 3] in `num_features` dimensions.
        y: targets, (n,) or (n, q), in the space of the outputs.
        key: for the draws.
        ax: matplotlib axes for one dimension, or a sequence of them, one per dimension; a new figure by default.
        num_samples: number of draws.
        output: which output to show.
        margin: how far the slices reach beyond the data, as a fraction of its range.

    Returns the axes: one, or an array of them. Needs matplotlib (extra `plots`). Time: one eigenproblem of 120
    points per panel.

    Examples:
        >>> axes = fsp.plot_prior(prior, X, y, key=jr.key(0))
    """
    if not 0 <= output < prior.num_outputs:
        raise ValueError(f"plot_prior: output is {output}, but the prior has {prior.num_outputs}; they count from 0")
    inputs = None if X is None else _inputs(X)
    targets = None if y is None else np.asarray(y, dtype=float).reshape(np.shape(y)[0], -1)
    if targets is not None and (inputs is None or targets.shape[0] != inputs.shape[0]):
        rows = 0 if inputs is None else inputs.shape[0]
        raise ValueError(f"plot_prior: y has {targets.shape[0]} rows, but X has {rows}; pass one target per row")
    width = num_features if inputs is None else inputs.shape[1]
    axes = _axes(ax, min(width, _MOST_PANELS))
    slices = np.stack([_slice(inputs, column, width, margin) for column in range(axes.size)])
    # All slices at once, so that every panel shows the same functions.
    points = jnp.asarray(slices.reshape(-1, width))
    draws = np.asarray(prior.sample(points, key=key, num_samples=num_samples))[:, :, output]
    means = np.asarray(prior.mean_at(points))[:, output]
    stds = np.sqrt(np.asarray(prior.variance(points))[:, output])
    for column, panel in enumerate(axes):
        rows = slice(column * _POINTS, (column + 1) * _POINTS)
        place, mean, std = slices[column, :, column], means[rows], stds[rows]
        panel.fill_between(place, mean - 2 * std, mean + 2 * std, color="C0", alpha=0.15, lw=0, label="prior, 2 std")
        panel.plot(place, draws[:, rows].T, color="C0", lw=1, alpha=0.7)
        if inputs is not None and targets is not None:
            shown = targets[:, min(output, targets.shape[1] - 1)]
            panel.plot(inputs[:, column], shown, ".", color="black", ms=4, alpha=0.6, label="data")
        elif inputs is not None:
            panel.plot(inputs[:, column], np.full(inputs.shape[0], panel.get_ylim()[0]), "|", color="black", label="X")
        panel.set_xlabel("x" if width == 1 else f"x[{column}]")
    axes[0].set_ylabel("f" if prior.num_outputs == 1 else f"f[{output}]")
    axes[0].legend(loc="upper right", frameon=False)
    return axes[0] if width == 1 else axes


def _inputs(X) -> Float[np.ndarray, "n d"]:
    inputs = np.asarray(X, dtype=float)
    if inputs.ndim != 2 or inputs.shape[0] == 0:
        raise ValueError(f"plot_prior: X has shape {inputs.shape}; pass at least one row, as (n, d)")
    if not np.all(np.isfinite(inputs)):
        raise ValueError("plot_prior: X has NaN or infinite values; remove those rows")
    return inputs


def _slice(inputs, column: int, width: int, margin: float) -> Float[np.ndarray, "k d"]:
    """Points along one dimension through the median of the others."""
    centre = np.zeros(width) if inputs is None else np.median(inputs, axis=0)
    low, high = (-3.0, 3.0) if inputs is None else (inputs[:, column].min(), inputs[:, column].max())
    reach = margin * (high - low) if inputs is not None else 0.0
    if high == low:
        reach = 1.0  # a constant column: show a unit around its value
    points = np.tile(centre, (_POINTS, 1))
    points[:, column] = np.linspace(low - reach, high + reach, _POINTS)
    return points


def _axes(ax, count: int) -> np.ndarray:
    if ax is not None:
        axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        if axes.size != count:
            raise ValueError(
                f"plot_prior: ax holds {axes.size} axes, but {count} panels are drawn; pass {count}, or None"
            )
        return axes
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("plot_prior needs matplotlib; install fsplaplace[plots]") from error
    columns = min(count, 3)
    rows = -(-count // columns)
    _, axes = pyplot.subplots(
        rows, columns, figsize=(4 * columns + 1, 3 * rows), sharey=True, squeeze=False, layout="constrained"
    )
    for spare in axes.ravel()[count:]:
        spare.set_visible(False)
    return axes.ravel()[:count]
