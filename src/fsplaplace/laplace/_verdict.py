"""One verdict on a posterior: how much worse than the exact process it is, why, and what to do."""

import math

import numpy as np

from fsplaplace.laplace import _choices
from fsplaplace.laplace._compare_means import NOT_COMPARED, MeanScores
from fsplaplace.laplace._diagnostics import Level, Ratio, Verdict
from fsplaplace.laplace._loss import Loss
from fsplaplace.laplace._problem import Places, Problem


def verdict_of(
    problem: Problem, places: Places, loss: Loss, ratios: dict[str, Ratio], *,
    mean: str = "network", scores: MeanScores = NOT_COMPARED,
) -> Verdict:  # fmt: skip
    """The verdict from what was measured.

    Args:
        problem: the problem.
        places: where the posterior was looked at.
        loss: against the exact process.
        ratios: implied over stated prior variance, before normalisation.
        mean: the mean that was chosen.
        scores: how good the means are, if they were compared.
    """
    nats = loss.nats
    if known := not math.isnan(nats):
        level = level_of(loss)
        first = f"about {nats:.2g} nats {_of_what(problem)} from the exact Gaussian process with this prior{_given(problem)}"
        first += _extremes(loss)
    else:
        level = "good" if _holds(ratios) else "caution"
        first = "it was compared with the prior's variances only" + _unseen(problem)
    verdict = Verdict(level, nats, (first,), ())
    if level != "good":
        verdict = Verdict(
            level, nats, (first, *_reasons(problem, places, ratios, mean, scores)), _remedies(problem, nats, known)
        )
    if problem.data.coarse:
        seen, remedy = problem.data.coarse.split("; ", 1)
        verdict = verdict.with_caution(seen, remedy)
    return verdict


def _of_what(problem: Problem) -> str:
    labels = any(kind.noise is None for kind in problem.observed)
    return "of the latent function" if labels and not problem.of_values else "for each new target"


def _given(problem: Problem) -> str:
    given = "" if problem.of_values else " given the same observations"
    return given + ", linearised at the same function" * any(kind.tangent for kind in problem.observed)


def _unseen(problem: Problem) -> str:
    names = [kind.name for kind in problem.observed if not kind.stated]
    return f", because the kernel cannot be taken through {', '.join(names)}" if names else ""


def level_of(loss: Loss) -> Level:
    """The level for a mean loss, and for the largest error of a standard deviation at a single input."""
    if loss.nats >= _choices.UNUSABLE_LOSS:
        return "do not use"
    return "caution" if loss.nats >= _choices.CAUTION_LOSS or _beyond(loss, _choices.CAUTION_EXTREMES) else "good"


def _extremes(loss: Loss) -> str:
    if loss.extremes is None or not _beyond(loss, _choices.NAMED_EXTREMES):
        return ""
    low, high, apart = loss.extremes
    what = "the latent function" if loss.latent else "a new target"
    said = f"; at single inputs the standard deviation of {what} is {low:.2g} to {high:.2g} times the exact one"
    far = apart > (_choices.NAMED_EXTREMES.latent_apart if loss.latent else _choices.NAMED_EXTREMES.apart)
    return said + f", and its mean up to {apart:.2g} exact standard deviations from the exact mean" * far


def _beyond(loss: Loss, limits: _choices.Limits) -> bool:
    if (seen := loss.extremes) is None:
        return False
    factor, apart = (limits.latent_factor, limits.latent_apart) if loss.latent else (limits.factor, limits.apart)
    return not (1 / factor <= seen.smallest and seen.largest <= factor and seen.apart <= apart)


def _reasons(problem: Problem, places: Places, ratios: dict[str, Ratio], mean: str, scores: MeanScores) -> list[str]:
    reasons = []
    low, high = (
        func([float(getattr(ratio, name)) for ratio in ratios.values()])
        for func, name in ((min, "smallest"), (max, "largest"))
    )
    if low < _choices.HELD_RATIOS[0] or high > _choices.HELD_RATIOS[1]:
        reasons.append(f"the network's features imply {low:.2g} to {high:.2g} times the prior variance that was stated")
    if scores.against_exact and (distance := scores.scores[mean]) > _choices.FAR_MEAN:
        reasons.append(f"its mean is {distance:.2g} standard deviations of a new target from the exact process's")
    if mean == "network" and scores.scores:
        reasons.append("the network's own mean was closer to the exact process than the refined one")
    points, inputs = (values.reshape(len(values), -1) for values in (problem.context, places.training))
    outside = np.mean(np.any((inputs < points.min(axis=0)) | (inputs > points.max(axis=0)), axis=1))
    if outside > _choices.MOST_OUTSIDE:
        reasons.append(f"{100 * outside:.0f} % of the training inputs lie outside the box of the context points")
    return reasons


def _remedies(problem: Problem, nats: float, known: bool) -> tuple[str, ...]:
    remedies = ["use a wider network", "more context points where you predict", "a prior with longer length scales"]
    if problem.of_values and problem.num_targets <= _choices.EXACT_TARGETS:
        gain = f", about {nats:.2g} nats better here" if known else ""
        remedies.append(f"an exact Gaussian process, which {problem.data.num_rows} rows allow (method='gp'{gain})")
    return tuple(remedies)


def _holds(ratios: dict[str, Ratio]) -> bool:
    low, high = _choices.HELD_RATIOS
    return all(low <= float(ratio.smallest) and float(ratio.largest) <= high for ratio in ratios.values())
