"""Checkpoints of a training run: arrays in safetensors, written whole or not at all."""

import hashlib
import re
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.random as jr
import numpy as np

from fsplaplace.host import read_tensors, write_tensors

T = TypeVar("T")
_KIND = "fsplaplace training checkpoint"


def fingerprint(*parts: Any) -> str:
    """A digest of everything a run depends on, so that a checkpoint continues only its own run."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(parts):
        if _is_key(leaf):
            leaf = jr.key_data(leaf)
        if eqx.is_array_like(leaf):
            array = np.asarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
    # A function's address is another one in the next process.
    digest.update(re.sub(r" at 0x[0-9a-f]+", "", str(jax.tree.structure(parts))).encode())
    return digest.hexdigest()


def write(path: str | Path, state: Any, identity: str) -> None:
    """Write the arrays of `state`, replacing an older checkpoint only once the new one is complete."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if _is_stored(leaf)]
    write_tensors(
        path,
        {f"{i:05d}": np.asarray(leaf) for i, leaf in enumerate(leaves)},
        {"kind": _KIND, "run": identity},
    )


def restore(path: str | Path, state: T, identity: str) -> T:
    """The state in the file, or `state` itself if there is no file; a file of another run is refused."""
    if not Path(path).exists():
        return state
    tensors, header = read_tensors(path, kind=_KIND)
    if header.get("run") != identity:
        raise ValueError(
            f"checkpoint {path} belongs to another run (other data, key, settings or network); pass another path, or delete it"
        )
    arrays, rest = eqx.partition(state, _is_stored)
    values = [
        tensors[name] if isinstance(leaf, np.ndarray) else jax.numpy.asarray(tensors[name])
        for name, leaf in zip(sorted(tensors), jax.tree.leaves(arrays), strict=True)
    ]
    restored = jax.tree.unflatten(jax.tree.structure(arrays), values)
    return eqx.combine(restored, rest)


def _is_stored(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) or eqx.is_array(leaf)


def _is_key(leaf: Any) -> bool:
    return eqx.is_array(leaf) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
