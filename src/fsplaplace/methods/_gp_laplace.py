r"""Laplace's approximation of a Gaussian process with a likelihood that is not Gaussian.

In the values f of the function at the training inputs, points first, the mode satisfies $f = \mu + K a$ with
$a = \nabla \log p(y \mid f)$, and the evidence is

$$\log p(y \mid f) - \tfrac12 a^\top (f - \mu) - \tfrac12 \log\det(I + K W).$$
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.host import to_double
from fsplaplace.likelihoods import Likelihood
from fsplaplace.linalg import damped_newton
from fsplaplace.prior import Prior
from fsplaplace.tuning import Box, ParameterSpace, maximize

# How far, in log units, a parameter may move from where the labels' Gaussian approximation put it.
_REACH = np.log(30.0)


def laplace_mode(prior: Prior, likelihood: Likelihood, X: Float[Array, "n d"], targets):
    """Coefficients (1, N, 1), precision root (1, N, N) and log evidence at the mode. Time $O((nq)^3)$ per Newton step."""
    coefficients, log_evidence, curvatures, covariance = _mode(prior, likelihood, X, targets)
    n, q = curvatures.shape[:2]
    eigenvalues, eigenvectors = np.linalg.eigh(np.asarray(curvatures))
    root = np.sqrt(np.maximum(eigenvalues, 0))[:, :, None] * np.swapaxes(eigenvectors, 1, 2)
    blocks = np.asarray(covariance).reshape(n, q, n, q)
    weighted = np.einsum("nab,nbmc->namc", root, blocks)
    inner = np.einsum("namc,mdc->namd", weighted, root).reshape(n * q, n * q)
    lower = np.linalg.cholesky(np.eye(n * q) + inner)
    dense_root = np.zeros((n, q, n, q))
    dense_root[np.arange(n), :, np.arange(n), :] = root
    precision_root = np.linalg.solve(lower, dense_root.reshape(n * q, n * q))
    return np.asarray(coefficients)[None, :, None], precision_root[None], float(log_evidence)


def tune_by_laplace_evidence(prior: Prior, likelihood: Likelihood, X, targets) -> Prior:
    """The prior with the kernel parameters that maximise the Laplace evidence, from where they are."""
    space = ParameterSpace(to_double(prior))
    start = space.to_vector(space.values(prior))

    def objective(vector):
        value, gradient = _evidence(jnp.asarray(vector), space, likelihood, X, targets)
        return float(value), np.asarray(gradient)

    box = Box(start - _REACH, start + _REACH, np.ones_like(start))
    best = maximize(objective, start, box, max_steps=50)
    beta = np.concatenate([np.ravel(value) for value in space.mean_values(prior)] or [np.zeros(0)])
    return space.fitted(best.vector, beta, prior)


@eqx.filter_jit
def _evidence(vector, space: ParameterSpace, likelihood, X, targets):
    return jax.value_and_grad(lambda at: _mode(space.to_prior(at), likelihood, X, targets)[1])(vector)


@eqx.filter_jit
def _mode(prior: Prior, likelihood: Likelihood, X, targets):
    """a, the log evidence, W at the mode, and K; the evidence is differentiable in the prior."""
    q = prior.num_outputs
    size = X.shape[0] * q
    covariance = prior.covariance(X, X).reshape(size, size)
    mean = prior.mean_at(X)

    def outputs(a, covariance):
        return mean + (covariance @ a).reshape(-1, q)

    def log_posterior(a, covariance):
        log_likelihood = jnp.sum(likelihood.log_prob(outputs(a, covariance), targets))
        return log_likelihood - 0.5 * a @ covariance @ a

    def newton(f, covariance):
        slope = jax.grad(lambda values: jnp.sum(likelihood.log_prob(values, targets)))(f)
        curvatures = likelihood.curvature(f, targets)
        right = (jnp.einsum("nab,nb->na", curvatures, f - mean) + slope).ravel()
        return jnp.linalg.solve(jnp.eye(size) + _block_product(curvatures, covariance), right)

    fixed = jax.lax.stop_gradient(covariance)
    a = damped_newton(
        lambda a: -log_posterior(a, fixed), lambda a: newton(outputs(a, fixed), fixed), jnp.zeros(size, X.dtype)
    )
    # One more step, differentiated: at the mode its derivative is that of the mode itself.
    a = newton(jax.lax.stop_gradient(outputs(a, fixed)), covariance)
    curvatures = likelihood.curvature(outputs(a, covariance), targets)
    log_det = jnp.linalg.slogdet(jnp.eye(size) + _block_product(curvatures, covariance))[1]
    return a, log_posterior(a, covariance) - 0.5 * log_det, curvatures, covariance


def _block_product(curvatures: Float[Array, "n q q"], matrix: Float[Array, "N M"]) -> Float[Array, "N M"]:
    """W K for block-diagonal W."""
    n, q, _ = curvatures.shape
    return jnp.einsum("nab,nbm->nam", curvatures, matrix.reshape(n, q, -1)).reshape(n * q, -1)
