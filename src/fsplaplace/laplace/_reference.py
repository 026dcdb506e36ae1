"""The reference that every choice is judged by: the prior, and the exact Gaussian process, off the context set."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular

from fsplaplace.host import scattered, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._choices import Treatment
from fsplaplace.laplace._exact_process import Given, Moments, joint_with, near_data, shares, typical
from fsplaplace.laplace._features import Normalised, normalise
from fsplaplace.laplace._observed import Observed
from fsplaplace.laplace._problem import Places, Problem, evenly
from fsplaplace.prior import moments


class Divergence(NamedTuple):
    """Mean Kullback-Leibler divergence for a new target.

    Attributes:
        forward: from the exact process: what the log predictive density loses.
        symmetric: the mean of both directions, for which spikes between context points are as wrong as false confidence.
    """

    forward: float
    symmetric: float


class Extremes(NamedTuple):
    """How far a process is from the exact one at the single inputs where it is farthest, over points and outputs.

    Attributes:
        smallest: standard deviation of a new target over the exact process's.
        largest: the same.
        apart: distance of the means, in the exact process's standard deviations of a new target.
    """

    smallest: float
    largest: float
    apart: float


class SamplePart(NamedTuple):
    """Some rows of one kind.

    Attributes:
        kind: what was observed.
        inputs: where.
    """

    kind: Observed
    inputs: Float[np.ndarray, "s ..."]


class Sample(NamedTuple):
    """Some of the data, and the exact process conditioned on them.

    Attributes:
        parts: their inputs, kind by kind.
        targets: their targets, flattened.
        noise: the variance of their noise.
        exact: the process given them: the function at the judged guard points, and then what was observed at the inputs.
        stated: the prior, of the same.
        new_noise: variance of the noise of a new target, for each of the same.
    """

    parts: tuple[SamplePart, ...]
    targets: Float[np.ndarray, " sq"]
    noise: Float[np.ndarray, " sq"]
    exact: Moments
    stated: Moments
    new_noise: Float[np.ndarray, " kq"]


class Reference(NamedTuple):
    """What the prior and the exact process say at guard points and at some of the context.

    Attributes:
        judged: which points of the place "guard" choices are judged at.
        witnesses: which points of the place "context" the two means are compared at as well.
        points: the judged guard points.
        covariance: the prior's, at those points, (gq, gq).
        exact: the process for new values given the data (or 1,000 of many targets), at the judged points and then at the
            witnesses; None unless all noise is Gaussian and the kernel can be taken through all operators.
        sample: a small problem of the same kind, on which ridges are compared; None with `exact`.
        noise: variance of the noise of new values, for each output.
        complete: whether the exact process was given all data.
        new: the process for the function at the place "new", given all data; of many values, those nearby. None with `exact`,
            and for many observations through operators.
    """

    judged: Int[np.ndarray, " g"]
    witnesses: Int[np.ndarray, " c"]
    points: Float[np.ndarray, "g ..."]
    covariance: Float[np.ndarray, "gq gq"]
    exact: Moments | None
    sample: Sample | None
    noise: Float[np.ndarray, " q"]
    complete: bool
    new: Moments | None

    @property
    def at_guards(self) -> Moments | None:
        """The exact process for the function at the judged points."""
        if self.exact is None:
            return None
        at, q = self.exact.first(len(self.covariance)), self.noise.size
        return Moments(at.mean, at.variance - np.tile(self.noise, at.mean.size // q))

    @property
    def sample_parts(self) -> tuple[SamplePart, ...]:
        """The rows of the sample, kind by kind: where `divergence` needs features besides the judged points."""
        return () if self.sample is None else self.sample.parts

    def compared_rows(self, places: Places) -> Int[np.ndarray, " k"]:
        """Where the judged points and then the witnesses are among the stacked points of all places."""
        guards, context = places.slice("guard"), places.slice("context")
        return np.concatenate([guards.start + self.judged, context.start + self.witnesses])

    def covariance_error(self, features: Float[np.ndarray, "gq r"]) -> float:
        """How far the covariance implied by features at the judged points is from the prior's, in the Frobenius norm."""
        return self._error(normalise(features, np.diagonal(self.covariance)).features)

    def divergence(self, features: Float[np.ndarray, "kq r"], missed: Treatment) -> Divergence:
        r"""Divergence between the exact process and the model $\mu + a \Phi z$, both conditioned on the sample, for a new
        target at each judged point and at each input of the sample. Time $O(k r^2)$.

        Args:
            features: $\Phi$ at the judged points and then of the `sample_parts`, as pulled back.
            missed: how prior variance that they miss is treated.
        """
        assert self.sample is not None
        return _divergence_on(self.sample, normalise(features, self.sample.stated.variance), missed)

    def best_treatment(self, features: Float[np.ndarray, "kq r"], treatments: tuple[Treatment, ...]) -> Treatment:
        """How missed variance is treated: what loses less log predictive density, or the first if nobody can say.

        Args:
            features: at the judged points and then of the `sample_parts`, as pulled back.
            treatments: to choose from.
        """
        if len(treatments) == 1 or self.sample is None:
            return treatments[0]
        normalised = normalise(features, self.sample.stated.variance)
        losses = [_divergence_on(self.sample, normalised, each).forward for each in treatments]
        return treatments[int(np.argmin(losses))]

    def best_ridge(
        self, candidates: Float[np.ndarray, "c kq r"], treatments: tuple[Treatment, ...], *, small: int = 0
    ) -> int:
        """The position of the candidate whose covariance is closest to the prior's, of those which diverge about as little
        as any from the exact process if there is one.

        Args:
            candidates: features at the judged points and then of the `sample_parts`, for each ridge in rising order.
            treatments: of missed variance; each candidate has the better of them.
            small: how many of the first ridges are taken only where features hold the prior, or diverge far less with them.
        """
        size, sample = self.covariance.shape[0], self.sample
        stated = np.diagonal(self.covariance) if sample is None else sample.stated.variance
        normalised = [Normalised(*each) for each in zip(*normalise(candidates, stated), strict=True)]
        errors = [self._error(each.features[:size]) for each in normalised]
        if sample is None:
            return small + int(np.argmin(errors[small:]))
        found = [[_divergence_on(sample, each, missed) for missed in treatments] for each in normalised]
        divergences = [min(each).symmetric for each in found]
        enough = max(_choices.HELD_DIVERGENCE, min(divergences[small:]) - _choices.WORTH_ROUNDING)
        held = [each <= enough for each in divergences[:small]]
        return closest_of_best(
            [each if holds else math.inf for each, holds in zip(divergences, held + [True] * len(found), strict=False)],
            errors,
        )

    def _error(self, features: Float[np.ndarray, "gq r"]) -> float:
        return float(np.linalg.norm(features @ features.T - self.covariance))


