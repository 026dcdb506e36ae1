r"""Gaussian covariances over weights, $\Sigma = F F^\top$, in the forms that weight-space methods use.

A covariance multiplies a Jacobian by its root and turns standard normal noise into weights; nothing else is needed
to predict and to sample.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class WeightCovariance(eqx.Module):
    """A covariance over all p weights, known by its root F."""

    @abc.abstractmethod
    def project(self, jacobian: Float[Array, "n q p"]) -> Float[Array, "n q r"]:
        r"""$J F$: features whose inner products are the covariances of the outputs."""

    @abc.abstractmethod
    def draw(self, noise: Float[Array, "s p"]) -> Float[Array, "s p"]:
        r"""$F \epsilon$ for each row of noise: draws from $\mathcal N(0, \Sigma)$."""


class DiagonalCovariance(WeightCovariance):
    """Independent weights; `scale` holds their standard deviations."""

    scale: Float[Array, " p"]

    def project(self, jacobian):
        return jacobian * self.scale

    def draw(self, noise):
        return noise * self.scale


class LowRankUpdateCovariance(WeightCovariance):
    r"""$F = D^{1/2}(I - V \,\mathrm{diag}(c)\, V^\top)$ with orthonormal columns V: a prior tightened along k directions.

    The inverse of $D^{-1} + R^\top R$ has this form with $V$ the right singular vectors of $R D^{1/2}$ and
    $c = 1 - (1 + s^2)^{-1/2}$. The root, unlike the covariance itself, loses no digits where the data say much.
    """

    prior_scale: Float[Array, " p"]
    directions: Float[Array, "k p"]
    shrinkage: Float[Array, " k"]

    def project(self, jacobian):
        scaled = jacobian * self.prior_scale
        return scaled - ((scaled @ self.directions.T) * self.shrinkage) @ self.directions

    def draw(self, noise):
        return (noise - ((noise @ self.directions.T) * self.shrinkage) @ self.directions) * self.prior_scale


class KroneckerBlock(eqx.Module):
    r"""One layer: weights $\sim (U_G \otimes U_A)\,\mathrm{diag}(\text{scale}^2)\,(U_G \otimes U_A)^\top$, and its bias.

    `slots` are where the layer's kernel and bias start in the vector of all weights; -1 for no bias.
    """

    output_basis: Float[Array, "o o"]
    input_basis: Float[Array, "i i"]
    weight_scale: Float[Array, "o i"]
    bias_scale: Float[Array, " o"] | None
    weight_slot: int = eqx.field(static=True)
    bias_slot: int = eqx.field(static=True)


class KroneckerCovariance(WeightCovariance):
    """A Kronecker-factored block for each layer (K-FAC), independent between layers."""

    blocks: tuple[KroneckerBlock, ...]

    def project(self, jacobian):
        parts = []
        for block in self.blocks:
            o, i = block.weight_scale.shape
            rows = jacobian[..., block.weight_slot : block.weight_slot + o * i].reshape(*jacobian.shape[:2], o, i)
            rotated = jnp.einsum("nqoi,oa,ib->nqab", rows, block.output_basis, block.input_basis, optimize=True)
            parts.append((rotated * block.weight_scale).reshape(*jacobian.shape[:2], o * i))
            if block.bias_scale is not None:
                bias = jacobian[..., block.bias_slot : block.bias_slot + o]
                parts.append((bias @ block.output_basis) * block.bias_scale)
        return jnp.concatenate(parts, axis=-1)

    def draw(self, noise):
        draws = jnp.zeros_like(noise)
        for block in self.blocks:
            o, i = block.weight_scale.shape
            slots = slice(block.weight_slot, block.weight_slot + o * i)
            scaled = noise[:, slots].reshape(-1, o, i) * block.weight_scale
            weights = jnp.einsum("oa,sab,ib->soi", block.output_basis, scaled, block.input_basis, optimize=True)
            draws = draws.at[:, slots].set(weights.reshape(-1, o * i))
            if block.bias_scale is not None:
                slots = slice(block.bias_slot, block.bias_slot + o)
                draws = draws.at[:, slots].set((noise[:, slots] * block.bias_scale) @ block.output_basis.T)
        return draws
