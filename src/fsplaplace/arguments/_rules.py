"""The rule of an argument, made of its annotation: which kinds of values it takes, and in which range."""

import collections.abc
import functools
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from numpy.typing import ArrayLike

from fsplaplace.arguments._arrays import as_jax_reads_it, check_finite, check_numbers
from fsplaplace.arguments._keys import as_key
from fsplaplace.arguments._ranges import RANGES, Range
from fsplaplace.arguments._words import noun, other_class, seen

# Arguments of overriding methods, which do not repeat the annotations of what they override.
_BY_NAME: dict[str, Any] = {
    "X": ArrayLike, "y": ArrayLike, "x": ArrayLike, "num_points": int, "num_samples": int, "n_samples": int,
    "return_std": bool, "return_cov": bool, "noise": bool, "progress": bool,
}  # fmt: skip
_NOUNS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", bytes: "bytes"}


class _Refused(Exception):
    """A kind does not allow a value; the message, where there is one, says why."""

    def __init__(self, message: str = "", error: type[Exception] = TypeError):
        super().__init__(message)
        self.error = error


class _Kind(NamedTuple):
    """One member of an annotation: what it is in words, and a function that converts a value or refuses it."""

    wanted: str
    convert: Callable[[Any], Any]


class Rule(NamedTuple):
    """What an argument may be.

    Attributes:
        kinds: one of these; empty for a key.
        optional: whether None is allowed.
        instance: the class, where the annotation names one and nothing else.
        traceable: whether a value may be traced by JAX.
        limits: the range of a number.
        finite: whether arrays must be finite.
    """

    kinds: tuple[_Kind, ...]
    optional: bool
    instance: type | None
    traceable: bool
    limits: Range | None = None
    finite: bool = False

    def check(self, value: Any, caller: str, argument: str) -> Any:
        if value is None and self.optional:
            return None
        where = f"{caller}: {argument}"
        if isinstance(value, Tracer) and not self.traceable:
            raise TypeError(
                f"{where} is traced by jax.jit or jax.grad, but {caller} is not a traceable function; call it outside"
            )
        if not self.kinds:
            return as_key(value, argument=where)
        refusals = []
        for kind in self.kinds:
            try:
                return self._in_range(kind, kind.convert(value), where)
            except _Refused as refused:
                if kind.convert is _numbers and (hasattr(value, "__array__") or hasattr(value, "toarray")):
                    # An array that loses something as numbers is no list of batches either.
                    raise refused.error(f"{where} {refused}") from refused
                refusals.append(refused)
        if self.instance is not None:
            raise TypeError(f"{where} {other_class(self.instance, value)}")
        detailed = next((refused for refused in refusals if str(refused)), None)
        if detailed is not None and len(self.kinds) == 1:
            raise detailed.error(f"{where} {detailed}")
        wanted = [kind.wanted for kind in self.kinds] + ["None"] * self.optional
        if self.limits is not None:
            wanted = [f"{wanted[0]}, {self.limits.wanted}"]
        error = next((refused.error for refused in refusals if refused.error is not TypeError), TypeError)
        raise error(f"{where} is {seen(value)}; pass {' or '.join(dict.fromkeys(wanted))}")

    def _in_range(self, kind: _Kind, value: Any, where: str) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and self.limits is not None and not self.limits.holds(value):
            raise ValueError(f"{where} is {seen(value)}; pass {self.limits.advice(value)}")
        if self.finite and not isinstance(value, Tracer) and kind.convert is _numbers:
            check_finite(np.asarray(value), where)
        return value


def parameter_rule(parameter: inspect.Parameter, traceable: bool) -> Rule | None:
    if parameter.kind is parameter.VAR_KEYWORD:
        return None
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        annotation = _BY_NAME.get(parameter.name, Any)
    if parameter.kind is parameter.VAR_POSITIONAL and annotation not in (Any, inspect.Parameter.empty):
        annotation = tuple[annotation, ...]
    if parameter.name == "key":
        return Rule((), parameter.default is None, None, True)
    return annotation_rule(parameter.name, annotation, traceable=traceable)


def annotation_rule(name: str, annotation: Any, *, traceable: bool) -> Rule | None:
    members = _members(annotation)
    optional = type(None) in members
    members = [member for member in members if member is not type(None)]
    kinds = [_kind(member, traceable) for member in members]
    if not kinds or any(kind is None for kind in kinds):
        return None
    known = tuple(kind for kind in kinds if kind is not None)
    instance = members[0] if len(members) == 1 and _is_class(members[0]) else None
    return Rule(known, optional, instance, traceable, RANGES.get(name))


