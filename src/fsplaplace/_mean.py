"""Which mean is better: the network's own output, or the mode of the linearised model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace import _glm
from fsplaplace._model import Model
from fsplaplace._precision import to_double
from fsplaplace._prior import Prior
from fsplaplace.likelihoods import Gaussian, Likelihood

# Targets up to which the exact Gaussian process costs less than the posterior itself.
_MOST_TARGETS = 1000
MEAN_JITTER = 1e-4


def score_means(
    model: Model, prior: Prior, likelihood: Likelihood, X, targets, blocks: _glm.Blocks, mode: _glm.Mode,
    guards: Float[Array, "g ..."], shift: Float[np.ndarray, "g q"],
) -> tuple[str, dict[str, float]]:  # fmt: skip
    """A score of each mean at points off the context set, the lower the better, and what it is.

    With a Gaussian likelihood and few data it is the root-mean-square distance to the exact Gaussian process, which both
    means approximate; else the training objective with its norm taken at the guard points.
    """
    network = np.asarray(model(guards), dtype=np.float64)
    means = {"network": network, "refined": network + np.asarray(shift, dtype=np.float64)}
    if isinstance(likelihood, Gaussian) and targets.size <= _MOST_TARGETS:
        with jax.enable_x64(True):
            exact = np.asarray(_exact_mean(*to_double((prior, likelihood, X, targets, guards))))
        return "distance to the exact GP", {
            name: float(np.sqrt(np.mean((values - exact) ** 2))) for name, values in means.items()
        }
    with jax.enable_x64(True):
        stacked = jnp.asarray(np.stack(list(means.values())))
        norms = np.asarray(_half_squared_norms(*to_double((prior, guards)), stacked))
        network_loss = _glm.objective(_glm.at_network(blocks), np.zeros_like(mode.z))
    losses = np.array([network_loss, mode.value - 0.5 * mode.z @ mode.z])
    values = np.nan_to_num(norms + losses, nan=np.inf)
    return "training objective", dict(zip(means, values.tolist(), strict=True))


@eqx.filter_jit
def _exact_mean(prior: Prior, likelihood: Gaussian, X, targets, x) -> Float[Array, "g q"]:
    """The posterior mean of the Gaussian process itself. Time cubic in the number of targets."""
    size = targets.size
    noise = jnp.broadcast_to(likelihood.scale**2, targets.shape).ravel()
    covariance = prior.covariance(X, X).reshape(size, size) + jnp.diag(noise)
    weights = jnp.linalg.solve(covariance, (targets - prior.mean_at(X)).ravel())
    return prior.mean_at(x) + (prior.covariance(x, X).reshape(-1, size) @ weights).reshape(x.shape[0], -1)


@eqx.filter_jit
def _half_squared_norms(prior: Prior, guards, means: Float[Array, "k g q"]):
    residual = means - prior.mean_at(guards)
    return 0.5 * jax.vmap(lambda values: prior.squared_norm(guards, values, jitter=MEAN_JITTER))(residual)
