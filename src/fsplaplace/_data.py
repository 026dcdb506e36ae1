"""The training data seen through a set of directions in weight space."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace._glm import Block, Blocks
from fsplaplace._jacobian import push_forward
from fsplaplace._memory import rows_that_fit
from fsplaplace._model import Model
from fsplaplace._precision import to_double
from fsplaplace.likelihoods import Gaussian, Likelihood


def data_blocks(
    model: Model, likelihood: Likelihood, X, targets, directions: Float[Array, "r+1 p"], *,
    num_outputs: int, budget: float, added_variance: Callable | None = None,
) -> Blocks:  # fmt: skip
    """Blocks of data with their features $J S_0$; the last direction is a shift that is part of the offset.

    `added_variance(x, features)` joins the variance of Gaussian noise. Blocks are kept if all fit a quarter of the
    budget, else computed anew in each pass. Float64, the products in the weights' dtype.
    """
    rows = rows_that_fit(2 * num_outputs * directions.shape[0] * 8, budget / 4, most=X.shape[0])

    def compute(start: int) -> Block:
        whole = rows >= X.shape[0]
        inputs, labels = (X, targets) if whole else (X[start : start + rows], targets[start : start + rows])
        products = np.asarray(push_forward(model, inputs, directions, budget=budget), dtype=np.float64)
        network = np.asarray(model(inputs), dtype=np.float64)
        noise = likelihood if whole else likelihood.rows(slice(start, start + rows))
        if added_variance is not None and isinstance(noise, Gaussian):
            noise = noise.with_added_variance(added_variance(inputs, products[:, :, :-1]))
        with jax.enable_x64(True):
            return Block(
                network=jnp.asarray(network),
                offset=jnp.asarray(network + products[:, :, -1]),
                features=jnp.asarray(products[:, :, :-1]),
                targets=to_double(labels),
                likelihood=to_double(noise),
            )

    starts = range(0, X.shape[0], rows)
    if len(starts) == 1:
        only = compute(0)
        return lambda: iter([only])
    return lambda: map(compute, starts)