def _members(annotation: Any) -> list[Any]:
    """The members of a union; what NumPy takes for an array is one of them."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return [annotation]
    members = list(typing.get_args(annotation))
    like_arrays = typing.get_args(ArrayLike)
    if all(member in members for member in like_arrays):
        members = [ArrayLike, *(member for member in members if member not in like_arrays)]
    return members


def _kind(annotation: Any, traceable: bool) -> _Kind | None:
    """The kind of one member; None where the annotation says nothing that can be checked."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is ArrayLike or _is_array_annotation(annotation):
        return _Kind("numbers", _numbers)
    if origin is typing.Literal:
        return _Kind(f"one of {', '.join(map(repr, parts))}", functools.partial(_choice, parts))
    if annotation in _CONVERT:
        return _Kind(_NOUNS[annotation], _CONVERT[annotation])
    if annotation in (collections.abc.Callable, Callable) or origin is collections.abc.Callable:
        return _Kind("a function", functools.partial(_that, callable))
    if origin is tuple and parts and Ellipsis not in parts:
        inner = [annotation_rule("", part, traceable=traceable) for part in parts]
        return _Kind(f"a tuple of {len(parts)} values", functools.partial(_tuple, inner))
    if origin in (collections.abc.Sequence, tuple, list):
        rule = annotation_rule("", parts[0], traceable=traceable) if parts else None
        return _Kind(
            "a list" + (f", each {rule.kinds[0].wanted}" if rule else ""),
            functools.partial(_sequence, rule, list if origin is list else tuple),
        )
    if origin in (collections.abc.Iterable, collections.abc.Mapping):
        kind: Any = origin
        return _Kind(f"a {kind.__name__.lower()}", functools.partial(_that, lambda value: isinstance(value, kind)))
    if annotation in (os.PathLike, Path):
        return _Kind("a path", functools.partial(_that, lambda value: isinstance(value, str | os.PathLike)))
    if _is_class(annotation):
        return _Kind(noun(annotation), functools.partial(_that, lambda value: isinstance(value, annotation)))
    return None


def _is_class(annotation: Any) -> bool:
    plain = isinstance(annotation, type) and not _is_array_annotation(annotation)
    return plain and annotation not in (*_CONVERT, object, Any) and typing.get_origin(annotation) is None


def _is_array_annotation(annotation: Any) -> bool:
    return annotation in (jax.Array, np.ndarray) or hasattr(annotation, "array_type")


def _that(predicate: Callable[[Any], bool], value: Any) -> Any:
    if not predicate(value):
        raise _Refused
    return value


def _numbers(value: Any) -> Any:
    if isinstance(value, Tracer):
        return value
    try:
        return as_jax_reads_it(value, check_numbers(value, ""))
    except (TypeError, ValueError) as error:
        raise _Refused(str(error).strip(), type(error)) from error


def _whole(value: Any) -> int:
    """A whole number of any type, also `1e4`; not a truth value."""
    value = _scalar(value)
    if isinstance(value, float):
        if not (math.isfinite(value) and value == int(value)):
            raise _Refused(error=ValueError)
        return int(value)
    return value


def _real(value: Any) -> Any:
    if isinstance(value, Tracer) and value.ndim == 0:
        return value
    number = _scalar(value)
    try:
        finite = math.isfinite(number)
    except OverflowError:  # a whole number beyond the range of floats
        finite = False
    if not finite:
        raise _Refused(error=ValueError)
    return number


def _scalar(value: Any) -> int | float:
    if isinstance(value, np.generic) or (isinstance(value, jax.Array | np.ndarray) and value.ndim == 0):
        if isinstance(value, Tracer) or value.dtype.kind not in "fiu":
            raise _Refused
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool | np.bool):
        raise _Refused
    return bool(value)


def _choice(allowed: tuple, value: Any) -> Any:
    if not any(value is one or (type(value) is type(one) and value == one) for one in allowed):
        raise _Refused(error=ValueError)
    return value


def _tuple(rules: list[Rule | None], value: Any) -> tuple:
    if not isinstance(value, tuple | list) or len(value) != len(rules):
        raise _Refused
    return tuple(_part(rule, part) for rule, part in zip(rules, value, strict=True))


def _sequence(rule: Rule | None, made: type[list] | type[tuple], value: Any) -> list | tuple:
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__") or not hasattr(value, "__iter__"):
        raise _Refused
    if isinstance(value, np.ndarray | jax.Array) and value.ndim != 1:
        raise _Refused
    return made(_part(rule, part) for part in value)


def _part(rule: Rule | None, value: Any) -> Any:
    try:
        return value if rule is None else rule.check(value, "", "")
    except (TypeError, ValueError) as error:
        raise _Refused(error=type(error)) from error


_CONVERT: dict[Any, Callable[[Any], Any]] = {
    int: _whole,
    float: _real,
    bool: _truth,
    str: functools.partial(_that, lambda value: isinstance(value, str)),
    bytes: functools.partial(_that, lambda value: isinstance(value, bytes)),
}
