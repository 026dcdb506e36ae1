"""The prior's moments in float64 on the host, in tiles of one shape: one compiled program serves any number of points."""

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from gpjax.mean_functions import Zero
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace.host import in_float64, pad_points, pad_rows, to_device
from fsplaplace.operators import Operator

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
    return _gram(prior, x)


def _gram(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "b N N"]:
    tiles, num_points = _tiles(prior, x), np.shape(x)[0]
    rows = [[np.asarray(_tile(prior, one, other)) for other in tiles[: i + 1]] for i, one in enumerate(tiles)]
    above = [[rows[j][i].transpose(0, 2, 1) for j in range(i + 1, len(tiles))] for i in range(len(tiles))]
    whole = np.block([left + right for left, right in zip(rows, above, strict=True)])
    used = num_points * (whole.shape[1] // (len(tiles) * tiles[0].shape[0]))
    return whole[:, :used, :used]


def covariance(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "nq nq"]:
    r"""$\Sigma(x, x)$ between all points and outputs, points first."""
    return joint(prior, x).covariance


@in_float64
def variance(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "n q"]:
    r"""$\mathrm{diag}\,\Sigma(x, x)$, per output. Time $O(n)$."""
    return _variances(prior, x)


def _variances(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "n q"]:
    n = np.shape(x)[0]
    if n > _FEW:
        return np.asarray(_variance(prior, to_device(_flat(x))))
    parts = [np.asarray(_tile(prior, tile, tile)).diagonal(axis1=1, axis2=2) for tile in _tiles(prior, x)]
    diagonal = np.concatenate(parts, axis=1)
    return prior.blocks.by_output(diagonal)[:n]


class Marginals(NamedTuple):
    """The prior at some points.

    Attributes:
        mean: (n, q).
        variance: (n, q).
    """

    mean: Float[np.ndarray, "n q"]
    variance: Float[np.ndarray, "n q"]


@in_float64
def marginals(prior: "Prior", x: ArrayLike) -> Marginals:
    """Mean and variance at each point. Time $O(n)$."""
    return Marginals(_means(prior, x), _variances(prior, x))


class JointMoments(NamedTuple):
    """The prior at some points with what relates them, flattened over points and outputs, points first.

    Attributes:
        mean: (nq,).
        covariance: (nq, nq).
    """

    mean: Float[np.ndarray, " nq"]
    covariance: Float[np.ndarray, "nq nq"]


@in_float64
def joint(prior: "Prior", x: ArrayLike) -> JointMoments:
    """Mean and covariance of all points. Time and memory $O(n^2 q^2)$."""
    size = np.shape(x)[0] * prior.num_outputs
    return JointMoments(_means(prior, x).ravel(), prior.blocks.whole(_gram(prior, x)).reshape(size, size))


@in_float64
def mean(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "n q"]:
    r"""$\mu(x)$; nothing is compiled where it is zero."""
    return _means(prior, x)


def _means(prior: "Prior", x: ArrayLike) -> Float[np.ndarray, "n q"]:
    n = np.shape(x)[0]
    if isinstance(prior.mean, Zero):
        return np.zeros((n, prior.num_outputs))
    return np.concatenate([np.asarray(_mean(prior, tile)) for tile in _tiles(prior, x)])[:n]


@in_float64
def mean_of(prior: "Prior", operator: Operator, x: ArrayLike) -> Float[np.ndarray, "n k"]:
    r"""$L[\mu](x)$ for any operator L."""
    if isinstance(prior.mean, Zero) and operator.linear:
        width = eqx.filter_eval_shape(_seen_mean, prior, operator, _example(x)).shape[1]
        return np.zeros((np.shape(x)[0], width))
    return _by_rows(functools.partial(_seen_mean, prior, operator), x)


@in_float64
def variance_of(prior: "Prior", operator: Operator, x: ArrayLike) -> Float[np.ndarray, "n k"]:
    r"""Variance of $L[f](x)$ for a linear operator L, by differentiating the kernel. Time $O(n)$."""
    return _by_rows(functools.partial(_seen_variance, prior, operator), x, cost=operator.num_evaluations**2)


Seen = tuple[Operator, Float[Array, "..."] | Float[np.ndarray, "..."]]


def covariance_of(prior: "Prior", parts: Sequence[Seen]) -> Float[np.ndarray, "K K"]:
    """Joint covariance of $L[f](x)$ for several linear operators, each at points of its own; values of one point together."""
    below = {
        (i, j): cross_covariance(prior, one, other)
        for i, one in enumerate(parts)
        for j, other in enumerate(parts)
        if j <= i
    }
    numbers = range(len(parts))
    return np.block([[below[i, j] if j <= i else below[j, i].T for j in numbers] for i in numbers])


@in_float64
def cross_covariance(prior: "Prior", one: Seen, other: Seen) -> Float[np.ndarray, "nk ml"]:
    """Covariance of $L[f](x)$ with $M[f](y)$, in tiles of one shape."""
    (first, x), (second, y) = ((operator, np.asarray(points, np.float64)) for operator, points in (one, other))
    size = math.isqrt(_LARGEST_TILE // (first.num_evaluations * second.num_evaluations))
    size = max(1, min(_TILE, size))
    left, right = (
        [pad_rows(rows[start : start + size], size) for start in range(0, rows.shape[0], size)] for rows in (x, y)
    )
    tiles = [[np.asarray(_seen_tile(prior, first, second, a, b)) for b in right] for a in left]
    whole = np.concatenate([np.concatenate(row, axis=2) for row in tiles], axis=0)[: x.shape[0], :, : y.shape[0]]
    return whole.reshape(whole.shape[0] * whole.shape[1], -1)


def _by_rows(function, x: ArrayLike, *, cost: int = 1) -> Float[np.ndarray, "n k"]:
    rows = np.asarray(x, np.float64)
    size = max(1, min(_TILE, _LARGEST_TILE // cost))
    blocks = (rows[start : start + size] for start in range(0, rows.shape[0], size))
    return np.concatenate([np.asarray(function(pad_rows(block, size))) for block in blocks])[: rows.shape[0]]


def _example(x: ArrayLike):
    return np.asarray(x, np.float64)[:1]


@eqx.filter_jit
def _seen_mean(prior: "Prior", operator: Operator, x):
    return prior.through(operator).mean_at(jnp.asarray(x))


@eqx.filter_jit
def _seen_variance(prior: "Prior", operator: Operator, x):
    return prior.through(operator).variance(jnp.asarray(x))


@eqx.filter_jit
def _seen_tile(prior: "Prior", first: Operator, second: Operator, x, y):
    return prior.through(first).covariance(jnp.asarray(x), jnp.asarray(y), second)


@in_float64
def relation(prior: "Prior", x: ArrayLike, y: ArrayLike) -> Float[np.ndarray, "n m"]:
    r"""$\lVert \Sigma(x_i, y_j) \rVert^2$ over outputs: how much a prior relates points. Time $O(n m)$."""
    parts = []
    for one in _tiles(prior, x):
        blocks = [np.asarray(_tile(prior, one, other)) for other in _tiles(prior, y)]
        size = one.shape[0]
        squares = [(block**2).reshape(block.shape[0], size, -1, size, block.shape[2] // size) for block in blocks]
        parts.append(np.concatenate([np.sum(each, axis=(0, 2, 4)) for each in squares], axis=1))
    return np.concatenate(parts)[: np.shape(x)[0], : np.shape(y)[0]]


def _flat(x: ArrayLike) -> Float[np.ndarray, "n d"]:
    values = np.asarray(x, dtype=np.float64)
    return values.reshape(values.shape[0], -1)


def _tiles(prior: "Prior", x: ArrayLike) -> list[Float[np.ndarray, "t d"]]:
    rows = _flat(x)
    size = max(1, min(_TILE, math.isqrt(_LARGEST_TILE // prior.blocks.numbers_per_pair)))
    return [pad_points(rows[start : start + size], size) for start in range(0, rows.shape[0], size)]


@eqx.filter_jit
def _tile(prior: "Prior", x, y):
    return prior.gram(x, y)


@eqx.filter_jit
def _variance(prior: "Prior", x):
    return prior.variance(x)


@eqx.filter_jit
def _mean(prior: "Prior", x):
    return prior.mean_at(x)
