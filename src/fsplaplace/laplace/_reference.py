"""What the prior and the exact Gaussian process say at points off the context set: the judges of every choice made."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import solve_triangular

from fsplaplace.host import to_device, to_double
from fsplaplace.laplace import _mode as _glm
from fsplaplace.laplace._data import Rows
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.prior import Prior
from fsplaplace.prior import moments as _prior_moments

# Targets up to which the exact Gaussian process is cheap, and how many of them stand for more.
_MOST_TARGETS, _FEWER_TARGETS = 2000, 1000
# Targets that the exact process is conditioned on to compare ridges: a small problem of the same kind.
_SAMPLE_TARGETS = 300
MEAN_JITTER = 1e-4


class Moments(NamedTuple):
    """Mean and variance of a process at some points, flattened over points and outputs."""

    mean: Float[np.ndarray, " gq"]
    variance: Float[np.ndarray, " gq"]


class Divergence(NamedTuple):
    """Mean Kullback-Leibler divergences for a new target: from the exact process, which is what its log predictive density
    loses, and the mean of both directions, to which spikes between context points are as wrong as false confidence."""

    forward: float
    symmetric: float


class Sample(NamedTuple):
    """Some of the data, and the exact Gaussian process conditioned on them at the judges and at their own inputs."""

    inputs: Float[np.ndarray, "s ..."]
    targets: Float[np.ndarray, " sq"]
    noise: Float[np.ndarray, " sq"]
    prior_variance: Float[np.ndarray, " sq"]
    exact: Moments


class Judges(NamedTuple):
    """Points and the prior's covariance there; where the likelihood is Gaussian, the exact process for new targets given the
    data (or many of them) at the points and at some of the context, and a sample of the data."""

    points: Float[Array, "g ..."]
    covariance: Float[np.ndarray, "gq gq"]
    exact: Moments | None
    sample: Sample | None

    @property
    def inputs(self) -> Float[np.ndarray, "g+s ..."]:
        """The points and the inputs of the sample: where `divergence` needs outputs and features."""
        return np.concatenate([self.points] if self.sample is None else [self.points, self.sample.inputs])

    def covariance_error(self, features: Float[np.ndarray, "gq r"]) -> float:
        """How far the covariance implied by the features is from the prior's."""
        return float(np.linalg.norm(features @ features.T - self.covariance))

    def divergence(
        self, offsets: Float[np.ndarray, " k"], features: Float[np.ndarray, "k r"], *, missed_as_noise: bool
    ) -> Divergence:
        r"""Divergence between the exact process and the model $o + \Phi z$, both conditioned on the
        sample, for a new target at each point and at each input of the sample. Time $O(k r^2)$.

        With `missed_as_noise` prior variance that the features miss is noise, of the sample and of new targets."""
        sample = self.sample
        assert sample is not None
        size = self.covariance.shape[0]
        seen = features[size:]
        noise, missed = sample.noise, np.zeros(features.shape[0])
        if missed_as_noise:
            stated = np.concatenate([np.diagonal(self.covariance), sample.prior_variance])
            missed = np.maximum(stated - np.sum(features**2, axis=1), 0.0)
            noise = noise + missed[size:]
        weighted = seen / noise[:, None]
        lower = np.linalg.cholesky(np.eye(features.shape[1]) + weighted.T @ seen)
        whitened = solve_triangular(lower, features.T, lower=True, check_finite=False)
        residual = solve_triangular(lower, weighted.T @ (sample.targets - offsets[size:]), lower=True)
        moments = Moments(offsets + residual @ whitened, np.sum(whitened**2, axis=0) + missed)
        return _divergence(sample.exact, moments, _typical(sample.noise))


def _divergence(exact: Moments, approximate: Moments, noise: float) -> Divergence:
    wanted, given = exact.variance + noise, approximate.variance + noise
    squared = (exact.mean - approximate.mean) ** 2
    forward = np.mean((squared + wanted) / given - 1 + np.log(given / wanted))
    backward = np.mean((squared + given) / wanted - 1 + np.log(wanted / given))
    return Divergence(0.5 * float(forward), 0.25 * float(forward + backward))


def _typical(noise: Float[np.ndarray, " sq"]) -> float:
    """The harmonic mean: rows that say nothing have no part in it."""
    return 1.0 / float(np.mean(1.0 / noise))


