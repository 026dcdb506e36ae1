"""Integrals and averages over intervals and boxes, by Gauss-Legendre quadrature."""

import itertools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.operators._operator import Operator

# Nodes for each column: so many, and so many for each length scale. A function of length scale l has frequencies up to
# about 7 / l, and n nodes integrate a wave exactly (1e-6) if half the interval has fewer than n - 8 of its radians.
_NODES, _NODES_PER_LENGTHSCALE, _MOST_NODES = 8, 4.0, 256
# Without a length scale to go by.
_USUAL_NODES = 20


class Integral(Operator):
    r"""$\int_{l(x)}^{u(x)} f(t)\, dt$ over a box, or its average.

    Attributes:
        lower: l, one number for each integrated column, or a function of x that gives them.
        upper: u, likewise.
        columns: the columns that are integrated over, all by default; the others stay as they are at x.
        nodes: Gauss-Legendre nodes for each column; None until the length scale of the prior is known.
        mean: whether it is divided by the volume of the box.
    """

    lower: Array | Callable
    upper: Array | Callable
    columns: tuple[int, ...] | None = eqx.field(static=True, default=None)
    nodes: int | None = eqx.field(static=True, default=None)
    mean: bool = eqx.field(static=True, default=False)

    def __call__(self, f):
        def integral(x):
            flat = x.reshape(-1)
            columns = self._columns(flat.size)
            lower, upper = self._bounds(x, columns)
            places, weights = _rule(self.nodes or _USUAL_NODES, len(columns))
            middle, half = (lower + upper) / 2, (upper - lower) / 2
            where = middle + half * jnp.asarray(places, x.dtype)
            points = jnp.broadcast_to(flat, (where.shape[0], flat.size)).at[:, np.array(columns)].set(where)
            values = jax.vmap(f)(points.reshape(-1, *x.shape))
            total = jnp.asarray(weights, values.dtype) @ values
            return total / 2 ** len(columns) if self.mean else total * jnp.prod(half)

        return integral

    @property
    def num_evaluations(self):
        if self.columns is not None:
            dimensions = len(self.columns)
        else:
            # Of bounds that move with x the number is known only at x.
            dimensions = 1 if callable(self.lower) else jnp.size(self.lower)
        return (self.nodes or _USUAL_NODES) ** dimensions

    @property
    def name(self):
        return "average" if self.mean else "integral"

    def resolve(self, lengthscale, points):
        columns = self._columns(math.prod(points.shape[1:]))
        few = jnp.asarray(points[:: max(1, len(points) // 256)])
        lower, upper = map(np.asarray, jax.vmap(lambda x: self._bounds(x, columns))(few))
        if not np.all(lower < upper):
            raise ValueError(
                f"operators.{self.name}: a lower bound is not below the upper one at some x; check the functions"
            )
        if self.nodes is not None:
            return self
        width = np.max(upper - lower, axis=0)
        periods = float(np.max(width / np.asarray(lengthscale)[list(columns)], initial=0.0))
        nodes = min(_NODES + math.ceil(_NODES_PER_LENGTHSCALE * periods), _MOST_NODES)
        return Integral(self.lower, self.upper, self.columns, nodes, self.mean)

    def _columns(self, size: int) -> tuple[int, ...]:
        columns = tuple(range(size)) if self.columns is None else self.columns
        if max(columns) >= size:
            raise ValueError(f"operators.{self.name}: column {max(columns)} of an input with {size} columns")
        return columns

    def _bounds(self, x, columns: tuple[int, ...]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        return self._bound(self.lower, x, columns), self._bound(self.upper, x, columns)

    def _bound(self, bound, x, columns: tuple[int, ...]) -> Float[Array, " k"]:
        values = jnp.asarray(bound(x) if callable(bound) else bound).astype(x.dtype).reshape(-1)
        if callable(bound) and values.size == x.size:
            values = values[np.array(columns)]
        if values.size not in (1, len(columns)):
            raise ValueError(
                f"operators.{self.name}: a bound has {values.size} numbers, but {len(columns)} columns are integrated over; "
                "pass one for each, or choose them with columns"
            )
        return jnp.broadcast_to(values, (len(columns),))


@checked
def integral(
    lower: ArrayLike | Callable,
    upper: ArrayLike | Callable,
    *,
    columns: tuple[int, ...] | None = None,
    nodes: int | None = None,
) -> Integral:
    """The integral of every output over an interval or a box, which may move with x.

    Args:
        lower: lower bounds, one for each column; or a function of x.
        upper: upper bounds, likewise.
        columns: which columns to integrate over; all by default.
        nodes: Gauss-Legendre nodes for each column; by default enough for the prior's length scales.

    ```python
    total = integral(0.0, 1.0)(lambda x: x**2)
    assert abs(total(jnp.zeros(1))[0] - 1 / 3) < 1e-6
    month = average(lambda x: x - 1 / 24, lambda x: x + 1 / 24)      # around x, in years
    ```
    """
    return _checked(lower, upper, columns, nodes, mean=False)


@checked
def average(
    lower: ArrayLike | Callable,
    upper: ArrayLike | Callable,
    *,
    columns: tuple[int, ...] | None = None,
    nodes: int | None = None,
) -> Integral:
    """The mean of every output over an interval or a box: `integral` divided by the volume, with the same arguments."""
    return _checked(lower, upper, columns, nodes, mean=True)


def _checked(lower, upper, columns, nodes, *, mean: bool) -> Integral:
    name = "average" if mean else "integral"
    if columns is not None and (not columns or len(set(columns)) < len(columns) or min(columns) < 0):
        raise ValueError(f"operators.{name}: columns are {columns}; pass different column numbers from 0 on")
    low, high = (bound if callable(bound) else np.asarray(bound, dtype=float) for bound in (lower, upper))
    numbers = [bound for bound in (low, high) if isinstance(bound, np.ndarray)]
    if not all(np.all(np.isfinite(bound)) for bound in numbers):
        raise ValueError(f"operators.{name}: the bounds are {lower} and {upper}; pass finite numbers")
    if len(numbers) == 2 and not np.all(numbers[0] < numbers[1]):
        raise ValueError(f"operators.{name}: lower is {lower}, upper {upper}; pass lower bounds below the upper ones")
    chosen = None if columns is None else tuple(map(int, columns))
    return Integral(_placed(low), _placed(high), chosen, nodes, mean)


def _placed(bound):
    return bound if callable(bound) else jnp.asarray(bound)


def _rule(nodes: int, dimensions: int) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, " k"]]:
    """Places in [-1, 1]^d and weights that add up to 2^d."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    grid = np.array(list(itertools.product(places, repeat=dimensions)))
    return grid, np.prod(np.array(list(itertools.product(weights, repeat=dimensions))), axis=1)
