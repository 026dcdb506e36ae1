"""What makes two training runs the same: their data and settings, their functions, and what these functions return."""

import dataclasses
import functools
import hashlib
import types
from collections.abc import Mapping
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
    digest = hashlib.sha256()
    for part in (objective, validate, start, optimizer, key, steps):
        _add(digest, part, set())
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


def _add(digest, value: Any, seen: set[int]) -> None:
    """Add a value of any type to the digest, by what stays the same in another process: never by an address."""
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
    elif id(value) not in seen:
        parts = _parts(value)
        # A value that contains itself, as recursive functions do, is added once.
        for part in parts:
            _add(digest, part, seen | {id(value)})
    digest.update(b")")


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
            return [value.__module__, value.__qualname__]
        case Mapping():
            return [part for item in value.items() for part in item]
        case set() | frozenset():
            return sorted(map(repr, value))
        case list() | tuple():
            return list(value)
    if dataclasses.is_dataclass(value):
        return [part for field in dataclasses.fields(value) for part in (field.name, getattr(value, field.name, None))]
    if callable(value):
        return [*_name(value), getattr(value, "__wrapped__", None)]
    leaves, structure = jax.tree.flatten(value)
    if jax.tree_util.treedef_is_leaf(structure):
        # Of an object that says nothing of itself but an address only the type is known.
        shown = repr(value)
        return [] if " at 0x" in shown else [shown]
    return leaves


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
    return [function.__name__, function.__code__, function.__defaults__, function.__kwdefaults__, cells]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None


def _name(function: Any) -> list[str]:
    return [str(getattr(function, name, "")) for name in ("__module__", "__qualname__")]


def _is_key(value: Any) -> bool:
    return eqx.is_array(value) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
