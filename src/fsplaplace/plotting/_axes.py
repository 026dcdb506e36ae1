"""Axes to draw on, and the colours: Okabe and Ito's, which people with any colour vision tell apart."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VERMILLION, GREEN, BLUE, ORANGE, BLACK = "#D55E00", "#009E73", "#0072B2", "#E69F00", "#000000"
GREY = "#8A8A8A"
# Perceptually even and safe for colour-blind readers: one for amounts, one for values around a middle.
AMOUNT, AROUND = "cividis", "PuOr"


def one_axes(ax: "Axes | None") -> "Axes":
    """The given axes, or those of a new figure."""
    return many_axes(None, 1, "ax", size=(5.0, 3.5))[0] if ax is None else ax


def many_axes(
    axes: "Sequence[Axes] | None", count: int, argument: str, *, size: tuple[float, float] = (8.0, 3.5), **options: Any
) -> "list[Axes]":
    """The given axes, which must be `count`, or those of a new figure side by side."""
    if axes is None:
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("plots need matplotlib; install fsplaplace[plots]") from error
        return list(np.atleast_1d(Figure(figsize=size, layout="constrained").subplots(1, count, **options)))
    given = list(np.ravel(np.asarray(axes, dtype=object)))
    if len(given) != count:
        raise ValueError(f"{argument} holds {len(given)} axes, but {count} are drawn; pass {count}")
    return given


def inputs_of(posterior: Any, X: Any, width: int, name: str) -> np.ndarray:
    """Where to look from: the context points if there are any, else the data; of the width that can be drawn."""
    points = getattr(posterior, "context_points", None)
    points = np.asarray(X if points is None else points, dtype=float)
    if points.ndim != 2 or points.shape[1] != width:
        raise ValueError(
            f"{name} draws functions of {width} input{'s' * (width > 1)}, but the inputs have shape {points.shape}"
        )
    return points


def data_of(X: Any, y: Any, width: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The training data as (n, width) and (n, q), or an error that names what does not fit."""
    inputs, targets = np.asarray(X), np.asarray(y)
    if inputs.ndim == 1 and width == 1:
        inputs = inputs[:, None]
    if inputs.ndim != 2 or inputs.shape[1] != width:
        raise ValueError(f"{name}: X has shape {inputs.shape}; pass (n, {width})")
    if targets.ndim not in (1, 2) or targets.shape[0] != inputs.shape[0]:
        raise ValueError(
            f"{name}: y has shape {targets.shape}, but X has {inputs.shape[0]} rows; pass one target for each"
        )
    return inputs, targets


def plane_grid(points: np.ndarray, resolution: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ticks of a square grid over the points' box, and all grid points as rows, first input fastest."""
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    first, second = np.linspace(left, right, resolution), np.linspace(bottom, top, resolution)
    return first, second, np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2)
