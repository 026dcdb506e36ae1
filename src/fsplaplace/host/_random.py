"""Random numbers on the host, from a JAX key: for set-up work that would cost more to compile than to do."""

import jax.random as jr
import numpy as np
from jax.core import Tracer

from fsplaplace.arguments import KeyLike, as_key


def host_generator(key: KeyLike) -> np.random.Generator:
    """A NumPy generator, the same for the same key."""
    if isinstance(key, Tracer):
        raise TypeError(
            "key is traced by jax.jit or jax.grad, but these random numbers are drawn on the host; call it outside"
        )
    return np.random.default_rng(np.asarray(jr.key_data(as_key(key))).ravel())
