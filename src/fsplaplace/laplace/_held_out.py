"""Mean, missed variance and noise judged by rows held out, where the exact process cannot see all data."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int
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
        return Parts(self.take(held, targets), self.take(np.setdiff1d(np.arange(count), held), targets))

    def take(self, index: Int[np.ndarray, " k"], targets: np.ndarray) -> "LabelledRows":
        """Some of the rows."""
        return LabelledRows(np.asarray(self.X)[index], targets[index], self.likelihood.rows(index))

    def with_scale_of(self, fitted: Likelihood) -> Likelihood:
        """The likelihood of these rows with the scale that training fitted, perhaps on others."""
        if not isinstance(fitted, Gaussian) or not isinstance(self.likelihood, Gaussian):
            return fitted
        return eqx.tree_at(lambda tree: tree.log_scale, self.likelihood, fitted.log_scale)


class Parts(NamedTuple):
    """Rows that judge, and all others."""

    held: LabelledRows
    kept: LabelledRows


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


def judge(
    approximate: Callable[[bool], Posterior], held: LabelledRows, options: Options, *, fit_noise: bool
) -> Candidate:
    """The candidate with the highest mean log predictive density of the rows held out.

    The noise is tried as stated and as the evidence of the other rows prefers it, in both directions.

    Args:
        approximate: the posterior of the other rows with its refined mean, for a treatment of missed variance.
        held: the rows that judge.
        options: which means and treatments there are to choose from.
        fit_noise: False keeps the noise as stated.

    Time: one approximation for each treatment, and predictions at the rows held out.
    """
    targets = np.asarray(held.y, np.float64)
    assert isinstance(held.likelihood, Gaussian)
    noise = held.likelihood.noise(targets.shape).variance
    scores: dict[Candidate, float] = {}
    for treatment in options.treatments():
        posterior = approximate(treatment == "noise")
        predicted = posterior.predict(held.X)
        values = {"network": predicted.map, "refined": predicted.mean}
        variance = np.asarray(predicted.variance, np.float64)
        evidence = posterior.diagnostics.noise_factor
        factors = (1.0, float(evidence)) if fit_noise and evidence is not None else (1.0,)
        for mean in values if options.mean == "auto" else (options.mean,):
            squares = (targets - np.asarray(values[mean], np.float64)) ** 2
            for factor in factors:
                total = variance + factor**2 * noise
                score = -0.5 * float(np.mean(squares / total + np.log(total)))
                scores[Candidate(mean, treatment == "noise", factor)] = score
    return max(scores, key=lambda candidate: scores[candidate])
