"""Context points: where in input space the prior is enforced.

Every sampler gives `sample(num_points, key=key)`, of shape (num_points, d), the same for the same key, and `draw` the same
distribution from a NumPy generator. `Uniform`,
`Data` and `Mixture` of those can be sampled inside a compiled program; the others work on the host.
"""

import abc
import importlib
import math
from collections.abc import Callable, Sequence
from types import ModuleType

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike
from scipy.spatial import KDTree

from fsplaplace.arguments import check_finite, check_numbers, checked, described, warn_if_grey_levels
from fsplaplace.host import check_fits, host_generator, to_device


class Sampler(eqx.Module):
    """A distribution of context points over input space."""

    @classmethod
    def refusal(cls, value) -> str:
        """What an error says of a value that is no sampler, for instance an array of points."""
        if isinstance(value, jax.Array | np.ndarray | list | tuple):
            return (
                f"is an array of shape {np.shape(value)}; pass a sampler: fsplaplace.context.Data(points) for these points, or "
                "fsplaplace.context.around(X) for the region of the data"
            )
        return f"is {described(value)}; pass a sampler, for instance fsplaplace.context.around(X)"

    @abc.abstractmethod
    def sample(self, num_points: int, *, key: PRNGKeyArray) -> Float[Array, "m d"]:
        """`num_points` points, the same for the same key."""

    @property
    def compiled(self) -> bool:
        """Whether `sample` may be called inside `jax.jit`."""
        return True

    def draw(self, num_points: int, generator: np.random.Generator) -> Float[np.ndarray, "m d"]:
        """`num_points` points of the same distribution on the host; the library's own samplers compile nothing for it."""
        return np.asarray(self.sample(num_points, key=jr.key(int(generator.integers(2**31)))))

    def minus(self, origin: Float[Array, " d"]) -> "Sampler":
        """The same points minus an origin; where the sampler can, with all digits of what is left."""
        return _Minus(self, origin)


class _Minus(Sampler):
    sampler: Sampler
    origin: Float[Array, " d"]

    @property
    def compiled(self):
        return self.sampler.compiled

    def sample(self, num_points, *, key):
        points = self.sampler.sample(num_points, key=key)
        return points - self.origin.astype(points.dtype)

    def draw(self, num_points, generator):
        return self.sampler.draw(num_points, generator) - np.asarray(self.origin)


class _Box(Sampler):
    lower: Float[Array, " *row"]
    upper: Float[Array, " *row"]

    @checked
    def __init__(self, lower: ArrayLike, upper: ArrayLike):
        name = type(self).__name__
        lower, upper = np.atleast_1d(np.asarray(lower, dtype=float)), np.atleast_1d(np.asarray(upper, dtype=float))
        for side, values in (("lower", lower), ("upper", upper)):
            if not np.all(np.isfinite(values)):
                raise ValueError(f"{name}: {side} is {values}; pass finite numbers")
            check_finite(values, f"{name}: {side}")
        try:
            lower, upper = np.broadcast_arrays(lower, upper)
        except ValueError as error:
            raise ValueError(
                f"{name}: lower has shape {lower.shape}, but upper has {upper.shape}; pass two points of one shape, or numbers"
            ) from error
        if np.any(lower > upper):
            bad = tuple(map(int, np.argwhere(lower > upper)[0]))
            place = bad[0] if len(bad) == 1 else bad
            raise ValueError(
                f"{name}: lower exceeds upper in column {place} ({lower[bad]:g} > {upper[bad]:g}); swap them"
            )
        self.lower, self.upper = jnp.asarray(lower), jnp.asarray(upper)

    def minus(self, origin):
        return eqx.tree_at(lambda box: (box.lower, box.upper), self, (self.lower - origin, self.upper - origin))

    @property
    def _dimension(self) -> int:
        """Numbers in one point, whatever its shape."""
        return self.lower.size

    def _stretch(self, unit: Float[Array, "m d"]) -> Float[Array, "m *row"]:
        return self.lower + unit.reshape(-1, *self.lower.shape) * (self.upper - self.lower)


class Uniform(_Box):
    """Independent uniform points in the box from `lower` to `upper`, numbers or arrays of one point's shape.

    Examples:
        >>> fsp.context.Uniform([0.0, 0.0], [1.0, 2.0]).sample(5, key=jr.key(0)).shape
        (5, 2)
    """

    @checked
    @eqx.filter_jit
    def sample(self, num_points, *, key):
        _check_room(num_points, self.lower.shape)
        return self._stretch(_by_rows(jr.uniform, key, (num_points, self._dimension), self.lower.dtype))

    def draw(self, num_points, generator):
        _check_room(num_points, self.lower.shape)
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        return generator.uniform(lower, upper, (num_points, *lower.shape)).astype(lower.dtype)


