"""What the methods return: posteriors over functions with one face."""

import abc
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, Range, checked
from fsplaplace.host import check_fits, itemsize, resolve_budget, rows_that_fit
from fsplaplace.laplace import Prediction
from fsplaplace.likelihoods import Bernoulli, Categorical, Likelihood
from fsplaplace.methods._weight_covariance import WeightCovariance
from fsplaplace.networks import Model, jacobian, map_rows, push_forward

# A block of rows beyond this gains nothing and delays the first result.
_MOST_ROWS = 2000
_SAMPLES_PER_BLOCK = 100


class FunctionPosterior(eqx.Module):
    """A posterior over functions: `predict`, `sample`, `predict_proba`; a pytree of arrays."""

    likelihood: eqx.AbstractVar[Likelihood]

    @abc.abstractmethod
    def predict(self, x: ArrayLike) -> Prediction:
        """Mean and marginal variance of the function at each input, and the noise around it."""

    @abc.abstractmethod
    def sample(self, x: ArrayLike, *, key: PRNGKeyArray, num_samples: int = 1) -> Float[Array, "s n q"]:
        """Functions drawn from the posterior, at the inputs."""

    @abc.abstractmethod
    def draw_outputs(self, x: ArrayLike, *, key: PRNGKeyArray, num_samples: int) -> Float[Array, "s n q"]:
        """Draws whose joint distribution is right over the outputs at each input, not between inputs: cheaper."""

    @checked(traceable=True, ranges={"num_samples": Range("1 or more", least=1, most=10**7)})
    def predict_proba(
        self, x: ArrayLike, *, key: KeyLike | None = None, num_samples: int = 1000
    ) -> Float[Array, "n c"]:
        r"""Class probabilities $E[\mathrm{softmax}(f(x))]$, or $P(y = 1)$ for each label of a Bernoulli likelihood.

        By sampling, with a fixed key unless one is given.
        """
        if not isinstance(self.likelihood, Bernoulli | Categorical):
            raise ValueError(
                f"{type(self).__name__}.predict_proba: {type(self.likelihood).__name__} has no classes; use predict, or a "
                "Bernoulli or Categorical likelihood"
            )
        softmax = functools.partial(jax.nn.softmax, axis=-1)
        link = jax.nn.sigmoid if isinstance(self.likelihood, Bernoulli) else softmax
        blocks = -(-num_samples // _SAMPLES_PER_BLOCK)
        keys = jr.split(jr.key(0) if key is None else key, blocks)
        draws = (self.draw_outputs(x, key=part, num_samples=-(-num_samples // blocks)) for part in keys)
        return jnp.mean(jnp.stack([jnp.mean(link(draw), axis=0) for draw in draws]), axis=0)

    def prediction(self, mean, network, variance) -> Prediction:
        """The prediction with the likelihood's noise."""
        noise = self.likelihood.noise_variance(mean)
        if noise is not None and noise.shape[1] != mean.shape[1]:
            # Heteroscedastic noise is itself uncertain: E[exp(2 g)] for Gaussian g.
            noise = noise * jnp.exp(2 * variance[:, noise.shape[1] :])
        return Prediction(mean, network, variance, noise)


class LinearisedPosterior(FunctionPosterior):
    r"""$f(x) + J(x)(w - w^\star)$ with $w \sim \mathcal N(w^\star, \Sigma)$: a Gaussian over the weights, linearised.

    Attributes:
        model: the network at $w^\star$.
        likelihood: with its fitted parameters.
        weight_covariance: $\Sigma$; None for a point estimate.
        log_evidence: the Laplace approximation of $\log p(y)$; NaN where the method has none.
        prior_precision: of the Gaussian prior over weights, one per group of weights; None where there is none.
    """

    model: Model
    likelihood: Likelihood
    weight_covariance: WeightCovariance | None
    log_evidence: Float[Array, ""]
    prior_precision: Float[Array, " groups"] | None = None

    @checked(traceable=True)
    def predict(self, x):
        mean, covariance = self._moments(x)
        return self.prediction(mean, mean, jnp.diagonal(covariance, axis1=1, axis2=2))

    @checked(traceable=True)
    def covariance(self, x: ArrayLike, *, joint: bool = True):
        r"""$J(x) \Sigma J(x')^\top$ between all points and outputs, or (`joint=False`) between outputs at each point."""
        if not joint:
            return self._moments(x)[1]
        x = self.model.check_inputs(x, argument="x")
        if self.weight_covariance is None:
            size = (x.shape[0], self.model.num_outputs(x))
            return jnp.zeros(size + size, self.model.dtype)
        core: Any = functools.partial(_features, self.model, self.weight_covariance)
        features = map_rows(core, x, rows=self._rows_per_block(x))
        return jnp.einsum("nqr,mpr->nqmp", features, features)

    @checked(traceable=True)
    def sample(self, x, *, key, num_samples=1):
        x = self.model.check_inputs(x, argument="x")
        outputs = self.model(x)
        each = itemsize(self.model.dtype) * (3 * outputs.size + 2 * self.model.num_params)
        check_fits(num_samples, each, f"{type(self).__name__}.sample: num_samples")
        if self.weight_covariance is None:
            return jnp.broadcast_to(outputs, (num_samples, *outputs.shape))
        noise = jr.normal(key, (num_samples, self.model.num_params), self.model.dtype)
        moves = push_forward(self.model, x, self.weight_covariance.draw(noise), budget=resolve_budget(None))
        return outputs + jnp.moveaxis(moves, 2, 0)

    def draw_outputs(self, x, *, key, num_samples):
        mean, covariance = self._moments(x)
        return draw_gaussian(mean, covariance, key, num_samples)

    def _moments(self, x):
        x = self.model.check_inputs(x, argument="x")
        core: Any = functools.partial(_linearised_moments, self.model, self.weight_covariance)
        return map_rows(core, x, rows=self._rows_per_block(x))

    def _rows_per_block(self, x) -> int:
        # The Jacobian, its image under the covariance's root, and their temporaries.
        per_row = 4 * self.model.num_outputs(x) * self.model.num_params * itemsize(self.model.dtype)
        return rows_that_fit(per_row, resolve_budget(None) / 8, most=min(_MOST_ROWS, x.shape[0]))


class WeightSamples(FunctionPosterior):
    """A finite set of equally likely networks: an ensemble, or draws from a distribution over weights.

    Attributes:
        model: the network; its own weights give `Prediction.map`.
        likelihood: with its fitted parameters.
        weights: one network a row.
    """

    model: Model
    likelihood: Likelihood
    weights: Float[Array, "s p"]

    @checked(traceable=True)
    def predict(self, x):
        x = self.model.check_inputs(x, argument="x")
        mean, variance = _sample_moments(self.model, self.weights, x)
        return self.prediction(mean, self.model(x), variance)

    @checked(traceable=True)
    def sample(self, x, *, key, num_samples=1):
        x = self.model.check_inputs(x, argument="x")
        each = itemsize(self.model.dtype) * (3 * x.shape[0] * self.model.num_outputs(x) + self.model.num_params)
        check_fits(num_samples, each, f"{type(self).__name__}.sample: num_samples")
        chosen = jr.choice(key, self.weights.shape[0], (num_samples,), replace=num_samples > self.weights.shape[0])
        return _evaluate_all(self.model, self.weights[chosen], x)

    def draw_outputs(self, x, *, key, num_samples):
        """All of them, whatever `num_samples`: their average is the exact expectation."""
        return _evaluate_all(self.model, self.weights, self.model.check_inputs(x, argument="x"))


@eqx.filter_jit
def _features(model: Model, weight_covariance: WeightCovariance, x):
    return weight_covariance.project(jacobian(model, x))


@eqx.filter_jit
def _linearised_moments(model: Model, weight_covariance: WeightCovariance | None, x):
    outputs = model(x)
    if weight_covariance is None:
        return outputs, jnp.zeros((*outputs.shape, outputs.shape[1]), outputs.dtype)
    features = weight_covariance.project(jacobian(model, x))
    return outputs, jnp.einsum("nqr,npr->nqp", features, features)


@eqx.filter_jit
def draw_gaussian(mean, covariance, key, num_samples: int):
    """Draws of the outputs at each input from their mean (n, q) and covariance (n, q, q)."""
    eigenvalues, eigenvectors = jnp.linalg.eigh(covariance)
    roots = eigenvectors * jnp.sqrt(jnp.maximum(eigenvalues, 0))[:, None, :]
    noise = jr.normal(key, (num_samples, *mean.shape), mean.dtype)
    return mean + jnp.einsum("nqr,snr->snq", roots, noise)


@eqx.filter_jit
def _evaluate_all(model: Model, weights, x):
    return jax.lax.map(lambda row: model.evaluate(model.unravel(row), x), weights, batch_size=10)


@eqx.filter_jit
def _sample_moments(model: Model, weights, x):
    outputs = _evaluate_all(model, weights, x)
    return jnp.mean(outputs, axis=0), jnp.var(outputs, axis=0)
