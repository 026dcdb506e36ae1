"""One verdict on a posterior: how much worse than the exact process it is, why, and what to do."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fsplaplace.laplace import _choices
from fsplaplace.laplace._choices import Treatment
from fsplaplace.laplace._diagnostics import Ratio, Verdict
from fsplaplace.laplace._features import Block, normalise, view
from fsplaplace.laplace._mode import posterior_mode
from fsplaplace.laplace._observed import Observed
from fsplaplace.laplace._problem import Places, Problem, evenly
from fsplaplace.laplace._pull_back import PulledBack
from fsplaplace.laplace._reference import Moments, Reference, divergence
from fsplaplace.operators import value
from fsplaplace.prior import moments


def verdict_of(problem: Problem, reference: Reference, loss: float, ratios: dict[str, Ratio], *, mean: str) -> Verdict:
    """The verdict from what was measured.

    Args:
        problem: the problem.
        reference: what the loss was measured against.
        loss: in nats for each new target; NaN if unknown.
        ratios: implied over stated prior variance, before normalisation.
        mean: the mean that was chosen; empty if there was no choice.
    """
    level = "good"
    if not loss < _choices.CAUTION_LOSS:
        level = "do not use" if loss >= _choices.UNUSABLE_LOSS else "caution"
    if np.isnan(loss):
        level = "good" if _holds(ratios) else "caution"
        reasons = ["it was compared with the prior's variances only" + _unseen(problem)]
    else:
        of_what = "of the latent function" if reference.exact is None else "for each new target"
        given = "" if problem.of_values else " given the same observations"
        given += ", linearised at the same function" * any(kind.tangent for kind in problem.observed)
        reasons = [f"about {loss:.2g} nats {of_what} from the exact Gaussian process with this prior{given}"]
    if level == "good":
        return Verdict(level, loss, tuple(reasons), ())
    low, high = (
        func([float(getattr(ratio, name)) for ratio in ratios.values()])
        for func, name in ((min, "smallest"), (max, "largest"))
    )
    if low < _choices.HELD_RATIOS[0] or high > _choices.HELD_RATIOS[1]:
        reasons.append(f"the network's features imply {low:.2g} to {high:.2g} times the prior variance that was stated")
    if mean == "network":
        reasons.append("the network's own mean was closer to the exact process than the refined one")
    remedies = ["use a wider network", "more context points where you predict", "a prior with longer length scales"]
    if problem.of_values and problem.num_targets <= _choices.EXACT_TARGETS:
        gain = "" if np.isnan(loss) else f", about {loss:.2g} nats better here"
        remedies.append(f"an exact Gaussian process, which {problem.data.num_rows} rows allow (method='gp'{gain})")
    return Verdict(level, loss, tuple(reasons), tuple(remedies))


def _unseen(problem: Problem) -> str:
    names = [kind.name for kind in problem.observed if not kind.stated]
    if not names:
        return ""
    return f", because the kernel cannot be taken through {', '.join(names)}"


def _holds(ratios: dict[str, Ratio]) -> bool:
    low, high = _choices.HELD_RATIOS
    return all(low <= float(ratio.smallest) and float(ratio.largest) <= high for ratio in ratios.values())


def gaussian_loss(reference: Reference, mean: Float[np.ndarray, "k q"], variance: Float[np.ndarray, "k q"]) -> float:
    """Forward divergence from the exact process for a new target, at the judged points or at the witnesses, where it is larger.

    Args:
        reference: has the exact process.
        mean: of the posterior at the judged points and then at the witnesses.
        variance: of the posterior's function there.
    """
    exact, noise = reference.exact, reference.noise
    assert exact is not None
    size = reference.covariance.shape[0]
    found = Moments(mean.ravel(), variance.ravel())
    function = Moments(exact.mean, exact.variance - noise)
    parts = (slice(None, size), slice(size, None))
    return max(
        divergence(Moments(*(each[part] for each in function)), Moments(*(each[part] for each in found)), noise).forward
        for part in parts
        if exact.mean[part].size
    )


def latent_loss(
    problem: Problem, observed: tuple[Observed, ...], places: Places, reference: Reference, pulled: PulledBack
) -> float:
    """The same for other likelihoods: of the latent function, both processes conditioned on a few of the data.

    The exact process is the linear model whose features are the Cholesky factor of the prior's covariance, so that one
    Newton iteration serves both. Time cubic in some hundred points. NaN if the kernel cannot be taken through an operator.
    """
    if not all(kind.stated for kind in observed):
        return math.nan
    few = (
        _few_values(problem, places, reference, pulled)
        if problem.of_values
        else _few(problem, observed, reference, pulled)
    )
    stated = np.diagonal(few.covariance)
    exact = np.linalg.cholesky(few.covariance + np.diag(_choices.LATENT_JITTER * stated))
    features, unexplained = normalise(few.features, stated)
    count, found = few.count, []
    for columns, missed in ((exact, np.zeros_like(stated)), (features, unexplained)):
        blocks, start = [], count
        for block in few.blocks:
            stop = start + block.offset.size
            shaped = columns[start:stop].reshape(*block.offset.shape, -1)
            blocks.append(dataclasses.replace(block, features=shaped))
            start = stop
        mode = posterior_mode(lambda blocks=blocks: iter(blocks), columns.shape[1])
        flat = columns[:count]
        carried = np.sum(flat * np.linalg.solve(mode.precision, flat.T).T, axis=1)
        prior_carried = np.sum(flat**2, axis=1)
        told = np.divide(carried, prior_carried, out=np.ones_like(carried), where=prior_carried > 0)
        found.append(Moments(flat @ mode.z, carried + told * missed[:count]))
    scale = _choices.LATENT_NOISE * float(np.mean(stated[:count]))
    return divergence(found[0], found[1], scale).forward


class _Few(NamedTuple):
    """A few judged points and a few of the data.

    Attributes:
        count: numbers at the judged points, which come first.
        covariance: the prior's, of the function there and of what was observed.
        features: of the network, of the same.
        blocks: the data, kind by kind; their features are those above.
    """

    count: int
    covariance: Float[np.ndarray, "K K"]
    features: Float[np.ndarray, "K r"]
    blocks: list[Block]


def _few_values(problem: Problem, places: Places, reference: Reference, pulled: PulledBack) -> _Few:
    """Where values are all there is: of points whose features are known already."""
    q, most = problem.prior.num_outputs, max(1, _choices.LATENT_TARGETS // problem.prior.num_outputs)
    rows, judged = evenly(np.arange(len(places.training)), most), evenly(reference.judged, most)
    training, guards = places.slice("training"), places.slice("guard")
    where = np.concatenate([guards.start + judged, training.start + rows])
    inputs, there, count = places.stacked[where], pulled.seen.rows(where), len(judged)
    # A likelihood with a part for each row of the data: the places are some of them.
    index = evenly(np.arange(problem.data.num_rows), _choices.MOST_POINTS)[rows]
    likelihood, offset = problem.likelihood.rows(index), moments.mean(problem.prior, inputs[count:])
    block = Block(there.outputs[count:], offset, there.features[count:], places.targets[rows], likelihood, None)
    return _Few(count * q, moments.covariance(problem.prior, inputs), _flat(there.features), [block])


def _few(problem: Problem, observed: tuple[Observed, ...], reference: Reference, pulled: PulledBack) -> _Few:
    """In general: each kind seen through its operator."""
    q = problem.prior.num_outputs
    judged = evenly(reference.points, max(1, _choices.LATENT_TARGETS // q))
    parts, blocks = [(value, judged)], []
    features = [view(problem.model, judged, pulled.directions, budget=problem.budget).features]
    for kind in observed:
        most = max(1, _choices.LATENT_TARGETS // (kind.num_outputs * len(observed)))
        rows = evenly(np.arange(kind.data.num_rows), most)
        part = kind.data.take(rows)
        there = view(kind.model, part.inputs, pulled.directions, budget=problem.budget)
        likelihood, targets = kind.likelihood.rows(rows), np.asarray(part.targets)
        blocks.append(Block(there.outputs, kind.mean(part.inputs), there.features, targets, likelihood, None))
        parts.append((kind.operator, part.inputs))
        features.append(there.features)
    covariance = moments.covariance_of(problem.prior, parts)
    return _Few(judged.shape[0] * q, covariance, np.concatenate([_flat(each) for each in features]), blocks)


def _flat(features: Float[np.ndarray, "n q r"]) -> Float[np.ndarray, "nq r"]:
    return features.reshape(-1, features.shape[2])


def variance_at(
    features: Float[np.ndarray, "k q r"],
    unexplained: Float[np.ndarray, "k q"],
    precision: Float[np.ndarray, "r r"],
    missed: Treatment,
) -> Float[np.ndarray, "k q"]:
    """Posterior variance of the function from normalised features: what `Posterior.predict` computes."""
    flat = features.reshape(-1, features.shape[2])
    carried = np.sum(flat * np.linalg.solve(precision, flat.T).T, axis=1).reshape(unexplained.shape)
    if missed == "noise":
        return carried + unexplained
    stated = np.sum(features**2, axis=2)
    return carried + unexplained * np.divide(carried, stated, out=np.ones_like(stated), where=stated > 0)
