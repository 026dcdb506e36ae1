"""What public functions accept: the annotation of an argument is its rule, and its name says its range.

`checked` compares a call with the function's own annotations before anything is computed, so a new function needs one line
and has no check to copy. Every error names the function, the argument, what was seen and what to pass instead.
"""

import collections.abc
import dataclasses
import functools
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import PRNGKeyArray
from numpy.typing import ArrayLike

P = ParamSpec("P")
T = TypeVar("T")

# Randomness: a key of `jax.random`, or a whole number, which stands for `jax.random.key` of it.
KeyLike = PRNGKeyArray | int


class Range(NamedTuple):
    """Numbers from `least` to `most`, or strictly between `above` and `below`; `wanted` says it in words."""

    wanted: str
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def holds(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below


_COUNT = Range("1 or more", least=1)
_POSITIVE = Range("a positive number", above=0)
# One meaning for a name in the whole library. None, where a function allows it, is always in range.
RANGES: dict[str, Range] = {
    **dict.fromkeys(
        (
            "steps", "num_context", "num_posterior_context", "num_samples", "num_points", "num_units", "num_outputs",
            "num_features", "num_bins", "num_inducing", "max_steps", "passes", "patience", "restarts", "exact_rows",
            "n_samples", "num_levels", "rounds", "kl_samples", "likelihood_samples", "predict_samples", "seeds",
        ),
        _COUNT,
    ),
    "batch_size": Range("1 or more, or None for all rows", least=1),
    "rank": Range("1 or more, or None for no limit", least=1),
    "neighbours": Range("1 or more, or None for any row", least=1),
    "num_classes": Range("2 or more", least=2),
    "size": Range("2 or more", least=2),
    "rtol": Range("a number above 0 and below 1", above=0, below=1),
    "delta": _POSITIVE,
    "learning_rate": _POSITIVE,
    "alpha_epsilon": Range("a positive number, for instance 0.01", above=0),
    "memory_budget": Range("a positive number of bytes, or None for RAM / 4", above=0),
    "captured": Range("a share of the variance, above 0 and at most 1", above=0, most=1),
    "level": Range("a probability strictly between 0 and 1", above=0, below=1),
    "noise": _POSITIVE,
    "max_weights": _COUNT,
    "margin": Range("0 or more", least=0),
    "resolution": Range("2 or more", least=2),
    "output": Range("0 or more", least=0),
    "label": Range("0 or more", least=0),
}  # fmt: skip
# Arguments of overriding methods, which do not repeat the annotations of what they override.
_BY_NAME: dict[str, Any] = {
    "X": ArrayLike, "y": ArrayLike, "x": ArrayLike, "num_points": int, "num_samples": int, "n_samples": int,
    "return_std": bool, "return_cov": bool, "noise": bool, "progress": bool,
}  # fmt: skip
_NOUNS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", bytes: "bytes"}
_MOST_KEY = 2**32


def checked(
    function: Callable[P, T] | None = None,
    *,
    traceable: bool = False,
    finite: bool = False,
    ranges: Mapping[str, Range] = {},
) -> Any:
    """Decorator: refuse arguments that the annotations do not allow, before the function runs.

    Whole numbers of any type come in as `int`, and as `key` they come in as keys of `jax.random`; everything else comes in
    as it was passed. Arguments without annotation are let through, unless their name has a meaning of its own.

    Args:
        function: a function, a method or `__init__`.
        traceable: whether it may be called inside `jax.jit`.
        finite: whether arrays must have values, all of them finite; for functions that do not look at them otherwise.
        ranges: of arguments whose name means something else here than in `RANGES`.

    Time: microseconds; arrays are looked at for their dtype only, unless `finite`.
    """
    if function is None:
        return functools.partial(checked, traceable=traceable, finite=finite, ranges=ranges)
    signature = inspect.signature(function)
    found = {name: _rule(parameter, traceable) for name, parameter in signature.parameters.items() if name != "self"}
    rules = {
        name: rule._replace(limits=ranges.get(name, rule.limits), finite=finite)
        for name, rule in found.items()
        if rule is not None
    }

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # Python's own words for an argument that is missing or unknown
        for name, value in bound.arguments.items():
            if name in rules:
                bound.arguments[name] = rules[name].check(value, _caller(function, bound.arguments), name)
        return function(*bound.args, **bound.kwargs)

    call.is_checked = True  # type: ignore[attr-defined]
    return call


def check_fields(instance: Any) -> None:
    """`checked` for the fields of a dataclass or Equinox module; call it in `__check_init__`."""
    for field in dataclasses.fields(instance):
        if (rule := _annotation_rule(field.name, field.type, traceable=True)) is not None:
            rule.check(getattr(instance, field.name), type(instance).__name__, field.name)


def check_parameters(function: Callable, values: Mapping[str, Any], *, caller: str) -> None:
    """`checked` for values that were kept since, as estimators keep the arguments of their constructor."""
    for name, parameter in inspect.signature(function).parameters.items():
        if name in values and (rule := _rule(parameter, False)) is not None:
            rule.check(values[name], caller, name)


def accepts(annotation: Any, value: Any) -> bool:
    """Whether a value is what an annotation says."""
    rule = _annotation_rule("", annotation, traceable=True)
    if rule is None:
        return True
    try:
        rule.check(value, "", "")
    except (TypeError, ValueError):
        return False
    return True


def as_key(key: Any, *, argument: str = "key") -> PRNGKeyArray:
    """A key of `jax.random`: the one passed, or that of a whole number; anything else is refused."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not 0 <= key < _MOST_KEY:
            raise ValueError(
                f"{argument} is {key}; pass a whole number from 0 to {_MOST_KEY - 1}, or a key of jax.random"
            )
        return jr.key(int(key))
    if isinstance(key, jax.Array | np.ndarray):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
            return jnp.asarray(key)
        # The older kind of key, which `jax.random.PRNGKey` makes.
        if key.dtype == np.uint32 and key.shape in ((2,), (4,)):
            return jnp.asarray(key)
    seen = (
        f"an array of shape {key.shape} and dtype {key.dtype}"
        if isinstance(key, jax.Array | np.ndarray)
        else _seen(key)
    )
    raise TypeError(
        f"{argument} is {seen}; pass a key of random numbers, for instance jax.random.key(0), or a whole number"
    )


def check_numbers(values: ArrayLike, argument: str, *, wanted: str = "numbers") -> np.ndarray:
    """The values as an array of real numbers, or an error that names the argument; NaN and infinities pass."""
    array = check_readable(values, argument, wanted=wanted)
    if array.dtype.kind in "fiub":
        return array
    seen = f"has dtype {array.dtype}" if array.ndim else f"is {_seen(values)}"
    raise (ValueError if array.ndim else TypeError)(f"{argument} {seen}; pass {wanted}")


def check_readable(values: Any, argument: str, *, wanted: str = "numbers") -> np.ndarray:
    """The values as NumPy reads them, if that loses nothing: masks, gradients and dates are refused by name."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{argument} has masked values; fill them, or drop their rows")
    if _needs_gradient(values):
        raise TypeError(f"{argument} is a torch tensor that requires grad; pass its .detach()")
    try:
        array = np.asarray(values)
    except Exception as error:  # whatever a foreign type raises when it is asked for its numbers
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TypeError(
            f"{argument} is a {type(values).__name__} that NumPy cannot read ({reason}); pass {wanted}"
        ) from error
    if array.dtype.name == "bfloat16":
        raise TypeError(f"{argument} has dtype bfloat16; pass float32 or float64")
    if array.dtype.kind in "mM":
        raise ValueError(
            f"{argument} has dtype {array.dtype}; pass {wanted}, for instance days since a date of your choice"
        )
    return array


