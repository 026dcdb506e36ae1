"""From an object to JSON and named arrays."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fsplaplace.host import FileFormatError
from fsplaplace.io._fields import check_finite
from fsplaplace.io._registry import entry_of, is_known
from fsplaplace.networks import Model
from fsplaplace.prior import Prior

# What `save` can leave out and `load` can be given.
PARTS = ("prior", "mean", "likelihood")
_NUM_PROBES = 3


class Encoder:
    """One object's walk into `tensors` and the JSON that refers to them.

    Args:
        omitted: fields to leave out, from `PARTS`.
        inputs: where to record the network's outputs, so that another function is noticed on load.
    """

    def __init__(self, omitted: tuple[str, ...], inputs: Any = None):
        self.omitted = omitted
        self.inputs = inputs
        self.tensors: dict[str, np.ndarray] = {}

    def encode(self, value: Any, path: str = "") -> Any:
        """The JSON of a value; `path` is where it is in the object."""
        match value:
            case Model():
                return {"model": self.model(value, path)}
            case bool() | None | str():
                return value
            case int() | float() if not isinstance(value, np.generic):
                return value
            case slice():
                return {"slice": [self.encode(part, path) for part in (value.start, value.stop, value.step)]}
            case tuple() | list():
                kind = "tuple" if isinstance(value, tuple) else "list"
                return {kind: [self.encode(part, f"{path}[{i}]") for i, part in enumerate(value)]}
            case dict() if all(isinstance(key, str) for key in value):
                return {"dict": {key: self.encode(part, f"{path}[{key!r}]") for key, part in value.items()}}
        if is_array(value):
            return self.array(value, path)
        if not is_known(type(value)):
            raise ValueError(_cannot_store(value, path))
        return self.instance(value, path)

    def instance(self, value: Any, path: str) -> dict[str, Any]:
        entry = entry_of(type(value))
        fields = {}
        # Some of GPJax's compute engines are no dataclasses: they have no fields.
        for field in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
            # A field left at its class's default is not the instance's own.
            if field.name in entry.constants or field.name not in vars(value):
                continue
            if field.name in self.omitted and is_part(type(value), field.name):
                fields[field.name] = {"omitted": field.name}
                continue
            inner = f"{path}.{field.name}".removeprefix(".")
            fields[field.name] = self.encode(getattr(value, field.name), inner)
        return {"class": entry.name, "fields": fields}

    def array(self, value: Any, path: str) -> dict[str, Any]:
        array = np.asarray(value)
        try:
            check_finite(array, path)
        except FileFormatError as error:
            raise ValueError(f"save: {error}; a file keeps only what can be computed with") from error
        name = f"{len(self.tensors):05d} {path}"
        self.tensors[name] = array
        node: dict[str, Any] = {"array": name, "shape": list(array.shape), "dtype": str(array.dtype)}
        if isinstance(value, np.ndarray | np.generic):
            node["numpy"] = "array" if isinstance(value, np.ndarray) else "number"
        elif getattr(value, "weak_type", False) and array.ndim == 0:
            node["weak"] = True
        return node

    def model(self, model: Model, path: str) -> dict[str, Any]:
        weights = {name: self.array(leaf, f"{path}{name}") for name, leaf in model_arrays(model).items()}
        node: dict[str, Any] = {"name": model.name, "weights": weights}
        if model.origin is not None:
            node["origin"] = self.array(model.origin, f"{path}.origin")
        if self.inputs is not None:
            few = jnp.asarray(self.inputs[:_NUM_PROBES])
            node["probe"] = {
                "inputs": self.array(few, f"{path}.probe.inputs"),
                "outputs": self.array(model(few), f"{path}.probe.outputs"),
            }
        return node


def is_part(kind: type, field: str) -> bool:
    """Whether this field of an object is one of `PARTS`; the mean is the prior's."""
    return field in PARTS and (field != "mean" or kind is Prior)


def is_array(leaf: Any) -> bool:
    """Whether this is an array of numbers; keys of random numbers are none."""
    return isinstance(leaf, np.ndarray | np.generic) or (
        eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    )


def model_arrays(model: Model) -> dict[str, Any]:
    """All arrays of a network by their path: weights, and what it holds fixed."""
    tree = {"params": model.params, "frozen": model.frozen}
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves if is_array(leaf)}


def _cannot_store(value: Any, path: str) -> str:
    name = getattr(value, "__qualname__", None) or f"{type(value).__module__}.{type(value).__qualname__}"
    part = "mean" if path.startswith("prior.mean") else path.split(".")[0]
    advice = f"pass omit={part!r} to save and {part}= to load, or " if part in PARTS else ""
    return (
        f"save: {path or 'the object'} is {name}, which is code and not data, so that a file cannot hold it; {advice}"
        "add its class with fsplaplace.io.register"
    )
