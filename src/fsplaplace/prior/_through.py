r"""The prior seen through operators: moments of $L[f]$ for $f \sim \mathcal{GP}(\mu, \Sigma)$, by differentiating the kernel."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fsplaplace.operators import Operator

if TYPE_CHECKING:
    from fsplaplace.prior._prior import Prior


class SeenPrior(eqx.Module):
    r"""$L[f]$ for a linear operator L: a Gaussian process again, with mean $L[\mu]$ and covariance $L_x \Sigma(x, y) M_y$.

    Attributes:
        prior: of f.
        operator: L; of an affine one, such as a tangent, covariances are those of its linear part.
        stated: whether the kernel can be taken through L; if not, variances are NaN.
    """

    prior: "Prior"
    operator: Operator
    stated: bool = eqx.field(static=True, default=True)

    def mean_at(self, x: Float[Array, "n ..."]) -> Float[Array, "n k"]:
        r"""$L[\mu](x)$, also where L is not linear."""
        return jax.vmap(lambda row: jnp.ravel(self.operator(lambda u: self.prior.mean_at(u[None])[0])(row)))(x)

    def variance(self, x: Float[Array, "n ..."]) -> Float[Array, "n k"]:
        r"""Variance of each of the values of $L[f](x)$. Time: that of n covariances of one point with itself."""
        if not self.stated:
            return jnp.full_like(self.mean_at(x), jnp.nan)
        return jax.vmap(lambda row: jnp.diagonal(self._pair(row, row, self.operator)))(x)

    def covariance(
        self, x: Float[Array, "n ..."], y: Float[Array, "m ..."], other: Operator | None = None
    ) -> Float[Array, "n k m l"]:
        """Covariance of $L[f](x)$ with $M[f](y)$, M the other operator (L itself by default). Time $O(n m)$."""
        other = self.operator if other is None else other
        rows = jax.vmap(lambda one: jax.vmap(lambda two: self._pair(one, two, other))(y))(x)
        return jnp.swapaxes(rows, 1, 2)

    def _pair(self, x: Float[Array, "..."], y: Float[Array, "..."], other: Operator) -> Float[Array, "k l"]:
        """For one pair of points: M acts on rows of the kernel's matrix as functions of y, then L on columns as functions of x."""
        num_outputs = self.prior.num_outputs

        def kernel(u, v) -> Float[Array, "q q"]:
            return self.prior.covariance(u[None], v[None])[0, :, 0, :]

        def right(u) -> Float[Array, "q l"]:
            return jnp.stack(
                [jnp.ravel(other.derivative(lambda v, a=a: kernel(u, v)[a])(y)) for a in range(num_outputs)]
            )

        width = jax.eval_shape(right, x).shape[1]
        columns = [jnp.ravel(self.operator.derivative(lambda u, b=b: right(u)[:, b])(x)) for b in range(width)]
        return jnp.stack(columns, axis=1)
