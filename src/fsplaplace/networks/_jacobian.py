r"""Products with the Jacobian $J(x) = \partial f(x, w) / \partial w$, in blocks of rows.

Rows of a matrix of directions are vectors of weights, so a p x r matrix is stored as (r, p). As a rule the Jacobian is
not formed: one tangent or reverse pass for each direction runs at the speed of the network's matrix products, where an
(n, p) block would be written to memory and read back.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from fsplaplace.host import itemsize, pad_rows, rows_that_fit
from fsplaplace.networks._model import Model, Through
from fsplaplace.parallel import gather, num_shards, replicate, shard_rows

_Rows = Float[Array, "n ..."] | Float[np.ndarray, "n ..."]
Route = Literal["directions", "rows", "convolutions"]
# Rows in a block: more gain nothing, the matrix products already run at full speed.
_MOST_ROWS: dict[Route, int] = {"directions": 4096, "rows": 1024, "convolutions": 1024}
# Directions at a time through a convolutional network. On the CPU a convolution inside a compiled loop is 2 (forward) to
# 30 (reverse) times slower than outside, and more directions at once are no faster (measured on a ResNet-18).
_CONVOLUTION_DIRECTIONS = 4
# Rows of a convolutional network's Jacobian pay for themselves with this many directions for each: on the paper's network for
# 28 x 28 images (98,442 weights, 10 outputs) the ten rows of an image take 16 ms, each direction in their product 0.022 ms,
# and by a tangent pass 0.27 ms (by a reverse pass 0.6 ms).
_DIRECTIONS_PER_CONVOLUTION_ROW = 6
# Numbers of one image's rows up to which they are written down, and images in a block of them: more are no faster.
_LARGEST_CONVOLUTION_ROWS, _MOST_IMAGES = 2**25, 64
# Rows of the Jacobian pay for themselves with this many directions for each, in a network whose rows stay in the cache.
_DIRECTIONS_PER_ROW = 100
# The same for a network seen through an operator: a Laplacian's pass costs many of the network's, and a row needs only one.
_DIRECTIONS_PER_SEEN_ROW = 10
_LARGEST_ROW = 50_000


@eqx.filter_jit
def jacobian(model: Model, x: _Rows) -> Float[Array, "n q p"]:
    """The Jacobian of each row. Memory $O(n q p)$."""
    return jax.vmap(lambda row: _row(model, row))(x)[1]


@eqx.filter_jit
def jacobian_matrix(model: Model, x: _Rows) -> Float[Array, "nq p"]:
    """The Jacobian of all rows as one matrix, points first."""
    return jacobian(model, x).reshape(-1, model.num_params)


@eqx.filter_jit
def outputs_and_jacobian(model: Model, x: _Rows) -> tuple[Float[Array, "n q"], Float[Array, "nq p"]]:
    """$f(x)$ and `jacobian_matrix`, from the same passes."""
    outputs, rows = jax.vmap(lambda row: _row(model, row))(x)
    return outputs, rows.reshape(-1, model.num_params)


def _row(model: Model, x: Float[Array, "..."]) -> tuple[Float[Array, " q"], Float[Array, "q p"]]:
    """Outputs for one input and their derivatives."""
    outputs, pull = jax.vjp(lambda params: model.evaluate(params, x[None])[0], model.params)
    rows = jax.vmap(pull)(jnp.eye(outputs.shape[0], dtype=outputs.dtype))[0]
    return outputs, jax.vmap(lambda tree: ravel_pytree(tree)[0])(rows)


def jacobian_blocks(model: Model, x: _Rows, *, budget: float) -> Iterator[tuple[slice, Float[np.ndarray, "bq p"]]]:
    """Slices of the rows of x and the Jacobian there, outputs of one row together, in blocks that fit the budget.

    Blocks of one model have one size, whatever x is, so that one compiled program serves all.
    """
    rows, host, model = jacobian_rows(model, x, budget), np.asarray(x), replicate(model)
    for start in range(0, host.shape[0], rows):
        part = host[start : start + rows]
        block = np.asarray(gather(jacobian_matrix(model, shard_rows(pad_rows(part, rows)))))
        yield slice(start, start + part.shape[0]), block[: block.shape[0] // rows * part.shape[0]]


def jacobian_rows(model: Model, x, budget: float) -> int:
    """Rows of x in a block of `jacobian_blocks`: a quarter of the budget with a copy in float64."""
    seen = linearisation(model, x)
    size = seen.bytes_per_row + seen.num_outputs * seen.num_params * (2 * seen.itemsize + 8)
    most = max(1, _MOST_ROWS["rows"] // seen.num_outputs)
    parts = num_shards()
    return -(-rows_that_fit(size, budget / 4, most=most) // parts) * parts


def push_forward(
    model: Model, x: _Rows, directions: Float[Array | np.ndarray, "r p"], *, budget: float
) -> Float[Array, "n q r"]:
    r"""$J(x) V$ for directions $V$ in weight space, in blocks of rows that fit the budget.

    Time: r tangent passes; memory: the result plus one block.
    """
    traced, rank = isinstance(x, Tracer), directions.shape[0]
    rows = rows_per_block(model, x, rank if traced else directions_together(model, x, rank), budget)
    chunks = [slice(None)] if traced else _chunks(model, x, rank)
    if len(chunks) == 1:
        return map_rows(functools.partial(push_forward_block, model, directions=directions), x, rows=rows)
    host = np.asarray(directions)
    products = np.empty((x.shape[0], model.num_outputs(x), host.shape[0]), host.dtype)
    for chunk in chunks:
        core = functools.partial(push_forward_block, model, directions=host[chunk])
        products[:, :, chunk] = map_rows(core, x, rows=rows)
    return jnp.asarray(products)


def pull_back(
    model: Model, x: _Rows, cotangents: Float[Array | np.ndarray, "n q r"], *, budget: float
) -> Float[Array, "r p"]:
    r"""$J(x)^\top U$, summed over the rows, in blocks of rows that fit the budget.

    Time: r reverse passes; memory: the result plus one block.
    """
    rank = cotangents.shape[2]
    rows = rows_per_block(model, x, directions_together(model, x, rank), budget)
    chunks = _chunks(model, x, rank)
    inputs, seeds, model = np.asarray(x), np.asarray(cotangents), replicate(model)
    if len(chunks) == 1:
        return _pull_back(model, inputs, seeds, rows)
    pulled = np.empty((seeds.shape[2], model.num_params), model.dtype)
    for chunk in chunks:
        pulled[chunk] = _pull_back(model, inputs, seeds[:, :, chunk], rows)
    return jnp.asarray(pulled)


def _pull_back(model: Model, x: np.ndarray, cotangents: np.ndarray, rows: int):
    total = replicate(jnp.zeros((cotangents.shape[2], model.num_params), model.dtype))
    for start in range(0, x.shape[0], rows):
        part, seeds = pad_rows(x[start : start + rows], rows), _pad_zero(cotangents[start : start + rows], rows)
        total = _add_pulled((model, shard_rows(part), shard_rows(seeds)), total)
    return gather(total)


def map_rows(function: Callable[..., Any], x: _Rows, *, rows: int) -> Any:
    """`function` on blocks of `rows` rows, all of one shape so that one compiled program serves them, concatenated.

    Inside `jax.jit` the blocks become a `jax.lax.map`. A `functools.partial` has its arrays put on every device of the
    mesh, where there is one (`fsplaplace.parallel.use_mesh`), and the rows of each block split over them.
    """
    count = x.shape[0]
    if isinstance(x, Tracer):
        if count <= rows:
            return function(x)
        blocks = -(-count // rows)
        padded = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (blocks * rows - count, *x.shape[1:]))])
        stacked = jax.lax.map(function, padded.reshape(blocks, rows, *x.shape[1:]))
        return jax.tree.map(lambda leaf: leaf.reshape(blocks * rows, *leaf.shape[2:])[:count], stacked)
    spread = False
    if num_shards() > 1 and isinstance(function, functools.partial):
        spread = True
        function = functools.partial(function.func, *replicate(function.args), **replicate(function.keywords))
    elif count <= rows:
        return function(x)
    # Blocks on the host: a slice on the device would compile a program for each start.
    host, parts = np.asarray(x), []
    for start in range(0, count, rows):
        part = pad_rows(host[start : start + rows], rows)
        parts.append(gather(function(shard_rows(part))) if spread else function(part))
    return jax.tree.map(lambda *leaves: jax.device_put(np.concatenate(leaves)[:count]), *parts)


@eqx.filter_jit
def push_forward_block(model: Model, x, directions):
    """`push_forward` of one block of rows."""
    chosen = route(model, x, directions.shape[0])
    if chosen == "rows":
        # Not the transpose: as a residual of a derivative it would be a copy of all directions.
        return jnp.einsum("nqp,rp->nqr", jacobian(model, x), directions)
    _, tangent = jax.linearize(lambda params: model.evaluate(params, x), model.params)

    def one(direction):
        return tangent(model.unravel(direction))

    if chosen == "convolutions":
        return jax.vmap(one, out_axes=2)(directions)
    return jnp.moveaxis(jax.lax.map(one, directions), 0, 2)


@eqx.filter_jit(donate="all-except-first")
def _add_pulled(block, total):
    """`total` plus the pull-back of one block of rows; one direction at a time in place, so that r x p is held once."""
    model, x, cotangents = block
    chosen = route(model, x, cotangents.shape[2])
    if chosen == "rows":
        return total + jnp.tensordot(cotangents, jacobian(model, x), axes=((0, 1), (0, 1)))
    _, pull = jax.vjp(lambda params: model.evaluate(params, x), model.params)

    def one(seed):
        return ravel_pytree(pull(seed)[0])[0]

    if chosen == "convolutions":
        return total + jax.vmap(one, in_axes=2)(cotangents)
    seeds = jnp.moveaxis(cotangents, 2, 0)
    return jax.lax.fori_loop(0, seeds.shape[0], lambda i, rows: rows.at[i].add(one(seeds[i])), total)


def route(model: Model, x, rank: int) -> Route:
    """How products with r directions are computed: a pass for each direction, or the rows of the Jacobian.

    "directions": one after the other in a compiled loop. "convolutions": a few at a time, outside of a loop. "rows": the
    Jacobian's rows and one matrix product, with many directions for each output; in a network without convolutions only
    with few outputs and few weights, whose rows stay in the cache.
    """
    return linearisation(model, x).route(rank)


def directions_together(model: Model, x, rank: int) -> int:
    """How many of r directions go through the network together, outside of `jax.jit`."""
    return linearisation(model, x).together(rank)


def outputs_and_products(
    model: Model, x: _Rows, directions: Float[Array | np.ndarray, "r p"], *, budget: float
) -> tuple[Float[Array, "n q"], Float[Array, "n q r"]]:
    """$f(x)$ and $J(x) V$ of a network with convolutions, outside of `jax.jit`, a few directions at a time."""
    outputs = map_rows(functools.partial(_outputs, model), x, rows=rows_per_block(model, x, 1, budget))
    return outputs, push_forward(model, jnp.asarray(x), directions, budget=budget)


@eqx.filter_jit
def _outputs(model: Model, x):
    return model(x)


def rows_per_block(model: Model, x, rank: int, budget: float) -> int:
    """Rows per block: what a quarter of the budget holds, all blocks of about one size."""
    count, parts, seen = x.shape[0], num_shards(), linearisation(model, x)
    chosen = seen.route(rank)
    largest = _MOST_IMAGES if chosen == "rows" and seen.convolutional else _MOST_ROWS[chosen]
    most = rows_that_fit(seen.bytes_of_products(rank), budget / 4, most=largest * parts)
    if chosen == "rows" and count > most // 4 and most == largest:
        # A cheap row: blocks of one size for every x, padded, save the compilation of another program.
        return most
    even = -(-count // -(-count // most))
    return -(-even // parts) * parts


def block_bytes(model: Model, x, rank: int, budget: float) -> float:
    """What one block of rows costs in products with r directions."""
    seen = linearisation(model, x)
    together = seen.together(rank)
    return rows_per_block(model, x, together, budget) * seen.bytes_of_products(together)


class Linearisation(NamedTuple):
    """What a linearised pass through a network is like; everything about blocks of rows follows from it.

    Attributes:
        bytes_per_row: kept of the pass of each row.
        convolutional: whether the network has convolutions.
        through: whether it is seen through an operator.
        num_outputs: q.
        num_params: p.
        itemsize: bytes of one number.
    """

    bytes_per_row: int
    convolutional: bool
    through: bool
    num_outputs: int
    num_params: int
    itemsize: int

    def route(self, rank: int) -> Route:
        """See `route`."""
        if self.convolutional:
            many = rank >= _DIRECTIONS_PER_CONVOLUTION_ROW * self.num_outputs
            small = self.num_outputs * self.num_params <= _LARGEST_CONVOLUTION_ROWS
            return "rows" if many and small and not self.through else "convolutions"
        each = _DIRECTIONS_PER_SEEN_ROW if self.through else _DIRECTIONS_PER_ROW
        many = rank >= each * self.num_outputs
        return "rows" if many and self.num_outputs * self.num_params <= _LARGEST_ROW else "directions"

    def together(self, rank: int) -> int:
        """See `directions_together`."""
        return min(rank, _CONVOLUTION_DIRECTIONS) if self.route(rank) == "convolutions" else rank

    def bytes_of_products(self, rank: int) -> float:
        """What one row of a block costs: what is kept of its pass, and its products with r directions."""
        kept, outputs = self.bytes_per_row, self.num_outputs
        copies = {
            "directions": 2 * kept,
            # Inside `jax.jit` all directions go together, each with the activations of a few layers at a time.
            "convolutions": (1 + rank / 4) * kept,
            "rows": kept + 2 * outputs * self.num_params * self.itemsize,
        }
        return copies[self.route(rank)] + 2 * outputs * rank * self.itemsize


def linearisation(model: Model, x: _Rows) -> Linearisation:
    """From the shapes alone: nothing is computed, and networks of one shape are looked at once."""
    return _linearisation(*model.shapes, tuple(x.shape[1:]))


@functools.lru_cache(maxsize=64)
def _linearisation(structure, leaves, row: tuple[int, ...]) -> Linearisation:
    model: Model = jax.tree.unflatten(structure, leaves)

    def residuals(model, x):
        return jax.vjp(lambda params: model.evaluate(params, x), model.params)[1]

    def size(rows: int) -> int:
        inputs = jax.ShapeDtypeStruct((rows, *row), model.dtype)
        kept = jax.tree.leaves(eqx.filter_eval_shape(residuals, model, inputs))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in kept if isinstance(leaf, jax.ShapeDtypeStruct))

    one, number = jax.ShapeDtypeStruct((1, *row), model.dtype), itemsize(model.dtype)
    program = eqx.filter_make_jaxpr(lambda model, x: model.evaluate(model.params, x))(model, one)[0]
    return Linearisation(
        bytes_per_row=max(size(2) - size(1), number),
        convolutional="conv_general_dilated" in str(program),
        through=isinstance(model.call, Through),
        num_outputs=program.out_avals[0].shape[1],
        num_params=model.num_params,
        itemsize=number,
    )


def _chunks(model: Model, x, rank: int) -> list[slice]:
    """Slices of the directions that go through the network together; the last ones may overlap, so that all are equal."""
    width = directions_together(model, x, rank)
    return [slice(start, start + width) for start in (min(s, rank - width) for s in range(0, rank, width))]


def _pad_zero(values: np.ndarray, rows: int):
    return np.pad(values, ((0, rows - values.shape[0]), (0, 0), (0, 0)))
