"""The posterior over functions: predictive, samples, covariance."""

import functools
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, UInt32
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, checked
from fsplaplace.host import resolve_budget
from fsplaplace.laplace import _choices
from fsplaplace.laplace._diagnostics import Diagnostics, Verdict
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
        variance: epistemic variance of the function, (n, q); in the covariance form nowhere above the prior's.
        noise_variance: variance of a new target around the function, (n, t); None if the likelihood has none to give.
        unexplained: the part of `variance` that the network's features cannot carry, (n, q): unrelated between inputs; None
            for methods without such features.
        outside: whether an input lies outside the box of the context points, (n,), where the prior was not enforced and
            its own variance is all that is known; None for methods without context points.
    """

    mean: Float[Array, "n q"]
    map: Float[Array, "n q"]
    variance: Float[Array, "n q"]
    noise_variance: Float[Array, "n t"] | None
    unexplained: Float[Array, "n q"] | None = None
    outside: Bool[Array, " n"] | None = None

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
    r"""A Gaussian process in closed form: the linearised network with the prior's variance at every input.

    Functions are $m(x) + a(x) J(x) S \epsilon + \sqrt{u(x)}\, \eta(x)$ with $\epsilon \sim \mathcal N(0, I)$ and $\eta$ white. The
    features imply a prior variance $i(x)$ where the kernel states $k(x)$: $a = \min(1, \sqrt{k / i})$ takes away what they
    have too much, between context points and outside the region, and $u$ is what remains of the variance
    $\max(0, k - i)$ that they miss. So prior variances are exact, and the posterior's are never larger, at any input.

    The mean $m(x)$ is the refined one, $\mu(x) + a(x) J(x) s$, or the network's own output $f(x)$. Both s and S enter
    through the linear model only: the network at shifted weights is another function. The precision form has a = 1, u = 0.

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

    @classmethod
    def refusal(cls, value) -> str:
        """What an error says of a value that is no posterior."""
        return f"must be a Posterior, but got {type(value).__name__}; call laplace first"

    @property
    def rank(self) -> int:
        """Number of directions with posterior variance."""
        return self.scale.shape[0]

    @checked(traceable=True)
    def predict(self, x: ArrayLike, *, memory_budget: float | None = None) -> Prediction:
        r"""Mean and marginal variance at inputs (n, ...), in blocks of rows that fit the budget.

        Works inside `jax.jit` and `jax.vmap`, and is differentiable in x. Time: one forward and r tangent passes (for one
        or two outputs a reverse pass and a matrix product); memory: $O(n q)$ and one block.
        """
        x, budget, linear = self._check_inputs(x), resolve_budget(memory_budget), self._linear_model
        if self._by_convolutions(x):
            return _predict(linear, x, self._seen(x, budget))
        rows = rows_per_block(self.model, x, self.rank, budget)
        return map_rows(functools.partial(_predict_block, linear), x, rows=rows)

    @checked(traceable=True)
    def covariance(self, x: ArrayLike, *, joint: bool = True) -> Float[Array, "n q n q"] | Float[Array, "n q q"]:
        """Covariance of the function between all points and outputs, or (`joint=False`) between outputs at each point.

        What the features cannot carry is unrelated between different inputs. Memory $O(n^2 q^2)$, or $O(n q^2)$.
        """
        x = self._check_inputs(x)
        return _covariance(self._linear_model, x, self._seen(x, resolve_budget(None)), joint)

    @checked(traceable=True)
    def sample(self, x: ArrayLike, *, key: KeyLike, num_samples: int = 1) -> Float[Array, "s n q"]:
        """Functions with the posterior's mean and covariance; the same key gives the same functions at any x.

        What the features cannot carry shows as white noise that belongs to the input: rough where the network is too small
        for its prior. Time: that of `predict`.
        """
        x = self._check_inputs(x)
        seen = self._seen(x, resolve_budget(None))
        return jnp.moveaxis(_sample(self._linear_model, x, seen, key, np.arange(num_samples)), 1, 0)

    @checked(traceable=True)
    def predict_proba(
        self,
        x: ArrayLike,
        *,
        key: KeyLike | None = None,
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
        x = self._check_inputs(x)
        seen = self._seen(x, resolve_budget(None))
        link = jax.nn.sigmoid if isinstance(self.likelihood, Bernoulli) else functools.partial(jax.nn.softmax, axis=-1)
        if method == "probit":
            found = _predict(self._linear_model, x, seen)
            return link(found.mean / jnp.sqrt(1 + jnp.pi / 8 * found.variance))
        key, total = jr.key(0) if key is None else key, jnp.zeros_like(seen.network)
        for part in np.array_split(np.arange(num_samples), -(-num_samples // 100)):
            total += jnp.sum(link(_sample(self._linear_model, x, seen, key, part)), axis=1)
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
        return _LinearModel(
            self.model, self.prior, self.likelihood, self.scale, self.shift, self.information, self.context_points,
            refined=self.diagnostics.mean == "refined", missed_as_noise=self.diagnostics.missed_as_noise,
        )  # fmt: skip

    def _by_convolutions(self, x) -> bool:
        """Whether products are taken a few directions at a time, outside of `jax.jit`."""
        traced = isinstance(x, Tracer) or isinstance(self.scale, Tracer)
        return not traced and route(self.model, x, self.rank) == "convolutions"

    def _seen(self, x, budget: float) -> "_Seen":
        """Outputs, shift and features at all rows."""
        if self._by_convolutions(x):
            network, features = outputs_and_products(self.model, x, self.scale, budget=budget)
            return _Seen(network, push_forward(self.model, x, self.shift[None], budget=budget)[:, :, 0], features)
        rows = rows_per_block(self.model, x, self.rank, budget)
        return map_rows(functools.partial(_see_block, self._linear_model), x, rows=rows)

    @property
    def misfit_to_noise(self) -> float | None:
        r"""Prior variance that the network's features miss at the training inputs, over the noise variance.

        Well below 1 the posterior is the Gaussian process's. Above it the linearised model explains what it cannot
        represent as function, and may be overconfident, or (`diagnostics.missed_as_noise`) as noise, and follows the
        data less closely: use a wider network, more context points, or a larger noise. None unless the noise is Gaussian.
        """
        return self.diagnostics.misfit_to_noise

    @property
    def verdict(self) -> Verdict:
        """Whether this posterior can be trusted, why, and what to do; printed first."""
        return self.diagnostics.verdict

    def __str__(self) -> str:
        misfit, text = self.misfit_to_noise, f"Verdict: {self.verdict}\n{self.diagnostics}"
        if misfit is None or misfit < _choices.CAUTION:
            return text
        effect = "follows the data less closely" if self.diagnostics.missed_as_noise else "may be overconfident"
        return (
            f"{text}Caution: the features miss {misfit:.3g} times the noise variance at the training inputs, so this "
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


class _Local(NamedTuple):
    """The process at each of n inputs.

    Attributes:
        mean: of the function, (n, q).
        features: a(x) J(x) S, (n, q, r).
        unexplained: u(x), (n, q).
    """

    mean: Float[Array, "n q"]
    features: Float[Array, "n q r"]
    unexplained: Float[Array, "n q"]

    @property
    def variance(self) -> Float[Array, "n q"]:
        """Of the function."""
        return jnp.sum(self.features**2, axis=2) + self.unexplained


class _LinearModel(eqx.Module):
    """The parts of a posterior that predictions need: nothing in it forces a new program for a new posterior.

    Attributes:
        model: see `Posterior`.
        prior: see `Posterior`.
        likelihood: see `Posterior`.
        scale: see `Posterior`.
        shift: see `Posterior`.
        information: see `Posterior`.
        context_points: see `Posterior`.
        refined: whether the mean is the refined one.
        missed_as_noise: whether data tell nothing of what the features miss.
    """

    model: Model
    prior: Prior
    likelihood: Likelihood
    scale: Float[Array, "r p"]
    shift: Float[Array, " p"]
    information: Float[Array, " r"] | None
    context_points: Float[Array, "m ..."]
    refined: bool = eqx.field(static=True)
    missed_as_noise: bool = eqx.field(static=True)

    def at(self, x, seen: "_Seen") -> _Local:
        """The process at inputs, from what the network sees there."""
        network, moved, features = seen
        if self.information is None:
            return _Local(network + moved, features, jnp.zeros_like(network))
        squares, stated = features**2, self.prior.variance(x).astype(features.dtype)
        carried, implied = jnp.sum(squares, axis=2), jnp.sum(squares * self.information, axis=2)
        # Inside the root nothing is zero, also where a branch is not taken: its derivative would be infinite.
        above = implied > stated
        shrink = jnp.where(above, jnp.sqrt(jnp.where(above, stated / jnp.where(above, implied, 1.0), 1.0)), 1.0)
        unexplained = jnp.maximum(stated - implied, 0.0)
        if not self.missed_as_noise:
            seen_by_data = jnp.where(implied > 0, carried / jnp.where(implied > 0, implied, 1.0), 1.0)
            unexplained = unexplained * jnp.minimum(seen_by_data, 1.0)
        mean = self.prior.mean_at(x) + shrink * moved if self.refined else network
        return _Local(mean, shrink[:, :, None] * features, unexplained)

    def noise_variance(self, local: _Local) -> Float[Array, "n t"] | None:
        """Variance of new targets around the function."""
        noise, width = self.likelihood.noise_variance(local.mean), local.mean.shape[1]
        if noise is None or noise.shape[1] == width:
            return noise
        # Heteroscedastic noise is itself uncertain: E[exp(2 g)] for Gaussian g.
        return noise * jnp.exp(2 * local.variance[:, noise.shape[1] :])


@eqx.filter_jit
def _predict(linear: _LinearModel, x, seen: _Seen) -> Prediction:
    local = linear.at(x, seen)
    points, flat = (values.reshape(values.shape[0], -1) for values in (linear.context_points, x))
    outside = jnp.any((flat < jnp.min(points, axis=0)) | (flat > jnp.max(points, axis=0)), axis=1)
    noise = linear.noise_variance(local)
    return Prediction(local.mean, seen.network, local.variance, noise, local.unexplained, outside)


@eqx.filter_jit
def _see_block(linear: _LinearModel, x) -> _Seen:
    model, scale, shift = linear.model, linear.scale, linear.shift
    if route(model, x, scale.shape[0]) == "rows":
        network, rows = outputs_and_jacobian(model, x)
        return _Seen(network, (rows @ shift).reshape(network.shape), (rows @ scale.T).reshape(*network.shape, -1))
    moved = push_forward_block(model, x, shift[None])[:, :, 0]
    return _Seen(model(x), moved, push_forward_block(model, x, scale))


@eqx.filter_jit
def _predict_block(linear: _LinearModel, x) -> Prediction:
    return _predict(linear, x, _see_block(linear, x))


@eqx.filter_jit
def _covariance(linear: _LinearModel, x, seen: _Seen, joint: bool):
    local = linear.at(x, seen)
    outputs = jnp.eye(seen.network.shape[1], dtype=seen.network.dtype)
    if not joint:
        return jnp.einsum("nqr,npr->nqp", local.features, local.features) + local.unexplained[:, :, None] * outputs
    flat = x.reshape(x.shape[0], -1)
    same = jnp.all(flat[:, None] == flat[None], axis=2)
    unexplained = jnp.einsum("nq,nm,qp->nqmp", local.unexplained, same, outputs)
    return jnp.einsum("nqr,mpr->nqmp", local.features, local.features) + unexplained


@eqx.filter_jit
def _sample(linear: _LinearModel, x, seen: _Seen, key, numbers) -> Float[Array, "n s q"]:
    """Functions by their numbers, at n inputs."""
    local = linear.at(x, seen)
    q, dtype = local.mean.shape[1], local.mean.dtype
    smooth_key, white_key = jr.split(key)

    def normal(key, numbers, size: int):
        return jax.vmap(lambda number: jr.normal(jr.fold_in(key, number), (size,), dtype))(numbers)

    noise = normal(smooth_key, numbers, linear.scale.shape[0])
    smooth = local.mean[:, None] + jnp.einsum("nqr,sr->nsq", local.features, noise)
    if linear.information is None:
        return smooth
    white = jax.vmap(lambda row: normal(jr.fold_in(white_key, row), numbers, q))(_row_numbers(x))
    some = local.unexplained > 0
    root = jnp.where(some, jnp.sqrt(jnp.where(some, local.unexplained, 1.0)), 0.0)
    return smooth + root[:, None] * white


def _row_numbers(x: Float[Array, "n ..."]) -> UInt32[Array, " n"]:
    """A number for each row that depends on its values alone, so that white noise is a function of the input."""
    flat = jax.lax.stop_gradient(x).reshape(x.shape[0], -1).astype(jnp.float32)
    # Adding zero makes -0 and 0 one number.
    bits = jax.lax.bitcast_convert_type(flat + 0.0, jnp.uint32)

    def mix(total, column):
        # Multiply and rotate (as MurmurHash does), so that equal numbers in other columns give another sum.
        column = column * jnp.uint32(0xCC9E2D51)
        total = total ^ (((column << 15) | (column >> 17)) * jnp.uint32(0x1B873593))
        return ((total << 13) | (total >> 19)) * jnp.uint32(5) + jnp.uint32(0xE6546B64), None

    return jax.lax.scan(mix, jnp.zeros(x.shape[0], jnp.uint32), bits.T)[0]
