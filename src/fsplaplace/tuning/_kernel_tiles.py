r"""$\Sigma_\theta(X, X)$ and its derivative in θ, in tiles of one shape: two compiled programs serve any number of rows."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.host import pad_points, pad_rows, to_device
from fsplaplace.prior import BlockStructure
from fsplaplace.tuning._parameters import ParameterSpace

# Points on each side of a tile: few of 300 rows are padding, and 1,500 rows are 78 tiles.
_TILE = 128
# Pairs of tiles that one call computes: all of 600 rows. A single pair has a program of its own, without 15 empty ones.
_PAIRS = 16
# Numbers in the tiles of one call; with many outputs a tile has fewer points.
_MOST_NUMBERS = 2**22


class KernelTiles(NamedTuple):
    """Pairs of tiles that cover the lower triangle of a covariance matrix.

    Attributes:
        calls: for each call of a program the two sets of points of its pairs, (16, t, d) or
            (1, t, d), and how many of the pairs are used.
        pairs: the row and the column of each pair, in tiles.
        num_points: n.
        separate: whether each output has a block of its own, although they share a kernel.
    """

    calls: tuple[tuple[Float[Array, "k t d"], Float[Array, "k t d"], int], ...]
    pairs: tuple[tuple[int, int], ...]
    num_points: int
    separate: bool

    @classmethod
    def of(cls, X: Float[np.ndarray, "n d"], blocks: BlockStructure, *, separate: bool) -> "KernelTiles":
        """Tiles of these rows, padded with points between them; call it inside `in_float64`."""
        numbers = (blocks.separated() if separate else blocks).numbers_per_pair
        size = max(1, min(_TILE, math.isqrt(_MOST_NUMBERS // (_PAIRS * numbers))))
        tiles = np.stack([pad_points(X[start : start + size], size) for start in range(0, X.shape[0], size)])
        pairs = tuple((row, column) for row in range(len(tiles)) for column in range(row + 1))
        calls, together = [], 1 if len(pairs) == 1 else _PAIRS
        for start in range(0, len(pairs), together):
            some = np.asarray(pairs[start : start + together])
            padded = pad_rows(some, together)
            calls.append((to_device(tiles[padded[:, 0]]), to_device(tiles[padded[:, 1]]), len(some)))
        return cls(tuple(calls), pairs, X.shape[0], separate)

    def covariance(self, space: ParameterSpace, vector: Float[Array, " P"]) -> Float[np.ndarray, "b N N"]:
        r"""The blocks of $\Sigma_\theta(X, X)$; what is above the tiles on the diagonal is zero."""
        found = [
            np.asarray(_tiles(vector, space, left, right, count, self.separate))[:count]
            for left, right, count in self.calls
        ]
        _, b, height, _ = found[0].shape
        whole = np.zeros((b, *(2 * (height * (1 + self.pairs[-1][0]),))))
        for (row, column), tile in zip(self.pairs, (each for part in found for each in part), strict=True):
            whole[:, row * height : (row + 1) * height, column * height : (column + 1) * height] = tile
        used = self.num_points * height // self.calls[0][0].shape[1]
        return np.ascontiguousarray(whole[:, :used, :used])

    def pull_back(
        self, space: ParameterSpace, vector: Float[Array, " P"], slope: Float[np.ndarray, "b N N"]
    ) -> Float[np.ndarray, " P"]:
        r"""$\sum_{i \ge j} G_{ij}\, \partial \Sigma_{ij} / \partial \theta$ for a lower triangular matrix G."""
        rows_per_point = slope.shape[1] // self.num_points
        height = self.calls[0][0].shape[1] * rows_per_point
        more = height * (1 + self.pairs[-1][0]) - slope.shape[1]
        padded = np.pad(slope, ((0, 0), (0, more), (0, more)))
        total, pairs = np.zeros(vector.shape), iter(self.pairs)
        for left, right, count in self.calls:
            parts = np.zeros((left.shape[0], slope.shape[0], height, height))
            for part, (row, column) in zip(parts[:count], pairs, strict=False):
                part[:] = padded[:, row * height : (row + 1) * height, column * height : (column + 1) * height]
            total += np.asarray(_pulled_back(vector, space, left, right, count, self.separate, parts))
        return total


def _tile(vector, space: ParameterSpace, x, y, separate: bool):
    blocks = space.to_prior(vector).blocks
    return (blocks.separated() if separate else blocks).gram(x, y)


@eqx.filter_jit
def _tiles(vector, space: ParameterSpace, left, right, count, separate: bool):
    """The covariance between the points of the first `count` pairs, which is no static number."""
    one = jax.eval_shape(lambda: _tile(vector, space, left[0], right[0], separate))

    def body(pair, found):
        return found.at[pair].set(_tile(vector, space, left[pair], right[pair], separate))

    return jax.lax.fori_loop(0, count, body, jnp.zeros((left.shape[0], *one.shape), one.dtype))


@eqx.filter_jit
def _pulled_back(vector, space: ParameterSpace, left, right, count, separate: bool, slopes):
    def body(pair, total):
        _, pull = jax.vjp(lambda at: _tile(at, space, left[pair], right[pair], separate), vector)
        return total + pull(slopes[pair])[0]

    return jax.lax.fori_loop(0, count, body, jnp.zeros_like(vector))
