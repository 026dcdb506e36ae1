r"""The linear operator next to one that is not linear: its derivative at a function (Gauss-Newton)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fsplaplace.operators._operator import Function, Operator


class Tangent(Operator):
    r"""$L'_g$, the derivative of $L$ at $g$: $L[f] \approx L[g] + L'_g[f - g]$; exactly linear in f.

    Attributes:
        inner: L.
        base: g, a function of one point.
    """

    inner: Operator
    base: Callable

    def __call__(self, f):
        def derivative(x):
            def moved(step):
                return jnp.ravel(self.inner(lambda u: self.base(u) + step * f(u))(x))

            return jax.jvp(moved, (jnp.zeros((), x.dtype),), (jnp.ones((), x.dtype),))[1]

        return derivative

    def constant(self) -> Function:
        """$L[g] - L'_g[g]$: what is added to $L'_g[f]$ to make $L[f]$, to first order in f - g."""
        at, along = self.inner(self.base), self(self.base)
        return lambda x: jnp.ravel(at(x)) - along(x)

    @property
    def order(self):
        return self.inner.order

    @property
    def num_evaluations(self):
        return self.inner.num_evaluations

    @property
    def name(self):
        return self.inner.name
