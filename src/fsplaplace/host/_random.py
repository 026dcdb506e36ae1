"""Random numbers on the host, from a JAX key: for set-up work that would cost more to compile than to do."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray


def host_generator(key: PRNGKeyArray) -> np.random.Generator:
    """A NumPy generator, the same for the same key."""
    check_key(key)
    return np.random.default_rng(np.asarray(jr.key_data(key)).ravel())


def check_key(key, *, argument: str = "key") -> None:
    """Refuse what is no key of `jax.random`, a number for instance."""
    if isinstance(key, jax.Array | np.ndarray):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
            return
        # The older kind of key, which `jax.random.PRNGKey` makes.
        if key.dtype == np.uint32 and key.ndim == 1:
            return
        seen = f"an array of shape {key.shape} and dtype {key.dtype}"
    else:
        seen = (
            f"{key!r}, of type {type(key).__name__}"
            if isinstance(key, int | float | str | None)
            else f"a {type(key).__name__}"
        )
    advice = f"jax.random.key({key})" if isinstance(key, int) else "jax.random.key(0)"
    raise TypeError(f"{argument} is {seen}; pass a key of random numbers, for instance {advice}")
