"""The Helmholtz kernel: plane vector fields as gradient of a potential plus curl of a stream function."""

import functools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from gpjax.kernels import AbstractKernel
from gpjax.typing import Array as AnyArray
from jaxtyping import Array, Float

from fsplaplace.arguments import checked

from .engine import covariance
from .multi_output import BlockKernel


class Helmholtz(BlockKernel):
    r"""Covariance of the field F = ∇Φ + rot Ψ with independent Φ ~ GP(0, k_Φ) and Ψ ~ GP(0, k_Ψ).

    $$
    K(x, y) = \nabla_x \nabla_y^\top k_\Phi(x, y) + R\, \nabla_x \nabla_y^\top k_\Psi(x, y)\, R^\top,
    \qquad R = \begin{pmatrix} 0 & 1 \\ -1 & 0 \end{pmatrix}
    $$

    The first part has no curl, the second no divergence. Any scalar kernel with mixed second derivatives
    will do: RBF, Matérn-3/2 and smoother, rational quadratic, their sums and products. An RBF of variance
    v and length scale ℓ contributes v / ℓ² to the variance of each component of the field.

    Reference: Berlinghieri et al. (2023), Gaussian processes at the Helm(holtz).

    Examples:
        >>> fsp.kernels.num_outputs(fsp.kernels.Helmholtz(RBF(), RBF()))
        2
    """

    potential: AbstractKernel | None = None
    stream: AbstractKernel | None = None

    @checked
    def __init__(
        self,
        potential: AbstractKernel | None = None,
        stream: AbstractKernel | None = None,
        active_dims: Sequence[int] | slice | None = None,
    ):
        """Combine the kernels of potential and stream function.

        Args:
            potential: kernel of Φ; None for a field without divergence.
            stream: kernel of Ψ; None for a field without curl.
            active_dims: the two columns of the input that span the plane.
        """
        if potential is None and stream is None:
            raise ValueError("Helmholtz got neither potential nor stream; pass a kernel for at least one")
        self.potential = potential
        self.stream = stream
        columns = active_dims if active_dims is None or isinstance(active_dims, slice) else list(active_dims)
        super().__init__(active_dims=columns, n_dims=2)

    @property
    def num_outputs(self) -> int:
        """Two: the components of the field."""
        return 2

    def block_covariance(self, x: Float[AnyArray, "n d"], y: Float[AnyArray, "m d"]) -> Float[Array, "n 2 m 2"]:
        """Covariance of component a at x_i with component b at y_j.

        Args:
            x: n points, one per row.
            y: m points, one per row.

        Returns:
            The covariance as an array of shape (n, 2, m, 2). Cost: four derivatives of each n x m matrix.
        """
        x, y = self._plane(x), self._plane(y)
        parts = []
        if self.potential is not None:
            parts.append(_mixed_derivatives(self.potential, x, y))
        if self.stream is not None:
            parts.append(_rotated(_mixed_derivatives(self.stream, x, y)))
        return functools.reduce(operator.add, parts).transpose(0, 2, 1, 3)

    def _plane(self, points):
        points = jnp.asarray(self.slice_input(jnp.asarray(points)))
        if points.shape[1] != 2:
            raise ValueError(
                f"Helmholtz acts on 2 columns, but got points with {points.shape[1]}; choose two with active_dims"
            )
        return points.astype(jnp.promote_types(points.dtype, jnp.float32))


def _mixed_derivatives(kernel, x, y) -> Float[Array, "n m 2 2"]:
    """∂²k(x_i, y_j) / ∂x_a ∂y_b of all pairs: a shift of all rows differentiates every entry at once."""
    still = jnp.zeros(2, x.dtype)
    by_x = jax.jacfwd(lambda s, t: covariance(kernel, x + s, y + t), argnums=0)
    return jax.jacfwd(by_x, argnums=1)(still, still)


def _rotated(h: Float[Array, "n m 2 2"]) -> Float[Array, "n m 2 2"]:
    """R h Rᵀ: the entries swap places, and those off the diagonal their sign."""
    return h[..., ::-1, ::-1] * jnp.array([[1, -1], [-1, 1]], h.dtype)
