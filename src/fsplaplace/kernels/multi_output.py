"""Kernels of vector-valued functions: covariance between outputs at pairs of points."""

import abc
import dataclasses
import functools
import operator

import jax
import jax.numpy as jnp
import lineax as lx
from gpjax.kernels import AbstractKernel, MultiOutputKernel
from gpjax.kernels.computations import AbstractKernelComputation
from gpjax.typing import Array as AnyArray
from jaxtyping import Array, Float

from .engine import covariances, variance


def num_outputs(kernel: AbstractKernel) -> int | None:
    """Number of outputs q that the kernel couples, None for a scalar kernel."""
    return kernel.num_outputs if isinstance(kernel, BlockKernel | MultiOutputKernel) else None


def block_covariance(
    kernel: AbstractKernel, x: Float[AnyArray, "n d"], y: Float[AnyArray, "m d"]
) -> Float[Array, "n q m q"]:
    """Covariance of output a at x_i with output b at y_j, in place [i, a, j, b].

    For GPJax's ICM and LCM kernels this is sum_r B^r_ab k^r(x_i, y_j); their own `cross_covariance` holds the
    same numbers output by output, as a (q n) x (q m) matrix.

    Args:
        kernel: a multi-output kernel: `BlockKernel`, `ICMKernel` or `LCMKernel`.
        x: n points, one per row.
        y: m points, one per row.

    Returns:
        The covariance as an array of shape (n, q, m, q).

    Cost: that of `covariance` for each latent kernel, and n m q².
    """
    if isinstance(kernel, BlockKernel):
        return kernel.block_covariance(x, y)
    latent_covariances = covariances(_latent_kernels(kernel), x, y)
    blocks = [
        jnp.einsum("ab,nm->namb", matrix, latent)
        for matrix, latent in zip(_coregionalizations(kernel), latent_covariances, strict=True)
    ]
    return functools.reduce(operator.add, blocks)


def block_variance(kernel: AbstractKernel, x: Float[AnyArray, "n d"]) -> Float[Array, "n q"]:
    """Variance of every output at every point, the diagonal of `block_covariance(kernel, x, x)`.

    Args:
        kernel: a multi-output kernel: `BlockKernel`, `ICMKernel` or `LCMKernel`.
        x: n points, one per row.

    Returns:
        The variances as an array of shape (n, q). Cost: n q² per latent kernel.
    """
    if isinstance(kernel, BlockKernel):
        return kernel.block_variance(x)
    variances = [
        jnp.outer(variance(latent, x), jnp.diag(matrix))
        for matrix, latent in zip(_coregionalizations(kernel), _latent_kernels(kernel), strict=True)
    ]
    return functools.reduce(operator.add, variances)


@dataclasses.dataclass(frozen=True)
class BlockComputation(AbstractKernelComputation):
    """GPJax compute engine of a `BlockKernel`: matrices output by output, as GPJax's ICM and LCM kernels."""

    def _cross_covariance(
        self, kernel: "BlockKernel", x: Float[AnyArray, "n d"], y: Float[AnyArray, "m d"]
    ) -> Float[Array, "qn qm"]:
        blocks = kernel.block_covariance(x, y)
        n, q, m, _ = blocks.shape
        return blocks.transpose(1, 0, 3, 2).reshape(q * n, q * m)

    def _diagonal(self, kernel: "BlockKernel", inputs: Float[AnyArray, "n d"]) -> lx.AbstractLinearOperator:
        diagonal = lx.DiagonalLinearOperator(kernel.block_variance(inputs).T.reshape(-1))
        return lx.TaggedLinearOperator(diagonal, lx.positive_semidefinite_tag)


class BlockKernel(AbstractKernel):
    """A kernel whose value k(x, y) is a q x q matrix; subclass it for one that is no sum of B ⊗ k terms."""

    def __init__(self, active_dims: list[int] | slice | None = None, n_dims: int | None = None):
        super().__init__(active_dims=active_dims, n_dims=n_dims, compute_engine=BlockComputation())

    @property
    @abc.abstractmethod
    def num_outputs(self) -> int:
        """Number of outputs q."""

    @abc.abstractmethod
    def block_covariance(self, x: Float[AnyArray, "n d"], y: Float[AnyArray, "m d"]) -> Float[Array, "n q m q"]:
        """Covariance of output a at x_i with output b at y_j."""

    def block_variance(self, x: Float[AnyArray, "n d"]) -> Float[Array, "n q"]:
        """Variance of every output at x_i."""
        return jax.vmap(lambda point: jnp.diag(self(point, point)))(jnp.asarray(x))

    def __call__(self, x: Float[AnyArray, " d"], y: Float[AnyArray, " d"]) -> Float[Array, "q q"]:
        """The q x q covariance of the outputs at one pair of points."""
        return self.block_covariance(x[None], y[None])[0, :, 0, :]


def _coregionalizations(kernel: AbstractKernel) -> list[Float[Array, "q q"]]:
    return [jnp.asarray(matrix.B) for matrix, _ in _as_multi_output(kernel).components]


def _latent_kernels(kernel: AbstractKernel) -> list[AbstractKernel]:
    return [latent for _, latent in _as_multi_output(kernel).components]


def _as_multi_output(kernel: AbstractKernel) -> MultiOutputKernel:
    if not isinstance(kernel, MultiOutputKernel):
        raise ValueError(
            f"kernel {type(kernel).__name__} is scalar, but a multi-output kernel is wanted here; "
            "call covariance or variance, or pass a BlockKernel, ICMKernel or LCMKernel"
        )
    return kernel