class Grid(_Box):
    """A regular grid with the box's corners in it.

    `num_points` is rounded down to the largest full grid (k points a side), so ask for k^d points. The key is not
    used: a grid is always the same.

    Examples:
        >>> fsp.context.Grid(0.0, 1.0).sample(5).ravel().tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """

    @checked
    def sample(self, num_points, *, key=None):
        _check_room(num_points, self.lower.shape)
        dimension = self._dimension
        side = round(num_points ** (1 / dimension))
        side = side if side**dimension <= num_points else side - 1
        if side < 2:
            raise ValueError(
                f"Grid: {num_points} points cannot make a grid of two points a side in {dimension} dimensions; ask for "
                f"{2**dimension} or more, or use Halton"
            )
        axes = jnp.meshgrid(*[jnp.linspace(0.0, 1.0, side)] * dimension, indexing="ij")
        return self._stretch(jnp.stack([axis.ravel() for axis in axes], axis=1))


def _qmc() -> ModuleType:
    """SciPy's quasi-random points, imported when first drawn: `scipy.stats` would double the time of `import fsplaplace`."""
    return importlib.import_module("scipy.stats.qmc")


class _QuasiRandom(_Box):
    @abc.abstractmethod
    def _unit(self, num_points: int, generator: np.random.Generator) -> Float[np.ndarray, "m d"]: ...

    @property
    def compiled(self):
        return False

    @checked
    def sample(self, num_points, *, key):
        return to_device(self.draw(num_points, host_generator(key)))

    def draw(self, num_points, generator):
        _check_room(num_points, self.lower.shape)
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        unit = self._unit(num_points, generator).astype(lower.dtype).reshape(-1, *lower.shape)
        return lower + unit * (upper - lower)


class Halton(_QuasiRandom):
    """Scrambled Halton points.

    Examples:
        >>> fsp.context.Halton([0.0, 0.0], [1.0, 2.0]).sample(5, key=jr.key(0)).shape
        (5, 2)
    """

    def _unit(self, num_points, generator):
        return _qmc().Halton(self._dimension, rng=generator).random(num_points)


class Sobol(_QuasiRandom):
    """Scrambled Sobol points; a power of two of them keeps the sequence balanced.

    Examples:
        >>> fsp.context.Sobol([0.0, 0.0], [1.0, 2.0]).sample(8, key=jr.key(0)).shape
        (8, 2)
    """

    def _unit(self, num_points, generator):
        # Drawing the next power of two and cutting keeps SciPy's balance warning for those who can act on it.
        power = max(0, int(np.ceil(np.log2(num_points))))
        return _qmc().Sobol(self._dimension, rng=generator).random_base2(power)[:num_points]


class LatinHypercube(_QuasiRandom):
    """A Latin hypercube: each of the `num_points` slices of every axis holds one point.

    Examples:
        >>> fsp.context.LatinHypercube([0.0, 0.0], [1.0, 2.0]).sample(5, key=jr.key(0)).shape
        (5, 2)
    """

    def _unit(self, num_points, generator):
        return _qmc().LatinHypercube(self._dimension, rng=generator).random(num_points)


class Faces(_QuasiRandom):
    """Points on the faces, edges and corners of the box: one to all coordinates at a bound, the others Halton's.

    Where a search moves to the boundary, as in Bayesian optimisation, the prior must hold there; points inside the box leave
    the boundary of many dimensions empty. For `Mixture`, beside a sampler of the inside.
    """

    def _unit(self, num_points, generator):
        inside = _qmc().Halton(self._dimension, rng=generator).random(num_points)
        rank = generator.permuted(np.tile(np.arange(inside.shape[1]), (num_points, 1)), axis=1)
        at_bound = rank < generator.integers(1, inside.shape[1] + 1, (num_points, 1))
        return np.where(at_bound, np.round(inside), inside)


