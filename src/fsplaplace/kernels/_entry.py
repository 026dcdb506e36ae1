"""What the library knows about one kind of kernel: the record that teaches it a kernel."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float

from ._pairs import Pairs


class Start(NamedTuple):
    """A first value and bounds of a parameter, in its own units.

    Attributes:
        value: where a search starts.
        lower: the lowest value allowed.
        upper: the highest value allowed.
    """

    value: float | np.ndarray
    lower: float | np.ndarray
    upper: float | np.ndarray


@runtime_checkable
class DataSummary(Protocol):
    """What data says about the columns that one kernel acts on."""

    @property
    def variance(self) -> float:
        """The part of the targets' variance that this kernel is to explain."""
        ...

    @property
    def mean_square(self) -> float:
        """The mean of |x|² over rows."""
        ...

    def lengthscale(self, shape: tuple[int, ...]) -> Start:
        """A length scale from distances between rows: one for all columns, or one for each."""
        ...

    def period(self) -> Start:
        """A period from the periodogram of the targets."""
        ...


class Circle(NamedTuple):
    """A column of inputs wound up: what repeats along it is a function on a circle.

    Attributes:
        column: of the inputs.
        period: once around.
    """

    column: int
    period: float


class Remarks(NamedTuple):
    """What `fsplaplace.describe` says about a kernel beyond its length scales and smoothness.

    Attributes:
        sentences: about the functions it draws.
        warnings: where it contradicts the data.
    """

    sentences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class KernelEntry:
    """All that engine, length scales, starts and descriptions know about one kind of kernel.

    What an entry leaves out is found out from the kernel itself: covariances by its own GPJax engine, length scales and
    smoothness by probing its correlation, starts by the names of its parameters (`STARTS`). An empty entry is what the
    library knows about a kernel that nobody registered.

    Attributes:
        covariance: the matrix of all pairs of points.
        variance: the diagonal of that matrix, from the points as rows.
        kind: "scaled" for functions that vary over a length scale; "scale-free" for those without one (constants,
            polynomials); "noise" for what is no function at all.
        lengthscales: one for each of d input columns, infinite where the kernel ignores the column.
        circles: of a kernel that repeats, a circle for each column it acts on, and the length scale that it has as a kernel of
            points on circles of radius 1; see `fsplaplace.kernels.circles`.
        smoothness: ν, see `fsplaplace.kernels.smoothness`.
        starts: how a fit starts each parameter, by its name, from the data and the parameter's shape.
        scale: the parameter that multiplies the whole kernel, None if there is none.
        remarks: more for `fsplaplace.describe`, from the ranges of the data's columns (None without data).
    """

    covariance: Callable[[Any, Pairs], Float[Array, "n m"]] | None = None
    variance: Callable[[Any, Float[Array, "n d"]], Float[Array, " n"]] | None = None
    kind: Literal["scaled", "scale-free", "noise"] = "scaled"
    lengthscales: Callable[[Any, int], Float[Array, " d"]] | None = None
    circles: Callable[[Any, int], Mapping[Circle, float]] | None = None
    smoothness: Callable[[Any], float] | None = None
    starts: Mapping[str, Callable[[DataSummary, tuple[int, ...]], Start]] | None = None
    scale: str | None = "variance"
    remarks: Callable[[Any, Float[np.ndarray, " d"] | None], Remarks] | None = None


def variance_start(data: DataSummary, shape: tuple[int, ...]) -> Start:
    """The variance to explain, six orders of magnitude down and four up."""
    return around(data.variance)


def around(size: float) -> Start:
    """A variance of about this size."""
    return Start(size, 1e-6 * size, 1e4 * size)


# How a parameter of this name starts unless an entry says otherwise.
STARTS: dict[str, Callable[[DataSummary, tuple[int, ...]], Start]] = {
    "variance": variance_start,
    "lengthscale": lambda data, shape: data.lengthscale(shape),
    "period": lambda data, shape: data.period(),
    "alpha": lambda data, shape: Start(1.0, 1e-2, 1e3),
}
