"""The function itself, and linear combinations of its outputs."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.operators._operator import Operator


class Value(Operator):
    """The function itself."""

    def __call__(self, f):
        return f

    @property
    def name(self):
        return "value"


class Combination(Operator):
    """$W f(x)$: sensors that see sums of outputs.

    Attributes:
        weights: W, one row for each sensor, one column for each output.
    """

    weights: Float[Array, "k q"]

    def __call__(self, f):
        def combined(x):
            values = f(x)
            if values.shape != self.weights.shape[1:]:
                raise ValueError(
                    f"operators.combination: {self.weights.shape[1]} weights, but the function has {values.size} outputs; pass "
                    "one weight for each"
                )
            return self.weights.astype(values.dtype) @ values

        return combined

    @property
    def name(self):
        return f"combination{tuple(self.weights.shape)}"


class Output(Operator):
    """Some of the outputs, by number.

    Attributes:
        numbers: which.
    """

    numbers: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, f):
        def chosen(x):
            values = f(x)
            if max(self.numbers) >= values.size:
                raise ValueError(
                    f"operators.output: output {max(self.numbers)} of a function with {values.size}; they count from 0"
                )
            return values[np.array(self.numbers)]

        return chosen

    @property
    def name(self):
        return f"output({', '.join(map(str, self.numbers))})"


value = Value()


@checked(finite=True)
def combination(weights: ArrayLike) -> Combination:
    """A sensor that sees a weighted sum of the outputs, `combination([1, 1])`, or several, one row of weights for each."""
    matrix = np.atleast_2d(np.asarray(weights, dtype=float))
    if matrix.ndim != 2 or not np.all(np.isfinite(matrix)):
        raise ValueError(
            f"operators.combination: weights have shape {matrix.shape}; pass finite numbers, (q,) or (k, q)"
        )
    return Combination(jnp.asarray(matrix))


@checked
def output(*numbers: int) -> Output:
    """Outputs by number: `partial(0) @ output(1)` is the slope of the second."""
    if not numbers or min(numbers) < 0:
        raise ValueError(f"operators.output: numbers are {numbers}; pass one or more, from 0 on")
    return Output(numbers)
