"""All pairs of two sets of points, and the squared distances between them."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from gpjax.parameters import val
from jaxtyping import Array, Bool, Float

from ._distance import squared_distance


class Pairs:
    """Two sets of points and the squared distances already computed between them.

    Attributes:
        x: n points, one per row.
        y: m points, one per row.
        shape: (n, m).
    """

    def __init__(self, x: Float[Array, "n d"], y: Float[Array, "m d"]):
        self.x, self.y = x, y
        self.shape = (x.shape[0], y.shape[0])
        self._distances: dict[Any, Array] = {}

    def scaled_distance(self, kernel: Any) -> Float[Array, "n m"]:
        """|x_i - y_j|² over the kernel's columns, in units of its length scales."""
        lengthscale = jnp.asarray(val(kernel.lengthscale))
        columns = str(kernel.active_dims)  # lists and slices, neither hashable
        if lengthscale.size == 1:
            # Isotropic kernels of any length scale share the plain distance.
            plain = self._once(columns, lambda: self._distance(kernel, None))
            return plain / jnp.square(lengthscale.reshape(()))
        return self._once((columns, id(kernel.lengthscale)), lambda: self._distance(kernel, lengthscale))

    def coincident(self) -> Bool[Array, "n m"]:
        """True where all columns of two points agree (GPJax's white noise ignores active_dims, too)."""
        return self._once(str(slice(None)), lambda: squared_distance(self.x, self.y)) == 0.0

    def _distance(self, kernel, lengthscale):
        return squared_distance(kernel.slice_input(self.x), kernel.slice_input(self.y), lengthscale)

    def _once(self, key, compute: Callable[[], Array]) -> Array:
        if key not in self._distances:
            self._distances[key] = compute()
        return self._distances[key]
