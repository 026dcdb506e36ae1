"""A factorised Gaussian over the weights of a network."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from fsplaplace._model import Model


class MeanField(eqx.Module):
    r"""$w \sim \mathcal N(\text{mean}, \mathrm{diag}\, s^2)$ with $s = \mathrm{softplus}(\text{unconstrained})$."""

    mean: Float[Array, " p"]
    unconstrained: Float[Array, " p"]

    @classmethod
    def around(cls, model: Model, scale: float) -> "MeanField":
        """Centred at the model's weights, with one scale."""
        mean = model.weights
        return cls(mean, jnp.full_like(mean, jnp.log(jnp.expm1(scale))))

    @property
    def scale(self) -> Float[Array, " p"]:
        return jax.nn.softplus(self.unconstrained)

    def draw(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "s p"]:
        return self.mean + self.scale * jr.normal(key, (num_samples, self.mean.shape[0]), self.mean.dtype)
