"""What the prior and the data say at points off the context set, and which mean comes closer to it there."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from fsplaplace import _glm
from fsplaplace._precision import to_device, to_double
from fsplaplace._prior import Prior
from fsplaplace.likelihoods import Gaussian, Likelihood

# Targets up to which the exact Gaussian process costs less than the posterior itself.
_MOST_TARGETS = 1000
MEAN_JITTER = 1e-4


class Reference(NamedTuple):
    """Points, the prior's covariance there, and the mean of the exact Gaussian process where it is cheap to have."""

    points: Float[Array, "g ..."]
    covariance: Float[np.ndarray, "gq gq"]
    exact_mean: Float[np.ndarray, "g q"] | None


def reference_at(prior: Prior, likelihood: Likelihood, X, targets, points: Float[Array, "g ..."]) -> Reference:
    """The reference at these points. Time cubic in the number of targets, with the exact mean up to 1,000 of them."""
    exact = isinstance(likelihood, Gaussian) and targets.size <= _MOST_TARGETS
    inputs = np.concatenate([points, X]) if exact else np.asarray(points)
    with jax.enable_x64(True):
        mean, covariance = map(np.asarray, _moments(to_double(prior), to_device(inputs, np.float64)))
    size = points.shape[0] * prior.num_outputs
    here = covariance[:size, :size]
    if not (exact and isinstance(likelihood, Gaussian)):
        return Reference(points, here, None)
    noise = np.broadcast_to(np.asarray(likelihood.scale, dtype=np.float64) ** 2, targets.shape).ravel()
    residual = np.asarray(targets, dtype=np.float64) - mean[points.shape[0] :]
    weights = np.linalg.solve(covariance[size:, size:] + np.diag(noise), residual.ravel())
    shift = (covariance[:size, size:] @ weights).reshape(points.shape[0], -1)
    return Reference(points, here, mean[: points.shape[0]] + shift)


def score_means(
    prior: Prior, reference: Reference, means: dict[str, Float[np.ndarray, "g q"]], blocks: _glm.Blocks, mode: _glm.Mode
) -> tuple[str, dict[str, float]]:
    """A score of the "network" and the "refined" mean, the lower the better, and what it is.

    The root-mean-square distance to the exact Gaussian process, which both approximate, where there is one; else the
    training objective with its norm taken at the reference points.
    """
    if (exact := reference.exact_mean) is not None:
        scores = {name: float(np.sqrt(np.mean((values - exact) ** 2))) for name, values in means.items()}
        return "distance to the exact GP", scores
    with jax.enable_x64(True):
        values = to_device(np.stack([means["network"], means["refined"]]))
        norms = np.asarray(_half_squared_norms(*to_double((prior, reference.points)), values))
    network_loss = _glm.objective(_glm.at_network(blocks), np.zeros_like(mode.z))
    losses = np.array([network_loss, mode.value - 0.5 * mode.z @ mode.z])
    scores = np.nan_to_num(norms + losses, nan=np.inf).tolist()
    return "training objective", {"network": scores[0], "refined": scores[1]}


@eqx.filter_jit
def _moments(prior: Prior, x):
    size = x.shape[0] * prior.num_outputs
    return prior.mean_at(x), prior.covariance(x, x).reshape(size, size)


@eqx.filter_jit
def _half_squared_norms(prior: Prior, points, means: Float[Array, "k g q"]):
    residual = means - prior.mean_at(points)
    return 0.5 * jax.vmap(lambda values: prior.squared_norm(points, values, jitter=MEAN_JITTER))(residual)