def check_finite(values: np.ndarray, argument: str) -> None:
    """Refuse no values at all, NaN, infinities, and numbers whose squares float32 cannot hold."""
    if values.size == 0:
        raise ValueError(f"{argument} has shape {values.shape}; pass at least one row")
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{argument} has NaN or infinite values; remove those rows")
    with np.errstate(over="ignore"):  # what is too large is refused in the next line
        check_squares(values.astype(np.float32), argument)


def check_squares(values: np.ndarray, argument: str) -> None:
    """Refuse numbers whose squares overflow: distances, norms and variances of them would be infinite."""
    if values.dtype.kind == "f" and values.size:
        largest = float(np.max(np.abs(values)))
        if not largest <= math.sqrt(float(np.finfo(values.dtype).max)) / 100:
            raise ValueError(
                f"{argument} has values up to {largest:.3g}, whose squares {values.dtype} cannot hold; divide {argument} by a "
                "typical size of its values"
            )


class _Refused(Exception):
    """A kind does not allow a value; the message, where there is one, says why."""

    def __init__(self, message: str = "", error: type[Exception] = TypeError):
        super().__init__(message)
        self.error = error


class _Kind(NamedTuple):
    """One member of an annotation: what it is in words, and a function that converts a value or refuses it."""

    wanted: str
    convert: Callable[[Any], Any]


