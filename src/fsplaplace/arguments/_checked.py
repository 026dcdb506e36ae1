"""Functions, fields and kept parameters compared with their annotations."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from fsplaplace.arguments._forks import refuse_fork
from fsplaplace.arguments._ranges import Range
from fsplaplace.arguments._rules import annotation_rule, parameter_rule

P = ParamSpec("P")
T = TypeVar("T")


def checked(
    function: Callable[P, T] | None = None,
    *,
    traceable: bool = False,
    finite: bool = False,
    computes: bool = True,
    ranges: Mapping[str, Range] = {},
) -> Any:
    """Decorator: refuse arguments that the annotations do not allow, before the function runs.

    Whole numbers of any type come in as `int`, and as `key` they come in as keys of `jax.random`; everything else comes in
    as it was passed. Arguments without annotation are let through, unless their name has a meaning of its own.

    Args:
        function: a function, a method or `__init__`.
        traceable: whether it may be called inside `jax.jit`.
        finite: whether arrays must have values, all of them finite; for functions that do not look at them otherwise.
        computes: whether it may compute something: then a fork of a process in which JAX runs is refused, too.
        ranges: of arguments whose name means something else here than in `RANGES`.

    Time: microseconds; arrays are looked at for their dtype only, unless `finite`.
    """
    if function is None:
        return functools.partial(checked, traceable=traceable, finite=finite, computes=computes, ranges=ranges)
    signature = inspect.signature(function)
    found = {
        name: parameter_rule(parameter, traceable) for name, parameter in signature.parameters.items() if name != "self"
    }
    rules = {
        name: rule._replace(limits=ranges.get(name, rule.limits), finite=finite)
        for name, rule in found.items()
        if rule is not None
    }

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if computes:
            refuse_fork()
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # Python's own words for an argument that is missing or unknown
        caller = _caller(function, bound.arguments)
        for name, value in bound.arguments.items():
            if name in rules:
                bound.arguments[name] = rules[name].check(value, caller, name)
        return function(*bound.args, **bound.kwargs)

    # A mark on the function itself, which `functools.wraps` of a decorator above hands on; functions declare no such attribute.
    call.is_checked = True  # type: ignore[attr-defined]
    return call


def check_fields(instance: Any) -> None:
    """`checked` for the fields of a dataclass or Equinox module; call it in `__check_init__`."""
    for field in dataclasses.fields(instance):
        if (rule := annotation_rule(field.name, field.type, traceable=True)) is not None:
            rule.check(getattr(instance, field.name), type(instance).__name__, field.name)


def check_parameters(function: Callable, values: Mapping[str, Any], *, caller: str) -> None:
    """`checked` for values that were kept since, as estimators keep the arguments of their constructor."""
    for name, parameter in inspect.signature(function).parameters.items():
        if name in values and (rule := parameter_rule(parameter, False)) is not None:
            rule.check(values[name], caller, name)


def accepts(annotation: Any, value: Any) -> bool:
    """Whether a value is what an annotation says."""
    rule = annotation_rule("", annotation, traceable=True)
    if rule is None:
        return True
    try:
        rule.check(value, "", "")
    except (TypeError, ValueError):
        return False
    return True


def _caller(function: Callable, arguments: Mapping[str, Any]) -> str:
    name = getattr(function, "__name__", "function")
    if "self" not in arguments:
        return name
    owner = type(arguments["self"]).__name__
    return owner if name == "__init__" else f"{owner}.{name}"
