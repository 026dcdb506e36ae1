"""Functional variational inference with the spectral Stein gradient estimator."""

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
import optax
from jaxtyping import Array, Float

from fsplaplace.arguments import checked
from fsplaplace.context import Sampler
from fsplaplace.methods._mean_field import MeanField
from fsplaplace.methods._method import Method, check_function_prior, default_context
from fsplaplace.methods._posterior import WeightSamples
from fsplaplace.methods.map import draw_batch
from fsplaplace.methods.ssge import score
from fsplaplace.networks import Model, linearisation
from fsplaplace.prior import Prior
from fsplaplace.training import OneTerm, adam, combine, minimise, partition


class FVI(Method):
    r"""The functional variational network of Sun et al. (2019): factorised Gaussian weights w, fitted by maximising

    $$E \log p(y \mid f(X, w)) - \mathrm{KL}\big(q(f_C) \,\Vert\, \mathcal N(\mu(C), \Sigma(C, C))\big),$$

    $f_C$ the function at fresh context points C. The gradient of the entropy of $f_C$, which has no density to
    evaluate, is that of the spectral Stein estimator; the cross entropy is exact.

    Args:
        num_context: context points per step. The estimator needs more samples than the function has degrees of freedom
            at these points, so that fewer points, fresh at every step, beat many.
        kl_samples, likelihood_samples: functions drawn per step for each term; the latter are among the former.
        noise: standard deviation of the noise on $f_C$ under both q and the prior, relative to the prior's: it makes the
            divergence finite.
        spectrum: see `fsplaplace.baselines.ssge.score`.
        initial_scale: of the weights' standard deviations.
        steps, learning_rate, optimizer, batch_size: of the ascent; Adam with a cosine by default.
        predict_samples: networks kept for predictions.
    """

    num_context: int = 40
    kl_samples: int = 100
    likelihood_samples: int = 100
    noise: float = 0.02
    spectrum: float = 0.999
    initial_scale: float = 0.003
    steps: int = 5000
    learning_rate: float = 2e-2
    optimizer: optax.GradientTransformation | None = None
    batch_size: int | None = 200
    predict_samples: int = 500

    @checked
    def fit(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> WeightSamples:
        prior, X, targets = check_function_prior(self, model, prior, likelihood, X, y)
        context = default_context(self, context, X)
        objective_context = check_compiled(self, context)
        fit_key, draw_key = jr.split(key)
        trainable, fixed = partition((MeanField.around(model, self.initial_scale), likelihood))
        best = minimise(
            _NegativeBound(self._settings(), fixed, model, prior, objective_context, X, targets),
            trainable,
            optimizer=self.optimizer or adam(self.learning_rate, self.steps),
            steps=self.steps,
            key=fit_key,
            title="FVI",
            progress=progress,
            in_loop=not linearisation(model, X).convolutional,
        ).parameters
        weights, fitted = combine(best, fixed)
        centre = model.with_params(model.unravel(weights.mean))
        return WeightSamples(model=centre, likelihood=fitted, weights=weights.draw(self.predict_samples, key=draw_key))

    def _settings(self) -> "FVI":
        """Without the optimiser, so that objectives of two fits are one program."""
        return FVI(
            self.num_context, self.kl_samples, self.likelihood_samples, self.noise, self.spectrum,
            batch_size=self.batch_size,
        )  # fmt: skip


def check_compiled(method: Method, context: Sampler) -> Sampler:
    """Context points are drawn inside the compiled loop, so the sampler must allow it."""
    if not context.compiled:
        raise ValueError(
            f"{type(method).__name__}: {type(context).__name__} cannot be sampled inside a compiled program; pass Uniform, Data "
            "or a Mixture of them"
        )
    return context


class _NegativeBound(OneTerm):
    settings: FVI
    fixed: tuple
    model: Model
    prior: Prior
    context: Sampler
    X: Float[Array, "n ..."]
    targets: Array

    def __call__(self, trainable, key):
        weights, likelihood = combine(trainable, self.fixed)
        context_key, batch_key, draw_key, noise_key = jr.split(key, 4)
        X, targets, likelihood, scale = draw_batch(
            self.X, self.targets, likelihood, self.settings.batch_size, batch_key
        )
        points = self.context.sample(self.settings.num_context, key=context_key).astype(self.model.dtype)
        draws = weights.draw(self.settings.kl_samples, key=draw_key)
        at_context = _evaluate(self.model, draws, points)
        at_data = _evaluate(self.model, draws[: self.settings.likelihood_samples], X)
        log_likelihood = scale * jnp.mean(jax.vmap(lambda f: jnp.sum(likelihood.log_prob(f, targets)))(at_data))
        divergence = functional_divergence(
            self.prior, points, at_context, noise=self.settings.noise, spectrum=self.settings.spectrum, key=noise_key
        )
        return (divergence - log_likelihood) / self.X.shape[0]


def _evaluate(model: Model, draws, x):
    return jax.vmap(lambda row: model.evaluate(model.unravel(row), x))(draws)


def functional_divergence(
    prior: Prior, points: Float[Array, "m ..."], samples: Float[Array, "s m q"], *, noise: float, spectrum: float, key
) -> Float[Array, ""]:
    r"""A number whose gradient estimates that of $\mathrm{KL}(q(f_C) \Vert p(f_C))$ by the samples; its value means nothing.

    The entropy's part is $\frac1s \sum_i \hat g(f_i)^\top f_i$ with the estimated score $\hat g$ held fixed.
    """
    blocks = prior.gram(points)
    level = noise**2 * jnp.mean(jnp.diagonal(blocks, axis1=1, axis2=2))
    samples = samples + jnp.sqrt(level) * jr.normal(key, samples.shape, samples.dtype)
    flat = samples.reshape(samples.shape[0], -1)
    entropy = jnp.mean(jnp.sum(score(flat, spectrum=spectrum) * flat, axis=1))
    residual = jnp.moveaxis(samples - prior.mean_at(points), 0, 2)
    right = prior.to_blocks(residual)

    def squared_norm(block, columns):
        lower = jnp.linalg.cholesky(block + level * jnp.eye(block.shape[0], dtype=block.dtype))
        return jnp.sum(jsl.solve_triangular(lower, columns, lower=True) ** 2)

    cross_entropy = 0.5 * jnp.sum(jax.vmap(squared_norm)(blocks, right)) / samples.shape[0]
    return entropy + cross_entropy