class _Rule(NamedTuple):
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
                return self._in_range(kind.convert(value), where)
            except _Refused as refused:
                refusals.append(refused)
        if self.instance is not None:
            raise TypeError(f"{where} {_other_class(self.instance, value)}")
        detailed = next((refused for refused in refusals if str(refused)), None)
        if detailed is not None and len(self.kinds) == 1:
            raise detailed.error(f"{where} {detailed}")
        wanted = [kind.wanted for kind in self.kinds] + ["None"] * self.optional
        if self.limits is not None:
            wanted = [f"{wanted[0]}, {self.limits.wanted}"]
        error = next((refused.error for refused in refusals if refused.error is not TypeError), TypeError)
        raise error(f"{where} is {_seen(value)}; pass {' or '.join(dict.fromkeys(wanted))}")

    def _in_range(self, value: Any, where: str) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and self.limits is not None and not self.limits.holds(value):
            raise ValueError(f"{where} is {value}; pass {self.limits.wanted}")
        if self.finite and not isinstance(value, Tracer) and any(kind.convert is _numbers for kind in self.kinds):
            check_finite(np.asarray(value), where)
        return value


def _rule(parameter: inspect.Parameter, traceable: bool) -> _Rule | None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return None
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        annotation = _BY_NAME.get(parameter.name, Any)
    if parameter.name == "key":
        return _Rule((), parameter.default is None, None, True)
    return _annotation_rule(parameter.name, annotation, traceable=traceable)


def _annotation_rule(name: str, annotation: Any, *, traceable: bool) -> _Rule | None:
    members = _members(annotation)
    optional = type(None) in members
    members = [member for member in members if member is not type(None)]
    kinds = [_kind(member, traceable) for member in members]
    if not kinds or any(kind is None for kind in kinds):
        return None
    known = tuple(kind for kind in kinds if kind is not None)
    instance = members[0] if len(members) == 1 and _is_class(members[0]) else None
    return _Rule(known, optional, instance, traceable, RANGES.get(name))


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
        inner = [_annotation_rule("", part, traceable=traceable) for part in parts]
        return _Kind(f"a tuple of {len(parts)} values", functools.partial(_tuple, inner))
    if origin in (collections.abc.Sequence, tuple, list):
        rule = _annotation_rule("", parts[0], traceable=traceable) if parts else None
        return _Kind("a list" + (f", each {rule.kinds[0].wanted}" if rule else ""), functools.partial(_sequence, rule))
    if origin in (collections.abc.Iterable, collections.abc.Mapping):
        kind: Any = origin
        return _Kind(f"a {kind.__name__.lower()}", functools.partial(_that, lambda value: isinstance(value, kind)))
    if annotation in (os.PathLike, Path):
        return _Kind("a path", functools.partial(_that, lambda value: isinstance(value, str | os.PathLike)))
    if _is_class(annotation):
        return _Kind(_noun(annotation), functools.partial(_that, lambda value: isinstance(value, annotation)))
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
        check_numbers(value, "")
    except (TypeError, ValueError) as error:
        raise _Refused(str(error).strip(), type(error)) from error
    return value


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


def _tuple(rules: list[_Rule | None], value: Any) -> tuple:
    if not isinstance(value, tuple | list) or len(value) != len(rules):
        raise _Refused
    return tuple(_part(rule, part) for rule, part in zip(rules, value, strict=True))


def _sequence(rule: _Rule | None, value: Any) -> tuple:
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__") or not hasattr(value, "__iter__"):
        raise _Refused
    if isinstance(value, np.ndarray | jax.Array) and value.ndim != 1:
        raise _Refused
    return tuple(_part(rule, part) for part in value)


def _part(rule: _Rule | None, value: Any) -> Any:
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


def _other_class(kind: Any, value: Any) -> str:
    """What is wrong with the value; a class may have a method `refusal(value)` that says what to do instead."""
    if hasattr(kind, "refusal"):
        return kind.refusal(value)
    return f"must be {_noun(kind)}, but got {_type_name(value)}"


def _noun(kind: Any) -> str:
    if kind.__name__ == "AbstractKernel":
        return "a GPJax kernel"
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _caller(function: Callable, arguments: Mapping[str, Any]) -> str:
    name = getattr(function, "__name__", "function")
    if "self" not in arguments:
        return name
    owner = type(arguments["self"]).__name__
    return owner if name == "__init__" else f"{owner}.{name}"


def _seen(value: Any) -> str:
    """A value as an error shows it: short, and by its type where that says more."""
    if value is None or isinstance(value, bool | int | float | np.generic):
        return str(value) if len(str(value)) < 40 else f"a number of {len(str(value))} digits"
    if isinstance(value, str | bytes):
        return repr(value) if len(value) < 60 else f"{value[:40]!r}..."
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"an array of shape {shape} and dtype {getattr(value, 'dtype', 'unknown')}"
    return repr(value) if isinstance(value, list | tuple) and len(repr(value)) < 60 else f"a {_type_name(value)}"


def _type_name(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _needs_gradient(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and bool(getattr(value, "requires_grad", False))
