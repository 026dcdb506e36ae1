"""The log marginal likelihood of a Gaussian process, differentiable, for use inside compiled programs."""

import math

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from fsplaplace.arguments import checked
from fsplaplace.prior import Prior
from fsplaplace.tuning._profile import NUGGET


@checked(traceable=True)
def log_marginal_likelihood(
    prior: Prior, noise_variance: Float[Array, "..."] | float, X: Float[Array, "n d"], y: Float[Array, "n q"]
) -> Float[Array, ""]:
    r"""$\log \mathcal N(y;\, \mu(X),\, \Sigma(X, X) + \mathrm{diag}\,\sigma^2)$.

    Args:
        prior: shared, separate or multi-output kernel.
        noise_variance: $\sigma^2$: a number, (q,), (n, 1) or (n, q).
        X: inputs, in the dtype to compute in; float64 is advised.
        y: targets, in the same dtype.

    Time $O(n^3)$ per distinct block of the covariance (with a multi-output kernel $O((nq)^3)$), memory its square;
    differentiable once, at the cost of one inverse.
    """
    covariance, residual = _blocks(prior, noise_variance, X, y - prior.mean_at(X))
    return _log_density(covariance, residual)


def _blocks(prior: Prior, noise_variance, X, residual):
    """Independent Gaussians: covariances (b, N, N) and their residuals (b, N, c)."""
    # Outputs share a block only if they share the noise, too.
    shared = jnp.ndim(noise_variance) == 0 or jnp.shape(noise_variance)[1:] == (1,)
    blocks = prior.blocks if shared else prior.blocks.separated()
    gram = blocks.gram(X, X)
    noise = jnp.broadcast_to(noise_variance, residual.shape).astype(gram.dtype)
    noise = blocks.to_blocks(noise[:, :, None])[:, :, 0]
    diagonal = jnp.diagonal(gram, axis1=1, axis2=2)
    noise = noise + NUGGET * jnp.mean(diagonal, axis=1, keepdims=True)
    return gram + jax.vmap(jnp.diag)(noise), blocks.to_blocks(residual[:, :, None])


@jax.custom_vjp
def _log_density(covariance, residual):
    return _forward(covariance, residual)[0]


def _forward(covariance, residual):
    lower = jnp.linalg.cholesky(covariance)
    white = jax.vmap(lambda factor, right: jsl.solve_triangular(factor, right, lower=True))(lower, residual)
    log_determinant = 2 * residual.shape[2] * jnp.sum(jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)))
    value = -0.5 * (jnp.sum(white**2) + log_determinant + residual.size * math.log(2 * math.pi))
    return value, (lower, white)


def _backward(saved, cotangent):
    lower, white = saved
    identity = jnp.eye(lower.shape[1], dtype=lower.dtype)
    inverse = jax.vmap(lambda factor: jsl.cho_solve((factor, True), identity))(lower)
    weights = jax.vmap(lambda factor, right: jsl.solve_triangular(factor, right, lower=True, trans=1))(lower, white)
    slope = 0.5 * (jnp.einsum("bnc,bmc->bnm", weights, weights) - white.shape[2] * inverse)
    return cotangent * slope, -cotangent * weights


_log_density.defvjp(_forward, _backward)
