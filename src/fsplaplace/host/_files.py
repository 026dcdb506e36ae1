"""Files of arrays: safetensors with a JSON header, written atomically, nothing executed on reading."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file


class FileFormatError(ValueError):
    """A file that is not what it should be: truncated, of another kind, or from a newer version."""


def write_tensors(path: str | Path, tensors: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write next to the target and rename, so that a crash leaves the old file whole.

    Args:
        path: the file.
        tensors: arrays by name.
        header: anything JSON can hold; `read_tensors` asks for its entry "kind".
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    try:
        contiguous = {name: np.asarray(value, order="C") for name, value in tensors.items()}
        save_file(contiguous, temporary, metadata={"header": json.dumps(header)})
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


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
