"""The training data seen through a set of directions in weight space."""

import jax
import jax.numpy as jnp

from fsplaplace._glm import Block, Blocks
from fsplaplace._jacobian import push_forward
from fsplaplace._memory import rows_that_fit
from fsplaplace._model import Model
from fsplaplace._precision import to_double
from fsplaplace.likelihoods import Likelihood


def data_blocks(model: Model, likelihood: Likelihood, X, targets, directions, shift, budget: float) -> Blocks:
    """Blocks of data with their features J S_0; kept if they fit the budget, else computed anew in each pass."""
    width, rank = jax.eval_shape(model, X).shape[1], directions.shape[0]
    rows = rows_that_fit(2 * width * rank * 8, budget / 4, most=X.shape[0])
    stacked = jnp.concatenate([directions, shift[None]])

    def compute(start: int) -> Block:
        part = slice(start, min(start + rows, X.shape[0]))
        products = push_forward(model, X[part], stacked, budget=budget)
        with jax.enable_x64(True):
            products = to_double(products)
            offset = to_double(model(X[part])) + products[:, :, -1]
            labels = targets[part]
            labels = to_double(labels) if jnp.issubdtype(labels.dtype, jnp.inexact) else labels
            return Block(offset, products[:, :, :-1], labels, to_double(likelihood.rows(part)))

    starts = range(0, X.shape[0], rows)
    if len(starts) == 1:
        only = compute(0)
        return lambda: iter([only])
    return lambda: map(compute, starts)
