"""What maps a function of one point to another function of one point, and the algebra of such maps."""

import abc
import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from fsplaplace.arguments import check_numbers, checked, seen

# A function of one point: of an input without its batch axis, to q numbers.
Function = Callable[[Float[Array, "..."]], Float[Array, " q"]]


class Operator(eqx.Module):
    r"""$L$: maps a function $f$ of one point to the function $L[f]$ of one point; `operator(f)(x)`.

    Operators add (`+`, `-`), scale by numbers and by functions of x (`*`, `/`), multiply pointwise (`first * second`, not
    linear), and follow each other (`outer @ inner`).

    ```python
    heat = partial(0) - 0.1 * partial(1, 1)                 # u_t - 0.1 u_xx
    burgers = partial(0) + value * partial(1) - 0.01 * partial(1, 1)
    assert heat.linear and not burgers.linear and heat.order == 2
    ```
    """

    @abc.abstractmethod
    def __call__(self, f: Function) -> Function:
        """L[f]."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """For messages."""

    @property
    def linear(self) -> bool:
        """Whether $L[a f + b g] = a L[f] + b L[g]$."""
        return True

    @property
    def derivative(self) -> "Operator":
        """The operator's linear part, for one that is linear or affine: what covariances are taken through."""
        return self

    @property
    def order(self) -> int:
        """The highest derivative it takes; the prior's functions must have more than that many."""
        return 0

    @property
    def own(self) -> bool:
        """Whether the library wrote all of it: what a user wrote is tried out before it is used."""
        return True

    @property
    def num_evaluations(self) -> int:
        """How many points of f one value of L[f] needs: what covariances of L[f] cost is its square."""
        return 1

    def resolve(self, lengthscale: Float[np.ndarray, " d"], points: Float[np.ndarray, "n ..."]) -> "Operator":
        """The operator with what it leaves open (nodes of an integral) chosen for functions that vary over these lengths."""
        return self

    @checked
    def map(self, function: Callable[[Array], Array], *, name: str = "") -> "Operator":
        """`function` of its values, point by point: `value.map(jnp.sin)`. Not linear."""
        return Mapped(self, function, name or getattr(function, "__name__", "function"))

    def __add__(self, other: "Operator") -> "Operator":
        return Sum(self, other) if isinstance(other, Operator) else NotImplemented

    def __sub__(self, other: "Operator") -> "Operator":
        return Sum(self, -1.0 * other) if isinstance(other, Operator) else NotImplemented

    def __neg__(self) -> "Operator":
        return -1.0 * self

    # An array times an operator is one operator, not an array of them.
    __array_ufunc__ = None

    def __mul__(self, factor) -> "Operator":
        if isinstance(factor, Operator):
            return Product(self, factor)
        return Scaled(self, factor if callable(factor) else jnp.asarray(self._numbers(factor, "factor"), dtype=float))

    def __rmul__(self, factor) -> "Operator":
        return self * factor

    def __truediv__(self, divisor) -> "Operator":
        if isinstance(divisor, Operator):
            raise TypeError(
                f"operators: the divisor of {self.name} is the operator {divisor.name}; multiply by "
                "divisor.map(lambda values: 1 / values)"
            )
        if callable(divisor):
            return Scaled(self, lambda x: 1.0 / jnp.asarray(divisor(x)))
        divisor = self._numbers(divisor, "divisor")
        if not isinstance(divisor, Tracer) and not np.all(divisor):
            raise ValueError(f"operators: the divisor of {self.name} is zero; pass other numbers")
        return self * (1.0 / divisor)

    def _numbers(self, values, role: str):
        """Finite numbers, or what JAX traces."""
        if isinstance(values, Tracer):
            return values
        where = f"operators: the {role} of {self.name}"
        array = check_numbers(values, where, wanted="numbers, a function of x or an operator")
        if array.size == 0 or not np.all(np.isfinite(array)):
            raise ValueError(f"{where} is {seen(array[()])}; pass finite numbers")
        return array

    def __matmul__(self, inner: "Operator") -> "Operator":
        return Composed(self, inner) if isinstance(inner, Operator) else NotImplemented

    def __repr__(self) -> str:
        return self.name


class _Pair(Operator):
    """Two operators in one."""

    first: Operator
    second: Operator

    @property
    def linear(self):
        return self.first.linear and self.second.linear

    @property
    def order(self):
        return max(self.first.order, self.second.order)

    @property
    def own(self):
        return self.first.own and self.second.own

    @property
    def num_evaluations(self):
        return self.first.num_evaluations + self.second.num_evaluations

    def resolve(self, lengthscale, points):
        return type(self)(self.first.resolve(lengthscale, points), self.second.resolve(lengthscale, points))


class Sum(_Pair):
    """$L[f] + M[f]$."""

    def __call__(self, f):
        first, second = self.first(f), self.second(f)
        return lambda x: first(x) + second(x)

    @property
    def name(self):
        return f"({self.first.name} + {self.second.name})"


class Product(_Pair):
    """$L[f] M[f]$, point by point; not linear."""

    def __call__(self, f):
        first, second = self.first(f), self.second(f)
        return lambda x: first(x) * second(x)

    @property
    def linear(self):
        return False

    @property
    def name(self):
        return f"({self.first.name} * {self.second.name})"


class Composed(_Pair):
    """$L[M[f]]$."""

    def __call__(self, f):
        return self.first(self.second(f))

    @property
    def order(self):
        return self.first.order + self.second.order

    @property
    def num_evaluations(self):
        return self.first.num_evaluations * self.second.num_evaluations

    @property
    def name(self):
        return f"{self.first.name} @ {self.second.name}"


class Around(Operator):
    """An operator made of another one, of which it takes what it does not say itself.

    Attributes:
        inner: the other one.
    """

    inner: Operator

    @property
    def linear(self):
        return self.inner.linear

    @property
    def order(self):
        return self.inner.order

    @property
    def own(self):
        return self.inner.own

    @property
    def num_evaluations(self):
        return self.inner.num_evaluations

    @property
    def name(self):
        return self.inner.name

    def resolve(self, lengthscale, points):
        return dataclasses.replace(self, inner=self.inner.resolve(lengthscale, points))


class Scaled(Around):
    """$a(x) L[f](x)$.

    Attributes:
        inner: L.
        factor: a: a number, one number for each output, or a function of x that gives one of these.
    """

    factor: Array | Callable

    def __call__(self, f):
        inner, factor = self.inner(f), self.factor
        if not callable(factor):
            return lambda x: (values := inner(x)) * factor.astype(values.dtype)
        return lambda x: factor(x) * inner(x)

    @property
    def name(self):
        factor = getattr(self.factor, "__name__", "function") if callable(self.factor) else _shown(self.factor)
        return f"{factor} * {self.inner.name}"


class Mapped(Around):
    """$h(L[f](x))$; not linear.

    Attributes:
        inner: L.
        function: h, of the values at one point.
        label: the name of h.
    """

    function: Callable = eqx.field(static=True)
    label: str = eqx.field(static=True)

    def __call__(self, f):
        inner = self.inner(f)
        return lambda x: self.function(inner(x))

    @property
    def linear(self):
        return False

    @property
    def name(self):
        return f"{self.label}({self.inner.name})"


def _shown(factor: Array) -> str:
    if isinstance(factor, jnp.ndarray) and factor.ndim == 0:
        try:
            return f"{float(factor):g}"
        except (TypeError, ValueError):  # traced
            return "number"
    return f"array{tuple(factor.shape)}"