def reference_at(problem: Problem, places: Places, observed: tuple[Observed, ...] | None = None) -> Reference:
    """The reference at guard points and some of the context. Time cubic in the number of targets, of which at most 2,000
    are used, or 1,000 scattered ones.

    Args:
        problem: the problem.
        places: where the guard points and the context are.
        observed: the kinds of observations; those of the problem by default.
    """
    prior, kinds = problem.prior, problem.observed if observed is None else observed
    q = prior.num_outputs
    judged = evenly(np.arange(len(places.guard)), _choices.MOST_JUDGED_ROWS // q)
    witnesses = evenly(np.arange(len(places.context)), _choices.MOST_WITNESS_ROWS // q)
    points = places.guard[judged]
    if not all(kind.noise is not None and kind.stated for kind in kinds):
        covariance = moments.covariance(prior, points)
        return Reference(judged, witnesses, points, covariance, None, None, np.full(q, math.nan), False, None)
    given = [Given.of(kind, share) for kind, share in zip(kinds, shares(kinds), strict=True)]
    where = np.concatenate([points, places.context[witnesses], places.new])
    stated = joint_with(problem, where, given)
    size, compared = points.shape[0] * q, (points.shape[0] + witnesses.size) * q
    before = where.shape[0] * q
    targets, noise = (
        np.concatenate(each) for each in zip(*((part.targets, part.noise) for part in given), strict=True)
    )
    # The few rows that ridges are compared on, and where each of their targets is.
    few = [scattered(len(part.inputs), each) for part, each in zip(given, shares(kinds, few=True), strict=True)]
    starts = np.cumsum([0, *(part.targets.size for part in given)])
    kept = np.concatenate([start + part.positions(rows) for part, start, rows in zip(given, starts, few, strict=False)])
    exact = stated.given(before + kept, targets[kept], noise[kept])
    everything = kept.size == targets.size
    function = exact if everything else stated.given(before + np.arange(targets.size), targets, noise)
    shown = np.concatenate([np.arange(size), before + kept])
    of_new = _noise_of_values(problem, given)
    usual = [
        np.tile(typical(part.noise.reshape(-1, part.width)), rows.size) for part, rows in zip(given, few, strict=True)
    ]
    complete, new = all(len(part.inputs) == part.kind.data.num_rows for part in given), None
    if complete:
        new = Moments(function.mean[compared:before], function.variance[compared:before])
    elif problem.of_values:
        new = near_data(problem, places.new)
    return Reference(
        judged=judged,
        witnesses=witnesses,
        points=points,
        covariance=stated.covariance[:size, :size],
        exact=Moments(function.mean[:compared], function.variance[:compared] + np.tile(of_new, compared // q)),
        sample=Sample(
            parts=tuple(SamplePart(part.kind, part.inputs[rows]) for part, rows in zip(given, few, strict=True)),
            targets=targets[kept],
            noise=noise[kept],
            exact=Moments(exact.mean[shown], exact.variance[shown]),
            stated=Moments(stated.mean[shown], np.diagonal(stated.covariance)[shown]),
            new_noise=np.concatenate([np.tile(of_new, size // q), *usual]),
        ),
        noise=of_new,
        complete=complete,
        new=new,
    )


def _noise_of_values(problem: Problem, given: list[Given]) -> Float[np.ndarray, " q"]:
    """Of those observed; else of the likelihood of new values; else a share of the prior variance."""
    q = problem.prior.num_outputs
    for part in given:
        if part.kind.of_values:
            return typical(part.noise.reshape(-1, q))
    noise = problem.likelihood.noise_variance(to_device(np.zeros((1, q), np.float32)))
    if noise is not None:
        return np.broadcast_to(typical(np.asarray(noise, np.float64)), (q,))
    return _choices.LATENT_NOISE * moments.variance(problem.prior, problem.context[:1])[0]


def closest_of_best(divergences: list[float], errors: list[float]) -> int:
    """The position of the smallest error among divergences that are about as low as any."""
    rounded = np.maximum(divergences, _choices.ROUNDED_DIVERGENCE)
    as_good = rounded <= _choices.AS_GOOD * np.min(rounded)
    return int(np.argmin(np.where(as_good, errors, np.inf)))


def _divergence_on(sample: Sample, normalised: Normalised, missed: Treatment) -> Divergence:
    """`Reference.divergence` for features that are normalised already."""
    features, unexplained = normalised
    size, offset = features.shape[0] - sample.targets.size, sample.stated.mean
    seen, noise = features[size:], sample.noise
    if missed == "noise":
        noise = noise + unexplained[size:]
    root = np.sqrt(noise)
    seen, residual = seen / root[:, None], (sample.targets - offset[size:]) / root
    few = seen.shape[0] < seen.shape[1] and np.max(np.sum(seen**2, axis=1)) < _choices.MOST_TOLD
    change, variance = (_by_targets if few else _by_directions)(features, seen, residual)
    if missed == "function":
        carried = np.sum(features**2, axis=1)
        unexplained = unexplained * np.divide(variance, carried, out=np.ones_like(carried), where=carried > 0)
    found = Moments(offset + change, variance + unexplained)
    return divergence(sample.exact, found, sample.new_noise)


def _by_targets(
    features: Float[np.ndarray, "m r"], seen: Float[np.ndarray, "k r"], residual: Float[np.ndarray, " k"]
) -> Moments:
    r"""Mean and variance of $\Phi z$, $z \sim \mathcal N(0, I)$, given $G z$ with standard noise, by $I + G G^\top$. Time $O(k^2 (m + r))$."""
    lower = np.linalg.cholesky(np.eye(len(seen)) + seen @ seen.T)
    whitened = solve_triangular(lower, seen @ features.T, lower=True, check_finite=False)
    variance = np.sum(features**2, axis=1) - np.sum(whitened**2, axis=0)
    return Moments(solve_triangular(lower, residual, lower=True) @ whitened, np.maximum(variance, 0.0))


def _by_directions(
    features: Float[np.ndarray, "m r"], seen: Float[np.ndarray, "k r"], residual: Float[np.ndarray, " k"]
) -> Moments:
    r"""The same by $I + G^\top G$. Time $O(r^2 (m + r))$."""
    lower = np.linalg.cholesky(np.eye(seen.shape[1]) + seen.T @ seen)
    whitened = solve_triangular(lower, features.T, lower=True, check_finite=False)
    return Moments(solve_triangular(lower, residual @ seen, lower=True) @ whitened, np.sum(whitened**2, axis=0))


def divergence(exact: Moments, found: Moments, noise: float | Float[np.ndarray, " kq"]) -> Divergence:
    """Of two processes for a new target with noise of this variance, the mean over points."""
    wanted, given = exact.variance + noise, found.variance + noise
    squared = (exact.mean - found.mean) ** 2
    forward = np.mean((squared + wanted) / given - 1 + np.log(given / wanted))
    backward = np.mean((squared + given) / wanted - 1 + np.log(wanted / given))
    return Divergence(0.5 * float(forward), 0.25 * float(forward + backward))


def extremes(exact: Moments, found: Moments, noise: float | Float[np.ndarray, " kq"]) -> Extremes:
    """Of two processes for a new target with noise of this variance."""
    wanted = np.sqrt(exact.variance + noise)
    ratios, apart = np.sqrt(found.variance + noise) / wanted, np.abs(found.mean - exact.mean) / wanted
    return Extremes(float(np.min(ratios)), float(np.max(ratios)), float(np.max(apart)))
