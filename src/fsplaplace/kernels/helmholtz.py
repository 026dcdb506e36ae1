"""The Helmholtz kernel: plane vector fields as gradient of a potential plus curl of a stream function."""

import jax
import jax.numpy as jnp
from gpjax.kernels import AbstractKernel
from jaxtyping import Array, Float

from .engine import covariance
from .multi_output import BlockKernel


class Helmholtz(BlockKernel):
    """Covariance of grad Φ + rot Ψ for independent Φ ~ GP(0, potential), Ψ ~ GP(0, stream)."""

    potential: AbstractKernel
    stream: AbstractKernel

    def __init__(self, potential: AbstractKernel, stream: AbstractKernel):
        self.potential = potential
        self.stream = stream
        super().__init__()

    @property
    def num_outputs(self) -> int:
        return 2

    def __call__(self, x, y):
        return self.block_covariance(x[None], y[None])[0, :, 0, :]

    def block_covariance(self, x: Float[Array, "n 2"], y: Float[Array, "m 2"]) -> Float[Array, "n 2 m 2"]:
        curl_free = _mixed_derivatives(self.potential, x, y)
        rotated = _mixed_derivatives(self.stream, x, y)[..., ::-1, ::-1] * jnp.array(
            [[1, -1], [-1, 1]], x.dtype
        )
        return (curl_free + rotated).transpose(0, 2, 1, 3)

    def block_variance(self, x: Float[Array, "n 2"]) -> Float[Array, "n 2"]:
        return jax.vmap(lambda point: jnp.diag(self(point, point)))(x)


def _mixed_derivatives(kernel, x, y):
    """∂²k(x_i, y_j) / ∂x_a ∂y_b for all pairs at once: shifting all rows of x differentiates every entry."""
    zero = jnp.zeros(2, x.dtype)
    return jax.jacfwd(jax.jacfwd(lambda a, b: covariance(kernel, x + a, y + b), 0), 1)(zero, zero)
