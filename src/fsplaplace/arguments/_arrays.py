"""Arrays of numbers: what NumPy can read without losing anything, finite, and with squares that a float can hold."""

import math
import warnings
from typing import Any

import numpy as np

from fsplaplace.arguments._words import described, seen

_MOST_INTEGER = np.iinfo(np.int32).max
# Standardised pixels stay within ten standard deviations; grey levels reach 255. And the images that are looked at.
_ORDER_ONE, _SOME_IMAGES = 20.0, 500


def check_numbers(values: Any, argument: str, *, wanted: str = "numbers") -> np.ndarray:
    """The values as an array of real numbers, or an error that names the argument; NaN and infinities pass."""
    array = check_readable(values, argument, wanted=wanted)
    if array.dtype.kind in "fiub":
        return array
    found = f"has dtype {array.dtype}" if array.ndim else f"is {seen(values)}"
    if array.ndim and array.size and isinstance(word := array.flat[0], str):
        found = f"{found}, words such as {str(word)!r}"
        wanted = f"{wanted}, for labels numpy.unique(..., return_inverse=True)[1]"
    raise (ValueError if array.ndim else TypeError)(f"{argument} {found}; pass {wanted}")


def check_readable(values: Any, argument: str, *, wanted: str = "numbers") -> np.ndarray:
    """The values as NumPy reads them, if that loses nothing: masks, gradients, fields and dates are refused by name."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{argument} has masked values; fill them, or drop their rows")
    if _needs_gradient(values):
        raise TypeError(f"{argument} is a torch tensor that requires grad; pass its .detach()")
    if isinstance(values, bytearray):
        raise TypeError(f"{argument} is a bytearray; pass {wanted}, for instance numpy.frombuffer(...) of it")
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise TypeError(f"{argument} is a sparse {type(values).__name__}; pass its .toarray()")
    try:
        array = np.asarray(values)
    except Exception as error:  # whatever a foreign type raises when it is asked for its numbers
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TypeError(
            f"{argument} is {described(values)} that NumPy cannot read ({reason}); pass {wanted}"
        ) from error
    if array.dtype.names is not None:
        fields = ", ".join(map(repr, array.dtype.names))
        raise TypeError(
            f"{argument} is a structured array with the fields {fields}; pass its columns as one array of {wanted}"
        )
    if array.dtype.kind == "V":  # numbers of few bits, which NumPy does not know
        raise TypeError(f"{argument} has dtype {array.dtype}; pass float32 or float64")
    if array.dtype.kind in "mM":
        raise ValueError(
            f"{argument} has dtype {array.dtype}; pass {wanted}, for instance days since a date of your choice"
        )
    return array


def as_jax_reads_it(values: Any, array: np.ndarray) -> Any:
    """The values; or, as floats, what JAX refuses (bytes in another order, more of them than eight) or would cut to 32 bits.

    Args:
        values: as the caller gave them.
        array: the same as NumPy reads them.
    """
    if isinstance(values, memoryview):
        values = array
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        return array.astype(np.float64) if array.max() > _MOST_INTEGER or array.min() < -_MOST_INTEGER else values
    foreign = not array.dtype.isnative or array.dtype.itemsize > 8
    return array.astype(np.float64 if array.dtype.kind == "f" else array.dtype.newbyteorder("=")) if foreign else values


def warn_if_grey_levels(values: np.ndarray, argument: str) -> None:
    """Say that images are grey levels as files have them, in whatever type: networks and kernels want numbers of order one.

    Bytes above 1 are, and so is any image with values of more than 20. A few hundred of many images are looked at.
    """
    if values.ndim < 3 or not values.size or values.dtype.kind == "b":
        return
    some = values if values.dtype == np.uint8 else values[:: -(-len(values) // _SOME_IMAGES)]
    low, high = float(some.min()), float(some.max())
    largest = max(-low, high)
    if not math.isfinite(largest) or largest <= (1 if values.dtype == np.uint8 else _ORDER_ONE):
        return
    what = "bytes" if values.dtype == np.uint8 else "values"
    divisor = (
        255 if largest <= 255 else 65535 if low >= 0 and values.dtype.kind in "iu" and largest <= 65535 else largest
    )
    warnings.warn(
        f"{argument} holds {what} from {low:.4g} to {high:.4g}; networks and kernels want numbers of order one: pass "
        f"{argument} / {divisor:.5g}",
        UserWarning, stacklevel=5,
    )  # fmt: skip


def check_finite(values: np.ndarray, argument: str) -> None:
    """Refuse no values at all, NaN, infinities, and numbers whose squares float32 cannot hold."""
    if values.size == 0:
        wanted = "row" if 0 in values.shape[:1] else "column"
        raise ValueError(f"{argument} has shape {values.shape}; pass at least one {wanted}")
    if not np.all(np.isfinite(values)):
        if values.ndim == 0:
            raise ValueError(f"{argument} is {values}; pass finite numbers")
        raise ValueError(f"{argument} has NaN or infinite values; remove those rows")
    check_squares(values.astype(float), argument, np.float32)


def check_squares(values: np.ndarray, argument: str, dtype: Any = None) -> None:
    """Refuse numbers whose squares overflow: distances, norms and variances of them would be infinite.

    Args:
        values: of any shape.
        argument: its name.
        dtype: in which the squares are taken; that of the values by default.
    """
    if values.dtype.kind == "f" and values.size:
        largest, dtype = float(np.max(np.abs(values))), np.dtype(dtype or values.dtype)
        if math.isnan(largest):
            raise ValueError(f"{argument} has NaN values; remove those rows")
        if not largest <= math.sqrt(float(np.finfo(dtype).max)) / 100:
            raise ValueError(
                f"{argument} has values up to {largest:.3g}, whose squares {dtype} cannot hold; divide it by a typical size of its "
                "values"
            )


def _needs_gradient(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and bool(getattr(value, "requires_grad", False))
