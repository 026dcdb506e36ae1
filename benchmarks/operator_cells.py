"""Cells of `operators.py`: linear operators beside the exact process, and posteriors that are conditioned later."""

import dataclasses
import time
from collections.abc import Callable

import equinox as eqx
import exact_process as exact
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from exact_process import Functional, Kernel, Seen
from gpjax.kernels import RBF, Matern52, Periodic, RationalQuadratic

import fsplaplace as fsp
from fsplaplace import operators
from fsplaplace.likelihoods import Gaussian
from fsplaplace.operators import Operator

# Noise of an observation, relative to the prior's standard deviation of what is observed.
NOISE = 0.1
HALF_WIDTH = 0.25
# Over which samples are compared.
DISTANCES = (0.002, 0.02)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is observed: the library's operator, and the same in plain JAX for the exact process."""

    operator: Operator
    functional: Functional


def _averaged(f):
    places, weights = np.polynomial.legendre.leggauss(24)
    return lambda x: 0.5 * jnp.asarray(weights) @ jax.vmap(f)(x + HALF_WIDTH * jnp.asarray(places)[:, None])


VALUE = Kind(operators.value, lambda f: f)
SLOPE = Kind(operators.partial(0), lambda f: lambda x: jax.jacfwd(f)(x)[:, 0])
BEND = Kind(operators.partial(0, 0), lambda f: lambda x: jax.jacfwd(jax.jacfwd(f))(x)[:, 0, 0])
AVERAGE = Kind(operators.average(lambda x: x - HALF_WIDTH, lambda x: x + HALF_WIDTH), _averaged)
GRADIENT = Kind(operators.gradient, lambda f: lambda x: jax.jacfwd(f)(x).ravel())
DIVERGENCE = Kind(operators.divergence, lambda f: lambda x: jnp.trace(jax.jacfwd(f)(x))[None])
LAPLACIAN = Kind(operators.laplacian, lambda f: lambda x: jnp.trace(jax.jacfwd(jax.jacfwd(f))(x), axis1=1, axis2=2))


@dataclasses.dataclass(frozen=True)
class Case:
    """Observations under a prior.

    Attributes:
        kernel_name: of the prior.
        name: of what is observed.
        kernel: makes the library's kernel, in the precision of the moment.
        formula: the same kernel, for the exact process.
        kinds: what is observed, and how often; what is predicted besides values is the first.
        width: columns of the inputs.
        num_outputs: q.
    """

    kernel_name: str
    name: str
    kernel: Callable
    formula: Kernel
    kinds: tuple[tuple[Kind, int], ...]
    width: int = 1
    num_outputs: int = 1

    @property
    def rough(self) -> bool:
        """Whether its functions need a wider network and more context points: their slopes are barely continuous."""
        return self.kernel_name == "Matern-5/2"

    @property
    def bound(self) -> float:
        """The region is [-bound, bound] along every column."""
        return 2.0 if self.width == 1 else 1.0

    def observed(self, generator: np.random.Generator) -> list[Seen]:
        """Where each kind is observed, with its noise."""
        reach = self.bound - (HALF_WIDTH if self.width == 1 else 0.0)
        found = []
        for kind, count in self.kinds:
            seen = Seen(kind.functional, generator.uniform(-reach, reach, (count, self.width)))
            found.append(seen._replace(noise=NOISE * exact.prior_std(self.formula, seen)))
        return found


def cases() -> list[Case]:
    """All that the requirement lists."""
    line = {
        "RBF": (lambda: RBF(lengthscale=0.5), exact.rbf(0.5)),
        "Matern-5/2": (lambda: Matern52(lengthscale=0.5), exact.matern52(0.5)),
        "rational quadratic": (
            lambda: RationalQuadratic(lengthscale=0.5, alpha=2.0),
            exact.rational_quadratic(0.5, 2.0),
        ),
        "periodic": (lambda: Periodic(lengthscale=1.0, period=1.5), exact.periodic(1.0, 1.5)),
    }
    found = []
    for name, (kernel, formula) in line.items():
        # Matern-5/2 has no second derivative with a fourth of its kernel's: infinite variance.
        twice = () if name == "Matern-5/2" else ((BEND, 10),)
        kinds = {
            "first derivatives": ((SLOPE, 25), (VALUE, 2)),
            "second derivatives": ((BEND, 25), (VALUE, 3)) if twice else None,
            "averages": ((AVERAGE, 20),),
            "all of them": ((SLOPE, 10), *twice, (AVERAGE, 6), (VALUE, 8)),
        }
        found += [Case(name, label, kernel, formula, each) for label, each in kinds.items() if each]
    plane = {
        "RBF": (lambda: RBF(lengthscale=0.7), 0.7),
        "RBF, two length scales": (lambda: RBF(lengthscale=jnp.array([0.6, 0.9])), np.array([0.6, 0.9])),
    }
    for name, (kernel, scale) in plane.items():
        for label, kind, outputs in (
            ("gradient", GRADIENT, 1), ("divergence", DIVERGENCE, 2), ("Laplacian", LAPLACIAN, 1),
        ):  # fmt: skip
            given = ((kind, 50), (VALUE, 10))
            found.append(Case(name, label, kernel, exact.rbf(scale, outputs), given, width=2, num_outputs=outputs))
    return found