def judges_at(
    prior: Prior, likelihood: Likelihood, data: Rows, points: Float[Array, "g ..."], context: Float[np.ndarray, "c ..."]
) -> Judges:
    """The judges at these points, and of the means also at some points of the context. Time cubic in the number of targets,
    of which at most 2,000 are used, or 1,000 evenly spaced ones."""
    if not isinstance(likelihood, Gaussian):
        return Judges(points, _prior_moments.covariance(prior, points), None, None)
    n, q = data.num_rows, prior.num_outputs
    rows = _evenly(np.arange(n), num_targets(n, q) // q)
    few = _evenly(rows, _SAMPLE_TARGETS // q)
    inputs, targets = data.take(rows)
    everywhere = np.concatenate([points, context, inputs])
    mean, covariance = _prior_moments.mean(prior, everywhere).ravel(), _prior_moments.covariance(prior, everywhere)
    scale = np.asarray(likelihood.scale, dtype=np.float64)
    noise = np.broadcast_to(scale**2, (n, q))[rows].ravel()
    observed = np.asarray(targets, dtype=np.float64).ravel()
    size, before = points.shape[0] * q, (points.shape[0] + context.shape[0]) * q
    kept = np.flatnonzero(np.isin(rows, few).repeat(q))
    exact = _condition(mean, covariance, before, kept, observed[kept], noise[kept])
    function = exact
    if few.size < rows.size:
        function = _condition(mean, covariance, before, np.arange(observed.size), observed, noise)
    given_all = Moments(function.mean[:before], function.variance[:before] + _typical(noise))
    shown = np.concatenate([np.arange(size), before + kept])
    sample = Sample(
        inputs=inputs[np.isin(rows, few)],
        targets=observed[kept],
        noise=noise[kept],
        prior_variance=np.diagonal(covariance)[before + kept],
        exact=Moments(exact.mean[shown], exact.variance[shown]),
    )
    return Judges(points, covariance[:size, :size], given_all, sample)


def num_targets(num_rows: int, num_outputs: int) -> int:
    """How many targets the exact process is given: all where that is cheap."""
    count = num_rows * num_outputs
    return count if count <= _MOST_TARGETS else max(_FEWER_TARGETS // num_outputs, 1) * num_outputs


def _evenly(rows: Int[np.ndarray, " n"], most: int) -> Int[np.ndarray, " k"]:
    return rows[:: -(-rows.size // max(1, most))]


def _condition(mean, covariance, size: int, rows: Int[np.ndarray, " k"], observed, noise) -> Moments:
    """The process given the targets in these rows, which come after `size` others, at all points."""
    at = size + rows
    cross = covariance[:, at]
    gain = np.linalg.solve(covariance[np.ix_(at, at)] + np.diag(noise), cross.T)
    variance = np.diagonal(covariance) - np.sum(cross * gain.T, axis=1)
    return Moments(mean + (observed - mean[at]) @ gain, np.maximum(variance, 0.0))


def score_means(
    prior: Prior, judges: Judges, means: dict[str, Float[np.ndarray, "g+c q"]], mode: _glm.Mode
) -> tuple[str, dict[str, float]]:
    """A score of the "network" and the "refined" mean at the judges and then at the context, the lower the better, and what it
    is.

    The root-mean-square distance to the exact Gaussian process, which both approximate, in standard deviations of a
    new target, where there is one; else the training objective with its norm taken at the judges. Points between others may be
    where no input can be (features on a circle): there both means are wrong, and the context decides.
    """
    if (exact := judges.exact) is not None:
        scores = {
            name: float(np.sqrt(np.mean((values.ravel() - exact.mean) ** 2 / exact.variance)))
            for name, values in means.items()
        }
        return "distance to the exact GP", scores
    with jax.enable_x64(True):
        values = to_device(np.stack([means[name][: judges.points.shape[0]] for name in ("network", "refined")]))
        norms = np.asarray(_half_squared_norms(*to_double((prior, judges.points)), values))
    losses = np.array([mode.network_loss, mode.value - 0.5 * mode.z @ mode.z])
    scores = np.nan_to_num(norms + losses, nan=np.inf).tolist()
    return "training objective", {"network": scores[0], "refined": scores[1]}


@eqx.filter_jit
def _half_squared_norms(prior: Prior, points, means: Float[Array, "k g q"]):
    residual = means - prior.mean_at(points)
    return 0.5 * jax.vmap(lambda values: prior.squared_norm(points, values, jitter=MEAN_JITTER))(residual)
