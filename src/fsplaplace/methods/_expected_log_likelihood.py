"""The expected log-likelihood under a Gaussian over outputs: the first term of every variational objective."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from fsplaplace.likelihoods import Gaussian, Likelihood

_QUADRATURE_POINTS = 20
_SAMPLE_PAIRS = 16


def expected_log_likelihood(
    likelihood: Likelihood,
    targets,
    mean: Float[Array, "n q"],
    root: Float[Array, "n q q"],
    *,
    key: PRNGKeyArray,
) -> Float[Array, " n"]:
    r"""$E \log p(y_i \mid f_i)$ with $f_i \sim \mathcal N(m_i, R_i R_i^\top)$, for each row.

    In closed form for Gaussian noise, by Gauss-Hermite quadrature for one output, else by 16 pairs of opposite draws.
    """
    if isinstance(likelihood, Gaussian):
        variance = jnp.sum(root**2, axis=2)
        precision = jnp.broadcast_to(likelihood.scale.astype(mean.dtype) ** -2, mean.shape)
        return likelihood.log_prob(mean, targets) - 0.5 * jnp.sum(variance * precision, axis=1)
    if mean.shape[1] == 1:
        points, weights = np.polynomial.hermite_e.hermegauss(_QUADRATURE_POINTS)
        outputs = mean + root[:, :, 0] * jnp.asarray(points, mean.dtype)[:, None, None]
        values = jax.vmap(lambda part: likelihood.log_prob(part, targets))(outputs)
        return jnp.asarray(weights / weights.sum(), mean.dtype) @ values
    noise = jr.normal(key, (_SAMPLE_PAIRS, *mean.shape), mean.dtype)
    moves = jnp.einsum("nqr,snr->snq", root, jnp.concatenate([noise, -noise]))
    return jnp.mean(jax.vmap(lambda move: likelihood.log_prob(mean + move, targets))(moves), axis=0)
