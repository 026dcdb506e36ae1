"""Where the files of a data set are: a local mirror, or a download that pooch keeps in the user's cache."""

import functools
import hashlib
import importlib
import os
from pathlib import Path
from types import ModuleType

from fsplaplace.arguments import checked
from fsplaplace.datasets._catalogue import Entry, File, entry

MIRROR_VARIABLE = "FSPLAPLACE_DATA"


class DatasetUnavailableError(RuntimeError):
    """A data set whose files are missing, cannot be downloaded, or are not the ones whose hash is known."""


@checked(computes=False)
def fetch(name: str) -> dict[str, Path]:
    """Local files of a data set, checked, and downloaded where the mirror does not hold them.

    Every file is hashed once per process (again if it changes); a download happens once per machine.

    **Returns:** file name as in a mirror -> its path here; a `DatasetUnavailableError` says which places were
    tried.
    """
    found = entry(name)
    return {file.path: _mirrored(name, file) or _downloaded(name, found, file) for file in found.files}


@checked(computes=False)
def path(name: str) -> dict[str, Path]:
    """Where the files of a data set are or would be downloaded to; nothing is read or downloaded.

    **Returns:** file name as in a mirror -> path here, which need not exist yet.
    """
    found = entry(name)
    return {file.path: _in_mirror(file) or _in_cache(name, found, file) for file in found.files}


@checked(computes=False)
def verify(name: str) -> dict[str, str]:
    """Hash the local files of a data set anew and compare with the catalogue; downloads nothing.

    **Returns:** file name as in a mirror -> SHA-256; `DatasetUnavailableError` if one is missing or differs.
    """
    hashes = {}
    for file, location in zip(entry(name).files, path(name).values(), strict=True):
        if not location.is_file():
            raise DatasetUnavailableError(
                f"dataset {name!r}: there is no {location}; fetch it with `fsplaplace data fetch {name}`"
            )
        hashes[file.path] = _sha256(location)
        _compare(name, file, location, hashes[file.path])
    return hashes


def import_extra(module: str) -> ModuleType:
    """An optional dependency of this package, or an error that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'fsplaplace.datasets needs {module}; install it with `pip install "fsplaplace[data]"`'
        ) from error


def _mirrored(name: str, file: File) -> Path | None:
    location = _in_mirror(file)
    if location is not None:
        status = location.stat()
        _compare(name, file, location, _sha256_once(location, status.st_size, status.st_mtime_ns))
    return location


def _in_mirror(file: File) -> Path | None:
    """Path of the file in the mirror; None if there is no mirror or the mirror does not hold it."""
    variable = os.environ.get(MIRROR_VARIABLE)
    if not variable:
        return None
    mirror = Path(variable).expanduser()
    if not mirror.is_dir():
        raise DatasetUnavailableError(
            f"{MIRROR_VARIABLE} is {variable!r}, which is no directory; set it to the mirror or unset it"
        )
    return mirror / file.path if (mirror / file.path).is_file() else None


def _in_cache(name: str, found: Entry, file: File) -> Path:
    if file.url is None:
        raise DatasetUnavailableError(
            f"dataset {name!r}: {file.path} was converted from {found.source} and exists only in a mirror, "
            f"but {_mirror_tried(file)}; set {MIRROR_VARIABLE} to a directory that holds {file.path} "
            f"with sha256 {file.sha256}"
        )
    return Path(import_extra("pooch").os_cache("fsplaplace")) / file.path


def _downloaded(name: str, found: Entry, file: File) -> Path:
    location = _in_cache(name, found, file)
    known_hash = f"sha256:{file.download_sha256 or file.sha256}"
    try:
        # Returns at once, without network, when the cache holds the file with this hash.
        import_extra("pooch").retrieve(file.url, known_hash, fname=location.name, path=location.parent)
    except (
        OSError,
        ValueError,
    ) as error:  # requests' errors are OSErrors; pooch's hash mismatch is a ValueError
        raise DatasetUnavailableError(
            f"dataset {name!r}: {_mirror_tried(file)}, {location} is not cached, and {file.url} could not be "
            f"downloaded ({error}); connect to the network, or set {MIRROR_VARIABLE} to a directory that "
            f"holds {file.path} with sha256 {file.sha256}"
        ) from error
    return location


def _mirror_tried(file: File) -> str:
    variable = os.environ.get(MIRROR_VARIABLE)
    return f"the mirror {variable!r} has no {file.path}" if variable else f"{MIRROR_VARIABLE} is not set"


def _compare(name: str, file: File, location: Path, sha256: str) -> None:
    if sha256 not in (file.sha256, file.download_sha256):
        raise DatasetUnavailableError(
            f"dataset {name!r}: {location} has sha256 {sha256}, but {file.sha256} is wanted; "
            "the file is damaged or another version, replace or remove it"
        )


def _sha256(location: Path) -> str:
    with location.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@functools.cache
def _sha256_once(location: Path, size: int, modified: int) -> str:
    """SHA-256 of a file that has kept its size and time; a changed file is another cache key."""
    return _sha256(location)
