"""Figures of the image tables, from finished cells alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fsplaplace.experiments import _figures
from fsplaplace.experiments._experiment import Cell, Outcome
from fsplaplace.experiments._image_pixels import unpacked

_COLOURS = (
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#808080", "#999933", "#882255",
)  # fmt: skip


def draw(outcomes: Mapping[Cell, Outcome]) -> dict[str, Figure]:
    """Name -> figure."""
    curves = {name: curve for outcome in outcomes.values() for name, curve in outcome.curves.items()}
    if not curves:
        return {}
    return {
        "entropy": _entropy(curves),
        "rotation": _rotation(curves),
        "certainty": _certainty(curves),
        "reliability": _reliability(curves),
    }


def _short(name: str) -> str:
    return name.replace("FSP-Laplace ", "FSP ").replace(", ", ",\n")


def _entropy(curves: Mapping[str, Any]) -> Figure:
    figure, axes = _figures.panels(len(curves), columns=4, width=2.4, height=1.9)
    for axis, (name, curve) in zip(axes, curves.items(), strict=True):
        for which, colour in (("test", _figures.BLUE), ("other", _figures.RED)):
            shares = np.asarray(curve["entropy"][which])
            edges = np.linspace(0, np.log(10), len(shares) + 1)
            axis.stairs(
                shares, edges, fill=True, alpha=0.5, color=colour, label="test" if which == "test" else "foreign"
            )
        axis.set(title=_short(name), xlabel="entropy in nats")
        axis.set_yscale("symlog", linthresh=0.01)
        axis.set(ylim=(0, 1))
        axis.set_yticks([0, 0.01, 0.1, 1.0], ["0", "0.01", "0.1", "1"])
        axis.title.set_fontsize(7)
    axes[0].legend(fontsize=6)
    axes[0].set_ylabel("share of images")
    return figure


def _rotation(curves: Mapping[str, Any]) -> Figure:
    figure, (axis,) = _figures.panels(1, columns=1, width=6.0, height=3.6)
    for colour, (name, curve) in zip(_COLOURS * 3, curves.items(), strict=False):
        axis.plot(curve["rotation"]["angles"], curve["rotation"]["entropy"], "o-", ms=3, lw=1, color=colour, label=name)
    axis.set(xlabel="angle in degrees", ylabel="mean entropy in nats", xlim=(-5, 185))
    axis.legend(fontsize=6, loc="upper left")
    axis.set_ylim(-0.25 * axis.get_ylim()[1], 1.6 * axis.get_ylim()[1])
    first = next(iter(curves.values()))["rotation"]
    for angle, image in zip(first["angles"], first["example"], strict=True):
        inset = axis.inset_axes(((angle + 5) / 190 - 0.03, 0.02, 0.06, 0.11))
        inset.imshow(unpacked(image), cmap="gray_r", vmin=0, vmax=255)
        inset.set(xticks=[], yticks=[])
    return figure


def _certainty(curves: Mapping[str, Any]) -> Figure:
    """One page: for the first posterior with one, else for the first row."""
    name = next((each for each in curves if "last layer" in each), next(iter(curves)))
    pages = curves[name]["images"]
    figure, axes = _figures.panels(8 * len(pages), columns=8, width=0.8, height=1.0)
    for row, (words, page) in enumerate(pages.items()):
        for column, (pixels, entropy) in enumerate(zip(page["pixels"], page["entropy"], strict=True)):
            axis = axes[8 * row + column]
            axis.imshow(unpacked(pixels), cmap="gray_r", vmin=0, vmax=255)
            axis.set(xticks=[], yticks=[], xlabel=f"{entropy:.2g}")
            axis.xaxis.label.set_fontsize(6)
        axes[8 * row].set_title(words, loc="left", fontsize=7)
    figure.suptitle(f"{name}: entropy in nats below each image", fontsize=8)
    return figure


def _reliability(curves: Mapping[str, Any]) -> Figure:
    figure, (axis,) = _figures.panels(1, columns=1, width=4.2, height=3.6)
    axis.plot([0, 1], [0, 1], "--", color=_figures.GREY, lw=1)
    for colour, (name, curve) in zip(_COLOURS * 3, curves.items(), strict=False):
        found = curve["reliability"]
        seen = np.asarray(found["count"]) >= 10
        axis.plot(
            np.asarray(found["confidence"])[seen], np.asarray(found["right"])[seen], "o-", ms=3, lw=1, color=colour,
            label=name,
        )  # fmt: skip
    axis.set(
        xlabel="confidence", ylabel="share of right labels (bins of 10 images or more)", xlim=(0.2, 1), ylim=(0.2, 1)
    )
    axis.legend(fontsize=5)
    return figure
