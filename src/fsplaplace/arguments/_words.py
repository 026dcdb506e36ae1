"""Values as an error shows them."""

from typing import Any

import numpy as np


def seen(value: Any) -> str:
    """A value as an error shows it: short, and by its type where that says more."""
    if value is None or isinstance(value, bool | int | float | np.generic):
        return str(value) if len(str(value)) < 40 else f"a number of {len(str(value))} digits"
    if isinstance(value, str | bytes):
        return repr(value) if len(value) < 60 else f"{value[:40]!r}..."
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"an array of shape {shape} and dtype {getattr(value, 'dtype', 'unknown')}"
    return repr(value) if isinstance(value, list | tuple) and len(repr(value)) < 60 else described(value)


def described(value: Any) -> str:
    """A value by its type, with an article."""
    return type_name(value) if isinstance(value, type) else _with_article(type_name(value))


def type_name(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def other_class(kind: Any, value: Any) -> str:
    """What is wrong with the value; a class may have a method `refusal(value)` that says what to do instead."""
    if hasattr(kind, "refusal"):
        return kind.refusal(value)
    return f"must be {noun(kind)}, but got {type_name(value)}"


def noun(kind: Any) -> str:
    if kind.__name__ == "AbstractKernel":
        return "a GPJax kernel"
    return _with_article(kind.__name__)


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"