def against_exact(case: Case, dtype: str) -> dict:
    """Targets drawn from the prior; both posteriors at new inputs, of the function and through the operator."""
    generator = np.random.default_rng(0)
    observed = case.observed(generator)
    sizes = np.cumsum([len(seen.X) * _num_values(case, seen) for seen in observed])[:-1]
    noise = np.concatenate([np.full(len(seen.X) * _num_values(case, seen), seen.noise) for seen in observed])
    targets = exact.draw(case.formula, observed, generator, 1)[0]
    targets = targets + noise * generator.normal(size=targets.size)
    wanted = {"values": VALUE, "through": case.kinds[0][0]}
    # An average reaches beyond x, and the prior is enforced in the region only.
    reach = 0.98 * case.bound - (HALF_WIDTH if wanted["through"] is AVERAGE else 0.0)
    x = generator.uniform(-reach, reach, (100 if case.width == 1 else 200, case.width))
    truth = {
        name: exact.exact(case.formula, observed, targets, Seen(kind.functional, x)) for name, kind in wanted.items()
    }
    with jax.enable_x64(dtype == "float64"):
        prior = fsp.Prior(case.kernel(), num_outputs=case.num_outputs)
        box = fsp.context.Halton(np.full(case.width, -case.bound), np.full(case.width, case.bound))
        hidden = [50, 50] if case.width == 1 and not case.rough else [100, 100]
        model = fsp.as_model(fsp.mlp(hidden, prior=prior, context=box, key=jr.key(0)))
        also = [
            fsp.Observation(seen.X, part.reshape(len(seen.X), -1), Gaussian(seen.noise), of=kind.operator)
            for seen, part, (kind, _) in zip(observed, np.split(targets, sizes), case.kinds, strict=True)
        ]
        posterior = fsp.laplace(
            model, prior, Gaussian(NOISE), None, also=also,
            context_points=box.sample(400 if case.width == 2 or case.rough else 150, key=jr.key(1)),
        )  # fmt: skip
        row = {
            "rank": posterior.rank,
            "chosen": posterior.diagnostics.mean,
            "evidence": abs(float(posterior.log_evidence) - float(truth["values"].log_evidence)),
        }
        for name, kind in wanted.items():
            found = posterior.predict(x) if kind is VALUE else posterior.predict(x, of=kind.operator)
            size = exact.prior_std(case.formula, Seen(kind.functional, x))
            row |= {
                f"{name}, mean": rms(found.mean, truth[name].mean) / size,
                f"{name}, std": rms(found.std, truth[name].std) / size,
            }
    return row


def _num_values(case: Case, seen: Seen) -> int:
    example = jnp.zeros(case.width)
    return seen.of(lambda x: jnp.sum(x) * jnp.ones(case.num_outputs))(example).size


def rms(values, reference) -> float:
    """Root mean squared difference."""
    return float(np.sqrt(np.mean((np.asarray(values, np.float64).ravel() - np.asarray(reference).ravel()) ** 2)))


