"""Checkpoints of a training run: arrays in safetensors, written whole or not at all."""

from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np

from fsplaplace.host import FileFormatError, checksum, read_tensors, write_tensors
from fsplaplace.training._fingerprint import Fingerprint

T = TypeVar("T")
_KIND = "fsplaplace training checkpoint"
_FORMAT = 2
_STATE, _PROBE = "state/", "probe/"


def write(path: str | Path, state: Any, identity: Fingerprint) -> None:
    """Write the arrays of `state`, replacing an older checkpoint only once the new one is complete."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if _is_stored(leaf)]
    tensors = {f"{_STATE}{i:05d}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    tensors |= {f"{_PROBE}{i:05d}": probe for i, probe in enumerate(identity.probes)}
    header = {"kind": _KIND, "format": _FORMAT, "run": identity.digest}
    write_tensors(path, tensors, {**header, "checksum": checksum(header, tensors)})


def restore(path: str | Path, state: T, identity: Fingerprint) -> T:
    """The state in the file, or `state` itself if there is no file; a damaged file and one of another run are refused."""
    if not Path(path).exists():
        return state
    tensors, header = read_tensors(path, kind=_KIND)
    if header.get("format") != _FORMAT:
        raise FileFormatError(
            f"checkpoint {path} was written by another version of fsplaplace (format {header.get('format', 1)!r}, this one "
            f"reads {_FORMAT}); finish the run with that version, or delete the file"
        )
    if header.pop("checksum", None) != checksum(header, tensors):
        raise FileFormatError(f"checkpoint {path} was altered or damaged: it does not match its checksum; delete it")
    if unknown := [name for name in tensors if not name.startswith((_STATE, _PROBE))]:
        raise FileFormatError(f"checkpoint {path} has arrays that nobody knows, such as {unknown[0]!r}; delete it")
    if unknown := sorted(set(header) - {"kind", "format", "run"}):
        raise FileFormatError(f"checkpoint {path} has the unknown field {unknown[0]!r} in its header; delete it")
    if not identity.matches(header.get("run"), tuple(_named(tensors, _PROBE))):
        raise ValueError(
            f"checkpoint {path} belongs to another run (other data, key, settings, functions or network); pass another "
            "path, or delete it"
        )
    arrays, rest = eqx.partition(state, _is_stored)
    stored, wanted = _named(tensors, _STATE), jax.tree.leaves(arrays)
    if len(stored) != len(wanted):
        raise FileFormatError(f"checkpoint {path} has {len(stored)} arrays, but this run has {len(wanted)}; delete it")
    values = [_checked(path, index, *pair) for index, pair in enumerate(zip(stored, wanted, strict=True))]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), values), rest)


def _checked(path: str | Path, index: int, stored: np.ndarray, wanted: Any) -> Any:
    """A stored array as the run has it; histories, which are NumPy arrays, may have any length."""
    history = isinstance(wanted, np.ndarray)
    shape = wanted.shape[1:] if history else wanted.shape
    if (stored.shape[1:] if history and stored.ndim else stored.shape) != shape or stored.dtype != wanted.dtype:
        raise FileFormatError(
            f"checkpoint {path}: array {index} is {stored.dtype}{list(stored.shape)}, but this run has "
            f"{wanted.dtype}{list(wanted.shape)}; delete it, or pass another path"
        )
    return stored if history else jax.numpy.asarray(stored)


def _named(tensors: dict[str, np.ndarray], prefix: str) -> list[np.ndarray]:
    return [tensors[name] for name in sorted(tensors) if name.startswith(prefix)]


def _is_stored(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) or eqx.is_array(leaf)
