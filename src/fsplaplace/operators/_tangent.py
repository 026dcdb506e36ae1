r"""The affine operator next to one that is not linear: its tangent at a function (Gauss-Newton)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fsplaplace.operators._operator import Around


class _AtFunction(Around):
    """Something that an operator does next to a function.

    Attributes:
        base: g, a function of one point.
    """

    base: Callable

    @property
    def own(self):
        return True

    def resolve(self, lengthscale, points):
        return self

    def _values_and_slopes(self, f, x):
        """$L[g](x)$ and $L'_g[f](x)$."""

        def moved(step):
            return jnp.ravel(self.inner(lambda u: self.base(u) + step * f(u))(x))

        return jax.jvp(moved, (jnp.zeros((), x.dtype),), (jnp.ones((), x.dtype),))


class Tangent(_AtFunction):
    r"""$L[g] + L'_g[f - g]$, which is $L[f]$ to first order in $f - g$."""

    def __call__(self, f):
        def affine(x):
            value, slope = self._values_and_slopes(lambda u: f(u) - self.base(u), x)
            return value + slope

        return affine

    @property
    def linear(self):
        return False

    @property
    def derivative(self):
        return Derivative(self.inner, self.base)


class Derivative(_AtFunction):
    r"""$L'_g[f]$: linear in f."""

    @property
    def linear(self):
        return True

    def __call__(self, f):
        return lambda x: self._values_and_slopes(f, x)[1]
