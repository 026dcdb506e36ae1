"""Differential operators: partial and directional derivatives, gradient, divergence, curl, Laplacian."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.operators._operator import Operator


class Partial(Operator):
    r"""$\partial^k f / \partial x_i \partial x_j \cdots$ of every output.

    Attributes:
        columns: i, j, ...: columns of the (flattened) input.
    """

    columns: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, f):
        for column in self.columns:
            f = _along(f, column)
        return f

    @property
    def order(self):
        return len(self.columns)

    @property
    def name(self):
        return f"partial({', '.join(map(str, self.columns))})"


@checked
def partial(*columns: int) -> Partial:
    """The derivative along these columns of the input, one after the other: `partial(0, 0)` is the second along the first.

    ```python
    slope = partial(0)(lambda x: x**3)
    assert slope(jnp.array([2.0]))[0] == 12.0
    ```
    """
    if not columns or min(columns) < 0:
        raise ValueError(f"operators.partial: columns are {columns}; pass one or more column numbers from 0 on")
    return Partial(columns)


class Directional(Operator):
    r"""$v(x) \cdot \nabla f(x)$ of every output.

    Attributes:
        direction: v, one number for each column, or a function of x that gives them.
    """

    direction: Array | Callable

    def __call__(self, f):
        def derivative(x):
            direction = self.direction(x) if callable(self.direction) else self.direction
            return jax.jvp(f, (x,), (jnp.asarray(direction).astype(x.dtype).reshape(x.shape),))[1]

        return derivative

    @property
    def order(self):
        return 1

    @property
    def name(self):
        return "directional(function)" if callable(self.direction) else "directional(v)"


@checked(finite=True)
def directional(direction: ArrayLike | Callable) -> Directional:
    """The derivative along a vector, or along a vector field (a function of x): flow through a coast, advection."""
    return Directional(direction if callable(direction) else jnp.asarray(direction, dtype=float))


class _OverColumns(Operator):
    """A differential operator over some columns of the input; over all of them unless `over` says which."""

    columns: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @checked
    def over(self, *columns: int):
        """The same over these columns only: `laplacian.over(1, 2)` if column 0 is time."""
        partial(*columns)
        return type(self)(columns)

    @property
    def order(self) -> int:
        return 1

    @property
    def name(self):
        base = type(self).__name__.lower()
        return base if self.columns is None else f"{base}.over({', '.join(map(str, self.columns))})"

    def _columns(self, x) -> tuple[int, ...]:
        return tuple(range(x.size)) if self.columns is None else self.columns

    def _jacobian(self, f, x) -> Array:
        """Derivatives of every output along the columns, (q, d)."""
        return jnp.stack([_along(f, column)(x).ravel() for column in self._columns(x)], axis=1)


class Gradient(_OverColumns):
    r"""$\nabla f$: the derivatives of the first output, then of the second: q d numbers."""

    def __call__(self, f):
        return lambda x: self._jacobian(f, x).ravel()


class Divergence(_OverColumns):
    r"""$\sum_i \partial f_i / \partial x_i$ of a field with as many outputs as columns."""

    def __call__(self, f):
        return lambda x: jnp.trace(_square(self._jacobian(f, x), self.name))[None]


class Curl(_OverColumns):
    r"""$\partial_1 f_2 - \partial_2 f_1$ in the plane, $\nabla \times f$ in space."""

    def __call__(self, f):
        def curl(x):
            slopes = _square(self._jacobian(f, x), self.name)
            if slopes.shape[0] == 2:
                return (slopes[1, 0] - slopes[0, 1])[None]
            if slopes.shape[0] != 3:
                raise ValueError(
                    f"operators.curl: the field has {slopes.shape[0]} columns; pass 2 or 3, or choose them with curl.over"
                )
            return jnp.stack([slopes[(i + 2) % 3, (i + 1) % 3] - slopes[(i + 1) % 3, (i + 2) % 3] for i in range(3)])

        return curl


class Laplacian(_OverColumns):
    r"""$\sum_i \partial^2 f / \partial x_i^2$ of every output."""

    def __call__(self, f):
        def laplacian(x):
            return jnp.sum(jnp.stack([_along(_along(f, column), column)(x) for column in self._columns(x)]), axis=0)

        return laplacian

    @property
    def order(self):
        return 2


gradient, divergence, curl, laplacian = Gradient(), Divergence(), Curl(), Laplacian()


def _along(f, column: int):
    def derivative(x):
        if column >= x.size:
            raise ValueError(f"operators: column {column} of an input with {x.size} columns; they count from 0")
        tangent = jnp.zeros(x.size, x.dtype).at[column].set(1.0).reshape(x.shape)
        return jax.jvp(f, (x,), (tangent,))[1]

    return derivative


def _square(slopes: Array, name: str) -> Array:
    outputs, columns = slopes.shape
    if outputs != columns:
        raise ValueError(
            f"operators.{name}: the function has {outputs} outputs, but {columns} columns; pass a field with one output for "
            f"each column, or choose columns with `over`"
        )
    return slopes
