"""The posterior over functions: predictive, samples, covariance."""

import functools
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from fsplaplace.host import resolve_budget
from fsplaplace.laplace._diagnostics import Diagnostics
from fsplaplace.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from fsplaplace.networks import (
    Model,
    map_rows,
    outputs_and_jacobian,
    outputs_and_products,
    push_forward,
    push_forward_block,
    route,
    rows_per_block,
)
from fsplaplace.prior import Prior

# Missed prior variance over noise variance from which printing a posterior says so.
_CAUTION = 5.0


class Prediction(eqx.Module):
    """Predictive distribution at n inputs.

    Attributes:
        mean: the posterior mean of the function, (n, q): the network's or the refined one.
        map: the network's own output, (n, q).
        variance: epistemic variance of the function, (n, q).
        noise_variance: variance of a new target around the function, with the prior variance that the features miss there
            where that is taken as noise; None where the likelihood has none to give.
    """

    mean: Float[Array, "n q"]
    map: Float[Array, "n q"]
    variance: Float[Array, "n q"]
    noise_variance: Float[Array, "n t"] | None

    @property
    def std(self) -> Float[Array, "n q"]:
        """Epistemic standard deviation of the function."""
        return jnp.sqrt(self.variance)

    @property
    def total_variance(self) -> Float[Array, "n t"]:
        """Variance of a new target: epistemic plus noise."""
        if self.noise_variance is None:
            raise ValueError(
                "total_variance: the likelihood has no noise variance at new inputs (labels, counts, or one scale per training "
                "row); use `variance` for the function, or `predict_proba` for labels"
            )
        return self.variance[:, : self.noise_variance.shape[1]] + self.noise_variance


