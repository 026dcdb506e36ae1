"""What the Laplace approximation did, and how far its implied prior is from the one you asked for."""

import time
import warnings
from typing import Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
from rich.table import Table

from fsplaplace.host import format_bytes, table_text
from fsplaplace.laplace._problem import Places
from fsplaplace.likelihoods import Noise


def _number(value: float | None) -> float | None:
    """NumPy's numbers are traced, Python's would be part of a compiled program."""
    return None if value is None else np.float64(value)


def _numbers(values: dict[str, float]) -> dict[str, float]:
    return {name: np.float64(value) for name, value in values.items()}


class Ratio(eqx.Module):
    """Implied over stated prior variance at a set of points.

    Attributes:
        smallest: of all points and outputs.
        median: of all points and outputs.
        largest: of all points and outputs.
    """

    smallest: Float[Array, ""]
    median: Float[Array, ""]
    largest: Float[Array, ""]


class Stage(eqx.Module):
    """One stage of the computation.

    Attributes:
        seconds: on the clock.
        bytes: held at its peak, by the cost model that `plan` has.
    """

    seconds: Float[Array, ""]
    bytes: Float[Array, ""]


Level = Literal["good", "caution", "do not use"]


class VerdictWarning(UserWarning):
    """A posterior that is not what the prior and the data call for."""


