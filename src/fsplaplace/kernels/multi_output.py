"""Kernels of vector-valued functions: blocks of covariance between outputs."""

import abc

import jax.numpy as jnp
from gpjax.kernels import AbstractKernel, MultiOutputKernel
from jaxtyping import Array, Float

from .engine import covariance, variance


class BlockKernel(AbstractKernel):
    """A kernel whose value at a pair of points is a q x q matrix that is no sum of B ⊗ k terms."""

    @property
    @abc.abstractmethod
    def num_outputs(self) -> int:
        """Number of outputs q."""

    @abc.abstractmethod
    def block_covariance(self, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "n q m q"]:
        """Covariance of output a at x_i with output b at y_j."""

    @abc.abstractmethod
    def block_variance(self, x: Float[Array, "n d"]) -> Float[Array, "n q"]:
        """Variance of every output at x_i."""


def num_outputs(kernel: AbstractKernel) -> int | None:
    """Number of outputs the kernel couples, None for a scalar kernel."""
    return kernel.num_outputs if isinstance(kernel, BlockKernel | MultiOutputKernel) else None


def block_covariance(
    kernel: AbstractKernel, x: Float[Array, "n d"], y: Float[Array, "m d"]
) -> Float[Array, "n q m q"]:
    """Covariance of output a at x_i with output b at y_j."""
    if isinstance(kernel, BlockKernel):
        return kernel.block_covariance(x, y)
    return sum(
        jnp.einsum("ab,nm->namb", matrix.B, covariance(latent, x, y)) for matrix, latent in kernel.components
    )


def block_variance(kernel: AbstractKernel, x: Float[Array, "n d"]) -> Float[Array, "n q"]:
    """Variance of every output at every point."""
    if isinstance(kernel, BlockKernel):
        return kernel.block_variance(x)
    return sum(jnp.outer(variance(latent, x), jnp.diag(matrix.B)) for matrix, latent in kernel.components)
