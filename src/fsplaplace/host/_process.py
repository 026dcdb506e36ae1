"""Whether this process can go on computing: its memory maps, and the threads that a fork leaves behind."""

import ctypes
import gc
from pathlib import Path

import jax

from fsplaplace.arguments import refuse_fork

_MAPS, _MOST_MAPS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
# Each compiled program keeps a few memory maps and its code. At this share of what the system allows they are dropped: a fit of a
# new size adds some 300 maps and 14 MB, and past the limit XLA crashes. With 0.12 about 25 sizes stay compiled
# (`benchmarks/trust.py --parts sizes`).
SHARE_OF_MAPS = 0.12


def ready_to_compute(*, may_drop: bool = True) -> None:
    """Call it where a computation begins: refuses what would wait forever, and prevents what would crash.

    Programs that XLA compiled stay in memory for as long as JAX's caches know them. Before they take all the memory maps that a
    process may have, the caches are emptied: the next call of each size compiles again, and nothing else changes.

    Args:
        may_drop: whether the caches may be emptied; not within a function that a caller could be tracing.

    Time: a few milliseconds, for reading the list of maps.
    """
    refuse_fork()
    if may_drop and _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > SHARE_OF_MAPS * _most_maps():
        jax.clear_caches()
        gc.collect()
        _return_freed_memory()


def _return_freed_memory() -> None:
    """Give the pages of what was freed back to the system.

    The C library keeps them otherwise, between the few that are still used: of 200 MiB that eight sizes took, 5 came back.
    """
    # glibc's alone; other C libraries have no such function.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _most_maps() -> int:
    return int(_MOST_MAPS.read_text()) if _MOST_MAPS.exists() else 65_530
