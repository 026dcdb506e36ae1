"""What makes two training runs the same: their data and settings, their functions, and what these functions return."""

import dataclasses
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Float, PRNGKeyArray, PyTree

# Gradients shown to the optimiser, one after the other: their changes of size and sign show momentum and clipping.
_GRADIENTS = (1.0, -0.5, 2.0, 0.25)
# Two processors agree to about 1e-5 in float32; another activation, schedule or kernel moves some output by far more.
_RELATIVE, _OF_LARGEST = 1e-4, 1e-5
# What `dataclass` writes into a class.
_GENERATED = ("__init__", "__repr__", "__eq__", "__replace__", "__setattr__", "__delattr__")


class Fingerprint(eqx.Module):
    """What a checkpoint stores of its run.

    Attributes:
        digest: of arrays, settings, names and bytecode; compared bit by bit.
        probes: outputs of the run's functions; compared to rounding, because another processor rounds differently.
    """

    digest: str = eqx.field(static=True)
    probes: tuple[Float[np.ndarray, "..."], ...]

    def matches(self, digest: Any, probes: tuple[np.ndarray, ...]) -> bool:
        """Whether a stored digest and stored probes are those of this run."""
        return (
            digest == self.digest
            and len(probes) == len(self.probes)
            and all(_close(stored, own) for stored, own in zip(probes, self.probes, strict=True))
        )


def fingerprint(
    objective: Any, validate: Any, start: PyTree, optimizer: optax.GradientTransformation, key: PRNGKeyArray, steps: int
) -> Fingerprint:
    """The fingerprint of one run of the loop, before its first step.

    Functions have no value to compare, so they are seen three ways: by their names and bytecode, by the outputs that
    the objective's `probes` gives, and, for the optimiser, by updates at steps all over the run, where schedules differ.

    Args:
        objective: what is minimised, with its data.
        validate: the held-out loss, or None.
        start: the first parameters.
        optimizer: of the run.
        key: of the run.
        steps: number of steps.

    Time: one pass over a few rows, four updates of the optimiser, and a hash of all arrays.
    """
    digest, known = hashlib.sha256(), {}
    for part in (objective, validate, start, optimizer, key, steps):
        _add(digest, part, set(), known)
    outputs = [*jax.tree.leaves(_probes(objective, start)), *_updates(optimizer, start, steps)]
    return Fingerprint(digest.hexdigest(), tuple(np.asarray(leaf, dtype=np.float64) for leaf in outputs))


def _updates(optimizer, start: PyTree, steps: int) -> list:
    """Sums of the optimiser's updates, one for each array, with its counters set to steps from the first to the last."""
    state, sums = _initial(optimizer, start), []
    for count, size in zip(np.linspace(0, steps - 1, len(_GRADIENTS)).astype(np.int32), _GRADIENTS, strict=True):
        state, update = _update(optimizer, start, state, count, np.float32(size))
        sums.append(update)
    return sums


@eqx.filter_jit
def _probes(objective, start):
    return objective.probes(start)


@eqx.filter_jit
def _initial(optimizer, start):
    return optimizer.init(start)


@eqx.filter_jit
def _update(optimizer, start, state, count, size):
    # Whatever counts steps is an integer without axes, in every optimiser and schedule of Optax.
    state = jax.tree.map(lambda leaf: count.astype(leaf.dtype) if _is_counter(leaf) else leaf, state)
    gradients = jax.tree.map(lambda leaf: jnp.full_like(leaf, size), start)
    updates, state = optimizer.update(gradients, state, start)
    return state, jnp.stack([jnp.sum(leaf) for leaf in jax.tree.leaves(updates)])


def _is_counter(leaf: Any) -> bool:
    return eqx.is_array(leaf) and leaf.ndim == 0 and jnp.issubdtype(leaf.dtype, jnp.integer)


def _close(stored: np.ndarray, own: np.ndarray) -> bool:
    if stored.shape != own.shape:
        return False
    atol = _OF_LARGEST * float(np.max(np.abs(own), initial=0.0))
    return np.allclose(stored, own, rtol=_RELATIVE, atol=atol, equal_nan=True)


