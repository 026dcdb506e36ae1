"""Class probabilities over a plane: their mean and their uncertainty."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.random as jr
import numpy as np
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, checked
from fsplaplace.likelihoods import Bernoulli, Categorical
from fsplaplace.plotting._axes import AMOUNT, AROUND, data_of, inputs_of, many_axes, plane_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = "o^sDvP*X"


@checked(finite=True)
def plot_classification(
    posterior: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    label: int = 1,
    resolution: int = 60,
    num_samples: int = 100,
    key: KeyLike | None = None,
    ax: "Sequence[Axes] | None" = None,
) -> "list[Axes]":
    r"""Mean (left) and standard deviation (right) of $p(y = c \mid f(x))$ under the posterior over f, and the data.

    Args:
        posterior: with a Bernoulli or Categorical likelihood, over two inputs.
        X: training inputs.
        y: labels, a marker for each class.
        label: the class c.
        resolution: points along each side of the grid over the context points.
        num_samples: sampled functions behind mean and standard deviation.
        key: for the samples; a fixed key by default.
        ax: a pair of axes; a new figure by default.

    Returns both axes.
    """
    if not isinstance(posterior.likelihood, Bernoulli | Categorical):
        kind = type(posterior.likelihood).__name__
        raise ValueError(f"plot_classification: {kind} has no classes; use a Bernoulli or Categorical likelihood")
    X, y = data_of(X, y, 2, "plot_classification")
    axes = many_axes(ax, 2, "ax", sharex=True, sharey=True)
    first, second, points = plane_grid(inputs_of(posterior, X, 2, "plot_classification"), resolution)
    logits = posterior.sample(points, key=jr.key(0) if key is None else key, num_samples=num_samples)
    classes = logits.shape[-1] if isinstance(posterior.likelihood, Categorical) else 2
    if label >= classes:
        raise ValueError(f"plot_classification: label is {label}, but there are {classes} classes; they count from 0")
    probabilities = np.asarray(_probabilities(posterior.likelihood, logits, label))
    shape = (resolution, resolution)
    mean, std = probabilities.mean(axis=0).reshape(shape), probabilities.std(axis=0).reshape(shape)
    for axes_, values, name, colours, limit in (
        (axes[0], mean, "mean", AROUND, 1.0),
        (axes[1], std, "standard deviation", AMOUNT, max(float(std.max()), 1e-6)),
    ):
        image = axes_.pcolormesh(first, second, values, cmap=colours, vmin=0.0, vmax=limit, shading="gouraud")
        axes_.figure.colorbar(image, ax=axes_, label=f"{name} of P(y = {label})")
        _draw_labels(axes_, np.asarray(X), np.asarray(y).reshape(-1))
        axes_.set(xlabel="x₁", ylabel="x₂", title=name, xlim=first[[0, -1]], ylim=second[[0, -1]])
    axes[0].contour(first, second, mean, levels=[0.5], colors="black", linewidths=1)
    axes[0].legend(fontsize="small", framealpha=0.8)
    return axes


def _probabilities(likelihood: Any, logits: Any, label: int) -> Any:
    if isinstance(likelihood, Categorical):
        return jax.nn.softmax(logits, axis=-1)[..., label]
    positive = jax.nn.sigmoid(logits[..., 0])
    return positive if label == 1 else 1 - positive


def _draw_labels(ax: "Axes", X: np.ndarray, y: np.ndarray) -> None:
    for i, value in enumerate(np.unique(y)):
        rows = X[y == value]
        marker = _MARKERS[i % len(_MARKERS)]
        ax.scatter(rows[:, 0], rows[:, 1], s=22, c="white", marker=marker, edgecolors="black", label=f"y = {value:g}")
