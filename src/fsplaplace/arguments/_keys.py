"""Keys of random numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from fsplaplace.arguments._words import seen

# Randomness: a key of `jax.random`, or a whole number, which stands for `jax.random.key` of it.
KeyLike = PRNGKeyArray | int
_MOST_KEY = 2**32


def as_key(key: Any, *, argument: str = "key") -> PRNGKeyArray:
    """A key of `jax.random`: the one passed, or that of a whole number; anything else is refused."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not 0 <= key < _MOST_KEY:
            raise ValueError(
                f"{argument} is {key}; pass a whole number from 0 to {_MOST_KEY - 1}, or a key of jax.random"
            )
        return jr.key(int(key))
    if isinstance(key, jax.Array | np.ndarray):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
            return jnp.asarray(key)
        # The older kind of key, which `jax.random.PRNGKey` makes.
        if key.dtype == np.uint32 and key.shape in ((2,), (4,)):
            return jnp.asarray(key)
    found = (
        f"an array of shape {key.shape} and dtype {key.dtype}" if isinstance(key, jax.Array | np.ndarray) else seen(key)
    )
    raise TypeError(
        f"{argument} is {found}; pass a key of random numbers, for instance jax.random.key(0), or a whole number"
    )
