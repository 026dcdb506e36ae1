"""A factorised Gaussian over the weights of a network."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from fsplaplace.networks import Model

# The scales end up spread over orders of magnitude around a common start, while the means move by a fraction of
# themselves: one optimiser step moves a scale's logarithm by this many times what it moves a mean.
_RATE = 5.0


class MeanField(eqx.Module):
    r"""$w \sim \mathcal N(\text{mean}, \mathrm{diag}\, s^2)$ with $s = \exp(5 \cdot \text{unconstrained})$."""

    mean: Float[Array, " p"]
    unconstrained: Float[Array, " p"]

    @classmethod
    def around(cls, model: Model, scale: float) -> "MeanField":
        """Centred at the model's weights, with one scale."""
        mean = model.weights
        return cls(mean, jnp.full_like(mean, jnp.log(scale) / _RATE))

    @property
    def scale(self) -> Float[Array, " p"]:
        return jnp.exp(_RATE * self.unconstrained)

    def draw(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "s p"]:
        """Weights in pairs on opposite sides of the mean, which halves the noise of what is averaged over them."""
        noise = jr.normal(key, (-(-num_samples // 2), self.mean.shape[0]), self.mean.dtype)
        noise = jnp.stack([noise, -noise], axis=1).reshape(-1, self.mean.shape[0])
        return self.mean + self.scale * noise[:num_samples]
