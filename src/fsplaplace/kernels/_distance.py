"""Squared Euclidean distances between two sets of points, each accurate relative to itself.

A matrix product gives |x|² + |y|² - 2 x·y at hardware speed, but cancellation leaves an error of about
5 eps (|x|² + |y|²): near-coincident points lose every digit, and a Matérn-1/2 kernel, which needs the
square root, shows it. So the product is kept where it is accurate, and the few pairs with
|x - y|² < τ (|x|² + |y|²) are found and recomputed from their differences.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

# Up to this many columns the squared differences fuse into one pass over the n x m result. That beats the
# product and its repair up to 32 columns in value and up to 8 in gradient, and needs no search for near pairs.
EXPLICIT_WIDTH = 16
# With this few rows on either side a matrix product has nothing to reuse.
_EXPLICIT_ROWS = 8
# τ by bytes per number. A kept distance has relative error 5 eps / τ, and s |dk/ds| <= 0.37 k(0, 0) for every
# profile, so float32 values stay within 1e-5 k(0, 0) and float64 values within 1e-11 k(0, 0).
_NEAR = {4: 1 / 32, 8: 1e-4}
_BLOCK = 64  # columns counted together in the search for near pairs; a count must fit an int8


@jax.jit  # callers outside jit would otherwise compile the conditional at every call
def squared_distance(
    x: Float[Array, "n d"], y: Float[Array, "m d"], lengthscale: Float[Array, " d"] | None = None
) -> Float[Array, "n m"]:
    """Squared distances sum_k ((x_ik - y_jk) / ℓ_k)² of all pairs.

    Zero exactly where two points coincide, and differentiable in x, y and ℓ to any order.

    Args:
        x: n points, one per row.
        y: m points, one per row.
        lengthscale: divisor ℓ of each column; None for the plain distance.

    Returns:
        The n x m matrix of squared distances.

    Cost: one n x m x d matrix product when d > 16, plus (n + m) d for near pairs. When more than n + m
    pairs are near (tight clusters, many duplicates), all n m d differences are formed instead.
    """
    (n, width), m = x.shape, y.shape[0]
    if width <= EXPLICIT_WIDTH:
        return _by_columns(x, y) if lengthscale is None else _by_scaled_columns(x, y, lengthscale)
    if min(n, m) <= _EXPLICIT_ROWS:
        return _by_rows(x, y, lengthscale)

    # Distances do not see a common shift, and smaller norms cancel less.
    centre = lax.stop_gradient(jnp.mean(y, axis=0))
    x_scaled, y_scaled = _scaled(x - centre, lengthscale), _scaled(y - centre, lengthscale)
    norms = jnp.sum(x_scaled**2, axis=1)[:, None] + jnp.sum(y_scaled**2, axis=1)[None, :]
    product = norms - 2.0 * jnp.matmul(x_scaled, y_scaled.T, precision=lax.Precision.HIGHEST)
    blocks, ends = _block_counts(product < _NEAR[x.dtype.itemsize] * norms)

    def repaired():
        row, column = _true_positions(blocks, ends, rows=n, size=n + m)
        # Differences of the points as given: centring has already rounded the centred ones.
        exact = jnp.sum(_scaled(x[row] - y[column], lengthscale) ** 2, axis=1)
        return product.at[row, column].set(exact, mode="drop")

    return lax.cond(ends[-1] <= n + m, repaired, lambda: _by_rows(x, y, lengthscale))


def _scaled(points, lengthscale):
    return points if lengthscale is None else points / lengthscale


def _by_columns(x, y, lengthscale=None):
    # The product with the identity makes XLA store the columns of y contiguously, which it has no other
    # reason to do: the loop over pairs then vectorises and runs two to five times faster on the CPU.
    y_columns = jnp.matmul(jnp.eye(y.shape[1], dtype=y.dtype), y.T, precision=lax.Precision.HIGHEST)
    total = jnp.zeros((x.shape[0], y.shape[0]), x.dtype)
    for k in range(x.shape[1]):
        difference = x[:, None, k] - y_columns[None, k]
        total += (difference if lengthscale is None else difference / lengthscale[k]) ** 2
    return total


# Differences first, then length scales, keeps the digits of near pairs. But its derivative in ℓ sums n m
# numbers for each ℓ_k; scaling the points first sums n + m, and derivatives do not need those digits.
_by_scaled_columns = jax.custom_jvp(_by_columns)


@_by_scaled_columns.defjvp
def _by_scaled_columns_jvp(primals, tangents):
    centre = lax.stop_gradient(jnp.mean(primals[1], axis=0))

    def of_scaled_points(x, y, lengthscale):
        return _by_columns((x - centre) / lengthscale, (y - centre) / lengthscale)

    return _by_columns(*primals), jax.jvp(of_scaled_points, primals, tangents)[1]


@jax.checkpoint
def _by_rows(x, y, lengthscale):
    """Checkpointed, so that no n x m x d array of differences waits for the backward pass."""
    if x.shape[0] > y.shape[0]:
        return _by_rows(y, x, lengthscale).T
    return lax.map(lambda point: jnp.sum(_scaled(point - y, lengthscale) ** 2, axis=1), x)


def _block_counts(mask: Bool[Array, "n m"]) -> tuple[Bool[Array, "b 64"], Int[Array, " b"]]:
    """The mask cut into blocks of 64 columns, and the running number of true entries after each."""
    blocks = jnp.pad(mask, ((0, 0), (0, -mask.shape[1] % _BLOCK))).reshape(-1, _BLOCK)
    # XLA sums booleans as int8 several times faster than as int32 on the CPU.
    return blocks, jnp.cumsum(jnp.sum(blocks, axis=1, dtype=jnp.int8), dtype=jnp.int32)


def _true_positions(blocks, ends, rows: int, size: int) -> tuple[Int[Array, " size"], Int[Array, " size"]]:
    """Rows and columns of the first `size` true entries; unused slots point past the last row."""
    slot = jnp.arange(size)
    block = jnp.searchsorted(ends, slot, side="right")
    rank = slot - jnp.where(block > 0, ends[block - 1], 0)
    offset = jnp.argmax(jnp.cumsum(blocks[block], axis=1) > rank[:, None], axis=1)
    blocks_per_row = blocks.shape[0] // rows
    row = jnp.where(slot < ends[-1], block // blocks_per_row, rows)
    return row, block % blocks_per_row * _BLOCK + offset
