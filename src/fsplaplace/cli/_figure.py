"""The figure of a fit: the series and its band for one input, predicted against observed for several."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.figure import Figure

from fsplaplace.host import write_atomically

_GREY, _ORANGE, _BLUE = "#606060", "#D55E00", "#0072B2"
_RESOLUTION = 500


class Fit(NamedTuple):
    """What a figure shows.

    Attributes:
        predict: mean and standard deviation of new targets at inputs.
        noise: standard deviation of the noise at inputs.
        X: inputs as numbers.
        y: targets.
        mean: predicted targets.
        std: of new targets, noise included.
        held_out: which rows were not fitted.
        input_label: of the first input.
        target: name of the target.
    """

    predict: Callable[[Float[np.ndarray, "k d"]], tuple[np.ndarray, np.ndarray]]
    noise: Callable[[Float[np.ndarray, "k d"]], np.ndarray]
    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    mean: Float[np.ndarray, " n"]
    std: Float[np.ndarray, " n"]
    held_out: Bool[np.ndarray, " n"]
    input_label: str
    target: str


def write_figure(path: Path, fit: Fit) -> None:
    """Draw and write a PNG file."""
    one = fit.X.shape[1] == 1
    figure = Figure(figsize=(7.5, 3.8) if one else (4.5, 4.2), layout="constrained")
    axis = figure.add_subplot()
    (_draw_series if one else _draw_agreement)(axis, fit)
    axis.legend(frameon=False, fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())


def _draw_series(axis, fit: Fit) -> None:
    """Data, the mean, the band of the function and that of new observations, over the whole range."""
    x = np.linspace(fit.X.min(), fit.X.max(), _RESOLUTION)
    mean, std = fit.predict(x[:, None])
    function = np.sqrt(np.maximum(std**2 - fit.noise(x[:, None]) ** 2, 0.0))
    for spread, alpha, label in ((std, 0.15, "new observations, ± 2 std"), (function, 0.3, "function, ± 2 std")):
        axis.fill_between(x, mean - 2 * spread, mean + 2 * spread, color=_BLUE, alpha=alpha, lw=0, label=label)
    axis.plot(x, mean, color=_BLUE, lw=1.2, label="mean")
    for rows, colour, label in ((~fit.held_out, _GREY, "fitted"), (fit.held_out, _ORANGE, "held out")):
        if rows.any():
            axis.plot(fit.X[rows, 0], fit.y[rows], ".", color=colour, ms=4, alpha=0.8, label=label)
    axis.set(xlabel=fit.input_label, ylabel=fit.target)
    axis.margins(x=0.01)


def _draw_agreement(axis, fit: Fit) -> None:
    for rows, colour, label in ((~fit.held_out, _GREY, "fitted"), (fit.held_out, _ORANGE, "held out")):
        if rows.any():
            axis.errorbar(
                fit.y[rows],
                fit.mean[rows],
                2 * fit.std[rows],
                fmt=".",
                color=colour,
                lw=0.5,
                ms=4,
                alpha=0.7,
                label=label,
            )
    limits = [min(fit.y.min(), fit.mean.min()), max(fit.y.max(), fit.mean.max())]
    axis.plot(limits, limits, color="black", lw=0.8)
    axis.set(xlabel=f"{fit.target}, observed", ylabel=f"{fit.target}, predicted (bars: 2 std)")
