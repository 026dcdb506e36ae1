"""What training did, step by step."""

from typing import TYPE_CHECKING

import numpy as np

from fsplaplace.arguments import checked
from fsplaplace.plotting._axes import BLACK, BLUE, ORANGE, VERMILLION, one_axes
from fsplaplace.training import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_POINTS = 500


@checked
def plot_history(history: History, *, ax: "Axes | None" = None) -> "Axes":
    """The training objective and its two terms at every step, and on the right axis the held-out loss if there is one.

    Args:
        history: `fsplaplace.train(...).history`.
        ax: the axes; a new figure by default.

    Returns the axes; their scale is logarithmic away from zero and linear around it, because a log-likelihood may have
    either sign. Long runs are drawn as means over blocks of steps.
    """
    ax = one_axes(ax)
    terms = {
        "objective": (history.objective, BLACK, "-"),
        "negative log-likelihood": (history.negative_log_likelihood, BLUE, "-"),
        "half squared norm": (history.half_squared_norm, ORANGE, "--"),
    }
    for name, (values, colour, style) in terms.items():
        steps, means = _blocks(np.asarray(values))
        ax.plot(steps, means, color=colour, linestyle=style, linewidth=1.2, label=name)
    ax.set_yscale("symlog", linthresh=_linear_below(np.asarray(history.objective)))
    ax.set(xlabel="step", ylabel="training loss (sum over data)")
    lines = ax.get_lines()
    if history.validation_step.size:
        # One datum's loss, not the sum: another scale.
        right = ax.twinx()
        steps, losses = np.asarray(history.validation_step), np.asarray(history.validation_loss)
        lines = [*lines, *right.plot(steps, losses, "o", color=VERMILLION, markersize=3, label="held-out (right)")]
        right.set_ylabel("held-out loss (mean)")
    ax.legend(handles=lines, fontsize="small", framealpha=0.8)
    return ax


def _blocks(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over blocks of steps, so that a long noisy run shows its course."""
    width = -(-len(values) // _MOST_POINTS) or 1
    starts = np.arange(0, len(values), width)
    counts = np.minimum(starts + width, len(values)) - starts
    means = np.add.reduceat(values, starts) / counts if len(values) else values
    return starts + (counts - 1) / 2, means


def _linear_below(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    # A power of ten, so that the ticks around zero keep their distance.
    return float(10.0 ** np.ceil(np.log10(max(np.median(finite), 1e-3)))) if finite.size else 1.0
