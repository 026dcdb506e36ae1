"""Whether stored values are what the fields of their class say: types, dtypes and shapes, before anything is built of them."""

import dataclasses
import re
import typing
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from paramax import unwrap

from fsplaplace.arguments import accepts, check_squares
from fsplaplace.host import FileFormatError

# What a run measured or estimated may be NaN; what is computed with may not.
_MAY_BE_NAN = re.compile(r"(^|\.)(diagnostics|history|log_evidence)(\.|\[|$)")


def check_values(kind: type, values: Mapping[str, Any], path: str) -> None:
    """Refuse values that the fields of one of our own classes do not allow; one letter is one size in all of its shapes."""
    if not kind.__module__.startswith("fsplaplace.") or not dataclasses.is_dataclass(kind):
        return
    sizes: dict[str, int] = {}
    for field in dataclasses.fields(kind):
        value = values.get(field.name)
        if field.name in values and not _fits(field.type, value, sizes):
            where = f"{path}.{field.name}".removeprefix(".")
            raise FileFormatError(f"{where} is {_describe(value)}, but {kind.__name__} has {_wanted(field.type)} there")


def check_finite(array: np.ndarray, path: str) -> None:
    """Refuse NaN and infinities in what is computed with, and numbers whose squares are infinite."""
    if array.dtype.kind != "f" or _MAY_BE_NAN.search(path):
        return
    if not np.all(np.isfinite(array)):
        raise FileFormatError(f"{path or 'the object'} has NaN or infinite values")
    try:
        check_squares(array, path or "the object")
    except ValueError as error:
        raise FileFormatError(str(error)) from error


def _fits(annotation: Any, value: Any, sizes: dict[str, int]) -> bool:
    if typing.get_origin(annotation) is dict:
        inner = typing.get_args(annotation)[1]
        return isinstance(value, dict) and all(_fits(inner, part, sizes) for part in value.values())
    members = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    if value is None:
        return type(None) in members or not accepts(annotation, "")
    if isinstance(value, float) and float in members:
        return True
    arrays = [member for member in members if hasattr(member, "dim_str")]
    if arrays:
        value = unwrap(value)
        return any(_is_of(member, value, sizes) for member in arrays) or any(
            accepts(member, value) for member in members if member not in arrays
        )
    return accepts(annotation, unwrap(value) if annotation is jax.Array else value)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) is typing.Union or type(annotation).__name__ == "UnionType"


def _is_of(annotation: Any, value: Any, sizes: dict[str, int]) -> bool:
    """Whether the value is an array of the annotation's dtype and shape, given the sizes that letters have so far."""
    if not isinstance(value, jax.Array | np.ndarray) or str(value.dtype) not in annotation.dtypes:
        return False
    names, shape = annotation.dim_str.split(), value.shape
    if "..." in names:
        return len(shape) >= len(names) - 1
    if len(names) != len(shape):
        return False
    for name, size in zip(names, shape, strict=True):
        wanted = int(name) if name.isdigit() else sizes.setdefault(name, size) if name.isidentifier() else size
        if wanted != size:
            return False
    return True


def _describe(value: Any) -> str:
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    text = repr(value)
    return f"{text if len(text) < 40 else text[:40] + '...'} ({type(value).__name__})"


def _wanted(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation)).replace("jaxlib._jax.", "")
