"""Fields of plane vectors: mean arrows over a map of their uncertainty."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.plotting._axes import AMOUNT, BLACK, VERMILLION, data_of, inputs_of, one_axes, plane_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@checked(finite=True)
def plot_vector_field(
    posterior: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    resolution: int = 12,
    ax: "Axes | None" = None,
) -> "Axes":
    r"""Mean vectors on a grid (white), observed vectors (vermillion), over $\sqrt{\mathrm{tr}\,\mathrm{Cov}[f(x)]}$.

    Args:
        posterior: of a function from the plane to plane vectors.
        X: observed places.
        y: observed vectors.
        resolution: arrows along each side of the grid over the context points.
        ax: the axes; a new figure by default.

    Returns the axes. Arrows of mean and data share one scale.
    """
    targets = np.asarray(y, dtype=float)
    places = np.asarray(X, dtype=float)
    if targets.ndim != 2 or targets.shape[1] != 2:
        raise ValueError(f"plot_vector_field: y has shape {targets.shape}; pass vectors as (n, 2)")
    places, targets = data_of(places, targets, 2, "plot_vector_field")
    points = inputs_of(posterior, X, 2, "plot_vector_field")
    ax = one_axes(ax)
    first, second, grid = plane_grid(points, 3 * resolution - 2)
    variance = np.asarray(posterior.predict(grid).variance)
    std = np.sqrt(variance.sum(axis=1)).reshape(second.size, first.size)
    image = ax.pcolormesh(first, second, std, cmap=AMOUNT, shading="gouraud", vmin=0.0)
    ax.figure.colorbar(image, ax=ax, label="standard deviation")
    arrow_grid = plane_grid(points, resolution)[2]
    mean = np.asarray(posterior.predict(arrow_grid).mean)
    # One scale for both: the longest arrow spans about one and a half cells.
    longest = max(np.linalg.norm(mean, axis=1).max(), np.linalg.norm(targets, axis=1).max(), 1e-12)
    scale = longest * resolution / (1.5 * np.ptp(points, axis=0).min())
    arrows = {"angles": "xy", "scale_units": "xy", "scale": scale, "width": 0.007, "edgecolor": BLACK, "linewidth": 0.3}
    ax.quiver(*arrow_grid.T, *mean.T, color="white", label="mean", **arrows)
    ax.quiver(*places.T, *targets.T, color=VERMILLION, label="data", **arrows)
    ax.set(xlabel="x₁", ylabel="x₂", xlim=first[[0, -1]], ylim=second[[0, -1]], aspect="equal")
    ax.legend(fontsize="small", loc="upper right", facecolor="lightgrey")
    return ax
