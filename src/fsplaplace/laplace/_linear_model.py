r"""The linearised network as a process: what it sees at inputs, and mean, features and missed variance there."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Bool, Float, Int

from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import Model, outputs_and_jacobian, push_forward_block, route
from fsplaplace.prior import Prior, SeenPrior


class Later(eqx.Module):
    r"""What data that came after the fit say about its coordinates: $\epsilon \sim \mathcal N(e, T T^\top)$ instead of a standard normal.

    Attributes:
        step: e, (r,).
        turn: T, (r, r).
        num_rows: how many rows of data these were.
    """

    step: Float[Array | np.ndarray, " r"]
    turn: Float[Array | np.ndarray, "r r"]
    num_rows: Int[Array | np.ndarray, ""]


class LinearModel(eqx.Module):
    """The parts of a posterior that predictions need: nothing in it forces a new program for a new posterior.

    Attributes:
        model: see `Posterior`; or the network seen through an operator.
        prior: see `Posterior`; or the prior seen through that operator.
        likelihood: see `Posterior`; None for what is seen through an operator.
        scale: see `Posterior`.
        shift: see `Posterior`.
        information: see `Posterior`.
        context_points: see `Posterior`.
        later: see `Posterior`.
        refined: whether the mean is the refined one.
        missed_as_noise: whether data tell nothing of what the features miss.
    """

    model: Model
    prior: Prior | SeenPrior
    likelihood: Likelihood | None
    scale: Float[Array, "r p"]
    shift: Float[Array, " p"]
    information: Float[Array, " r"] | None
    context_points: Float[Array, "m ..."]
    later: Later | None
    refined: bool = eqx.field(static=True)
    missed_as_noise: bool = eqx.field(static=True)

    @property
    def mean_needs_features(self) -> bool:
        """Whether the mean is scaled by what the features imply, so that it costs as much as the variance."""
        return self.information is not None and (self.refined or self.later is not None)

    def mean_at(self, x) -> Float[Array, "n q"]:
        """The mean of `at`; one forward pass, and one tangent pass for later data of the precision form, unless `mean_needs_features`."""
        if self.mean_needs_features:
            return self.at(x, see_block(self, x)).mean
        network = self.model(x)
        if self.information is None and self.later is None:
            return network
        if self.information is None and self.later is not None:
            shift = self.shift + self.later.step @ self.scale
            return network + push_forward_block(self.model, x, shift[None])[:, :, 0]
        return self._returning(x, network, self._correlation_with_region(x, network))

    def _returning(self, x, network: Float[Array, "n q"], correlation: Float[Array, "n q"]) -> Float[Array, "n q"]:
        """The network's own output, which is the prior's mean where nothing is known."""
        mean = self.prior.mean_at(x)
        return mean + correlation * (network - mean)

    def at(self, x, seen: "Seen") -> "Local":
        """The process at inputs, from what the network sees there."""
        network, moved, fitted = seen
        features = fitted
        if self.later is not None:
            moved, features = moved + fitted @ self.later.step, fitted @ self.later.turn
        if self.information is None:
            return Local(network + moved, features, jnp.zeros_like(network))
        stated = self.prior.variance(x).astype(features.dtype)
        # The prior is that of the fit: later data change what is carried, not what is implied.
        carried, implied = jnp.sum(features**2, axis=2), jnp.sum(fitted**2 * self.information, axis=2)
        # Inside the root nothing is zero, also where a branch is not taken: its derivative would be infinite.
        # A kernel that cannot be taken through an operator states nothing.
        stated = jnp.where(jnp.isnan(stated), implied, stated)
        correlation = self._correlation_with_region(x, stated)
        told = correlation**2 * stated
        above = implied > told
        # The correlation is outside the root, because it may be zero; a root beyond 1e6 would be of features that are.
        excess = jnp.where(above, jnp.minimum(stated / jnp.where(above, implied, 1.0), 1e12), 1.0)
        shrink = jnp.where(above, correlation * jnp.sqrt(jnp.where(excess > 0, excess, 1.0)) * (excess > 0), 1.0)
        unexplained = jnp.maximum(told - implied, 0.0)
        if not self.missed_as_noise:
            seen_by_data = jnp.where(implied > 0, carried / jnp.where(implied > 0, implied, 1.0), 1.0)
            unexplained = unexplained * jnp.minimum(seen_by_data, 1.0)
        # The network's own mean is moved only by data that came after it.
        mean = self.prior.mean_at(x) if self.refined else self._returning(x, network, correlation)
        return Local(mean + shrink * moved, shrink[:, :, None] * features, unexplained + (stated - told))

    def _correlation_with_region(self, x, like: Float[Array, "n q"]) -> Float[Array, "n q"]:
        r"""$\rho(x)$, the prior's correlation between an input and the nearest point of the box of the context points: 1 inside.

        Outside, the features are whatever the network's saturation makes of them. They may carry $\rho^2 k$ of the variance k, so
        that the prior returns with the distance as its kernel says. What an operator sees there goes with the function, unless it
        sees nothing outside, as an integral between fixed bounds.
        """
        prior = self.prior if isinstance(self.prior, Prior) else self.prior.prior
        flat, points = (values.reshape(values.shape[0], -1) for values in (x, self.context_points))
        nearest = jnp.clip(flat, jnp.min(points, axis=0), jnp.max(points, axis=0))
        outside = jnp.any(nearest != flat, axis=1, keepdims=True)
        # Inside, any other point will do: the derivative of a distance of zero could be infinite.
        found = prior.correlation(flat, jnp.where(outside, nearest, flat + 1.0))
        if not isinstance(self.prior, Prior):
            found = jnp.broadcast_to(jnp.min(found, axis=1, keepdims=True), like.shape)
            outside = outside & sees_outside(self.prior, x, points)
        return jnp.where(outside, jnp.clip(found.astype(like.dtype), 0.0, 1.0), 1.0)

    def noise_variance(self, local: "Local") -> Float[Array, "n t"] | None:
        """Variance of new targets around the function."""
        if self.likelihood is None:
            return None
        noise, width = self.likelihood.noise_variance(local.mean), local.mean.shape[1]
        if noise is None or noise.shape[1] == width:
            return noise
        # Heteroscedastic noise is itself uncertain: E[exp(2 g)] for Gaussian g.
        return noise * jnp.exp(2 * local.variance[:, noise.shape[1] :])


class Seen(NamedTuple):
    """What the linearised network sees at n inputs.

    Attributes:
        network: f(x), (n, q).
        moved: J(x) s, (n, q).
        features: J(x) S, (n, q, r), as fitted.
    """

    network: Float[Array, "n q"]
    moved: Float[Array, "n q"]
    features: Float[Array, "n q r"]


class Local(NamedTuple):
    """The process at each of n inputs.

    Attributes:
        mean: of the function, (n, q).
        features: a(x) J(x) S T, (n, q, r); without later data T is the identity.
        unexplained: u(x), (n, q).
    """

    mean: Float[Array, "n q"]
    features: Float[Array, "n q r"]
    unexplained: Float[Array, "n q"]

    @property
    def variance(self) -> Float[Array, "n q"]:
        """Of the function."""
        return jnp.sum(self.features**2, axis=2) + self.unexplained


def sees_outside(prior: SeenPrior, x: Float[Array, "n ..."], points: Float[Array, "m d"]) -> Bool[Array, "n 1"]:
    """Whether an operator sees, at each input, anything of a wave that is cut out of the box of some points."""
    lower, upper = jnp.min(points, axis=0), jnp.max(points, axis=0)
    phases = jnp.arange(1.0, prior.prior.num_outputs + 1, dtype=x.dtype)

    def beyond(point):
        flat = point.reshape(-1)
        wave = jnp.sin(flat @ jnp.sqrt(jnp.arange(2.0, flat.size + 2, dtype=x.dtype)) + phases)
        return jnp.where(jnp.any((flat < lower) | (flat > upper)), wave, 0.0)

    return jax.vmap(lambda row: jnp.any(prior.operator.derivative(beyond)(row) != 0, keepdims=True))(x).reshape(-1, 1)


_M = TypeVar("_M", bound=eqx.Module)


def assembled(kind: type[_M], fields: Mapping[str, Any]) -> _M:
    """A module from all its fields, which were part of a module before: Equinox looks at each for a tenth of a millisecond."""
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


@eqx.filter_jit
def see_block(linear: LinearModel, x) -> Seen:
    """What the network sees at one block of rows."""
    model, scale, shift = linear.model, linear.scale, linear.shift
    if route(model, x, scale.shape[0]) == "rows":
        return see_rows(linear, x)
    moved = push_forward_block(model, x, shift[None])[:, :, 0]
    return Seen(model(x), moved, push_forward_block(model, x, scale))


def see_rows(linear: LinearModel, x) -> Seen:
    """What the network sees at few inputs, by the rows of its Jacobian and one matrix product."""
    network, rows = outputs_and_jacobian(linear.model, x)
    # Named, so that whoever takes derivatives can keep the one product that costs.
    features = checkpoint_name(jnp.einsum("np,rp->nr", rows, linear.scale), "features").reshape(*network.shape, -1)
    return Seen(network, (rows @ linear.shift).reshape(network.shape), features)


@eqx.filter_jit
def local_at(linear: LinearModel, x, seen: Seen) -> Local:
    """The process at inputs, compiled."""
    return linear.at(x, seen)


@eqx.filter_jit
def local_block(linear: LinearModel, x) -> Local:
    """The process at few rows."""
    return linear.at(x, see_rows(linear, x))
