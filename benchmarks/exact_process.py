"""The exact Gaussian process given what operators see of it: kernels by their formulas, differentiated by JAX.

Nothing here comes from the library: it is what `operators.py` compares the library with. Everything in float64, dense.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve

# A kernel: two inputs to a (q, q) matrix. A functional: `functional(f)(x)` for f from one input to q numbers.
Kernel = Callable
Functional = Callable


class Seen(NamedTuple):
    """What is seen of a function, and where.

    Attributes:
        of: a functional.
        X: inputs, (n, d).
        noise: its standard deviation; zero for what is only predicted.
    """

    of: Functional
    X: np.ndarray
    noise: float = 0.0


class Exact(NamedTuple):
    """The process given observations.

    Attributes:
        mean: at the places that were asked for, flattened; one column for each set of targets.
        std: likewise, the same for all sets.
        log_evidence: of each set of targets.
    """

    mean: np.ndarray
    std: np.ndarray
    log_evidence: np.ndarray


def rbf(lengthscale, num_outputs: int = 1) -> Kernel:
    """exp(-r^2 / 2), the same for each of some unrelated outputs."""
    scale = np.asarray(lengthscale)
    return lambda x, z: jnp.exp(-0.5 * jnp.sum(((x - z) / scale) ** 2)) * jnp.eye(num_outputs)


def rational_quadratic(lengthscale: float, alpha: float) -> Kernel:
    """(1 + r^2 / 2 alpha)^-alpha."""
    return lambda x, z: ((1 + 0.5 * jnp.sum(((x - z) / lengthscale) ** 2) / alpha) ** -alpha)[None, None]


def periodic(lengthscale: float, period: float) -> Kernel:
    """exp(-sin(pi d / p)^2 / 2 l^2)."""
    return lambda x, z: jnp.exp(-0.5 * jnp.sum((jnp.sin(jnp.pi * (x - z) / period) / lengthscale) ** 2))[None, None]


def matern52(lengthscale: float) -> Kernel:
    """(1 + s + s^2 / 3) exp(-s), s^2 = 5 r^2 / l^2; differentiable once on both sides."""
    return lambda x, z: _matern52(5 * jnp.sum(((x - z) / lengthscale) ** 2))[None, None]


# As a function of s^2 with its derivatives by hand: the square root has none at zero, where the kernel does.
@jax.custom_jvp
def _matern52(u):
    s = jnp.sqrt(u)
    return (1 + s + u / 3) * jnp.exp(-s)


@jax.custom_jvp
def _slope(u):
    s = jnp.sqrt(u)
    return -(1 + s) * jnp.exp(-s) / 6


_matern52.defjvp(lambda at, along: (_matern52(*at), _slope(*at) * along[0]))
_slope.defjvp(lambda at, along: (_slope(*at), jnp.exp(-jnp.sqrt(at[0])) / 12 * along[0]))


def exact(kernel: Kernel, observed: list[Seen], targets: np.ndarray, wanted: Seen) -> Exact:
    """The process given noisy targets (flattened, kind after kind; or several sets as columns), at the places wanted."""
    factor = cho_factor(covariance(kernel, observed, noisy=True), lower=True, overwrite_a=True)
    cross = np.concatenate([_block(kernel, wanted, each) for each in observed], axis=1)
    weights = cho_solve(factor, targets)
    variance = _diagonal(kernel, wanted) - np.sum(cross * cho_solve(factor, cross.T).T, axis=1)
    half_log_determinant = np.sum(np.log(np.diag(factor[0])))
    log_evidence = (
        -0.5 * np.sum(targets * weights, axis=0) - half_log_determinant - 0.5 * len(targets) * np.log(2 * np.pi)
    )
    return Exact(cross @ weights, np.sqrt(np.maximum(variance, 0)), log_evidence)


def covariance(kernel: Kernel, seen: list[Seen], *, noisy: bool) -> np.ndarray:
    """Between all that is seen."""
    starts = np.cumsum([0, *(len(_diagonal(kernel, each)) for each in seen)])
    matrix = np.empty((starts[-1], starts[-1]))
    for i, one in enumerate(seen):
        for j, other in enumerate(seen[: i + 1]):
            block = _block(kernel, one, other)
            matrix[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
            if i != j:
                matrix[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = block.T
        if noisy:
            rows = np.arange(starts[i], starts[i + 1])
            matrix[rows, rows] += one.noise**2
    return matrix


def prior_std(kernel: Kernel, seen: Seen) -> float:
    """The root mean squared standard deviation of what is seen."""
    return float(np.sqrt(np.mean(_diagonal(kernel, seen))))


def draw(kernel: Kernel, seen: list[Seen], generator: np.random.Generator, count: int) -> np.ndarray:
    """Joint draws of all that is seen, without noise, (count, ...)."""
    values, vectors = np.linalg.eigh(covariance(kernel, seen, noisy=False))
    return generator.normal(size=(count, len(values))) @ (vectors * np.sqrt(np.maximum(values, 0))).T


# Rows that are differentiated together: 1,000 by 10,000 blocks of doubles take 80 MB.
_ROWS = 1000


def _block(kernel: Kernel, one: Seen, other: Seen) -> np.ndarray:
    with jax.enable_x64(True):
        X, Z = (np.asarray(each.X, np.float64) for each in (one, other))
        parts = [_pairs(kernel, one.of, other.of, X[i : i + _ROWS], Z) for i in range(0, len(X), _ROWS)]
        found = np.concatenate([np.asarray(part) for part in parts])
    return np.swapaxes(found, 1, 2).reshape(found.shape[0] * found.shape[2], -1)


def _diagonal(kernel: Kernel, seen: Seen) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(_own(kernel, seen.of, np.asarray(seen.X, np.float64))).ravel()


@eqx.filter_jit
def _pairs(kernel, first, second, X, Z):
    return jax.vmap(lambda x: jax.vmap(lambda z: _pair(kernel, first, second, x, z))(Z))(X)


@eqx.filter_jit
def _own(kernel, of, X):
    return jax.vmap(lambda x: jnp.diagonal(_pair(kernel, of, of, x, x)))(X)


def _pair(kernel, first, second, x, z):
    """One functional of the kernel's first argument, then the other of its second, (a, b)."""

    def half_seen(x):
        rows = kernel(x, z).shape[0]
        return jnp.stack([second(lambda at, row=row: kernel(x, at)[row])(z) for row in range(rows)])

    columns = half_seen(x).shape[1]
    return jnp.stack([first(lambda at, c=c: half_seen(at)[:, c])(x) for c in range(columns)], axis=1)
