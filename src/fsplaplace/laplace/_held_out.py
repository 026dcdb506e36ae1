"""Mean, missed variance and noise judged by rows held out, where the exact process cannot see all data."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from fsplaplace.laplace import _choices
from fsplaplace.laplace._choices import Options
from fsplaplace.laplace._posterior import Posterior
from fsplaplace.likelihoods import Gaussian, Likelihood


class LabelledRows(NamedTuple):
    """Inputs, targets and their likelihood."""

    X: ArrayLike
    y: ArrayLike
    likelihood: Likelihood

    def parts(self, generator: np.random.Generator) -> "Parts | None":
        """A tenth of the rows, at most 500, and all others; None unless the exact process could see only some of them.

        That is: Gaussian noise and more than 2,000 targets. Rows that say nothing (weight zero) never judge. Noise with a
        scale for each row is as known as it gets, and stays as it is.
        """
        likelihood, count = self.likelihood, np.shape(self.X)[0]
        if not isinstance(likelihood, Gaussian) or max(leaf.ndim for leaf in jax.tree.leaves(likelihood.log_scale)) > 1:
            return None
        targets = np.asarray(likelihood.check_targets(self.y, num_rows=count))
        variance = likelihood.noise(targets.shape).variance
        telling = np.flatnonzero(np.all(variance < _choices.UNTELLING * np.min(variance), axis=1))
        if telling.size * targets.shape[1] <= _choices.MOST_TARGETS:
            return None
        held = np.sort(generator.permutation(telling)[: min(_choices.MOST_HELD_OUT, telling.size // 10)])
        kept = np.setdiff1d(np.arange(count), held)
        some = np.sort(generator.permutation(kept)[: _choices.MOST_JUDGING])
        return Parts(*(self.take(index, targets) for index in (held, kept, some)))

    def take(self, index: Int[np.ndarray, " k"], targets: np.ndarray) -> "LabelledRows":
        """Some of the rows."""
        return LabelledRows(np.asarray(self.X)[index], targets[index], self.likelihood.rows(index))

    def with_scale_of(self, fitted: Likelihood) -> Likelihood:
        """The likelihood of these rows with the scale that training fitted, perhaps on others."""
        if not isinstance(fitted, Gaussian) or not isinstance(self.likelihood, Gaussian):
            return fitted
        return eqx.tree_at(lambda tree: tree.log_scale, self.likelihood, fitted.log_scale)


class Parts(NamedTuple):
    """Rows that judge, all others, and those of them that judged posteriors are made of."""

    held: LabelledRows
    kept: LabelledRows
    some: LabelledRows


class Candidate(NamedTuple):
    """What the rows held out choose between.

    Attributes:
        mean: "network" or "refined".
        missed_as_noise: whether prior variance that the features miss counts as noise.
        noise_factor: of the noise's standard deviation.
    """

    mean: str
    missed_as_noise: bool
    noise_factor: float


class HeldOut(NamedTuple):
    """Rows held out as a posterior of others predicts them; k rows.

    Attributes:
        X: their inputs.
        off: targets less means.
        variance: of the function.
        noise: variance of the noise, with its factor.
    """

    X: Float[np.ndarray, "k ..."]
    off: Float[np.ndarray, "k q"]
    variance: Float[np.ndarray, "k q"]
    noise: Float[np.ndarray, "k q"]


class Judgement(NamedTuple):
    """The best candidate, and what it predicts."""

    best: Candidate
    held: HeldOut


Approximate = Callable[[bool, float], Posterior]


def judge(approximate: Approximate, held: LabelledRows, options: Options, *, fit_noise: bool | str) -> Judgement:
    r"""The candidate with the highest mean log predictive density of the rows held out.

    Both means and treatments are tried with the noise as stated. If the density would be higher with c times the noise,
    $v + c^2 \sigma^2$ in place of $v + \sigma^2$, a posterior is made with that noise, whose mean and variance differ, too; and once more from
    there. Only posteriors that were made are compared.

    Args:
        approximate: the posterior of the other rows with its refined mean, for a treatment of missed variance and a factor of the noise.
        held: the rows that judge.
        options: which means and treatments there are to choose from.
        fit_noise: False keeps the noise as stated, "upwards" makes it no smaller.

    Time: one approximation for each treatment and at most two more, and predictions at the rows held out.
    """
    targets = np.asarray(held.y, np.float64)
    assert isinstance(held.likelihood, Gaussian)
    stated = held.likelihood.noise(targets.shape).variance
    changes = _changes(fit_noise)
    scores: dict[Candidate, float] = {}
    seen: dict[Candidate, HeldOut] = {}
    factor, treatments = 1.0, [treatment == "noise" for treatment in options.treatments()]
    for _ in range(_choices.NOISE_ROUNDS):
        wanted: dict[tuple[bool, float], float] = {}
        for missed in treatments:
            predicted = approximate(missed, factor).predict(held.X)
            values = {"network": predicted.map, "refined": predicted.mean}
            for mean in values if options.mean == "auto" else (options.mean,):
                off = targets - np.asarray(values[mean], np.float64)
                rows = HeldOut(np.asarray(held.X), off, np.asarray(predicted.variance, np.float64), factor**2 * stated)
                found = _densities(rows, changes)
                candidate = Candidate(mean, missed, factor)
                scores[candidate], seen[candidate] = float(found[changes == 1.0][0]), rows
                change = float(changes[np.argmax(found)])
                wanted[missed, change] = max(float(found.max()), wanted.get((missed, change), -np.inf))
        missed, change = max(wanted, key=lambda each: wanted[each])
        if 1 / _choices.OTHER_NOISE <= change <= _choices.OTHER_NOISE:
            break
        factor, treatments = factor * change, [missed]
    best = max(scores, key=lambda candidate: scores[candidate])
    return Judgement(best, seen[best])


def _changes(fit_noise: bool | str) -> Float[np.ndarray, " f"]:
    """Factors of the noise's standard deviation that are looked at, 1 among them."""
    if not fit_noise:
        return np.ones(1)
    upwards = np.geomspace(1.0, _choices.MOST_NOISE_CHANGE, _choices.NOISE_CHANGES)
    return upwards if fit_noise == "upwards" else np.concatenate([1 / upwards[:0:-1], upwards])


def _densities(rows: HeldOut, changes: Float[np.ndarray, " f"]) -> Float[np.ndarray, " f"]:
    """Mean log density of the rows, up to a constant, for each factor of the noise."""
    total = rows.variance + changes[:, None, None] ** 2 * rows.noise
    return -0.5 * np.mean(rows.off**2 / total + np.log(total), axis=(1, 2))