def conditioning(dtype: str, *, rank: int, sequence: int) -> dict:
    """`condition` and `leave_one_out` beside the fits that they stand for, with the same features."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (40, 2))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * generator.normal(size=40)
    many = generator.uniform(-1, 1, (sequence, 2))
    x = generator.uniform(-1, 1, (50, 2))
    with jax.enable_x64(dtype == "float64"):
        prior = fsp.Prior(RBF(lengthscale=0.5))
        box = fsp.context.Halton([-1.0, -1.0], [1.0, 1.0])
        model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=box, key=jr.key(0)))
        points, guards = (np.asarray(box.sample(count, key=jr.key(count))) for count in (200, 50))

        def fit(rows):
            return fsp.laplace(
                model, prior, Gaussian(0.1), X[rows], y[rows], context_points=points, guard_points=guards, mean="refined",
                delta=1e-8, rtol=1e-8, rank=rank, missed_as_noise=False, include_training=False,
            )  # fmt: skip

        half, whole = fit(slice(0, 30)), fit(slice(None))
        later = half.condition(X[30:], y[30:])
        one_by_one, at_once = half, half.condition(many, np.sin(many[:, 0]))
        for row in many:
            one_by_one = one_by_one.condition(row[None], np.sin(row[:1]))
        refits, left_out = range(0, 30, 10), half.leave_one_out(X[:30], y[:30])
        without = [fit(np.delete(np.arange(30), row)).predict(X[row : row + 1]) for row in refits]
        return {
            "rank": half.rank,
            "equality": _difference(later, whole, x),
            "sequence": _difference(one_by_one, at_once, x),
            "leave one out": max(
                float(
                    max(
                        abs(left_out.mean[row, 0] - one.mean[0, 0]), abs(left_out.variance[row, 0] - one.variance[0, 0])
                    )
                )
                for row, one in zip(refits, without, strict=True)
            ),
            **_seconds(half, jnp.asarray(X[30:]), jnp.asarray(y[30:])),
        }


def slopes_of_samples(dtype: str, *, draws: int = 50) -> dict:
    """Differences of function samples over two distances beside the slopes of the same functions, and the noise that is stated."""
    generator, key = np.random.default_rng(0), jr.key(3)
    X = generator.uniform(-2, 2, (30, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * generator.normal(size=30)
    x, row = np.linspace(-1.9, 1.9, 200)[:, None], {}
    with jax.enable_x64(dtype == "float64"):
        prior = fsp.Prior(RBF(lengthscale=0.5))
        model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=fsp.context.Uniform([-2.0], [2.0]), key=jr.key(0)))
        points = np.linspace(-2, 2, 120)[:, None]
        posterior = fsp.laplace(model, prior, Gaussian(0.1), X, y, context_points=points)
        slopes, stated = (
            np.asarray(values, np.float64)
            for values in (
                posterior.sample(x, key=key, num_samples=draws, of=operators.partial(0)),
                posterior.predict(x, of=operators.partial(0)).unexplained,
            )
        )
        for distance in DISTANCES:
            ends = [(x + side * distance / 2).astype(dtype) for side in (-1, 1)]
            low, high = (np.asarray(posterior.sample(end, key=key, num_samples=draws), np.float64) for end in ends)
            apart = (ends[1] - ends[0]).astype(np.float64)
            missed = sum(np.asarray(posterior.predict(end).unexplained, np.float64) for end in ends)
            off, noise = (high - low) / apart - slopes, np.sqrt(missed / apart**2 + stated)
            row |= {
                f"off, {distance}": rms(off, 0.0),
                f"largest, {distance}": float(np.max(np.abs(off))),
                f"stated, {distance}": rms(noise, 0.0),
            }
    return row | {"slopes": rms(slopes, 0.0)}


def _difference(one: fsp.Posterior, other: fsp.Posterior, x: np.ndarray) -> float:
    """The largest of means and variances."""
    first, second = one.predict(x), other.predict(x)
    return float(max(np.max(np.abs(first.mean - second.mean)), np.max(np.abs(first.variance - second.variance))))


def _seconds(posterior: fsp.Posterior, X, y) -> dict[str, float]:
    """CPU seconds of a warm call: their median, and the least, since a shared machine makes calls slower, never faster.

    A compiled function returns what is new: Equinox takes half a millisecond to pass all of a posterior out of one.
    """

    def plain(posterior, X, y):
        later = posterior.condition(X, y)
        return later.later, later.log_evidence

    calls, found = {"compiled": eqx.filter_jit(plain), "plain": plain}, {}
    for name, call in calls.items():
        times = []
        for _ in range(300):
            start = time.process_time()
            jax.block_until_ready(call(posterior, X, y))
            times.append(time.process_time() - start)
        # The first call compiles.
        found |= {f"seconds, {name}": float(np.median(times[1:])), f"least, {name}": min(times)}
    return found
