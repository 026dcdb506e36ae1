"""From JSON and named arrays to an object: lookups in a list of classes, and nothing that a file could make run."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fsplaplace.host import FileFormatError
from fsplaplace.io._encoding import is_array, is_part, model_arrays
from fsplaplace.io._fields import check_finite, check_values
from fsplaplace.io._registry import entry_named
from fsplaplace.networks import Model, moved_model
from fsplaplace.prior import Prior

# What inconsistent values may raise anywhere below; everything else is a bug of ours and shows itself.
MALFORMED = (
    TypeError, ValueError, AttributeError, LookupError, ArithmeticError, AssertionError, NotImplementedError,
    RecursionError,
)  # fmt: skip
# Relative: other machines and other libraries' versions round differently, another activation does not agree by chance.
_PROBE_TOLERANCE = 1e-3


# The keys of each kind of node; a node with any other key is refused.
_NODES = {
    "class": {"class", "fields"}, "model": {"model"}, "tuple": {"tuple"}, "list": {"list"}, "dict": {"dict"},
    "array": {"array", "shape", "dtype", "numpy", "weak"}, "slice": {"slice"}, "omitted": {"omitted"},
}  # fmt: skip
_MODEL_KEYS = {"name", "weights", "probe", "origin"}


class Decoder:
    """One file's arrays, and what `load` was given besides.

    Attributes:
        unused: names of the arrays that nothing has referred to so far.
    """

    def __init__(self, tensors: dict[str, np.ndarray], *, model: Model | None, given: dict[str, Any]):
        self.tensors, self.network, self.given = tensors, model, given
        self.unused = set(tensors)

    def decode(self, node: Any, path: str) -> Any:
        """The value of a JSON node; `path` is where it is in the object."""
        if isinstance(node, dict) and not any(kind in node and set(node) <= keys for kind, keys in _NODES.items()):
            raise FileFormatError(f"{path or 'the object'} is not described in a known way")
        match node:
            case None | bool() | int() | float() | str():
                return node
            case {"class": name, "fields": dict(fields)}:
                return self.instance(name, fields, path)
            case {"model": dict(stored)}:
                return self.model(stored, path)
            case {"array": _}:
                return self.array(node, path)
            case {"tuple": list(parts)}:
                return tuple(self.decode(part, f"{path}[{i}]") for i, part in enumerate(parts))
            case {"list": list(parts)}:
                return [self.decode(part, f"{path}[{i}]") for i, part in enumerate(parts)]
            case {"dict": dict(parts)}:
                return {key: self.decode(part, f"{path}[{key!r}]") for key, part in parts.items()}
            case {"slice": [start, stop, step]}:
                return slice(*(self.decode(part, path) for part in (start, stop, step)))
            case {"omitted": part}:
                raise FileFormatError(f"it was saved without its {part}; pass {part}= to load")
        raise FileFormatError(f"{path or 'the object'} is not described in a known way")

    def instance(self, name: str, fields: dict[str, Any], path: str) -> Any:
        entry = entry_named(name)
        declared = dataclasses.fields(entry.kind) if dataclasses.is_dataclass(entry.kind) else ()
        possible = {field.name for field in declared} - set(entry.constants)
        needed = {field for field in possible if not hasattr(entry.kind, field)}
        if different := (set(fields) - possible) | (needed - set(fields)):
            relation = "lacks" if different & needed else "has an unknown"
            raise FileFormatError(f"{path or 'the object'}, a {name}, {relation} field {sorted(different)[0]!r}")
        if not declared:
            return _only_instance(entry.kind)
        values = dict(entry.constants)
        for field, node in fields.items():
            if field in self.given and is_part(entry.kind, field):
                values[field] = self.given[field]
            else:
                values[field] = self.decode(node, f"{path}.{field}".removeprefix("."))
        check_values(entry.kind, values, path)
        if entry.kind is Prior and "mean" in self.given:
            return Prior(**values)
        # As unflattening a pytree does: the fields as they were, without running __init__.
        instance = object.__new__(entry.kind)
        for field, value in values.items():
            object.__setattr__(instance, field, value)
        return instance

    def array(self, node: dict[str, Any], path: str) -> Any:
        array = self.tensors.get(node["array"]) if isinstance(node["array"], str) else None
        if array is None:
            raise FileFormatError(f"the array {node['array']!r} is missing")
        if list(array.shape) != node.get("shape") or str(array.dtype) != node.get("dtype"):
            raise FileFormatError(
                f"the array {node['array']!r} has shape {array.shape} and dtype {array.dtype}, but the header says "
                f"{node.get('shape')} and {node.get('dtype')}"
            )
        self.unused.discard(node["array"])
        check_finite(array, path)
        if node.get("numpy") == "number" and array.ndim == 0:
            return array[()]
        if node.get("numpy") in ("array", True):
            return array
        if node.get("weak") is True and array.ndim == 0:
            # A Python number becomes an array of weak type, in the width that the mode sets.
            with jax.enable_x64(array.dtype.itemsize == 8):
                return jnp.asarray(array.item())
        return jnp.asarray(array)

    def model(self, stored: dict[str, Any], path: str) -> Model:
        if self.network is None:
            raise FileFormatError(f"it holds the weights of {stored.get('name')}; pass that network as model to load")
        if not set(stored) <= _MODEL_KEYS or not isinstance(stored.get("name"), str):
            raise FileFormatError(f"{path} is not described in a known way")
        values = {name: self.array(node, f"{path}{name}") for name, node in stored["weights"].items()}
        network, name = self.placed(stored, path), self.network.name
        expected = model_arrays(network)
        for weight in sorted(set(values) | set(expected)):
            seen = _describe(expected[weight]) if weight in expected else "nothing there"
            wanted = _describe(values[weight]) if weight in values else "nothing there"
            if seen != wanted:
                raise FileFormatError(
                    f"weight {weight} is {wanted} in the file, but the given network {name} has {seen}; pass a network "
                    f"of the saved shape (it was a {stored.get('name')})"
                )

        def replace(place, leaf):
            return values[jax.tree_util.keystr(place)] if is_array(leaf) else leaf

        tree = {"params": network.params, "frozen": network.frozen}
        tree = jax.tree_util.tree_map_with_path(replace, tree)
        model = Model(tree["params"], tree["frozen"], network.call, name, network.origin)
        if stored.get("probe") is not None:
            self.check_function(model, stored["probe"])
        return model

    def placed(self, stored: dict[str, Any], path: str) -> Model:
        """The given network, as a function of inputs minus the origin that the file has."""
        network = self.network
        assert network is not None  # `model` has refused that
        if stored.get("origin") is None:
            return network
        origin = np.asarray(self.array(stored["origin"], f"{path}.origin"))
        if origin.ndim != 1 or origin.dtype.kind != "f" or not np.all(np.isfinite(origin)):
            raise FileFormatError(f"{path}.origin is {_describe(origin)}, but a row of finite numbers is wanted")
        if network.origin is not None and np.array_equal(network.origin, origin):
            return network
        moved = moved_model(network, origin) if network.origin is None else None
        if moved is None:
            raise FileFormatError(
                f"the saved network subtracts {origin} from its inputs, but the given network {network.name} centres no inputs; pass "
                "the network that was trained"
            )
        return moved

    def check_function(self, model: Model, probe: dict[str, Any]) -> None:
        """Refuse a network of the right shapes that computes something else: another activation, another order."""
        with jax.enable_x64(np.dtype(model.dtype).itemsize == 8):
            outputs = np.asarray(model(self.array(probe["inputs"], "probe")))
        saved = np.asarray(self.array(probe["outputs"], "probe"))
        if outputs.shape != saved.shape or not np.allclose(
            outputs, saved, rtol=_PROBE_TOLERANCE, atol=_PROBE_TOLERANCE * float(np.max(np.abs(saved), initial=0.0))
        ):
            raise FileFormatError(
                f"the given network {model.name} computes another function than the saved one: with the saved weights "
                f"it gives {_first(outputs)} at the first context point, but {_first(saved)} was saved; check its "
                "activation and the order of its layers"
            )


@functools.cache
def _only_instance(kind: type) -> Any:
    """GPJax's compute engines compare by identity: one instance for all keeps compiled programs in use."""
    return kind()


def _describe(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _first(outputs: np.ndarray) -> str:
    return f"{outputs.ravel()[0]:.6g}" if outputs.size else "nothing"