def _add(digest, value: Any, within: set[int], known: dict[int, bytes]) -> None:
    """Add a value of any type to the digest, by what stays the same in another process: never by an address.

    Args:
        digest: what is added to.
        value: anything.
        within: addresses of what the value is part of; a value that contains itself, as recursive functions do, is added once.
        known: digests of functions and classes that were met before, by address: others may refer to them again and again.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        # 10 and 10.0 are one number: which of them a schedule keeps may depend on who called it first.
        value = float(value)
    digest.update(f"({type(value).__module__}.{type(value).__qualname__}".encode())
    if _is_key(value):
        value = jr.key_data(value)
    if eqx.is_array(value) or isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        digest.update(repr(value).encode())
    elif isinstance(value, types.FunctionType | type) and id(value) not in within:
        if id(value) not in known:
            inner = hashlib.sha256()
            _add_parts(inner, value, within, known)
            known[id(value)] = inner.digest()
        digest.update(known[id(value)])
    elif id(value) not in within:
        _add_parts(digest, value, within, known)
    digest.update(b")")


def _add_parts(digest, value: Any, within: set[int], known: dict[int, bytes]) -> None:
    for part in _parts(value):
        _add(digest, part, within | {id(value)}, known)


def _parts(value: Any) -> list:
    """What a value consists of, in an order that does not depend on the process."""
    match value:
        case functools.partial():
            return [value.func, value.args, value.keywords]
        case types.FunctionType():
            return _function_parts(value)
        case types.MethodType():
            return [value.__func__, value.__self__]
        case types.CodeType():
            return [value.co_code, value.co_names, value.co_consts]
        case type():
            return _class_parts(value)
        case types.ModuleType():
            return [value.__name__]
        case Mapping():
            return [part for item in value.items() for part in item]
        case set() | frozenset():
            return sorted(map(repr, value))
        case list() | tuple():
            return list(value)
    own = [type(value)] if _is_users(type(value).__module__) else []
    if dataclasses.is_dataclass(value):
        fields = ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
        return [*own, *(part for field in fields for part in field)]
    if callable(value):
        return [*own, *_name(value), getattr(value, "__wrapped__", None), *_attributes(value)]
    leaves, structure = jax.tree.flatten(value)
    if jax.tree_util.treedef_is_leaf(structure):
        shown = repr(value)
        return [*own, *_attributes(value)] if " at 0x" in shown else [*own, shown]
    return [*own, *leaves]


def _attributes(value: Any) -> list:
    """Those of an object of the user's or of Optax; of others, such as loggers, they may be caches, and the type must do."""
    module = type(value).__module__
    if not (_is_users(module) or module.partition(".")[0] == "optax"):
        return []
    return (
        [{name: part for name, part in vars(value).items() if name != "__wrapped__"}]
        if hasattr(value, "__dict__")
        else []
    )


def _class_parts(kind: type) -> list:
    """Its name; of a class of the user's also what its methods do, and its constants."""
    if not _is_users(kind.__module__):
        return [kind.__module__, kind.__qualname__]
    # What every class has, and what decorators of libraries add, is not by the user; addresses and caches are among it.
    own = {name: part for name, part in vars(kind).items() if _is_written(kind, name, part)}
    return [kind.__qualname__, own, [base for base in kind.__bases__ if _is_users(base.__module__)]]


def _is_written(kind: type, name: str, part: Any) -> bool:
    """Whether a class holds this because its author wrote it."""
    part = getattr(part, "__func__", getattr(part, "fget", part))
    if isinstance(part, types.FunctionType):
        generated = name in _GENERATED and part.__code__.co_filename == "<string>"
        return inspect.unwrap(part).__module__ == kind.__module__ and not generated
    return not name.startswith("_") and isinstance(
        part, bool | int | float | complex | str | tuple | np.ndarray | jax.Array
    )


@functools.cache
def _is_users(module: str | None) -> bool:
    """Whether a module is code of the user's: neither this library nor an installed one, whose names stand for their code."""
    top = (module or "").partition(".")[0]
    if top in ("fsplaplace", "builtins") or top in sys.stdlib_module_names:
        return top == "__main__"
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is None or not any(part in ("site-packages", "dist-packages") for part in Path(file).parts)


def _function_parts(function: types.FunctionType) -> list:
    wrapped = getattr(function, "__wrapped__", None)
    made_by = function.__code__.co_filename
    if isinstance(wrapped, types.FunctionType) and ("jaxtyping" in made_by or "beartype" in made_by):
        # A type checker's wrapper: it keeps what it has seen, and what it wraps is what is computed.
        return _function_parts(wrapped)
    if (function.__module__ or "").partition(".")[0] in ("jax", "numpy"):
        return _name(function)
    cells = [_content(cell) for cell in function.__closure__ or ()]
    # Not by its module, which is another one where a script is imported instead of run.
    parts = [function.__name__, function.__code__, function.__defaults__, function.__kwdefaults__, cells]
    return [*parts, _globals(function)] if _is_users(function.__module__) else parts


def _globals(function: types.FunctionType) -> dict[str, Any]:
    """What a function of the user's reads from its module: numbers, arrays, other functions and classes."""
    read = sorted(_names(function.__code__) & set(function.__globals__))
    return {name: function.__globals__[name] for name in read}


def _names(code: types.CodeType) -> set[str]:
    """Names that a function and those inside it look up."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None


def _name(function: Any) -> list[str]:
    return [str(getattr(function, name, "")) for name in ("__module__", "__qualname__")]


def _is_key(value: Any) -> bool:
    return eqx.is_array(value) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
