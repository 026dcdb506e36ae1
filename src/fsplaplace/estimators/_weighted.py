"""Observations that count more or less than once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from paramax import AbstractUnwrappable, non_trainable, unwrap

from fsplaplace.host import take_rows, to_device
from fsplaplace.likelihoods import Gaussian, Likelihood, Noise

# The least weight in a division: a row without weight has no information, not an infinite variance.
_SMALLEST = 1e-12


def weighted(
    likelihood: Likelihood, weights: Float[np.ndarray, " n"], relative: Float[np.ndarray, "n q"] | None = None
) -> Likelihood:
    """The likelihood with each row's logarithm multiplied by its weight.

    Args:
        likelihood: of one observation.
        weights: number of observations that each row stands for.
        relative: what the scale of Gaussian noise is multiplied by in each row; one if None.
    """
    if isinstance(likelihood, Gaussian):
        return WeightedGaussian(likelihood, weights, relative)
    return Weighted(likelihood, weights)


class Weighted(Likelihood):
    r"""$\log p(y_i \mid f_i)$ times $w_i$: the row counts as $w_i$ observations, and one of weight zero not at all.

    Args:
        likelihood: of one observation, without parameters that belong to single rows.
        weights: one per training row.
    """

    likelihood: Likelihood
    weights: AbstractUnwrappable

    def __init__(self, likelihood: Likelihood, weights: Float[np.ndarray, " n"]):
        self.likelihood = likelihood
        self.weights = non_trainable(_floats(weights))

    def log_density(self, output, target):
        return self.likelihood.log_density(output, target)

    def log_prob(self, outputs, targets):
        return self._each(outputs) * self.likelihood.log_prob(outputs, targets)

    def curvature(self, outputs, targets):
        return self._each(outputs)[:, None, None] * self.likelihood.curvature(outputs, targets)

    def curvature_product(self, outputs, targets, vectors):
        return self._each(outputs)[:, None, None] * self.likelihood.curvature_product(outputs, targets, vectors)

    def num_outputs(self, targets):
        return self.likelihood.num_outputs(targets)

    def check_targets(self, targets, *, num_rows):
        return self.likelihood.check_targets(targets, num_rows=num_rows)

    def rows(self, index):
        return eqx.tree_at(
            lambda tree: jax.tree.leaves(tree.weights), self, replace_fn=lambda leaf: take_rows(leaf, index)
        )

    def of_one(self):
        return self.likelihood

    def _each(self, outputs: Array) -> Float[Array, " n"]:
        return unwrap(self.weights).astype(outputs.dtype)


class WeightedGaussian(Gaussian):
    r"""`Weighted` for Gaussian noise: as informative as a scale of $\sigma g_i / \sqrt{w_i}$, and known to be Gaussian.

    Args:
        likelihood: with the scale σ that the rows share.
        weights: w, one per training row.
        relative: g, (n, q) or (n, 1); one if None.
    """

    weights: AbstractUnwrappable
    relative: AbstractUnwrappable | None

    def __init__(
        self, likelihood: Gaussian, weights: Float[np.ndarray, " n"], relative: Float[np.ndarray, "n q"] | None = None
    ):
        self.log_scale = likelihood.log_scale
        self.weights = non_trainable(_floats(weights))
        self.relative = None if relative is None else non_trainable(_floats(relative))

    @property
    def scale(self):
        each = jnp.maximum(unwrap(self.weights), _SMALLEST)
        return self._of_one_observation() / jnp.sqrt(each)[:, None]

    @property
    def per_row(self):
        return True

    def log_prob(self, outputs, targets):
        plain = self._of_one_observation().astype(outputs.dtype)
        squared = ((targets - outputs) / plain) ** 2 + 2 * jnp.log(plain) + jnp.log(2 * jnp.pi)
        return -0.5 * unwrap(self.weights).astype(outputs.dtype) * jnp.sum(squared, axis=-1)

    def noise(self, shape):
        weights = np.asarray(unwrap(self.weights), dtype=np.float64)[:, None]
        plain = np.asarray(self._of_one_observation(), dtype=np.float64) ** 2
        log_normaliser = -0.5 * float(np.sum(weights * np.broadcast_to(np.log(2 * np.pi * plain), shape)))
        variance = np.broadcast_to(plain / np.maximum(weights, _SMALLEST), shape)
        return Noise(variance, log_normaliser, shape[1] * float(np.sum(weights)))

    def rows(self, index):
        of_rows = lambda tree: jax.tree.leaves((tree.weights, tree.relative))  # noqa: E731
        return eqx.tree_at(of_rows, self, replace_fn=lambda leaf: take_rows(leaf, index))

    def of_one(self):
        return eqx.tree_at(lambda tree: tree.log_scale, Gaussian(), self.log_scale)

    def _of_one_observation(self) -> Float[Array, "..."]:
        """The scale of a single observation: a number, (q,), or one per row."""
        common = jnp.exp(unwrap(self.log_scale))
        return common if self.relative is None else common * unwrap(self.relative)


def _floats(values: Float[np.ndarray, "..."]) -> Float[Array, "..."]:
    """In JAX's default precision."""
    return to_device(values, jax.dtypes.canonicalize_dtype(float))