class Posterior(eqx.Module):
    r"""A Gaussian over the weights of the linearised network, $w \sim \mathcal N(w^\star + s,\; S S^\top)$.

    Functions are $f(x) + J(x)(w - w^\star)$: the shift s enters only through the linear model.

    Attributes:
        model, prior, likelihood: what it was made from.
        scale: $S^\top$, one direction a row, (r, p).
        shift: s, (p,); zero where the mean is the network's.
        information: prior over posterior variance along each direction of `scale`, (r,); None in the precision form.
        context_points: where the prior was enforced.
        log_evidence: the Laplace approximation of $\log p(y)$.
        diagnostics: what was done, and how well the network holds the prior; prints as a table.
    """

    model: Model
    prior: Prior
    likelihood: Likelihood
    scale: Float[Array, "r p"]
    shift: Float[Array, " p"]
    information: Float[Array, " r"] | None
    context_points: Float[Array, "m ..."]
    log_evidence: Float[Array, ""]
    diagnostics: Diagnostics

    @property
    def rank(self) -> int:
        """Number of directions with posterior variance."""
        return self.scale.shape[0]

    def predict(self, x: Float[ArrayLike, "n ..."], *, memory_budget: float | None = None) -> Prediction:
        r"""Mean $f(x) + J(x) s$ and marginal variance $\lVert J(x) S \rVert^2$, in blocks of rows that fit the budget.

        Works inside `jax.jit` and `jax.vmap`, and is differentiable in x. Time: one forward and r tangent passes (for one
        or two outputs a reverse pass and a matrix product); memory: $O(n q)$ and one block.
        """
        x = self._check_inputs(x)
        budget = resolve_budget(memory_budget)
        traced = isinstance(x, Tracer) or isinstance(self.scale, Tracer)
        if not traced and route(self.model, x, self.rank) == "convolutions":
            network, features = outputs_and_products(self.model, x, self.scale, budget=budget)
            moves = push_forward(self.model, x, self.shift[None], budget=budget)
            mean, (variance, implied) = network + moves[:, :, 0], _variances(features, self.information)
            return Prediction(mean, network, variance, self._noise(x, mean, variance, implied))
        rows = rows_per_block(self.model, x, self.rank, budget)
        core = functools.partial(_moments, self.model, self.shift, self.scale, self.information)
        mean, network, variance, implied = map_rows(core, x, rows=rows)
        return Prediction(mean, network, variance, self._noise(x, mean, variance, implied))

    def covariance(
        self, x: Float[ArrayLike, "n ..."], *, joint: bool = True
    ) -> Float[Array, "n q n q"] | Float[Array, "n q q"]:
        r"""$J(x) S S^\top J(x')^\top$ between all points and outputs, or (`joint=False`) between outputs at each point."""
        features = self._features(self._check_inputs(x))
        return jnp.einsum("nqr,mpr->nqmp" if joint else "nqr,npr->nqp", features, features)

    def sample(self, x: Float[ArrayLike, "n ..."], *, key: PRNGKeyArray, num_samples: int = 1) -> Float[Array, "s n q"]:
        r"""Functions $f(x) + J(x)(s + S \epsilon)$; the same key gives the same functions at any x. One jvp each."""
        if num_samples < 1:
            raise ValueError(f"Posterior.sample: num_samples is {num_samples}; pass 1 or more")
        x = self._check_inputs(x)
        noise = jr.normal(key, (num_samples, self.rank), self.scale.dtype)
        moves = push_forward(self.model, x, self.shift + noise @ self.scale, budget=resolve_budget(None))
        return self.model(x) + jnp.moveaxis(moves, 2, 0)

    def predict_proba(
        self,
        x: Float[ArrayLike, "n ..."],
        *,
        key: PRNGKeyArray | None = None,
        num_samples: int = 1000,
        method: Literal["monte-carlo", "probit"] = "monte-carlo",
    ) -> Float[Array, "n c"]:
        r"""Class probabilities $E[\mathrm{softmax}(f(x))]$, or $P(y = 1)$ for each label of a Bernoulli likelihood.

        By sampling (with a fixed key unless one is given), or by the probit approximation, which shrinks each logit by
        $(1 + \pi \sigma^2 / 8)^{-1/2}$.
        """
        if not isinstance(self.likelihood, Bernoulli | Categorical):
            raise ValueError(
                f"Posterior.predict_proba: {type(self.likelihood).__name__} has no classes; use predict, or a Bernoulli or "
                "Categorical likelihood"
            )
        if method not in ("monte-carlo", "probit"):
            raise ValueError(f"Posterior.predict_proba: method is {method!r}; pass 'monte-carlo' or 'probit'")
        if num_samples < 1:
            raise ValueError(f"Posterior.predict_proba: num_samples is {num_samples}; pass 1 or more")
        x = self._check_inputs(x)
        prediction = self.predict(x)
        link = jax.nn.sigmoid if isinstance(self.likelihood, Bernoulli) else functools.partial(jax.nn.softmax, axis=-1)
        if method == "probit":
            return link(prediction.mean / jnp.sqrt(1 + jnp.pi / 8 * prediction.variance))
        noise = jr.normal(jr.key(0) if key is None else key, (num_samples, self.rank), self.scale.dtype)
        total = jnp.zeros_like(prediction.mean)
        features = self._features(x)
        for part in jnp.array_split(noise, -(-num_samples // 100)):
            total += jnp.sum(link(prediction.mean + jnp.einsum("nqr,sr->snq", features, part)), axis=0)
        return total / num_samples

    def _check_inputs(self, x):
        x = self.model.check_inputs(x, argument="x")
        if x.shape[1:] != (wanted := self.context_points.shape[1:]):
            raise ValueError(
                f"x has rows of shape {x.shape[1:]}, but the model was fitted to {wanted}; pass the same columns"
            )
        return x

    def _features(self, x):
        return push_forward(self.model, x, self.scale, budget=resolve_budget(None))

    def _noise(self, x, mean, variance, implied):
        missed = isinstance(self.likelihood, Gaussian) and self.diagnostics.missed_as_noise
        prior = self.prior if missed else None
        return _noise_variance(self.likelihood, prior, x, mean, variance, implied)

    @property
    def misfit_to_noise(self) -> float | None:
        r"""Prior variance that the network's features miss at the training inputs, over the noise variance.

        Well below 1 the posterior is the Gaussian process's. Above it the linearised model explains what it cannot
        represent as function, and may be overconfident, or (`diagnostics.missed_as_noise`) as noise, and follows the
        data less closely: use a wider network, more context points, or a larger noise. None where the likelihood has no
        noise variance of its own.
        """
        if not isinstance(self.likelihood, Gaussian):
            return None
        missed = abs(1.0 - float(self.diagnostics.ratios["training"].median))
        with jax.enable_x64(True):
            stated = float(np.mean(np.asarray(self.prior.variance(self.context_points))))
        return missed * stated / float(np.mean(np.asarray(self.likelihood.scale) ** 2))

    def __str__(self) -> str:
        misfit = self.misfit_to_noise
        if misfit is None or misfit < _CAUTION:
            return str(self.diagnostics)
        effect = "follows the data less closely" if self.diagnostics.missed_as_noise else "may be overconfident"
        return (
            f"{self.diagnostics}Caution: the features miss {misfit:.3g} times the noise variance at the training inputs, so this "
            f"posterior {effect}; use a wider network, more context points or a larger noise.\n"
        )

    def __repr__(self) -> str:
        return f"Posterior({self.model.name}, {self.model.num_params} weights, rank {self.rank}, {self.diagnostics.form} form)"


@eqx.filter_jit
def _moments(model: Model, shift, scale, information, x):
    if route(model, x, scale.shape[0]) == "rows":
        network, rows = outputs_and_jacobian(model, x)
        both = (rows @ jnp.concatenate([scale, shift[None]]).T).reshape(*network.shape, -1)
        moved, features = both[:, :, -1], both[:, :, :-1]
    else:
        network, moved = model(x), push_forward_block(model, x, shift[None])[:, :, 0]
        features = push_forward_block(model, x, scale)
    return network + moved, network, *_variances(features, information)


def _variances(features: Float[Array, "n q r"], information: Float[Array, " r"] | None):
    """Of the posterior, and of the prior that it was made from where that is known."""
    squares = features**2
    return jnp.sum(squares, axis=2), None if information is None else jnp.sum(squares * information, axis=2)


@eqx.filter_jit
def _noise_variance(likelihood: Likelihood, prior: Prior | None, x, mean, variance, implied):
    """Of new targets, with the variance of `prior` that the features miss, where that is given."""
    noise = likelihood.noise_variance(mean)
    if noise is None:
        return None
    if prior is not None:
        return noise + jnp.maximum(prior.variance(x) - implied, 0.0).astype(noise.dtype)
    if noise.shape[1] == mean.shape[1]:
        return noise
    # Heteroscedastic noise is itself uncertain: E[exp(2 g)] for Gaussian g.
    return noise * jnp.exp(2 * variance[:, noise.shape[1] :])
