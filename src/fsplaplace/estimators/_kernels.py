"""Kernels by name, and from text, for inputs and targets that were standardised."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from gpjax.kernels import (
    RBF,
    AbstractKernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    ProductKernel,
    RationalQuadratic,
    SumKernel,
)
from gpjax.parameters import PositiveReal
from jaxtyping import Float
from paramax import non_trainable

from fsplaplace.estimators._language import Expression, Product, Quantity, Single, Sum, is_name, read_kernel

_CLASSES: dict[str, Callable[..., AbstractKernel]] = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational_quadratic": RationalQuadratic,
    "periodic": Periodic,
    "linear": Linear,
}
KERNELS = (*_CLASSES, "linear+matern32")


class Candidate(NamedTuple):
    """One smoothness that the evidence may choose.

    Attributes:
        kernel: a name, text, or a GPJax kernel.
        trended: the same with a linear part, which the evidence may prefer; None for none.
    """

    kernel: str | AbstractKernel
    trended: str | AbstractKernel | None = None


# What "auto" chooses from, from rough to smooth.
_CANDIDATES = (Candidate("matern32", "linear + matern32"), Candidate("matern52", "linear + matern52"))


class Columns(NamedTuple):
    """The inputs of a kernel: names, and the units in which it sees them and the target.

    Attributes:
        names: of the columns.
        std: the length of one unit of each column, in the caller's units.
        target_std: the same of the target.
    """

    names: tuple[str, ...]
    std: Float[np.ndarray, " d"]
    target_std: float = 1.0

    @classmethod
    def numbered(cls, count: int) -> "Columns":
        """Columns without names, seen as they are."""
        return cls(tuple(f"x{index}" for index in range(count)), np.ones(count))


def candidates(kernel: str | AbstractKernel) -> tuple[Candidate, ...]:
    """The kernels that the evidence is to choose from: those of "auto", or the one given."""
    return _CANDIDATES if isinstance(kernel, str) and kernel == "auto" else (Candidate(kernel),)


def kernel_by_name(
    kernel: str | AbstractKernel, num_features: int, *, ard: bool, columns: Columns | None = None
) -> AbstractKernel:
    r"""The kernel itself, or the one of this name or text for standardised inputs.

    Parameters that the text states are kept, in the units of the columns (a variance in the target's squared, but for others than
    the first that a product states, which are factors); the rest start at unit variance and length scales
    $\sqrt d$, one per input where `ard`, and are fitted.

    Args:
        kernel: a GPJax kernel, a name, or sums and products of names, as "linear + periodic(1) * rbf".
        num_features: number of inputs, d.
        ard: one length scale per input.
        columns: names and units of the inputs.
    """
    if isinstance(kernel, AbstractKernel):
        return kernel
    if not isinstance(kernel, str) or (kernel.isidentifier() and not is_name(kernel)):
        raise ValueError(
            f"kernel is {kernel!r}; pass one of {', '.join(map(repr, KERNELS))}, 'auto', other sums and products of these, or a GPJax "
            "kernel"
        )
    return _built(read_kernel(kernel), columns or Columns.numbered(num_features), ard)


def _built(expression: Expression, columns: Columns, ard: bool) -> AbstractKernel:
    match expression:
        case Sum(terms):
            return SumKernel(kernels=tuple(_built(term, columns, ard) for term in terms))
        case Product(factors):
            # A product has the units of the target once: its first stated variance has them, others are factors.
            sized = next((k for k, factor in enumerate(factors) if _states_size(factor)), 0)
            units = [columns if k == sized else columns._replace(target_std=1.0) for k in range(len(factors))]
            return ProductKernel(kernels=tuple(_built(f, unit, ard) for f, unit in zip(factors, units, strict=True)))
        case Single():
            return _single(expression, columns, ard)


def _states_size(expression: Expression) -> bool:
    """Whether a variance is stated anywhere in it."""
    match expression:
        case Sum(parts) | Product(parts):
            return any(map(_states_size, parts))
        case Single():
            return any(name == "variance" for name, _ in expression.parameters)


def _single(single: Single, columns: Columns, ard: bool) -> AbstractKernel:
    chosen = [_column(single, name, columns) for name in single.columns]
    std = columns.std[chosen] if chosen else columns.std
    given = {name: _stated(single, name, quantity, std, columns) for name, quantity in single.parameters}
    options: dict = {"active_dims": chosen} if chosen else {}
    if single.name == "linear":
        return Linear(variance=1.0 / std.size, **options)
    if single.name != "periodic" and "lengthscale" not in given:
        scale = math.sqrt(std.size)
        options["lengthscale"] = jnp.full((std.size,), scale) if ard and std.size > 1 else scale
    # What a person states is meant: it is kept where other parameters are fitted.
    return _CLASSES[single.name](**options, **{name: non_trainable(PositiveReal(v)) for name, v in given.items()})


def _stated(single: Single, name: str, quantity: Quantity, std: Float[np.ndarray, " k"], columns: Columns):
    """A parameter in the units that the kernel sees."""
    if quantity.unit:
        raise ValueError(
            f"kernel: {single.name} has a {name} of {quantity}; numbers are in the units of the columns here"
        )
    if name == "variance":
        return quantity.value / columns.target_std**2
    if name == "period":
        if std.size > 1:
            raise ValueError(
                f"kernel: periodic has a period of {quantity} but {std.size} columns; name the one that repeats, as in "
                f'periodic({quantity}, "{columns.names[0]}")'
            )
        return quantity.value / float(std[0])
    if name == "lengthscale" and single.name != "periodic":
        scales = quantity.value / std
        return jnp.asarray(scales) if std.size > 1 else float(scales[0])
    return quantity.value


def _column(single: Single, name: str, columns: Columns) -> int:
    if name not in columns.names:
        raise ValueError(f"kernel: {single.name} looks at {name!r}, but the inputs are {', '.join(columns.names)}")
    return columns.names.index(name)
