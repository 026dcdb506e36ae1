"""The prior's moments in float64 on the host, in tiles of one shape: one compiled program serves any number of points."""

import math
from typing import TYPE_CHECKING

import equinox as eqx
import numpy as np
from gpjax.mean_functions import Zero
from jaxtyping import Float
from numpy.typing import ArrayLike

from fsplaplace.host import in_float64, pad_rows, to_device

if TYPE_CHECKING:
    from fsplaplace.prior._prior import Prior

# Points on each side of a tile: milliseconds in any number of dimensions, and few tiles for the largest eigenproblem.
# Fewer where several outputs would make more numbers of it than this.
_TILE, _LARGEST_TILE = 256, 2**20
# Up to this number of points variances are read off the tiles, whose program is compiled anyway.
_FEW = 2048


@in_float64
def gram(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "b N N"]:
    r"""The distinct diagonal blocks of $\Sigma(x, x)$, as `Prior.gram` has them. Time and memory $O(n^2)$ for each."""
    tiles, num_points = _tiles(prior, x), np.shape(x)[0]
    rows = [[np.asarray(_tile(prior, one, other)) for other in tiles[: i + 1]] for i, one in enumerate(tiles)]
    above = [[rows[j][i].transpose(0, 2, 1) for j in range(i + 1, len(tiles))] for i in range(len(tiles))]
    whole = np.block([left + right for left, right in zip(rows, above, strict=True)])
    used = num_points * (whole.shape[1] // (len(tiles) * tiles[0].shape[0]))
    return whole[:, :used, :used]


def covariance(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "nq nq"]:
    r"""$\Sigma(x, x)$ between all points and outputs, points first."""
    size = np.shape(x)[0] * prior.num_outputs
    return prior.blocks.whole(gram(prior, x)).reshape(size, size)


@in_float64
def variance(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "n q"]:
    r"""$\mathrm{diag}\,\Sigma(x, x)$, per output. Time $O(n)$."""
    n = np.shape(x)[0]
    if n > _FEW:
        return np.asarray(_variance(prior, to_device(_flat(x))))
    parts = [np.asarray(_tile(prior, tile, tile)).diagonal(axis1=1, axis2=2) for tile in _tiles(prior, x)]
    diagonal = np.concatenate(parts, axis=1)
    return prior.blocks.by_output(diagonal)[:n]


@in_float64
def mean(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "n q"]:
    r"""$\mu(x)$; nothing is compiled where it is zero."""
    n = np.shape(x)[0]
    if isinstance(prior.mean, Zero):
        return np.zeros((n, prior.num_outputs))
    return np.concatenate([np.asarray(_mean(prior, tile)) for tile in _tiles(prior, x)])[:n]


def _flat(x: ArrayLike) -> Float[np.ndarray, "n d"]:
    values = np.asarray(x, dtype=np.float64)
    return values.reshape(values.shape[0], -1)


def _tiles(prior: "Prior", x: ArrayLike) -> list[Float[np.ndarray, "t d"]]:
    rows = _flat(x)
    size = max(1, min(_TILE, math.isqrt(_LARGEST_TILE // prior.blocks.numbers_per_pair)))
    return [pad_rows(rows[start : start + size], size) for start in range(0, rows.shape[0], size)]


@eqx.filter_jit
def _tile(prior: "Prior", x, y):
    return prior.gram(x, y)


@eqx.filter_jit
def _variance(prior: "Prior", x):
    return prior.variance(x)


@eqx.filter_jit
def _mean(prior: "Prior", x):
    return prior.mean_at(x)