class Words(tuple):
    """Sentences about a number: to JAX all of them are equal, so that other words need no other program.

    A compiled function therefore returns the words that it was traced with; `written_for` tells.
    """

    loss: float

    def __new__(cls, sentences: tuple[str, ...], loss: float):
        words = super().__new__(cls, sentences)
        words.loss = loss
        return words

    def __getnewargs__(self) -> tuple:
        return tuple(self), self.loss

    def written_for(self, loss: float | Array | np.ndarray) -> bool:
        """Whether these sentences are about this number."""
        return bool(np.isclose(float(loss), self.loss, rtol=1e-5, equal_nan=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Words)

    def __hash__(self) -> int:
        return hash(Words)


class Verdict(eqx.Module):
    """Whether a posterior can be trusted; prints as a sentence or a few.

    Attributes:
        level: "good", "caution" or "do not use".
        loss: the estimated loss of log predictive density against the exact process with the same prior, in nats for each
            new target; NaN if nothing was there to compare with.
        reasons: what was seen.
        remedies: what to do.
    """

    level: Level = eqx.field(static=True)
    loss: float
    reasons: tuple[str, ...] = eqx.field(static=True)
    remedies: tuple[str, ...] = eqx.field(static=True)

    def __post_init__(self):
        self.loss = np.float64(self.loss)
        self.reasons, self.remedies = Words(self.reasons, self.loss), Words(self.remedies, self.loss)

    def __str__(self) -> str:
        if not getattr(self.reasons, "written_for", lambda loss: True)(self.loss):
            return f"{self.level}: its reasons stayed with the posterior that was passed to a compiled function"
        if self.level == "good":
            return f"good: {self.reasons[0]}"
        return f"{self.level}: {'; '.join(self.reasons)}. What to do: {'; or '.join(self.remedies)}."

    def with_caution(self, reason: str, remedy: str) -> "Verdict":
        """The verdict with one more reason, which is at least a caution."""
        level = "caution" if self.level == "good" else self.level
        return Verdict(level, self.loss, (*self.reasons, reason), (*self.remedies, remedy))

    def warn(self) -> None:
        """Say it, unless it is good."""
        if self.level != "good":
            warnings.warn(f"laplace: this posterior: {self}", VerdictWarning, stacklevel=4)


class Diagnostics(eqx.Module):
    """How a posterior was computed; prints as a short table.

    Attributes:
        form: "covariance" or "precision".
        solver: "dense", "normal-equations", "golub-kahan" or "lanczos".
        factorisation: how the prior's covariance at the context points was factored.
        mean: the mean that `predict` returns, "network" or "refined".
        rank: number of directions kept; `Posterior.scale` has more rows, of zeros.
        captured: share of the prior's variance at the context points that the factor holds.
        pull_back_residual: relative misfit of the network's features to that factor.
        ratios: implied over stated prior variance at context, training and guard points; 1 everywhere is perfect.
        criterion: how the two means were compared at the guard points.
        objectives: the score of each mean by that criterion; the lower is the better.
        jitter: relative jitter of the norm in `objectives`.
        delta: relative ridge of the pull-back.
        missed_as_noise: whether prior variance that the features miss at the data is taken as noise.
        noise_factor: the factor of a Gaussian likelihood's scale at which the evidence is highest, kernel and network staying
            as they are; far above 1 the features miss what the stated noise would show. None for other likelihoods.
        misfit_to_noise: see `Posterior.misfit_to_noise`.
        verdict: whether the posterior can be trusted, why, and what to do.
        stages: seconds and bytes of each stage.
        data_share: share of the rows that the likelihood's curvature was computed from.
        sampling_error: relative error of that curvature, estimated from two halves of those rows; None for all rows.

    Numbers are leaves of the pytree, so that a function compiled for one posterior serves the next.
    """

    form: str = eqx.field(static=True)
    solver: str = eqx.field(static=True)
    factorisation: str = eqx.field(static=True)
    mean: str = eqx.field(static=True)
    rank: int | np.integer = eqx.field(converter=np.int64)
    captured: Float[Array, ""]
    pull_back_residual: float = eqx.field(converter=np.float64)
    ratios: dict[str, Ratio]
    criterion: str = eqx.field(static=True)
    objectives: dict[str, float] = eqx.field(converter=_numbers)
    jitter: float = eqx.field(static=True)
    delta: float = eqx.field(converter=np.float64)
    missed_as_noise: bool = eqx.field(static=True)
    noise_factor: float | None = eqx.field(converter=_number)
    misfit_to_noise: float | None = eqx.field(converter=_number)
    verdict: Verdict
    stages: dict[str, Stage]
    data_share: float = eqx.field(converter=np.float64, default=1.0)
    sampling_error: float | None = eqx.field(converter=_number, default=None)

    @property
    def mean_gain(self) -> float:
        """By how much the chosen mean's score is below the other's; 0 if only one was evaluated."""
        others = [float(value) for name, value in self.objectives.items() if name != self.mean]
        return min(others) - float(self.objectives[self.mean]) if others and self.mean in self.objectives else 0.0

    @property
    def summary(self) -> str:
        """Rank, mean and verdict in a few words."""
        return f"rank {self.rank}, {self.mean} mean; verdict: {self.verdict.level}"

    @property
    def _treatment(self) -> str:
        """Labels and counts have no noise that missed variance could add to: it stays what data say nothing of."""
        if not self.missed_as_noise:
            return ""
        return ", missed variance unknown" if self.noise_factor is None else ", missed variance as noise"

    def __str__(self) -> str:
        table = Table(title=f"FSP-Laplace, {self.form} form", show_header=False, title_justify="left")
        table.add_row("rank", f"{self.rank} ({self.factorisation}, {self.solver})")
        table.add_row("prior variance captured", f"{100 * float(self.captured):.4g} %")
        table.add_row(
            "pull-back",
            f"residual {float(self.pull_back_residual):.2g}, ridge {self.delta:.0e}" + self._treatment,
        )
        for name, ratio in self.ratios.items():
            values = f"{float(ratio.smallest):.3f}, {float(ratio.median):.3f}, {float(ratio.largest):.3f}"
            table.add_row(f"implied / stated prior variance, {name}", values + " (min, median, max)")
        table.add_row(
            "mean", f"{self.mean}, {self.criterion} lower by {self.mean_gain:.3g}" if self.objectives else self.mean
        )
        if self.noise_factor is not None:
            table.add_row("noise with the highest evidence", f"{self.noise_factor:.3g} times the stated")
        if self.sampling_error is not None:
            share = f"{100 * float(self.data_share):.3g} % of the rows, {100 * float(self.sampling_error):.2g} % off"
            table.add_row("curvature of the data from", share)
        for name, stage in self.stages.items():
            table.add_row(name, f"{float(stage.seconds):.3f} s, {format_bytes(float(stage.bytes))}")
        return table_text(table)


class Clock:
    """Seconds of the stages of one computation.

    Attributes:
        seconds: of each finished stage, by its name.
    """

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def finish(self, name: str) -> None:
        """End the stage that began with the end of the one before."""
        now = time.perf_counter()
        self.seconds[name], self._last = now - self._last, now

    def stages(self, sizes: dict[str, float]) -> dict[str, Stage]:
        """The finished stages with the bytes of each, by its name."""
        pairs = jax.device_put([(taken, sizes.get(name, 0.0)) for name, taken in self.seconds.items()])
        return {name: Stage(*pair) for name, pair in zip(self.seconds, pairs, strict=True)}


def variance_ratios(
    stated: Float[np.ndarray, "k q"], places: Places, features: Float[np.ndarray, "k q r"]
) -> dict[str, Ratio]:
    r"""$\lVert J(x) S_0 \rVert^2 / \mathrm{diag}\,\Sigma(x, x)$ in each place."""
    implied = np.sum(features**2, axis=2)
    ratio = np.divide(implied, stated, out=np.ones(stated.shape), where=stated > 0)
    parts = places.split(ratio)
    summaries = jax.device_put([(np.min(part), np.median(part), np.max(part)) for part in parts.values()])
    return {name: Ratio(*summary) for name, summary in zip(parts, summaries, strict=True)}


def misfit_to_noise(ratios: dict[str, Ratio], stated: Float[np.ndarray, "k q"], noise: Noise | None) -> float | None:
    """Prior variance that the features miss at a typical training input, over a typical variance of the noise.

    Typical is the harmonic mean: rows that say nothing have no part in it.
    """
    if noise is None:
        return None
    missed = abs(1.0 - float(ratios["training"].median)) * float(np.mean(stated))
    return missed * float(np.mean(1.0 / noise.variance))
