"""The six functions that the paper maximises: each on the unit cube, with the sizes of its search."""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch
from botorch.test_functions import Ackley, Branin, Hartmann
from jaxtyping import Array, Float
from scipy.optimize import minimize
from scipy.stats import qmc

from fsplaplace.experiments._optimisation_names import PROBLEMS

# The draw that makes the polynomial, the network and the initial state of the equation: one problem for all seeds.
_DRAW = 0
_GRID, _STEPS, _STEP = 64, 20_000, 1e-3
# Outer rings of the grid that count fully, and how much the others do.
_RINGS, _INSIDE = 2, 0.1
# Starts of the search for the best value of the network: scattered points, and how many of them are climbed from.
_SCATTERED, _CLIMBED = 4096, 20


class OptimisationProblem(NamedTuple):
    """A function to be maximised, and the size of the search.

    Attributes:
        function: values at points of the unit cube, (n, d) to (n,).
        dimension: d.
        num_initial: points of a scrambled Sobol sequence before the search.
        batch: points that are asked for at once.
        iterations: how often.
        optimum: its largest value; NaN if that is unknown.
    """

    function: Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, " n"]]
    dimension: int
    num_initial: int
    batch: int
    iterations: int
    optimum: float


@functools.cache
def problem(name: str) -> OptimisationProblem:
    """By the name of the paper's figure, one of `PROBLEMS`."""
    return _PROBLEMS[name]()


def _named(function, iterations: int, batch: int) -> OptimisationProblem:
    """A test function of BoTorch, negated, on the unit cube."""
    lower, upper = function.bounds.numpy()

    def values(x):
        return function(torch.as_tensor(lower + x * (upper - lower))).numpy()

    return OptimisationProblem(values, len(lower), 10, batch, iterations, float(function.optimal_value))


def _branin() -> OptimisationProblem:
    return _named(Branin(negate=True, dtype=torch.float64), 9, 5)


def _hartmann() -> OptimisationProblem:
    return _named(Hartmann(6, negate=True, dtype=torch.float64), 19, 10)


def _ackley() -> OptimisationProblem:
    return _named(Ackley(4, negate=True, dtype=torch.float64), 19, 10)


def _polynomial() -> OptimisationProblem:
    r"""$\sum_j \prod_{i=1}^4 z_{ij}$, z = x - c as a (4, d/4) matrix, c standard normal: linear in each coordinate, so that the
    largest value is at a corner."""
    dimension = 8
    centre = np.random.default_rng(_DRAW).normal(size=dimension)

    def values(x):
        return (x - centre).reshape(-1, 4, dimension // 4).prod(axis=1).sum(axis=1)

    corners = np.array(list(itertools.product([0.0, 1.0], repeat=dimension)))
    return OptimisationProblem(values, dimension, 10, 10, 20, float(values(corners).max()))


def _network() -> OptimisationProblem:
    """A d-256-256-1 tanh network with standard normal weights and biases; its largest value is looked for by many climbs."""
    dimension, generator = 10, np.random.default_rng(_DRAW)
    layers = [
        (generator.normal(size=size), generator.normal(size=size[1]))
        for size in ((dimension, 256), (256, 256), (256, 1))
    ]

    def forward(x):
        for weight, bias in layers[:-1]:
            x = jnp.tanh(x @ weight + bias)
        return (x @ layers[-1][0] + layers[-1][1])[..., 0]

    def values(x):
        with jax.enable_x64(True):
            return np.asarray(forward(x))

    with jax.enable_x64(True):
        slope = jax.jit(jax.value_and_grad(lambda x: -forward(x)))
        points = qmc.Sobol(dimension, rng=_DRAW).random(_SCATTERED)
        starts = points[np.argsort(-values(points))[:_CLIMBED]]
        ends = [
            minimize(slope, start, jac=True, bounds=[(0, 1)] * dimension, method="L-BFGS-B").fun for start in starts
        ]
    return OptimisationProblem(values, dimension, 10, 10, 20, -float(min(ends)))


def _brusselator() -> OptimisationProblem:
    """How uniform two reacting and diffusing substances are at t = 20, as a function of two rates and two diffusivities."""
    lower, upper = np.array([0.1, 0.1, 0.01, 0.01]), np.full(4, 5.0)

    def values(x):
        with jax.enable_x64(True):
            return np.array([float(_uniformity(jnp.asarray(row))) for row in lower + x * (upper - lower)])

    return OptimisationProblem(values, 4, 5, 1, 30, float("nan"))


@jax.jit
def _uniformity(parameters: Float[Array, "4"]) -> Float[Array, ""]:
    r"""Minus the variance of the weighted fields of $u_t = d_0 \Delta u + a - (b + 1) u + u^2 v$,
    $v_t = d_1 \Delta v + b u - u^2 v$, without flux through the boundary, by explicit Euler steps."""
    a, b, d0, d1 = parameters
    generator = np.random.default_rng(_DRAW)
    start, replacement = generator.normal(size=(_GRID, _GRID)), 1e5 * generator.normal(size=(2, _GRID, _GRID))

    def laplacian(field):
        wide = jnp.pad(field, 1, mode="edge")
        return wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:] - 4 * field

    def step(_, state):
        u, v = state
        reaction = u * u * v
        return (
            u + _STEP * (d0 * laplacian(u) + a - (b + 1) * u + reaction),
            v + _STEP * (d1 * laplacian(v) + b * u - reaction),
        )

    fields = jnp.stack(jax.lax.fori_loop(0, _STEPS, step, (jnp.full((_GRID, _GRID), a), b / a + 0.1 * start)))
    fields = jnp.where(jnp.isfinite(fields), fields, replacement)
    distance = np.minimum(np.arange(_GRID), np.arange(_GRID)[::-1])
    weight = np.where(np.minimum(distance[:, None], distance) < _RINGS, 1.0, _INSIDE)
    return -jnp.var(weight * fields)


_PROBLEMS: dict[str, Callable[[], OptimisationProblem]] = dict(
    zip(PROBLEMS, (_branin, _hartmann, _ackley, _polynomial, _network, _brusselator), strict=True)
)
