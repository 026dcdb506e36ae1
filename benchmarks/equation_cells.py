"""Cells of `operators.py`: differential equations, with truths drawn from the prior so that coverage is a fair claim."""

import functools
import time
from typing import NamedTuple

import exact_process as exact
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from exact_process import Seen
from gpjax.kernels import RBF
from operator_cells import LAPLACIAN, SLOPE, VALUE, Kind, rms

import fsplaplace as fsp
from fsplaplace import operators
from fsplaplace.likelihoods import Gaussian

# Noise of right-hand sides and of boundary values, relative to the prior's standard deviation of each.
NOISE, BOUNDARY_NOISE = 0.02, 0.01
DIFFUSION, FREQUENCY = 0.1, 4.0

HEAT = Kind(
    operators.partial(0) - DIFFUSION * operators.partial(1, 1),
    lambda f: lambda x: jax.jacfwd(f)(x)[:, 0] - DIFFUSION * jax.jacfwd(jax.jacfwd(f))(x)[:, 1, 1],
)
# A driven pendulum: u'' + 4 sin u.
PENDULUM = operators.partial(0, 0) + FREQUENCY * operators.value.map(jnp.sin)
BEND = Kind(operators.partial(0, 0), lambda f: lambda x: jax.jacfwd(jax.jacfwd(f))(x)[:, 0, 0])


class Equation(NamedTuple):
    """A linear equation with boundary values.

    Attributes:
        kind: the operator.
        lengthscale: of the RBF prior.
        lower: corner of the region.
        upper: the opposite one.
        boundary: where values are known, (b, 2).
    """

    kind: Kind
    lengthscale: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    boundary: np.ndarray


