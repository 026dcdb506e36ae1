"""A process that was forked from one in which JAX runs: it lacks JAX's threads, and whatever it computes waits forever."""

import os

from jax._src import xla_bridge


class _Here:
    """Whether this process is such a fork."""

    is_fork = False


def refuse_fork() -> None:
    """An error instead of a wait without end; call it where something is computed."""
    if _Here.is_fork:
        raise RuntimeError(
            "this process was forked from one in which JAX runs (importing fsplaplace starts it): the threads that JAX needs do not "
            "exist here, and the call would wait forever; start processes with multiprocessing's 'spawn' or 'forkserver', with joblib "
            "by backend='loky' (its default)"
        )


def _after_fork() -> None:
    # No public function says whether the backend is running; pyproject.toml allows versions of JAX that have this one.
    _Here.is_fork = _Here.is_fork or xla_bridge.backends_are_initialized()


os.register_at_fork(after_in_child=_after_fork)
