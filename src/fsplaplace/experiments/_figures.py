"""Figures without a display: a grid of panels, and the colours of the paper's figures for every reader."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's vermillion, bluish green and blue.
RED, GREEN, BLUE, GREY = "#D55E00", "#009E73", "#0072B2", "#808080"


def panels(count: int, *, columns: int, width: float = 2.6, height: float = 2.0) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels in rows of `columns`, and the panels in reading order."""
    columns = max(1, min(columns, count))
    rows = max(1, -(-count // columns))
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, index + 1) for index in range(count)]
    for axis in axes:
        axis.tick_params(which="both", labelsize=7)
        axis.title.set_fontsize(8)
        axis.xaxis.label.set_fontsize(8)
        axis.yaxis.label.set_fontsize(8)
    return figure, axes
