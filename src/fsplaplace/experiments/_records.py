"""Result files: JSON with a checksum, written next to the target and renamed, so that half a file is never a result."""

import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fsplaplace.host import write_atomically

_PACKAGES = (
    "fsplaplace",
    "jax",
    "jaxlib",
    "equinox",
    "gpjax",
    "optax",
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "botorch",
)


class ResultFormatError(ValueError):
    """A result file that is damaged, half-written, or of another kind."""


def write_record(path: Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write `content` atomically, with its kind and checksum."""
    body = _plain(content)
    record = {"kind": kind, "sha256": _checksum(body), "content": body}
    write_atomically(path, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())


def read_record(path: Path, kind: str) -> dict[str, Any]:
    """The content of a file written by `write_record` as this kind; `ResultFormatError` for anything else."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultFormatError(f"{path} is not a readable {kind}: {error}") from error
    if not isinstance(record, dict) or record.get("kind") != kind or not isinstance(record.get("content"), dict):
        raise ResultFormatError(f"{path} is not a {kind}")
    try:
        sealed = record.get("sha256") == _checksum(record["content"])
    except (ValueError, RecursionError):  # a number that JSON has no word for
        sealed = False
    if not sealed:
        raise ResultFormatError(f"{path} does not match its own checksum; it was changed or damaged, run it again")
    return record["content"]


def fingerprint(*parts: Any) -> str:
    """A hash of settings: a cell that was run under others is not read."""
    return _checksum(_plain(parts))


def environment() -> dict[str, Any]:
    """Versions and class of machine, without its name."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else math.nan
    machine = f"{os.cpu_count()} CPU cores ({platform.machine()}), {memory:.0f} GiB of memory, no accelerator"
    return {"versions": {"python": platform.python_version(), **versions}, "machine": machine}


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """JSON values only; a number that is not finite becomes None, because JSON has no word for it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    raise TypeError(f"a result cannot hold a {type(value).__name__}")
