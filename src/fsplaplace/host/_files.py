"""Files written whole or not at all; among them files of arrays: safetensors with a JSON header, nothing executed on reading."""

import contextlib
import errno
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

# Files like everybody's: the umask takes away what it takes away.
_NEW_FILE = 0o666
# A file of a writer that was killed is removed by the next writer, but not within seconds: it might not be locked yet.
_SETTLED_SECONDS = 60.0


class FileFormatError(ValueError):
    """A file that is not what it should be: truncated, of another kind, or from a newer version."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a file beside `path` to write to; it takes the place of `path` once the block ends without an error.

    After a crash `path` is the old file or the new one, never half of one. A new file gets the permissions that the umask
    leaves, a file that is replaced keeps its own, and a symbolic link stays one: what it points to is replaced. Data and
    directory are on the disk when the block ends. What a killed writer left beside `path` is removed.
    """
    target = check_target(path)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    _remove_abandoned(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, _NEW_FILE if mode is None else mode)
    try:
        # As long as this process lives: nobody takes the file for abandoned.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield temporary
        if mode is not None:
            os.chmod(temporary, mode)
        os.fsync(handle)
        os.replace(temporary, target)
        _sync_directory(target.parent)
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def check_target(path: str | Path, *, reads: Iterable[str | Path] = ()) -> Path:
    """The file that `path` names, links followed; an error if nothing can be written there, before any work is done.

    Args:
        path: the file.
        reads: files that the work is made from, which it must not replace, under whatever name.
    """
    try:
        target = Path(os.path.realpath(path))
    except ValueError as error:  # zero bytes
        raise ValueError(f"{str(path)!r} cannot be the name of a file ({error}); pass another") from error
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory; pass the name of a file", str(path))
    if target.exists() and not target.is_file():
        # To put a file in the place of /dev/null would take it from every other program.
        raise OSError(
            errno.EINVAL, "is a device or a pipe, which no file can replace; pass the name of a file", str(path)
        )
    if target.exists() and not os.access(target, os.W_OK):
        # Its directory would let us replace it, but whoever protected it does not want that.
        raise PermissionError(
            errno.EACCES, "is write-protected; pass another name, or change its permissions", str(path)
        )
    for source in reads:
        if target.exists() and os.path.exists(source) and os.path.samefile(target, source):
            raise FileExistsError(
                errno.EEXIST, f"is what is read ({source}), and would be lost; pass another name", str(path)
            )
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"cannot be written: there is no directory {target.parent}", str(path))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"cannot be written: {target.parent} is read-only", str(path))
    return target


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write `data`, in a folder that is made if there is none."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_into(path, data)


def write_tensors(path: str | Path, tensors: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write arrays, and a header of JSON values that `read_tensors` returns with them."""
    contiguous = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    # Not by safetensors' own writer, which has other ideas of permissions, and of what a full disk is called.
    write_into(path, save(contiguous, metadata={"header": json.dumps(header)}))


def write_into(path: str | Path, data: bytes) -> None:
    """Write `data` to a file in a folder that exists."""
    with replacing(path) as temporary:
        try:
            temporary.write_bytes(data)
        except OSError as error:
            raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error


def read_tensors(path: str | Path, *, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and header of a file written by `write_tensors` with this `kind` in its header."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} {'is not a file' if path.exists() else 'does not exist'}")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("header", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, ValueError, OSError, TypeError, KeyError, RecursionError, OverflowError) as error:
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


def signature(secret: bytes, header: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
    """HMAC-SHA-256 of a header and arrays: only who has the secret can make it, and nothing may change under it.

    Each array enters by the hash of its bytes under its name, dtype and shape, so that no two files have one text.
    """
    arrays = {
        name: [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
        for name, array in tensors.items()
    }
    return hmac.new(secret, json.dumps([header, arrays], sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _remove_abandoned(target: Path) -> None:
    """Files of writers that were killed: nobody holds their lock."""
    for path in target.parent.glob(f".{_literal(target.name)}.*.part"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime < _SETTLED_SECONDS:
                continue
            handle = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(handle)


def _literal(name: str) -> str:
    """A file name as a pattern that matches only itself."""
    return re.sub(r"([*?[])", r"[\1]", name)


def _sync_directory(directory: Path) -> None:
    """Put the renaming itself on the disk, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