def poisson(num_boundary: int = 40) -> Equation:
    """The Laplacian in a square, values all around it."""
    side = np.linspace(-1, 1, num_boundary // 4, endpoint=False)
    edge = np.full_like(side, 1.0)
    around = [np.stack(pair, axis=1) for pair in ((side, -edge), (edge, side), (-side, edge), (-edge, -side))]
    return Equation(LAPLACIAN, np.array([0.6, 0.6]), np.full(2, -1.0), np.full(2, 1.0), np.concatenate(around))


def heat() -> Equation:
    """Time and place; values at both ends of the rod and a few within it later on, nothing at the start."""
    times = np.linspace(0, 1, 10)
    ends = [np.stack([times, np.full(10, end)], axis=1) for end in (0.0, 1.0)]
    later = np.stack([np.full(6, 0.8), np.linspace(0.1, 0.9, 6)], axis=1)
    return Equation(HEAT, np.array([0.5, 0.3]), np.zeros(2), np.ones(2), np.concatenate([*ends, later]))


class Problems(NamedTuple):
    """Right-hand sides with their solutions.

    Attributes:
        observed: the equation at collocation points, and the boundary.
        targets: noisy, one row for each problem.
        x: where the solutions are known.
        truth: the solutions there, one row for each problem.
    """

    observed: list[Seen]
    targets: np.ndarray
    x: np.ndarray
    truth: np.ndarray


def problems(equation: Equation, n: int, count: int) -> Problems:
    """Draws of the solution from the prior, with what the equation makes of them."""
    generator, kernel = np.random.default_rng(0), exact.rbf(equation.lengthscale)
    observed, x = _design(equation, n), generator.uniform(equation.lower, equation.upper, (150, 2))
    drawn = exact.draw(kernel, [*observed, Seen(VALUE.functional, x)], generator, count)
    exactly, truth = drawn[:, : -len(x)], drawn[:, -len(x) :]
    noise = np.concatenate([np.full(len(seen.X), seen.noise) for seen in observed])
    return Problems(observed, exactly + noise * generator.normal(size=exactly.shape), x, truth)


def _design(equation: Equation, n: int) -> list[Seen]:
    """Collocation points and boundary, with noise in proportion to the prior's standard deviation of each."""
    inside = np.asarray(fsp.context.Halton(equation.lower, equation.upper).sample(n, key=jr.key(3)), np.float64)
    kernel, places = exact.rbf(equation.lengthscale), ((equation.kind, inside), (VALUE, equation.boundary))
    seen = [Seen(kind.functional, X) for kind, X in places]
    shares = (NOISE, BOUNDARY_NOISE)
    return [
        each._replace(noise=share * exact.prior_std(kernel, each)) for each, share in zip(seen, shares, strict=True)
    ]


def linear_equation(equation: Equation, dtype: str, *, n: int, count: int) -> dict:
    """Error and coverage over random right-hand sides, beside the exact process's."""
    given = problems(equation, n, count)
    reference = exact.exact(
        exact.rbf(equation.lengthscale), given.observed, given.targets.T, Seen(VALUE.functional, given.x)
    )
    means, stds = [], []
    with jax.enable_x64(dtype == "float64"):
        solver = _Solver(equation)
        for targets in given.targets:
            found = solver(given.observed, targets).predict(given.x)
            means.append(np.asarray(found.mean, np.float64).ravel())
            stds.append(np.asarray(found.std, np.float64).ravel())
    means, stds = np.array(means), np.array(stds)
    return {
        "problems": count,
        "error": rms(means, given.truth),
        "exact error": rms(reference.mean.T, given.truth),
        "coverage": _coverage(means, stds, given.truth),
        "exact coverage": _coverage(reference.mean.T, reference.std, given.truth),
        "mean": rms(means, reference.mean.T),
        "std": rms(stds, np.broadcast_to(reference.std, stds.shape)),
    }


class _Solver:
    """An untrained network with one set of context points, for several right-hand sides."""

    def __init__(self, equation: Equation):
        self.prior = fsp.Prior(RBF(lengthscale=jnp.asarray(equation.lengthscale)))
        self.box, self.kind = fsp.context.Halton(equation.lower, equation.upper), equation.kind
        self.model = fsp.as_model(fsp.mlp([100, 100], prior=self.prior, context=self.box, key=jr.key(0)))
        corners = np.stack(np.meshgrid(*zip(equation.lower, equation.upper, strict=True)), axis=-1).reshape(-1, 2)
        self.points = np.concatenate([self.box.sample(400, key=jr.key(1)), corners])

    def __call__(self, observed: list[Seen], targets: np.ndarray) -> fsp.Posterior:
        inside, boundary = observed
        n = len(inside.X)
        also = [
            fsp.Observation(inside.X, targets[:n], Gaussian(inside.noise), of=self.kind.operator),
            fsp.Observation(boundary.X, targets[n:], Gaussian(boundary.noise)),
        ]
        return fsp.laplace(
            self.model, self.prior, Gaussian(boundary.noise), None, also=also, context_points=self.points
        )


def timed(n: int, dtype: str) -> dict:
    """CPU seconds for posterior and 150 predictions, and errors against the truth: network, exact process."""
    equation = poisson()
    kernel, observed, generator = exact.rbf(equation.lengthscale), _design(equation, n), np.random.default_rng(1)
    # A sum of waves with the prior's spectrum, whose Laplacian is known: nothing has to be drawn jointly at n points.
    wave, phase = generator.normal(size=(60, 2)) / equation.lengthscale, generator.uniform(0, 2 * np.pi, 60)

    def solution(x, weights=1.0):
        return np.sqrt(2 / 60) * np.sum(weights * np.cos(x @ wave.T + phase), axis=1)

    inside, boundary = observed
    exactly = [solution(inside.X, -np.sum(wave**2, axis=1)), solution(boundary.X)]
    targets = np.concatenate([
        part + seen.noise * generator.normal(size=part.size) for part, seen in zip(exactly, observed, strict=True)
    ])  # fmt: skip
    x = generator.uniform(equation.lower, equation.upper, (150, 2))
    truth = solution(x)
    row = {"n": n}
    # Other cells of the same run may have compiled the same programs.
    jax.clear_caches()
    with jax.enable_x64(dtype == "float64"):
        solver = _Solver(equation)
        for name in ("cold", "warm"):
            start = time.process_time()
            found = solver(observed, targets).predict(x)
            jax.block_until_ready(found.mean)
            row[f"network, {name}"] = time.process_time() - start
    row["network, error"] = rms(found.mean, truth)
    start = time.process_time()
    matrix = exact.covariance(kernel, observed, noisy=True)
    row["exact, kernel"] = time.process_time() - start
    del matrix
    start = time.process_time()
    reference = exact.exact(kernel, observed, targets, Seen(VALUE.functional, x))
    row["exact, warm"] = time.process_time() - start
    row["exact, error"] = rms(reference.mean, truth)
    return row


def nonlinear(dtype: str, *, count: int, steps: int) -> dict:
    """A driven pendulum from its start, given its noisy drive: the posterior, beside a plain physics-informed network."""
    generator, kernel = np.random.default_rng(0), exact.rbf(0.7)
    inside, start = np.linspace(0, 4, 40)[:, None], np.zeros((1, 1))
    x = generator.uniform(0, 4, (100, 1))
    places = [
        Seen(BEND.functional, inside), Seen(VALUE.functional, inside), Seen(VALUE.functional, start),
        Seen(SLOPE.functional, start), Seen(VALUE.functional, x),
    ]  # fmt: skip
    drawn = exact.draw(kernel, places, generator, count)
    bend, height, first, slope, truth = np.split(drawn, np.cumsum([40, 40, 1, 1]), axis=1)
    noise = NOISE * exact.prior_std(kernel, places[0])
    drive = bend + FREQUENCY * np.sin(height) + noise * generator.normal(size=bend.shape)
    first, slope = (each + BOUNDARY_NOISE * generator.normal(size=each.shape) for each in (first, slope))
    means, stds, plain = [], [], []
    with jax.enable_x64(dtype == "float64"):
        prior, box = fsp.Prior(RBF(lengthscale=0.7)), fsp.context.Uniform([0.0], [4.0])
        model = fsp.as_model(fsp.mlp([40, 40], prior=prior, context=box, key=jr.key(0)))
        for number in range(count):
            also = [
                fsp.Observation(inside, drive[number], Gaussian(noise), of=PENDULUM),
                fsp.Observation(start, first[number], Gaussian(BOUNDARY_NOISE)),
                fsp.Observation(start, slope[number], Gaussian(BOUNDARY_NOISE), of=operators.partial(0)),
            ]
            trained = fsp.train(
                model, prior, Gaussian(BOUNDARY_NOISE), box, None, key=jr.key(number), also=also, steps=steps,
                num_context=40, progress=False,
            )  # fmt: skip
            posterior = fsp.laplace(
                trained.model, prior, Gaussian(BOUNDARY_NOISE), None, also=also,
                context_points=np.linspace(0, 4, 120)[:, None],
            )  # fmt: skip
            found = posterior.predict(x)
            means.append(np.asarray(found.mean).ravel())
            stds.append(np.asarray(found.std).ravel())
            data = tuple(map(jnp.asarray, (inside, drive[number], start, first[number], slope[number])))
            plain.append(np.asarray(_physics_informed(model, steps, noise, data, jnp.asarray(x))))
    means, stds = np.array(means, np.float64), np.array(stds, np.float64)
    errors = [[rms(one, other) for one, other in zip(found, truth, strict=True)] for found in (means, plain)]
    matrix = exact.covariance(kernel, places, noisy=False)
    modes = [_exact_pendulum(matrix, *given, noise) for given in zip(drive, first, slope, strict=True)]
    exactly, exact_stds = (np.array(each) for each in zip(*modes, strict=True))
    return {
        "problems": count,
        "steps": steps,
        "error": rms(means, truth),
        "plain error": rms(plain, truth),
        "median error": float(np.median(errors[0])),
        "plain median error": float(np.median(errors[1])),
        "problems with lower error": int(np.sum(np.array(errors[0]) < np.array(errors[1]))),
        "coverage": _coverage(means, stds, truth),
        "exact error": rms(exactly, truth),
        "exact coverage": _coverage(exactly, exact_stds, truth),
        "each coverage": [_coverage(*each) for each in zip(means, stds, truth, strict=True)],
        "each exact coverage": [_coverage(*each) for each in zip(exactly, exact_stds, truth, strict=True)],
    }


def _exact_pendulum(matrix: np.ndarray, drive, first, slope, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the exact process, linearised at its mode, which damped Gauss-Newton steps find.

    The rows of the covariance matrix are u'' and u at the 40 times, u and u' at the start, and u where it is predicted.
    """
    values, vectors = np.linalg.eigh(matrix)
    root = vectors * np.sqrt(np.maximum(values, 0))
    targets, scale = np.concatenate([drive, first, slope]), np.r_[np.full(40, noise), [BOUNDARY_NOISE] * 2]

    def linearised(z):
        height = root[40:80] @ z
        residual = targets - np.r_[root[:40] @ z + FREQUENCY * np.sin(height), root[80:82] @ z]
        rows = np.concatenate([root[:40] + FREQUENCY * np.cos(height)[:, None] * root[40:80], root[80:82]])
        return residual / scale, rows / scale[:, None]

    def objective(z):
        return 0.5 * z @ z + 0.5 * np.sum(linearised(z)[0] ** 2)

    z = np.zeros(len(values))
    for _ in range(100):
        residual, rows = linearised(z)
        gradient = z - rows.T @ residual
        direction = -np.linalg.solve(np.eye(len(z)) + rows.T @ rows, gradient)
        size = 1.0
        while size > 1e-6 and objective(z + size * direction) > objective(z) + 1e-4 * size * gradient @ direction:
            size /= 2
        z = z + size * direction
        if -gradient @ direction < 1e-10:
            break
    rows, wanted = linearised(z)[1], root[82:]
    covariance = np.linalg.inv(np.eye(len(z)) + rows.T @ rows)
    return wanted @ z, np.sqrt(np.sum(wanted @ covariance * wanted, axis=1))


@functools.partial(jax.jit, static_argnums=(1, 2))
def _physics_informed(model, steps: int, noise: float, data, x):
    """The same network, optimiser and steps, on the same noise-weighted residuals, without a prior."""
    inside, drive, start, first, slope = data

    def loss(params):
        def u(t):
            return model.evaluate(params, t[None, None])[0, 0]

        du = jax.grad(u)
        residual = jax.vmap(lambda t: jax.grad(du)(t) + FREQUENCY * jnp.sin(u(t)))(inside[:, 0]) - drive
        begin = jnp.stack([u(start[0, 0]) - first[0], du(start[0, 0]) - slope[0]])
        return 0.5 * jnp.sum((residual / noise) ** 2) + 0.5 * jnp.sum((begin / BOUNDARY_NOISE) ** 2)

    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, steps))

    def step(state, _):
        params, inner = state
        updates, inner = optimizer.update(jax.grad(loss)(params), inner)
        return (optax.apply_updates(params, updates), inner), None

    (params, _), _ = jax.lax.scan(step, (model.params, optimizer.init(model.params)), length=steps)
    return model.evaluate(params, x)[:, 0]


def _coverage(mean, std, truth) -> float:
    return float(np.mean(np.abs(np.asarray(mean) - truth) <= 2 * np.asarray(std)))
