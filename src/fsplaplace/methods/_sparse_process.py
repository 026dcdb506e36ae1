"""q sparse variational Gaussian processes over common inducing inputs, each one of GPJax's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from gpjax.gps import Prior as GPJaxPrior
from gpjax.kernels import AbstractKernel
from gpjax.likelihoods import Gaussian as GPJaxGaussian
from gpjax.mean_functions import Zero
from gpjax.parameters import LowerTriangular
from gpjax.variational_families import WhitenedVariationalGaussian
from jaxtyping import Array, Float

_JITTER = 1e-6


class SparseProcess(eqx.Module):
    r"""$q(f) = \int p(f \mid u) \prod_o \mathcal N(u_o;\, L m_o,\, L S_o L^\top) \, du$ with $L L^\top = \Sigma(Z, Z)$.

    Attributes:
        kernels: one for all outputs, or one each.
        inducing_inputs: Z, (k, d).
        means: $m_o$, (q, k, 1).
        roots: the roots of $S_o$ as GPJax keeps them, (q, k (k + 1) / 2).
    """

    kernels: tuple[AbstractKernel, ...]
    inducing_inputs: Float[Array, "k d"]
    means: Float[Array, "q k 1"]
    roots: Float[Array, "q t"]

    @classmethod
    def at_prior(cls, kernels: tuple[AbstractKernel, ...], inducing_inputs, num_outputs: int) -> "SparseProcess":
        """With q(u) the prior itself."""
        size, dtype = inducing_inputs.shape[0], inducing_inputs.dtype
        root = LowerTriangular(jnp.eye(size, dtype=dtype))._flat
        zero = jnp.zeros((num_outputs, size, 1), dtype)
        return cls(kernels, inducing_inputs, zero, jnp.broadcast_to(root, (num_outputs, root.size)))

    def moments(self, x: Float[Array, "n d"]) -> tuple[Float[Array, "n q"], Float[Array, "n q"]]:
        """Mean (without the prior's) and variance at each point."""

        def one(family):
            marginal = family.condition(None)(x, covariance="diagonal")
            return marginal.mean, marginal.variance

        mean, variance = map(jnp.asarray, self._each(one))
        return mean.T, variance.T

    def joint(self, x: Float[Array, "n d"]) -> tuple[Float[Array, "n q"], Float[Array, "q n n"]]:
        """Mean, and covariance between points for each output."""

        def one(family):
            full = family.condition(None)(x, covariance="dense")
            return full.mean, full.covariance_matrix

        mean, covariance = map(jnp.asarray, self._each(one))
        return mean.T, covariance

    def divergence(self) -> Float[Array, ""]:
        """KL(q(u) || p(u)), over all outputs."""
        return jnp.sum(self._each(lambda family: family.prior_kl()))

    def with_best_posterior(self, X, residual: Float[Array, "n q"], noise_variance: Float[Array, "n q"]):
        r"""With the q(u) that maximises the bound under Gaussian noise: $S = (I + A A^\top)^{-1}$, $m = S A r / \sigma$,

        $A = L^{-1} \Sigma(Z, X) / \sigma$. Time $O(n k^2)$ per output.
        """

        def one(kernel, residual, noise):
            gram = kernel.gram(self.inducing_inputs).as_matrix()
            lower = jnp.linalg.cholesky(gram + _JITTER * jnp.eye(gram.shape[0], dtype=gram.dtype))
            cross = kernel.cross_covariance(self.inducing_inputs, X)
            scaled = jsl.solve_triangular(lower, cross, lower=True) / jnp.sqrt(noise)
            precision = jnp.eye(gram.shape[0], dtype=gram.dtype) + scaled @ scaled.T
            mean = jnp.linalg.solve(precision, scaled @ (residual / jnp.sqrt(noise)))
            covariance = jnp.linalg.inv(precision)
            root = jnp.linalg.cholesky(0.5 * (covariance + covariance.T))
            return mean[:, None], LowerTriangular(root)._flat

        if len(self.kernels) == 1:
            each = jax.vmap(lambda *columns: one(self.kernels[0], *columns))
            means, roots = each(residual.T, noise_variance.T)
        else:
            parts = [one(*part) for part in zip(self.kernels, residual.T, noise_variance.T, strict=True)]
            means, roots = (jnp.stack(part) for part in zip(*parts, strict=True))
        return eqx.tree_at(lambda tree: (tree.means, tree.roots), self, (means, roots))

    def _each(self, function):
        """`function` of each output's GPJax family, stacked."""
        if len(self.kernels) == 1:
            return jax.vmap(lambda *parts: function(self._family(self.kernels[0], *parts)))(self.means, self.roots)
        parts = zip(self.kernels, self.means, self.roots, strict=True)
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *[function(self._family(*part)) for part in parts])

    def _family(self, kernel: AbstractKernel, mean, root) -> WhitenedVariationalGaussian:
        model = GPJaxPrior(kernel=kernel, mean_function=Zero(), jitter=_JITTER) * GPJaxGaussian()
        identity = jnp.eye(mean.shape[0], dtype=mean.dtype)
        family = WhitenedVariationalGaussian(model, self.inducing_inputs, mean, identity)
        return eqx.tree_at(lambda tree: tree.variational_root_covariance._flat, family, root)
