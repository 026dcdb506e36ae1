"""Operators that a user writes as plain functions, and what can be found out about them by trying."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.arguments import checked
from fsplaplace.host import in_float64
from fsplaplace.operators._operator import Around, Function, Operator
from fsplaplace.operators._outputs import value

# Largest relative departure from linearity in float64, and rows at which operators are tried.
_LINEAR, _TRIED = 1e-7, 8
# Largest relative difference after a shift, whose rounding derivatives see.
_SHIFTED = 1e-5
# Frequencies (over the spread of the inputs) between which the growth of L[sin] gives the order of L.
_FREQUENCIES, _LOW = (1e2, 1e3), 1e-9


class Custom(Operator):
    """An operator made of a function `lambda f: lambda x: ...`.

    Attributes:
        function: maps a function of one point to a function of one point.
        label: its name.
        is_linear: what its author says; None to have it tried out.
        highest: the highest derivative it takes; None to have it tried out.
    """

    function: Callable = eqx.field(static=True)
    label: str = eqx.field(static=True)
    is_linear: bool | None = eqx.field(static=True)
    highest: int | None = eqx.field(static=True)

    def __call__(self, f):
        return self.function(f)

    @property
    def linear(self):
        return bool(self.is_linear)

    @property
    def order(self):
        return self.highest or 0

    @property
    def own(self):
        return False

    @property
    def name(self):
        return self.label


class Settled(Around):
    """An operator with what was found out about it.

    Attributes:
        is_linear: whether it is linear.
        highest: the highest derivative it takes.
    """

    is_linear: bool = eqx.field(static=True)
    highest: int = eqx.field(static=True)

    def __call__(self, f):
        return self.inner(f)

    @property
    def linear(self):
        return self.is_linear

    @property
    def order(self):
        return self.highest

    @property
    def own(self):
        return True


@checked
def linear(function: Callable[[Function], Function], *, order: int | None = None, name: str | None = None) -> Custom:
    """A linear operator from a function; refused when used if it is not linear.

    Args:
        function: `lambda f: lambda x: ...` with ordinary JAX inside; x is one input, f(x) has shape (q,).
        order: the highest derivative it takes; found out by trying, by default.
        name: for messages; the function's own by default.

    ```python
    difference = linear(lambda f: lambda x: f(x + 0.5) - f(x), name="difference")
    ```
    """
    return _custom(function, True, order, name)


@checked
def nonlinear(function: Callable[[Function], Function], *, order: int | None = None, name: str | None = None) -> Custom:
    """An operator that is not linear, from a function; arguments as for `linear`."""
    return _custom(function, False, order, name)


def as_operator(of: "Operator | Callable | None") -> Operator:
    """An operator from an operator, a function of functions, or None for the function itself."""
    if of is None:
        return value
    if isinstance(of, Operator):
        return of
    if not callable(of):
        raise TypeError(
            f"of is a {type(of).__name__}; pass an operator of fsplaplace.operators or a function `lambda f: lambda x: ...`"
        )
    return _custom(of, None, None, None)


def settled(
    operator: Operator, points: Float[np.ndarray, "n ..."], num_outputs: int, lengthscale: Float[np.ndarray, " d"]
) -> Operator:
    """The operator with everything known that may be left open: linearity, order, nodes of integrals.

    Args:
        operator: what to settle.
        points: some inputs at which it will be used.
        num_outputs: q, of the functions it is given.
        lengthscale: over which these functions vary, one for each column.

    Raises `ValueError` with the operator's name if it cannot be applied, or is not as linear as it says. Time: milliseconds,
    but for the compilation of a function that nobody has described.
    """
    operator = operator.resolve(lengthscale, points)
    if operator.own:
        return operator
    rows = points[:: -(-len(points) // _TRIED)]
    found = _tried(operator, np.asarray(rows, np.float64), num_outputs)
    if operator.linear and found.departure > _LINEAR:
        raise ValueError(
            f"operator {operator.name} is said to be linear, but L[2 f - 3 g] differs from 2 L[f] - 3 L[g] by "
            f"{found.departure:.2g} of its size; use operators.nonlinear"
        )
    stated = operator.is_linear if isinstance(operator, Custom) else operator.linear
    order = operator.highest if isinstance(operator, Custom) else None
    return Settled(
        operator,
        found.departure <= _LINEAR if stated is None else stated,
        max(operator.order, found.order) if order is None else order,
    )


@in_float64
def follows_shifts(
    operator: Operator,
    points: Float[Array | np.ndarray, "n ..."],
    num_outputs: int,
    origin: Float[Array | np.ndarray, " d"],
) -> bool:
    r"""Whether $L[f(\cdot - o)](x) = L[f](x - o)$, as for derivatives and averages around x: not if it names places in x.

    Args:
        operator: L.
        points: some inputs x.
        num_outputs: q, of the functions it is given.
        origin: o.

    Time: milliseconds, but for compilation.
    """
    rows = np.asarray(points[:: -(-len(points) // _TRIED)], np.float64)
    near = rows - np.asarray(origin, np.float64)
    wave = np.random.default_rng(0).standard_normal((num_outputs, near[0].size)) / np.maximum(
        np.ptp(near.reshape(len(near), -1), axis=0), 1e-300 + np.max(np.abs(near)) * 1e-6
    )

    def function(x):
        return jnp.sin(jnp.asarray(wave) @ x.reshape(-1) + jnp.arange(num_outputs))

    def applied(f, x):
        return jax.vmap(lambda row: jnp.ravel(operator(f)(row)))(x)

    there, here = jax.jit(
        lambda far, near: (applied(lambda x: function(x - jnp.asarray(origin, float)), far), applied(function, near))
    )(jnp.asarray(rows), jnp.asarray(near))
    return bool(np.max(np.abs(there - here)) <= _SHIFTED * max(float(np.max(np.abs(here))), 1e-300))


class _Tried(NamedTuple):
    """What trying has shown.

    Attributes:
        departure: from linearity, relative to the size of the values.
        order: the highest derivative.
    """

    departure: float
    order: int


@in_float64
def _tried(operator: Operator, rows: Float[np.ndarray, "k ..."], num_outputs: int) -> _Tried:
    """Linearity and order from waves. The directions are fixed: the same operator is always judged alike."""
    generator, size = np.random.default_rng(0), int(np.prod(rows.shape[1:]))
    spread = np.ptp(rows.reshape(len(rows), -1), axis=0)
    wave = generator.standard_normal((2, num_outputs, size)) / np.where(spread > 0, spread, 1.0)
    phase = generator.uniform(0, 2 * np.pi, (2, num_outputs))

    def function(number: int, frequency=1.0):
        return lambda x: jnp.sin(frequency * jnp.asarray(wave[number]) @ x.reshape(-1) + phase[number])

    def mixed(a, b, frequency=1.0):
        first, second = function(0), function(1, frequency)
        return lambda x: a * first(x) + b * second(x)

    # A wave twice, another one and their mixture; and waves so low that an operator which is not linear sees its derivative.
    functions = [
        mixed(1.0, 0.0), mixed(1.0, 0.0), mixed(0.0, 1.0), mixed(2.0, -3.0), *(mixed(1.0, _LOW, each) for each in _FREQUENCIES)
    ]  # fmt: skip

    # One program for all.
    @jax.jit
    def applied(rows):
        return [jax.vmap(lambda x, f=f: jnp.ravel(operator(f)(x)))(rows) for f in functions]

    try:
        first, again, second, together, *waves = map(np.asarray, applied(jnp.asarray(rows)))
    except Exception as error:  # whatever the user's function raises, with its name
        raise ValueError(
            f"operator {operator.name} cannot be applied to a function of one input of shape {rows.shape[1:]} with "
            f"{num_outputs} outputs: {str(error).splitlines()[0]}"
        ) from error
    if first.dtype.kind != "f" or first.size == 0:
        raise ValueError(
            f"operator {operator.name} gives {first.shape[1]} values of dtype {first.dtype} at each input; make it return one array "
            "of floating-point numbers"
        )
    # Two parts of one program may round differently; NaN compares as false, and is named below.
    if np.max(np.abs(again - first)) > _LINEAR * np.max(np.abs(first)):
        raise ValueError(
            f"operator {operator.name} gives other values for the same function each time it is applied; take what is random, or "
            "changes, out of it"
        )
    departure = np.max(np.abs(together - 2 * first + 3 * second)) / max(np.max(np.abs([first, second])), 1e-300)
    moved = [each - first for each in waves]
    low, high = (max(float(np.sqrt(np.mean(each**2))), 1e-300) for each in moved)
    growth = np.log(high / low) / np.log(_FREQUENCIES[1] / _FREQUENCIES[0])
    if not np.isfinite(departure) or not np.isfinite(growth):
        raise ValueError(f"operator {operator.name} gives NaN or infinite values for sine waves; check its function")
    return _Tried(float(departure), max(0, round(growth)))


def _custom(function, is_linear: bool | None, order: int | None, name: str | None) -> Custom:
    if not callable(function):
        raise TypeError(
            f"operators: the operator is a {type(function).__name__}; pass a function `lambda f: lambda x: ...`"
        )
    return Custom(function, name or getattr(function, "__name__", type(function).__name__), is_linear, order)
