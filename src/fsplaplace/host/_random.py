"""Random numbers on the host, from a JAX key: for set-up work that would cost more to compile than to do."""

import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Int

from fsplaplace.arguments import KeyLike, as_key


def host_generator(key: KeyLike) -> np.random.Generator:
    """A NumPy generator, the same for the same key."""
    if isinstance(key, Tracer):
        raise TypeError(
            "key is traced by jax.jit or jax.grad, but these random numbers are drawn on the host; call it outside"
        )
    return np.random.default_rng(np.asarray(jr.key_data(as_key(key))).ravel())


def scattered(count: int, most: int) -> Int[np.ndarray, " k"]:
    """At most `most` of `count` positions in rising order, one drawn at random from each of as many stretches; all if they are few.

    Stretches, so that sorted rows are seen from end to end; at random, so that of rows in turns (four sensors, a grid) not always the
    same is seen. The same positions for the same numbers.
    """
    width = max(1, -(-count // max(1, most)))
    starts = np.arange(0, count, width)
    return starts + np.random.default_rng(count).integers(0, np.minimum(width, count - starts))