class Data(Sampler):
    """Rows of an array, without replacement while they last, optionally moved by Gaussian jitter.

    Args:
        rows: inputs of any shape (n, ...), for instance unlabelled data or images.
        jitter: standard deviation of the jitter, a number or one per column.

    Examples:
        >>> fsp.context.Data(X).sample(5, key=jr.key(0)).shape
        (5, 1)
    """

    points: Float[Array, "n ..."]
    jitter: Float[Array, "..."]

    @checked
    def __init__(self, rows: ArrayLike, *, jitter: ArrayLike = 0.0):
        points = _finite_rows(rows, name="Data", argument="rows")
        scale = np.asarray(jitter, dtype=float)
        if not np.all(np.isfinite(scale) & (scale >= 0)):
            raise ValueError(f"Data: jitter must be finite and not negative, but is {scale}")
        if scale.shape not in ((), (1,), points.shape[1:]):
            raise ValueError(
                f"Data: jitter has shape {scale.shape}; pass a number, or one for each column: {points.shape[1:]}"
            )
        self.points, self.jitter = points, jnp.asarray(scale, points.dtype)

    @checked
    @eqx.filter_jit
    def sample(self, num_points, *, key):
        _check_room(num_points, self.points.shape[1:])
        choice, noise = jr.split(key)
        count = self.points.shape[0]
        repeats = -(-num_points // count)
        orders = jax.vmap(lambda k: jr.permutation(k, count))(jr.split(choice, repeats))
        chosen = self.points[orders.ravel()[:num_points]]
        return chosen + self.jitter * _by_rows(jr.normal, noise, chosen.shape, chosen.dtype)

    def draw(self, num_points, generator):
        _check_room(num_points, self.points.shape[1:])
        points, jitter = np.asarray(self.points), np.asarray(self.jitter)
        orders = [generator.permutation(points.shape[0]) for _ in range(-(-num_points // points.shape[0]))]
        chosen = points[np.concatenate(orders)[:num_points]]
        return chosen + jitter * generator.standard_normal(chosen.shape, points.dtype)

    def minus(self, origin):
        return _rows_minus(self, origin)


class Segments(Sampler):
    """Points at random places on the straight lines between rows of an array.

    Between near neighbours they follow the data into the low-dimensional set that real inputs often fill; between any
    two rows they cover its convex hull.

    Args:
        rows: inputs of shape (n, d), at least two of them.
        neighbours: how many of the nearest rows a row is joined to; any row by default.

    Examples:
        >>> fsp.context.Segments(X, neighbours=2).sample(5, key=jr.key(0)).shape
        (5, 1)
    """

    points: Float[Array, "n d"]
    neighbours: int | None = eqx.field(static=True)

    @checked
    def __init__(self, rows: ArrayLike, *, neighbours: int | None = None):
        self.points = _finite_rows(rows, name="Segments", argument="rows")
        if self.points.ndim != 2 or self.points.shape[0] < 2:
            raise ValueError(f"Segments: rows has shape {self.points.shape}; pass at least two rows, as (n, d)")
        self.neighbours = neighbours

    @property
    def compiled(self):
        return False

    @checked
    def sample(self, num_points, *, key):
        return to_device(self.draw(num_points, host_generator(key)))

    def draw(self, num_points, generator):
        _check_room(num_points, self.points.shape[1:])
        rows = np.asarray(self.points)
        count = rows.shape[0]
        first = generator.integers(0, count, num_points)
        second = (first + generator.integers(1, count, num_points)) % count
        if self.neighbours is not None:
            nearest = min(self.neighbours, count - 1)
            # The nearest row to a row is itself, or an equal one.
            choices = np.asarray(KDTree(rows).query(rows[first], nearest + 1)[1])[:, 1:]
            second = choices[np.arange(num_points), generator.integers(0, nearest, num_points)]
        weight = generator.uniform(size=(num_points, 1)).astype(rows.dtype)
        return weight * rows[first] + (1 - weight) * rows[second]

    def minus(self, origin):
        return _rows_minus(self, origin)


class Mixture(Sampler):
    """A fixed share of the points from each of several samplers.

    Args:
        samplers: the parts.
        weights: their shares; equal by default. Shares are rounded so that the total is exact.

    Examples:
        >>> both = fsp.context.Mixture([fsp.context.Uniform(-1.0, 1.0), fsp.context.Data(X)])
        >>> both.sample(6, key=jr.key(0)).shape
        (6, 1)
    """

    samplers: tuple[Sampler, ...]
    weights: tuple[float, ...] = eqx.field(static=True)

    @checked
    def __init__(self, samplers: Sequence[Sampler], *, weights: Sequence[float] | None = None):
        if not samplers:
            raise ValueError("Mixture: samplers is empty; pass at least one")
        shares = np.ones(len(samplers)) if weights is None else np.asarray(weights, dtype=float)
        if shares.shape != (len(samplers),) or np.any(shares < 0) or not shares.sum() > 0:
            raise ValueError(
                f"Mixture: weights must be {len(samplers)} numbers, none negative, not all zero; got {weights}"
            )
        self.samplers, self.weights = tuple(samplers), tuple((shares / shares.sum()).tolist())

    @property
    def compiled(self):
        return all(sampler.compiled for sampler in self.samplers)

    @checked
    def sample(self, num_points, *, key):
        if not self.compiled:
            return to_device(self.draw(num_points, host_generator(key)))
        keys = list(jr.split(key, len(self.samplers)))
        parts = [sampler.sample(count, key=keys[part]) for part, sampler, count in self._shares(num_points)]
        _check_alike(parts)
        return jnp.concatenate(parts)

    def draw(self, num_points, generator):
        streams = generator.spawn(len(self.samplers))
        parts = [sampler.draw(count, streams[part]) for part, sampler, count in self._shares(num_points)]
        _check_alike(parts)
        return np.concatenate(parts)

    def minus(self, origin):
        return eqx.tree_at(
            lambda mixture: mixture.samplers, self, tuple(sampler.minus(origin) for sampler in self.samplers),
            is_leaf=lambda node: node is self.samplers,
        )  # fmt: skip

    def _shares(self, num_points: int) -> list[tuple[int, Sampler, int]]:
        """Parts with points in them: which, and how many."""
        edges = np.round(np.cumsum((0.0, *self.weights)) * num_points).astype(int)
        counts = np.diff(edges).tolist()
        return [(part, self.samplers[part], count) for part, count in enumerate(counts) if count > 0]


def _check_alike(parts: Sequence[Array | np.ndarray]) -> None:
    shapes = [part.shape[1:] for part in parts]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"Mixture: samplers give points of shapes {', '.join(map(str, shapes))}; pass samplers of one space"
        )


def _rows_minus(sampler, origin: Float[Array, " d"]) -> Sampler:
    """A sampler that has rows, with those minus an origin."""
    return eqx.tree_at(lambda tree: tree.points, sampler, sampler.points - origin)


def _by_rows(draw: Callable, key: PRNGKeyArray, shape: tuple[int, ...], dtype) -> Float[Array, "..."]:
    """`draw(key, shape, dtype)`, the same numbers, drawn in one row: with ten columns XLA unrolls the generator over them, and
    takes a second to compile instead of a fifth."""
    return draw(key, (math.prod(shape),), dtype).reshape(shape)


@checked
def around(X: ArrayLike, *, margin: float = 0.5, jitter: float = 0.2) -> Mixture:
    """Half uniform in the box of the data widened on each side, half jittered training inputs: the default.

    The box alone leaves the data's own neighbourhood uncovered in many dimensions, and the data alone says nothing
    about extrapolation. A column that never varies keeps its value.

    Args:
        X: training inputs, shape (n, d), at least two of them different.
        margin: how far the box reaches beyond the data on each side, as a fraction of each column's range.
        jitter: standard deviation of the moves of the training inputs, as a fraction of each column's.

    Examples:
        >>> fsp.context.around(X).sample(6, key=jr.key(0)).shape
        (6, 1)
    """
    points = _finite_rows(X, name="around", argument="X")
    if points.ndim != 2:
        raise ValueError(f"around: X has shape {points.shape}; pass (n, d), or use Data for structured inputs")
    # In float64: far from zero, sums of float32 lose the spread.
    values = np.asarray(X, np.float64)
    low, high = values.min(axis=0), values.max(axis=0)
    if np.array_equal(low, high):
        raise ValueError(
            f"around: all {values.shape[0]} rows of X are equal, which says nothing about how far the inputs reach; "
            "pass bounds, as in Uniform(lower, upper)"
        )
    reach = margin * (high - low)
    return Mixture([Uniform(low - reach, high + reach), Data(points, jitter=jitter * values.std(axis=0))])


@checked
def throughout(X: ArrayLike, *, neighbours: int = 6) -> Sampler:
    """Around the data (two fifths), between neighbouring rows (two fifths) and between any two: `laplace`'s default.

    `around` alone misses the set that real inputs fill: on five tables of the UCI repository the points between
    neighbours bring the posterior to the exact Gaussian process's predictive density.

    Args:
        X: training inputs, shape (n, d), at least two of them different.
        neighbours: how many of the nearest rows a row is joined to.

    Examples:
        >>> fsp.context.throughout(X).sample(10, key=jr.key(0)).shape
        (10, 1)
    """
    return Mixture([around(X), Segments(X, neighbours=neighbours), Segments(X)], weights=[0.4, 0.4, 0.2])


def _finite_rows(rows: ArrayLike, *, name: str, argument: str) -> Float[Array, "n ..."]:
    values = check_numbers(rows, f"{name}: {argument}")
    if values.ndim < 2 or values.shape[0] == 0:
        raise ValueError(f"{name}: {argument} has shape {values.shape}; pass at least one row, as (n, d)")
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{name}: {argument} has NaN or infinite values; remove those rows")
    check_finite(values, f"{name}: {argument}")
    warn_if_grey_levels(values, argument)
    return to_device(values if values.dtype.kind == "f" else values.astype(float))


def _check_room(num_points: int, shape: tuple[int, ...]) -> None:
    """Points, and the random numbers that they are made of."""
    check_fits(num_points, 16 * math.prod(shape), "sample: num_points")
