"""Pickling of networks that hold compiled functions such as `jax.nn.relu`."""

import importlib
import io
import pickle
from typing import Any

import jax


def to_pickled(state: Any) -> dict[str, bytes]:
    """What `__getstate__` returns for an object that may hold compiled functions; `from_pickled` reads it."""
    buffer = io.BytesIO()
    _FunctionPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(state)
    return {"pickled": buffer.getvalue()}


def from_pickled(state: dict[str, bytes]) -> Any:
    """The state that `to_pickled` was given, each array in its own dtype."""
    with jax.enable_x64(True):
        return pickle.loads(state["pickled"])


class _FunctionPickler(pickle.Pickler):
    """Stores a compiled function that a module has by name as that name; plain pickle refuses it."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, _COMPILED):
            return NotImplemented
        module, name = (getattr(obj, attribute, "") for attribute in ("__module__", "__name__"))
        if not module or getattr(importlib.import_module(module), name, None) is not obj:
            return NotImplemented
        return _named, (module, name)


def _named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


_COMPILED = (type(jax.jit(lambda x: x)), jax.custom_jvp)
