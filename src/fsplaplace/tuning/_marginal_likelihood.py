"""The log marginal likelihood of a Gaussian process, with the parameters of a linear mean in closed form."""

import math

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from fsplaplace.arguments import checked
from fsplaplace.prior import Prior

# Keeps the Cholesky factor real when the noise is at its smallest; far below any noise that data can show.
_NUGGET = 1e-10


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
    return profile_likelihood(prior, noise_variance, X, y, jnp.zeros((*y.shape, 0), y.dtype))[0]


def profile_likelihood(
    prior: Prior,
    noise_variance: Float[Array, "..."] | float,
    X: Float[Array, "n d"],
    y: Float[Array, "n q"],
    design: Float[Array, "n q k"],
) -> tuple[Float[Array, ""], Float[Array, " k"], Float[Array, "k k"]]:
    r"""The log marginal likelihood with mean $\mu(X) + H \beta$ at the best $\beta$ (generalised least squares).

    Returns it with $\hat\beta$ and the covariance of that estimate, $(H^\top C^{-1} H)^{-1}$. Its gradient needs no
    derivative of $\hat\beta$, because there the likelihood is flat in $\beta$.
    """
    residual = y - prior.mean_at(X)
    covariance, residual, design = _blocks(prior, noise_variance, X, residual, design)
    return _profile_log_density(covariance, residual, design)


def _blocks(prior: Prior, noise_variance, X, residual, design):
    """Independent Gaussians: covariances (b, N, N), their residuals (b, N, c) and designs (b, N, c, k)."""
    # Outputs share a block only if they share the noise, too.
    shared = jnp.ndim(noise_variance) == 0 or jnp.shape(noise_variance)[1:] == (1,)
    blocks = prior.blocks if shared else prior.blocks.separated()
    gram = blocks.gram(X, X)
    noise = jnp.broadcast_to(noise_variance, residual.shape).astype(gram.dtype)
    noise = blocks.to_blocks(noise[:, :, None])[:, :, 0]
    residual = blocks.to_blocks(residual[:, :, None])
    design = blocks.to_blocks(design).reshape(*residual.shape, design.shape[2])
    diagonal = jnp.diagonal(gram, axis1=1, axis2=2)
    noise = noise + _NUGGET * jnp.mean(diagonal, axis=1, keepdims=True)
    return gram + jax.vmap(jnp.diag)(noise), residual, design


@jax.custom_vjp
def _profile_log_density(covariance, residual, design):
    return _forward(covariance, residual, design)[0]


def _forward(covariance, residual, design):
    b, size, c = residual.shape
    lower = jnp.linalg.cholesky(covariance)
    solve = jax.vmap(lambda factor, right: jsl.solve_triangular(factor, right, lower=True))
    white = solve(lower, residual)
    white_design = solve(lower, design.reshape(b, size, -1)).reshape(design.shape)
    beta_covariance = _inverse(jnp.einsum("bnck,bncl->kl", white_design, white_design))
    beta = beta_covariance @ jnp.einsum("bnck,bnc->k", white_design, white)
    white = white - white_design @ beta
    log_determinant = 2 * c * jnp.sum(jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)))
    value = -0.5 * (jnp.sum(white**2) + log_determinant + residual.size * math.log(2 * math.pi))
    return (value, beta, beta_covariance), (lower, white, design)


def _backward(saved, cotangents):
    lower, white, design = saved
    identity = jnp.eye(lower.shape[1], dtype=lower.dtype)
    inverse = jax.vmap(lambda factor: jsl.cho_solve((factor, True), identity))(lower)
    weights = jax.vmap(lambda factor, right: jsl.solve_triangular(factor, right, lower=True, trans=1))(lower, white)
    slope = 0.5 * (jnp.einsum("bnc,bmc->bnm", weights, weights) - white.shape[2] * inverse)
    return cotangents[0] * slope, -cotangents[0] * weights, jnp.zeros_like(design)


_profile_log_density.defvjp(_forward, _backward)


def _inverse(matrix: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """Pseudo-inverse on a unit diagonal, so that columns of any scale, or that repeat each other, do no harm."""
    if matrix.shape[0] == 0:
        return matrix
    size = jnp.sqrt(jnp.diagonal(matrix))
    size = jnp.where(size > 0, size, 1.0)
    return jnp.linalg.pinv(matrix / size / size[:, None], rtol=1e-13, hermitian=True) / size / size[:, None]
