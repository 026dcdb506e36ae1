"""The posterior over functions: predictive, samples, covariance."""

import functools
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike

from fsplaplace.host import resolve_budget
from fsplaplace.laplace import _choices
from fsplaplace.laplace._diagnostics import Diagnostics
from fsplaplace.likelihoods import Bernoulli, Categorical, Likelihood
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


class Prediction(eqx.Module):
    """Predictive distribution at n inputs.

    Attributes:
        mean: the posterior mean of the function, (n, q): the network's or the refined one.
        map: the network's own output, (n, q).
        variance: epistemic variance of the function, (n, q).
        noise_variance: variance of a new target around the function, (n, t), with the prior variance that the features miss
            if that counts as noise; None if the likelihood has none to give.
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
    r"""A Gaussian over functions of the linearised network, $g(x) = m(x) + J(x) S \epsilon$ with $\epsilon \sim \mathcal N(0, I)$.

    The mean $m(x)$ is the refined one, $\mu(x) + J(x) s$, or the network's own output $f(x)$. Both s and S enter through
    the linear model only: the network at shifted weights is another function.

    Attributes:
        model: the network that was linearised.
        prior: the prior over its function.
        likelihood: of the targets.
        scale: $S^\top$, one direction a row, (r, p).
        shift: s, (p,); zero if the mean is the network's.
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

    def predict(self, x: ArrayLike, *, memory_budget: float | None = None) -> Prediction:
        r"""Mean and marginal variance $\lVert J(x) S \rVert^2$, in blocks of rows that fit the budget.

        The mean is $\mu(x) + J(x) s$ (refined) or $f(x)$ (the network's). Works inside `jax.jit` and `jax.vmap`, and is
        differentiable in x. Time: one forward and r tangent passes (for one or two outputs a reverse pass and a matrix
        product); memory: $O(n q)$ and one block.
        """
        x, budget, linear = self._check_inputs(x), resolve_budget(memory_budget), self._linear_model
        traced = isinstance(x, Tracer) or isinstance(self.scale, Tracer)
        if not traced and route(self.model, x, self.rank) == "convolutions":
            return _predict(linear, x, self._seen(x, budget))
        rows = rows_per_block(self.model, x, self.rank, budget)
        return map_rows(functools.partial(_predict_block, linear), x, rows=rows)

    def covariance(self, x: ArrayLike, *, joint: bool = True) -> Float[Array, "n q n q"] | Float[Array, "n q q"]:
        r"""$J(x) S S^\top J(x')^\top$ between all points and outputs, or (`joint=False`) between outputs at each point."""
        features = push_forward(self.model, self._check_inputs(x), self.scale, budget=resolve_budget(None))
        return jnp.einsum("nqr,mpr->nqmp" if joint else "nqr,npr->nqp", features, features)

    def sample(self, x: ArrayLike, *, key: PRNGKeyArray, num_samples: int = 1) -> Float[Array, "s n q"]:
        r"""Functions with the posterior's mean and covariance: $J(x) S \epsilon$ around the mean, one jvp each. The same key
        gives the same functions at any x."""
        if num_samples < 1:
            raise ValueError(f"Posterior.sample: num_samples is {num_samples}; pass 1 or more")
        x = self._check_inputs(x)
        noise = jr.normal(key, (num_samples, self.rank), self.scale.dtype)
        moves = push_forward(self.model, x, self.shift + noise @ self.scale, budget=resolve_budget(None))
        return self._linear_model.origin(x, self.model(x)) + jnp.moveaxis(moves, 2, 0)

    def predict_proba(
        self,
        x: ArrayLike,
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
        seen = self._seen(x, resolve_budget(None))
        mean, variance = self._linear_model.mean(x, seen), jnp.sum(seen.features**2, axis=2)
        link = jax.nn.sigmoid if isinstance(self.likelihood, Bernoulli) else functools.partial(jax.nn.softmax, axis=-1)
        if method == "probit":
            return link(mean / jnp.sqrt(1 + jnp.pi / 8 * variance))
        noise = jr.normal(jr.key(0) if key is None else key, (num_samples, self.rank), self.scale.dtype)
        total = jnp.zeros_like(mean)
        for part in jnp.array_split(noise, -(-num_samples // 100)):
            total += jnp.sum(link(mean + jnp.einsum("nqr,sr->snq", seen.features, part)), axis=0)
        return total / num_samples

    def _check_inputs(self, x):
        x = self.model.check_inputs(x, argument="x")
        if x.shape[1:] != (wanted := self.context_points.shape[1:]):
            raise ValueError(
                f"x has rows of shape {x.shape[1:]}, but the model was fitted to {wanted}; pass the same columns"
            )
        return x

    @property
    def _linear_model(self) -> "_LinearModel":
        refined, missed = self.diagnostics.mean == "refined", self.diagnostics.missed_as_noise
        return _LinearModel(
            self.model, self.prior, self.likelihood, self.scale, self.shift, self.information, refined, missed
        )

    def _seen(self, x, budget: float) -> "_Seen":
        """Outputs, shift and features at all rows at once, outside of `jax.jit` for convolutions."""
        network, features = outputs_and_products(self.model, x, self.scale, budget=budget)
        return _Seen(network, push_forward(self.model, x, self.shift[None], budget=budget)[:, :, 0], features)

    @property
    def misfit_to_noise(self) -> float | None:
        r"""Prior variance that the network's features miss at the training inputs, over the noise variance.

        Well below 1 the posterior is the Gaussian process's. Above it the linearised model explains what it cannot
        represent as function, and may be overconfident, or (`diagnostics.missed_as_noise`) as noise, and follows the
        data less closely: use a wider network, more context points, or a larger noise. None unless the noise is Gaussian.
        """
        return self.diagnostics.misfit_to_noise

    def __str__(self) -> str:
        misfit = self.misfit_to_noise
        if misfit is None or misfit < _choices.CAUTION:
            return str(self.diagnostics)
        effect = "follows the data less closely" if self.diagnostics.missed_as_noise else "may be overconfident"
        return (
            f"{self.diagnostics}Caution: the features miss {misfit:.3g} times the noise variance at the training inputs, so this "
            f"posterior {effect}; use a wider network, more context points or a larger noise.\n"
        )

    def __repr__(self) -> str:
        return f"Posterior({self.model.name}, {self.model.num_params} weights, rank {self.rank}, {self.diagnostics.form} form)"


class _Seen(NamedTuple):
    """What the linearised network sees at n inputs.

    Attributes:
        network: f(x), (n, q).
        moved: J(x) s, (n, q).
        features: J(x) S, (n, q, r).
    """

    network: Float[Array, "n q"]
    moved: Float[Array, "n q"]
    features: Float[Array, "n q r"]


class _LinearModel(eqx.Module):
    """The parts of a posterior that predictions need: nothing in it forces a new program for a new posterior.

    Attributes:
        refined: whether the mean is the refined one.
        missed_as_noise: whether prior variance that the features miss counts as noise of new targets.
    """

    model: Model
    prior: Prior
    likelihood: Likelihood
    scale: Float[Array, "r p"]
    shift: Float[Array, " p"]
    information: Float[Array, " r"] | None
    refined: bool = eqx.field(static=True)
    missed_as_noise: bool = eqx.field(static=True)

    def origin(self, x, network: Float[Array, "n q"]) -> Float[Array, "n q"]:
        """What the shift is added to: the prior mean, or the network's own output."""
        return self.prior.mean_at(x) if self.refined else network

    def mean(self, x, seen: _Seen) -> Float[Array, "n q"]:
        """The posterior mean of the function."""
        return self.origin(x, seen.network) + seen.moved

    def noise_variance(self, x, mean, squares: Float[Array, "n q r"]) -> Float[Array, "n t"] | None:
        """Variance of new targets around the function."""
        noise = self.likelihood.noise_variance(mean)
        if noise is None:
            return None
        if noise.shape[1] != mean.shape[1]:
            # Heteroscedastic noise is itself uncertain: E[exp(2 g)] for Gaussian g.
            return noise * jnp.exp(2 * jnp.sum(squares, axis=2)[:, noise.shape[1] :])
        if self.missed_as_noise and self.information is not None:
            implied = jnp.sum(squares * self.information, axis=2)
            return noise + jnp.maximum(self.prior.variance(x) - implied, 0.0).astype(noise.dtype)
        return noise


@eqx.filter_jit
def _predict(linear: _LinearModel, x, seen: _Seen) -> Prediction:
    mean, squares = linear.mean(x, seen), seen.features**2
    noise = linear.noise_variance(x, mean, squares)
    return Prediction(mean, seen.network, jnp.sum(squares, axis=2), noise)


@eqx.filter_jit
def _predict_block(linear: _LinearModel, x) -> Prediction:
    model, scale, shift = linear.model, linear.scale, linear.shift
    if route(model, x, scale.shape[0]) == "rows":
        network, rows = outputs_and_jacobian(model, x)
        moved, features = (rows @ shift).reshape(network.shape), (rows @ scale.T).reshape(*network.shape, -1)
    else:
        network, moved = model(x), push_forward_block(model, x, shift[None])[:, :, 0]
        features = push_forward_block(model, x, scale)
    return _predict(linear, x, _Seen(network, moved, features))
