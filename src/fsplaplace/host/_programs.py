"""Compiled programs kept on disk, so that the next process starts as fast as the second call of this one."""

import os
import sys
from pathlib import Path

import jax

from fsplaplace.arguments import checked


@checked(computes=False)
def cache_programs(directory: Path | str | None = None) -> None:
    """Keep every program that JAX compiles from now on in this directory, and take from it what earlier processes compiled.

    By default the directory is `fsplaplace/programs` in the user's cache directory, which the command line uses, too.

    Call it before the first `train`, `laplace` or `predict`. Most of a first call is compilation: with the programs of an
    earlier process a posterior of the sine task takes a third of the time (`benchmarks/results/peers.md`). Programs belong
    to a version of JAX and a kind of processor, and are compiled anew for others; the directory may be deleted at any time.

    Examples:
        >>> fsp.cache_programs(directory / "programs")
        >>> (directory / "programs").is_dir()
        True
    """
    directory = user_programs() if directory is None else Path(directory).expanduser()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"cache_programs: {directory} cannot be a directory ({error.strerror}); pass one that can be written to"
        ) from error
    jax.config.update("jax_compilation_cache_dir", str(directory))
    # All of them: a first call compiles a dozen small programs, none of which is slow.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def user_programs() -> Path:
    """Where programs are kept by default: below the user's cache directory, as the system names it."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"))
    elif sys.platform == "darwin":
        base = Path("~/Library/Caches")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return base.expanduser() / "fsplaplace" / "programs"
