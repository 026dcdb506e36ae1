"""What the Laplace approximation did, and how far its implied prior is from the one you asked for."""

import time

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float
from rich.console import Console
from rich.table import Table

from fsplaplace._jacobian import push_forward
from fsplaplace._memory import format_bytes
from fsplaplace._model import Model
from fsplaplace._prior import Prior

_MOST_POINTS = 500


class Ratio(eqx.Module):
    """Implied over stated prior variance at a set of points: smallest, median and largest."""

    smallest: Float[Array, ""]
    median: Float[Array, ""]
    largest: Float[Array, ""]


class Stage(eqx.Module):
    """One stage of the computation: seconds on the clock, and bytes of its largest arrays."""

    seconds: Float[Array, ""]
    bytes: Float[Array, ""]


class Diagnostics(eqx.Module):
    """How a posterior was computed; prints as a short table.

    Attributes:
        form: "covariance" or "precision".
        solver: "dense", "golub-kahan" or "lanczos".
        factorisation: how the prior's covariance at the context points was factored.
        mean: the mean that `predict` returns, "network" or "refined".
        rank: number of directions kept.
        captured: share of the prior's variance at the context points that the factor holds.
        pull_back_residual: relative misfit of the network's features to that factor.
        ratios: implied over stated prior variance at context, training and guard points; 1 everywhere is perfect.
        objectives: the training objective of each mean at fresh points; the lower is the better.
        jitter: relative jitter of the norm in `objectives`.
        delta: relative ridge of the pull-back.
        stages: seconds and bytes of each stage.
    """

    form: str = eqx.field(static=True)
    solver: str = eqx.field(static=True)
    factorisation: str = eqx.field(static=True)
    mean: str = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    captured: Float[Array, ""]
    pull_back_residual: Float[Array, ""]
    ratios: dict[str, Ratio]
    objectives: dict[str, float]
    jitter: float = eqx.field(static=True)
    delta: float = eqx.field(static=True)
    stages: dict[str, Stage]

    @property
    def mean_gain(self) -> float:
        """By how much the chosen mean's objective is below the other's; 0 if only one was evaluated."""
        others = [value for name, value in self.objectives.items() if name != self.mean]
        return min(others) - self.objectives[self.mean] if others and self.mean in self.objectives else 0.0

    def __str__(self) -> str:
        table = Table(title=f"FSP-Laplace, {self.form} form", show_header=False, title_justify="left")
        table.add_row("rank", f"{self.rank} ({self.factorisation}, {self.solver})")
        table.add_row("prior variance captured", f"{100 * float(self.captured):.4g} %")
        table.add_row("pull-back residual", f"{float(self.pull_back_residual):.2g}")
        for name, ratio in self.ratios.items():
            values = f"{float(ratio.smallest):.3f}, {float(ratio.median):.3f}, {float(ratio.largest):.3f}"
            table.add_row(f"implied / stated prior variance, {name}", values + " (min, median, max)")
        table.add_row("mean", f"{self.mean}, objective lower by {self.mean_gain:.3g}" if self.objectives else self.mean)
        for name, stage in self.stages.items():
            table.add_row(name, f"{float(stage.seconds):.3f} s, {format_bytes(float(stage.bytes))}")
        console = Console(width=100, color_system=None)
        with console.capture() as capture:
            console.print(table)
        return capture.get()


class Stages:
    """A clock for the stages of one computation."""

    def __init__(self):
        self.records: dict[str, Stage] = {}
        self._last = time.perf_counter()

    def finish(self, name: str, size: float) -> None:
        now = time.perf_counter()
        self.records[name] = Stage(jnp.asarray(now - self._last), jnp.asarray(float(size)))
        self._last = now


def variance_ratio(model: Model, prior: Prior, x, directions: Float[Array, "r p"], budget: float) -> Ratio:
    r"""Summary of $\lVert J(x) S_0 \rVert^2 / \mathrm{diag}\,\Sigma(x, x)$ over at most 500 of the points."""
    if x.shape[0] > _MOST_POINTS:
        x = x[jr.choice(jr.key(0), x.shape[0], (_MOST_POINTS,), replace=False)]
    return _summary(push_forward(model, x, directions, budget=budget), prior, x)


@eqx.filter_jit
def _summary(features, prior, x):
    stated = prior.variance(x)
    ratio = jnp.where(stated > 0, jnp.sum(features**2, axis=2) / jnp.where(stated > 0, stated, 1.0), 1.0)
    return Ratio(jnp.min(ratio), jnp.median(ratio), jnp.max(ratio))


