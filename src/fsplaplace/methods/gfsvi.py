"""Generalised function-space variational inference: the regularised divergence in closed form."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
import optax
from jaxtyping import Array, Float

from fsplaplace.arguments import checked
from fsplaplace.context import Sampler
from fsplaplace.methods._expected_log_likelihood import expected_log_likelihood
from fsplaplace.methods._mean_field import MeanField
from fsplaplace.methods._method import Method, check_function_prior, default_context
from fsplaplace.methods._posterior import LinearisedPosterior
from fsplaplace.methods._weight_covariance import DiagonalCovariance
from fsplaplace.methods.fvi import check_compiled
from fsplaplace.methods.map import draw_batch
from fsplaplace.networks import Model, jacobian, linearisation
from fsplaplace.prior import Prior
from fsplaplace.training import OneTerm, adam, combine, minimise, partition


class GFSVI(Method):
    r"""Factorised Gaussian weights of the linearised network, fitted with the regularised divergence (Cinquin and Bamler 2024).

    At the context points C the linearised network is Gaussian, $\mathcal N(f(C), J_C\, \mathrm{diag}(s^2) J_C^\top)$, so that its divergence from
    the prior's $\mathcal N(\mu(C), \Sigma(C, C))$, both with $\gamma M I$ added to their covariances, is in closed form and finite for
    every prior.

    Args:
        num_context: context points per step.
        gamma: the regularisation, relative to the prior's mean variance; M is the number of context points.
        initial_scale: of the weights' standard deviations.
        steps, learning_rate, optimizer, batch_size: of the ascent; Adam with a cosine by default.

    Memory per step: the Jacobians of a batch and of the context points, $O((b + M) q p)$.
    """

    num_context: int = 100
    gamma: float = 1e-6
    initial_scale: float = 0.003
    steps: int = 5000
    learning_rate: float = 1e-2
    optimizer: optax.GradientTransformation | None = None
    batch_size: int | None = 200

    @checked
    def fit(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> LinearisedPosterior:
        prior, X, targets = check_function_prior(self, model, prior, likelihood, X, y)
        context = check_compiled(self, default_context(self, context, X))
        trainable, fixed = partition((MeanField.around(model, self.initial_scale), likelihood))
        best = minimise(
            _NegativeBound(fixed, model, prior, context, X, targets, self.num_context, self.gamma, self.batch_size),
            trainable,
            optimizer=self.optimizer or adam(self.learning_rate, self.steps),
            steps=self.steps,
            key=key,
            title="GFSVI",
            progress=progress,
            in_loop=not linearisation(model, X).convolutional,
        ).parameters
        weights, fitted = combine(best, fixed)
        return LinearisedPosterior(
            model=model.with_params(model.unravel(weights.mean)),
            likelihood=fitted,
            weight_covariance=DiagonalCovariance(weights.scale),
            log_evidence=jnp.full((), jnp.nan, model.dtype),
        )


class _NegativeBound(OneTerm):
    fixed: tuple
    model: Model
    prior: Prior
    context: Sampler
    X: Float[Array, "n ..."]
    targets: Array
    num_context: int = eqx.field(static=True)
    gamma: float = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)

    def __call__(self, trainable, key):
        weights, likelihood = combine(trainable, self.fixed)
        context_key, batch_key, sample_key = jr.split(key, 3)
        X, targets, likelihood, scale = draw_batch(self.X, self.targets, likelihood, self.batch_size, batch_key)
        points = self.context.sample(self.num_context, key=context_key).astype(self.model.dtype)
        # The network is expanded around the mean, through which the gradient flows; its slopes follow the mean.
        centre = self.model.with_params(self.model.unravel(weights.mean))
        mean, features = _linearise(centre, weights.scale, X)
        covariance = jnp.einsum("nqp,nrp->nqr", features, features)
        jitter = 1e-6 * jnp.eye(mean.shape[1], dtype=mean.dtype)
        root = jnp.linalg.cholesky(covariance + jitter)
        expected = scale * jnp.sum(expected_log_likelihood(likelihood, targets, mean, root, key=sample_key))
        context_mean, context_features = _linearise(centre, weights.scale, points)
        rows = context_features.reshape(-1, context_features.shape[2])
        divergence = regularised_divergence(self.prior, points, context_mean, rows, gamma=self.gamma)
        return (divergence - expected) / self.X.shape[0]


def _linearise(model: Model, scale, x):
    return model.evaluate(model.params, x), jacobian(model, x) * scale


def regularised_divergence(
    prior: Prior, points: Float[Array, "m ..."], mean: Float[Array, "m q"], root: Float[Array, "N r"], *, gamma: float
) -> Float[Array, ""]:
    r"""$\mathrm{KL}(\mathcal N(m, R R^\top + \epsilon I) \,\Vert\, \mathcal N(\mu, \Sigma + \epsilon I))$ at the points, $\epsilon = \gamma M$ times
    the prior's mean variance, M the number of points; rows of the root are points first, then outputs. Time $O(N^3)$.
    """
    count, q = mean.shape
    size = count * q
    covariance = prior.covariance(points, points).reshape(size, size)
    nugget = gamma * count * jnp.mean(jnp.diagonal(covariance)) * jnp.eye(size, dtype=mean.dtype)
    lower = jnp.linalg.cholesky(covariance + nugget)
    own = jnp.linalg.cholesky(root @ root.T + nugget)
    residual = jsl.solve_triangular(lower, (mean - prior.mean_at(points)).ravel(), lower=True)
    ratio = jsl.solve_triangular(lower, own, lower=True)
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(own)) - jnp.log(jnp.diagonal(lower)))
    return 0.5 * (jnp.sum(residual**2) + jnp.sum(ratio**2) - size - log_det)
