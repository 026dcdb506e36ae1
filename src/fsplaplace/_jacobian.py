r"""Products with the Jacobian $J(x) = \partial f(x, w) / \partial w$, in blocks of rows.

Rows of a matrix of directions are vectors of weights, so a p x r matrix is stored as (r, p).
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from fsplaplace._memory import itemsize, rows_that_fit
from fsplaplace._model import Model

# With few outputs the per-row Jacobian and one matrix product beat one forward pass per direction.
_DENSE_OUTPUTS = 2
# Blocks larger than this gain nothing: the matrix products already run at full speed.
_MOST_ROWS = 4096


@eqx.filter_jit
def jacobian(model: Model, x: Float[Array, "n ..."]) -> Float[Array, "n q p"]:
    """The Jacobian of each row. Memory $O(n q p)$."""

    def one(row):
        outputs, pull = jax.vjp(lambda params: model.evaluate(params, row[None])[0], model.params)
        rows = jax.vmap(pull)(jnp.eye(outputs.shape[0], dtype=outputs.dtype))[0]
        return jax.vmap(lambda tree: ravel_pytree(tree)[0])(rows)

    return jax.vmap(one)(x)


@eqx.filter_jit
def jacobian_matrix(model: Model, x: Float[Array, "n ..."]) -> Float[Array, "nq p"]:
    """The Jacobian of all rows as one matrix, points first."""
    return jacobian(model, x).reshape(-1, model.num_params)


def push_forward(
    model: Model, x: Float[Array, "n ..."], directions: Float[Array, "r p"], *, budget: float
) -> Float[Array, "n q r"]:
    r"""$J(x) V$ for directions $V$ in weight space, in blocks of rows that fit the budget.

    Time: r forward passes; memory: the result plus one block.
    """
    rows = rows_per_block(model, x, directions.shape[0], budget)
    return map_rows(lambda part: push_forward_block(model, part, directions), x, rows=rows)


def pull_back(
    model: Model, x: Float[Array, "n ..."], cotangents: Float[Array, "n q r"], *, budget: float
) -> Float[Array, "r p"]:
    r"""$J(x)^\top U$, summed over the rows, in blocks of rows that fit the budget.

    Time: r reverse passes; memory: the result plus one block.
    """
    rows = rows_per_block(model, x, cotangents.shape[2], budget)
    total = None
    for start in range(0, x.shape[0], rows):
        part, seeds = _pad(x[start : start + rows], rows), _pad_zero(cotangents[start : start + rows], rows)
        block = _pull_back(model, part, seeds)
        total = block if total is None else total + block
    assert total is not None
    return total


def map_rows(function: Callable[[Array], Array], x: Float[Array, "n ..."], *, rows: int) -> Array:
    """`function` on blocks of `rows` rows, all of one shape so that one compiled program serves them, concatenated.

    Inside `jax.jit` the blocks become a `jax.lax.map`.
    """
    count = x.shape[0]
    if count <= rows:
        return function(x)
    if isinstance(x, jax.core.Tracer):
        blocks = -(-count // rows)
        stacked = jax.lax.map(function, _pad(x, blocks * rows).reshape(blocks, rows, *x.shape[1:]))
        return jax.tree.map(lambda leaf: leaf.reshape(blocks * rows, *leaf.shape[2:])[:count], stacked)
    parts = [function(_pad(x[start : start + rows], rows)) for start in range(0, count, rows)]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:count], *parts)


@eqx.filter_jit
def push_forward_block(model: Model, x, directions):
    """`push_forward` of one block."""
    width = model.num_outputs(x)
    if width <= _DENSE_OUTPUTS and directions.shape[0] > 2 * width:
        return jacobian(model, x) @ directions.T

    def one(direction):
        tangent = model.unravel(direction)
        return jax.jvp(lambda params: model.evaluate(params, x), (model.params,), (tangent,))[1]

    return jax.vmap(one, out_axes=2)(directions)


@eqx.filter_jit
def _pull_back(model: Model, x, cotangents):
    width, rank = cotangents.shape[1:]
    if width <= _DENSE_OUTPUTS and rank > 2 * width:
        rows = jacobian(model, x)
        return jnp.tensordot(cotangents, rows, axes=((0, 1), (0, 1)))
    _, pull = jax.vjp(lambda params: model.evaluate(params, x), model.params)
    return jax.vmap(lambda seed: ravel_pytree(pull(seed)[0])[0], in_axes=2)(cotangents)


def rows_per_block(model: Model, x, rank: int, budget: float) -> int:
    """Rows per block, from what one row costs at most: a row of the Jacobian, or the activations of r tangent passes.

    Activations are about the square root of the weights per layer in a dense network; in a convolutional one the input's
    size bounds them from below.
    """
    activations = 4 * rank * (model.num_params**0.5 + math.prod(x.shape[1:]))
    per_row = max(_DENSE_OUTPUTS * (model.num_params + rank), activations) * itemsize(model.dtype)
    return min(rows_that_fit(per_row, budget / 4, most=_MOST_ROWS), x.shape[0])


def _pad(x, rows: int):
    missing = rows - x.shape[0]
    return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing, *x.shape[1:]))]) if missing else x


def _pad_zero(values, rows: int):
    return jnp.pad(values, ((0, rows - values.shape[0]), (0, 0), (0, 0)))
