"""Files written whole or not at all; among them files of arrays: safetensors with a JSON header, nothing executed on reading."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file


class FileFormatError(ValueError):
    """A file that is not what it should be: truncated, of another kind, or from a newer version."""


@contextmanager
def replacing(path: str | Path, *, mode: int | None = None) -> Iterator[Path]:
    """Yields a file beside `path` to write to; it takes the place of `path` once the block ends without an error.

    Args:
        path: the file to write or to replace. After a crash it is the old file or the new one, never half of one.
        mode: permissions of the new file; only the owner's by default.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write `data`, readable by all, in a folder that is made if there is none."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, mode=0o644) as temporary:
        temporary.write_bytes(data)


def write_tensors(path: str | Path, tensors: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write arrays, and a header of JSON values that `read_tensors` returns with them."""
    contiguous = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    with replacing(path) as temporary:
        save_file(contiguous, temporary, metadata={"header": json.dumps(header)})


def read_tensors(path: str | Path, *, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and header of a file written by `write_tensors` with this `kind` in its header."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("header", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError, OSError, TypeError) as error:
        raise FileFormatError(f"{path} is not a readable {kind}: {error}") from error
    if not isinstance(header, dict) or header.get("kind") != kind:
        found = header.get("kind") if isinstance(header, dict) else None
        raise FileFormatError(f"{path} is not a {kind} (its header says {found!r})")
    return tensors, header


def checksum(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
    """SHA-256 of a header and of names, dtypes, shapes and bytes of arrays: whether a file is as it was written."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
