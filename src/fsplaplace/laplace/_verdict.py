"""One verdict on a posterior: how much worse than the exact process it is, why, and what to do."""

import numpy as np
from jaxtyping import Float

from fsplaplace.laplace import _choices
from fsplaplace.laplace._choices import Treatment
from fsplaplace.laplace._diagnostics import Ratio, Verdict
from fsplaplace.laplace._features import Block, View, normalise
from fsplaplace.laplace._mode import posterior_mode
from fsplaplace.laplace._problem import Places, Problem, evenly
from fsplaplace.laplace._reference import Moments, Reference, divergence
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
        reasons = ["it was compared with the prior's variances only"]
    else:
        of_what = "of the latent function" if reference.exact is None else "for each new target"
        reasons = [f"about {loss:.2g} nats {of_what} from the exact Gaussian process with this prior"]
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
    targets = problem.data.num_rows * problem.prior.num_outputs
    if targets <= _choices.EXACT_TARGETS:
        gain = "" if np.isnan(loss) else f", about {loss:.2g} nats better here"
        remedies.append(f"an exact Gaussian process, which {problem.data.num_rows} rows allow (method='gp'{gain})")
    return Verdict(level, loss, tuple(reasons), tuple(remedies))


def _holds(ratios: dict[str, Ratio]) -> bool:
    low, high = _choices.HELD_RATIOS
    return all(low <= float(ratio.smallest) and float(ratio.largest) <= high for ratio in ratios.values())


def gaussian_loss(
    reference: Reference, mean: Float[np.ndarray, "k q"], variance: Float[np.ndarray, "k q"], noise: float
) -> float:
    """Forward divergence from the exact process for a new target, at the judged points or at the witnesses, where it is larger.

    Args:
        reference: has the exact process.
        mean: of the posterior at the judged points and then at the witnesses.
        variance: of the posterior's function there.
        noise: variance of the noise.
    """
    exact = reference.exact
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


def latent_loss(problem: Problem, places: Places, reference: Reference, seen: View) -> float:
    """The same for other likelihoods: of the latent function, both processes conditioned on a few of the data.

    The exact process is the linear model whose features are the Cholesky factor of the prior's covariance, so that one
    Newton iteration serves both. Time cubic in some hundred points.
    """
    q, most = problem.prior.num_outputs, max(1, _choices.LATENT_TARGETS // problem.prior.num_outputs)
    rows, judged = evenly(np.arange(len(places.training)), most), evenly(reference.judged, most)
    training, guards = places.slice("training"), places.slice("guard")
    where = np.concatenate([guards.start + judged, training.start + rows])
    inputs, there = places.stacked[where], seen.rows(where)
    likelihood = problem.likelihood
    if likelihood.rows(slice(0, 1)) is not likelihood:
        # A likelihood with a part for each row of the data: the places are some of them.
        index = evenly(np.arange(problem.data.num_rows), _choices.MOST_POINTS)[rows]
        likelihood = likelihood.rows(index)
    covariance = moments.covariance(problem.prior, inputs)
    jitter = _choices.LATENT_JITTER * np.mean(np.diagonal(covariance))
    exact = np.linalg.cholesky(covariance + jitter * np.eye(len(covariance))).reshape(len(where), q, -1)
    stated = np.diagonal(covariance).reshape(len(where), q)
    features, unexplained = normalise(there.features, stated)
    offset, count, found = moments.mean(problem.prior, inputs), len(judged), []
    for columns, missed in ((exact, np.zeros_like(stated)), (features, unexplained)):
        block = Block(there.outputs[count:], offset[count:], columns[count:], places.targets[rows], likelihood, None)
        mode = posterior_mode(lambda block=block: iter([block]), columns.shape[2])
        flat = columns[:count].reshape(count * q, -1)
        carried = np.sum(flat * np.linalg.solve(mode.precision, flat.T).T, axis=1)
        prior_carried = np.sum(flat**2, axis=1)
        told = np.divide(carried, prior_carried, out=np.ones_like(carried), where=prior_carried > 0)
        found.append(Moments(flat @ mode.z, carried + told * missed[:count].ravel()))
    scale = _choices.LATENT_NOISE * float(np.mean(stated))
    return divergence(found[0], found[1], scale).forward


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
