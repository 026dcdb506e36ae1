"""Observations through operators, against the exact Gaussian process with the kernel's derivatives in closed form."""

import warnings
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern32
from numpy.polynomial.hermite_e import HermiteE
from numpy.polynomial.legendre import leggauss
from references import bernoulli_expansion, exact_gp, gp_laplace

import fsplaplace as fsp
from fsplaplace import operators as ops

Gaussian = fsp.likelihoods.Gaussian
GENERATOR = np.random.default_rng(0)
TEST = np.linspace(-1.95, 1.95, 41)[:, None]
POINTS = np.linspace(-2, 2, 120)[:, None]
SCALE = 0.5


class Functional(NamedTuple):
    """A weighted sum of derivatives: the orders along each column, the place, the weight, for each term."""

    orders: list[tuple[int, ...]]
    places: list[np.ndarray]
    weights: list[float]


def derivative(x, *orders):
    return [Functional([orders], [row], [1.0]) for row in x]


def integral(lower, upper):
    nodes, weights = leggauss(24)
    return Functional(
        [(0,)] * 24,
        list(((lower + upper) / 2 + (upper - lower) / 2 * nodes)[:, None]),
        list((upper - lower) / 2 * weights),
    )


def covariance(first: list[Functional], second: list[Functional], scale=SCALE) -> np.ndarray:
    """Of an RBF kernel: derivatives of exp(-r^2 / 2) are Hermite polynomials."""

    def pair(a, x, b, y):
        r = (x - y) / scale
        polynomials = prod(
            (-1) ** i * HermiteE.basis(i + j)(t) / scale ** (i + j) for i, j, t in zip(a, b, r, strict=True)
        )
        return polynomials * np.exp(-0.5 * r @ r)

    return np.array(
        [
            [
                sum(
                    v * w * pair(a, x, b, y)
                    for a, x, v in zip(*one, strict=True)
                    for b, y, w in zip(*other, strict=True)
                )
                for other in second
            ]
            for one in first
        ]
    )


def exact(seen: list[Functional], y, noise, at: list[Functional], scale=SCALE):
    return exact_gp(
        covariance(seen, seen, scale), covariance(at, seen, scale), covariance(at, at, scale), np.ravel(y), noise
    )


def network(widths=(50, 50), *, prior=None, context=None):
    prior = prior or fsp.Prior(RBF(lengthscale=SCALE))
    context = context or fsp.context.Uniform([-2.0], [2.0])
    return fsp.as_model(fsp.mlp(list(widths), prior=prior, context=context, key=jr.key(0))), prior


def rmse(found, wanted):
    return float(np.sqrt(np.mean((np.ravel(found) - np.ravel(wanted)) ** 2)))


X2 = GENERATOR.uniform(-2, 2, size=(30, 1))
Y2 = -4 * np.sin(2 * X2) + 0.3 * GENERATOR.normal(size=(30, 1))
ENDS = np.array([[-2.0], [2.0]])
CURVATURES = fsp.Observation(X2, Y2, Gaussian(0.3), of=ops.partial(0, 0))


@pytest.mark.slow
def test_second_derivatives_and_two_values_give_the_exact_process(dtype):
    model, prior = network()
    posterior = fsp.laplace(
        model, prior, Gaussian(0.01), ENDS, np.sin(2 * ENDS), also=[CURVATURES], context_points=POINTS
    )
    seen = derivative(ENDS, 0) + derivative(X2, 2)
    y, noise = np.concatenate([np.sin(2 * ENDS), Y2]), np.repeat([0.01, 0.3], [2, 30])
    known = exact(seen, y, noise, derivative(TEST, 0))
    prediction = posterior.predict(TEST)
    assert rmse(prediction.mean, known.mean) < 0.001
    assert rmse(prediction.std, known.std) < 0.0005
    assert float(posterior.log_evidence) == pytest.approx(known.log_evidence, abs=0.05)
    assert posterior.verdict.level == "good"
    assert "given the same observations" in str(posterior.verdict)
    # And so are slopes of the posterior, jointly and in samples.
    slopes = posterior.predict(TEST, of=ops.partial(0))
    known = exact(seen, y, noise, derivative(TEST, 1))
    assert rmse(slopes.mean, known.mean) < 0.005
    assert rmse(slopes.std, known.std) < 0.002
    assert slopes.noise_variance is None
    joint = posterior.covariance(TEST[::8], of=ops.partial(0))[:, 0, :, 0]
    np.testing.assert_allclose(joint, known.covariance[::8, ::8], atol=0.005)
    if dtype == jnp.float64:
        # So far apart that white noise, for what the features miss, does not show.
        few, step = TEST[::8], 0.02
        draws = {shift: posterior.sample(few + shift, key=jr.key(3), num_samples=2) for shift in (-step, step)}
        differences = (draws[step] - draws[-step]) / (2 * step)
        drawn = posterior.sample(few, key=jr.key(3), num_samples=2, of=ops.partial(0))
        np.testing.assert_allclose(drawn, differences, atol=0.05)


def test_values_may_come_last_among_the_observations(x64):
    """Ridges are judged on rows of all kinds: each must be compared with the exact process's own row."""
    model, prior = network()
    ends = fsp.Observation(ENDS, np.sin(2 * ENDS), Gaussian(0.01))
    first, last = (
        fsp.laplace(model, prior, Gaussian(0.01), None, also=also, context_points=POINTS)
        for also in ([ends, CURVATURES], [CURVATURES, ends])
    )
    assert float(last.diagnostics.delta) == float(first.diagnostics.delta)
    assert bool(last.diagnostics.missed_as_noise) == bool(first.diagnostics.missed_as_noise)
    np.testing.assert_allclose(last.predict(TEST).mean, first.predict(TEST).mean, atol=1e-6)
    np.testing.assert_allclose(last.predict(TEST).std, first.predict(TEST).std, atol=1e-6)
    np.testing.assert_allclose(last.log_evidence, first.log_evidence, atol=1e-4)


@pytest.fixture(scope="module")
def mixture():
    """Values, slopes with noise of their own each, and moving means, all in one fit, in float32."""
    model, prior = network()
    few = np.linspace(-1.8, 1.8, 7)[:, None]
    y, noise = np.cos(3 * few), np.geomspace(0.05, 0.2, 7)[:, None]
    also = [
        fsp.Observation(few + 0.1, -3 * np.sin(3 * few + 0.3), Gaussian(noise), of=ops.partial(0) + 2 * ops.value),
        fsp.Observation(few[:4], np.zeros(4), Gaussian(0.1), of=ops.average(lambda x: x - 0.2, lambda x: x + 0.2)),
    ]
    moving = [integral(x - 0.2, x + 0.2) for x in few[:4, 0]]
    seen = [
        *derivative(few, 0),
        *(Functional([(1,), (0,)], [row, row], [1.0, 2.0]) for row in few + 0.1),
        *(each._replace(weights=[weight / 0.4 for weight in each.weights]) for each in moving),
    ]
    targets = np.concatenate([np.ravel(y), *(np.ravel(each.y) for each in also)])
    noises = np.concatenate([np.full(7, 0.1), noise[:, 0], np.full(4, 0.1)])
    known = exact(seen, targets, noises, derivative(TEST, 0))
    return model, prior, few, y, also, known


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "normal-equations"}, {"solver": "golub-kahan", "missed_as_noise": False}],
)
def test_a_mixture_of_all_kinds_gives_the_exact_process(mixture, options):
    """By every solver."""
    model, prior, few, y, also, known = mixture
    posterior = fsp.laplace(model, prior, Gaussian(0.1), few, y, also=also, context_points=POINTS, **options)
    loose = 10 if options.get("solver") == "golub-kahan" else 1
    assert rmse(posterior.predict(TEST).mean, known.mean) < 0.002 * loose
    assert rmse(posterior.predict(TEST).std, known.std) < 0.002 * loose
    assert float(posterior.log_evidence) == pytest.approx(known.log_evidence, abs=0.1 * loose)


@pytest.fixture(scope="module")
def small():
    return network((40,))


@pytest.mark.slow
def test_data_in_blocks_change_nothing(small):
    """Slopes with noise of their own each, more of them than the budget keeps."""
    model, prior = small
    x, noise = np.linspace(-2, 2, 600)[:, None], np.linspace(0.1, 0.5, 600)[:, None]
    also = [fsp.Observation(x, np.cos(x), Gaussian(noise), of=ops.partial(0))]
    whole, blocks = (
        fsp.laplace(
            model, prior, Gaussian(0.1), ENDS, np.sin(ENDS), also=also, context_points=POINTS, include_training=False,
            solver="golub-kahan", memory_budget=budget,
        )
        for budget in (1e9, 1e6)
    )  # fmt: skip
    np.testing.assert_allclose(blocks.log_evidence, whole.log_evidence, rtol=1e-4)
    np.testing.assert_allclose(blocks.predict(TEST).mean, whole.predict(TEST).mean, atol=1e-3)


@pytest.mark.slow
def test_conditioning_through_an_operator_and_save_and_load(tmp_path):
    model, prior = network()
    values = fsp.laplace(
        model, prior, Gaussian(0.1), ENDS, np.sin(2 * ENDS), context_points=POINTS, missed_as_noise=False
    )
    later = values.condition(X2, Y2, Gaussian(0.3), of=ops.partial(0, 0))
    known = exact(
        derivative(ENDS, 0) + derivative(X2, 2), np.concatenate([np.sin(2 * ENDS), Y2]), np.repeat([0.1, 0.3], [2, 30]),
        derivative(TEST, 0),
    )  # fmt: skip
    assert rmse(later.predict(TEST).mean, known.mean) < 0.01
    assert rmse(later.predict(TEST).std, known.std) < 0.005
    fsp.save(tmp_path / "posterior", later)
    loaded = fsp.load(tmp_path / "posterior", model)
    np.testing.assert_array_equal(
        loaded.predict(TEST, of=ops.partial(0)).mean, later.predict(TEST, of=ops.partial(0)).mean
    )
    with pytest.raises(ValueError, match="likelihood is None, but the posterior's own is of values"):
        values.condition(X2, Y2, of=ops.partial(0))


@pytest.mark.slow
def test_laplacians_in_a_square_give_the_exact_process():
    """Poisson's equation: residuals inside, values on the boundary; the divergence of the gradient is the Laplacian."""
    context = fsp.context.Uniform([-1.0, -1.0], [1.0, 1.0])
    model, prior = network((100, 100), prior=fsp.Prior(RBF(lengthscale=0.7)), context=context)
    inside, edge = GENERATOR.uniform(-1, 1, size=(40, 2)), GENERATOR.uniform(-1, 1, size=(24, 2))
    edge[np.arange(24), np.arange(24) % 2] = np.sign(edge[np.arange(24), np.arange(24) % 2])
    source = np.sin(3 * inside[:, :1]) + 0.1 * GENERATOR.normal(size=(40, 1))
    also = [fsp.Observation(inside, source, Gaussian(0.1), of=ops.laplacian)]
    points = np.asarray(fsp.context.Halton([-1.0, -1.0], [1.0, 1.0]).sample(250, key=jr.key(0)))
    posterior = fsp.laplace(model, prior, Gaussian(0.05), edge, np.zeros(24), also=also, context_points=points)
    seen = derivative(edge, 0, 0) + [Functional([(2, 0), (0, 2)], [row, row], [1.0, 1.0]) for row in inside]
    at = GENERATOR.uniform(-0.95, 0.95, size=(40, 2))
    y, noise = np.concatenate([np.zeros((24, 1)), source]), np.repeat([0.05, 0.1], [24, 40])
    known = exact(seen, y, noise, derivative(at, 0, 0), 0.7)
    prediction = posterior.predict(at)
    assert rmse(prediction.mean, known.mean) < 0.002
    assert rmse(prediction.std, known.std) < 0.002
    assert float(posterior.log_evidence) == pytest.approx(known.log_evidence, abs=0.1)
    flux = posterior.predict(at[:5], of=ops.divergence @ ops.gradient)
    np.testing.assert_allclose(flux.mean, posterior.predict(at[:5], of=ops.laplacian).mean, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_a_sensor_that_sees_a_sum(x64):
    """Outputs that are independent a priori are not after their sum was seen."""
    prior = fsp.Prior(RBF(lengthscale=SCALE), num_outputs=2)
    model, _ = network((40,), prior=prior)
    x = np.linspace(-1.5, 1.5, 8)[:, None]
    sums, first = np.sin(x), np.cos(x[:3])
    posterior = fsp.laplace(
        model, prior, Gaussian(0.1), None, context_points=POINTS[::2],
        also=[
            fsp.Observation(x, sums, Gaussian(0.1), of=ops.combination([1.0, 1.0])),
            fsp.Observation(x[:3], first, Gaussian(0.05), of=ops.output(0)),
        ],
    )  # fmt: skip
    k = covariance(derivative(x, 0), derivative(x, 0))
    K = np.block([[2 * k, k[:, :3]], [k[:3], k[:3, :3]]])
    at = covariance(derivative(TEST, 0), derivative(x, 0))
    cross = np.concatenate([np.hstack([at, at[:, :3]]), np.hstack([at, 0 * at[:, :3]])])
    own = covariance(derivative(TEST, 0), derivative(TEST, 0))
    test = np.kron(np.eye(2), own)
    known = exact_gp(K, cross, test, np.concatenate([sums, first])[:, 0], np.repeat([0.1, 0.05], [8, 3]))
    prediction = posterior.predict(TEST)
    np.testing.assert_allclose(prediction.mean.T.ravel(), known.mean, atol=0.002)
    np.testing.assert_allclose(prediction.std.T.ravel(), known.std, atol=0.002)
    assert float(posterior.log_evidence) == pytest.approx(known.log_evidence, abs=0.05)
    total = posterior.predict(TEST, of=ops.combination([1.0, 1.0])).variance[:, 0]
    half = known.covariance.reshape(2, 41, 2, 41)
    np.testing.assert_allclose(total, np.einsum("anbn->n", half), atol=0.002)


@pytest.mark.slow
def test_the_sign_of_a_slope(small, x64):
    """A Bernoulli likelihood of the derivative, against a dense Laplace approximation."""
    model, prior = network((40,))
    x = np.linspace(-1.8, 1.8, 15)[:, None]
    rising = (np.cos(2 * x) > 0).astype(int)
    posterior = fsp.laplace(
        model, prior, Gaussian(0.1), None, context_points=POINTS,
        also=[fsp.Observation(x, rising, fsp.likelihoods.Bernoulli(), of=ops.partial(0))],
    )  # fmt: skip
    seen, at = derivative(x, 1), derivative(TEST, 0)
    known = gp_laplace(
        covariance(seen, seen), covariance(at, seen), covariance(at, at), bernoulli_expansion(rising[:, 0])
    )
    assert posterior.diagnostics.mean == "refined"
    np.testing.assert_allclose(posterior.predict(TEST).mean[:, 0], known.mean, atol=0.003)
    np.testing.assert_allclose(posterior.predict(TEST).std[:, 0], known.std, atol=0.003)
    assert float(posterior.log_evidence) == pytest.approx(known.log_evidence, abs=0.05)
    assert "of the latent function" in str(posterior.verdict)


@pytest.mark.slow
def test_an_operator_that_is_not_linear_is_linearised_at_the_mode(x64):
    """Of the untrained network's own linear model: against a dense Gauss-Newton iteration on the exact process."""
    model, prior = network((40,))
    x, sigma = np.linspace(-1.8, 1.8, 12)[:, None], 0.1
    y = np.exp(np.sin(2 * x))

    def expansion(f):
        residual, slope = y[:, 0] - np.exp(f), np.exp(f)
        value = -0.5 * residual @ residual / sigma**2 - 12 * np.log(sigma * np.sqrt(2 * np.pi))
        return value, slope * residual / sigma**2, np.diag(slope**2) / sigma**2

    seen, at = derivative(x, 0), derivative(TEST, 0)
    known = gp_laplace(covariance(seen, seen), covariance(at, seen), covariance(at, at), expansion)
    also = [fsp.Observation(x, y, Gaussian(sigma), of=lambda f: lambda point: jnp.exp(f(point)))]
    posterior = fsp.laplace(model, prior, Gaussian(0.1), None, also=also, context_points=POINTS, mean="refined")
    np.testing.assert_allclose(posterior.predict(TEST).mean[:, 0], known.mean, atol=0.003)
    np.testing.assert_allclose(posterior.predict(TEST).std[:, 0], known.std, atol=0.003)
    assert float(posterior.log_evidence) == pytest.approx(known.log_evidence, abs=0.05)
    squares = posterior.predict(TEST, of=lambda f: lambda point: f(point) ** 2)
    np.testing.assert_allclose(squares.mean[:, 0], known.mean**2, atol=0.01)
    np.testing.assert_allclose(squares.std[:, 0], 2 * np.abs(known.mean) * known.std, atol=0.01)


@pytest.mark.slow
def test_training_sums_over_all_kinds(small):
    """The objective of the first step by hand; what is learnable is fitted, and minibatches see every kind."""
    model, prior = small
    context = fsp.context.Uniform([-2.0], [2.0])
    also = [CURVATURES, fsp.Observation(ENDS, [1.0, -1.0], Gaussian(0.5, learnable=True), of=ops.partial(0))]
    key = jr.key(1)
    trained = fsp.train(model, prior, Gaussian(0.2), context, None, also=also, key=key, steps=3, progress=False)
    curvatures = jax.vmap(lambda x: jax.hessian(lambda t: model(t[None])[0, 0])(x)[0])(jnp.asarray(X2, jnp.float32))
    slopes = jax.vmap(lambda x: jax.grad(lambda t: model(t[None])[0, 0])(x))(jnp.asarray(ENDS, jnp.float32))
    wanted = sum(
        np.sum(0.5 * ((values - y) / sigma) ** 2 + np.log(sigma) + 0.5 * np.log(2 * np.pi))
        for values, y, sigma in ((curvatures, Y2, 0.3), (slopes, np.array([[1.0], [-1.0]]), 0.5))
    )
    np.testing.assert_allclose(trained.history.negative_log_likelihood[0], wanted, rtol=1e-4)
    assert float(trained.also[0].scale) == pytest.approx(0.3)
    assert float(trained.also[1].scale) != pytest.approx(0.5, rel=1e-4)
    both = fsp.train(
        model,
        prior,
        Gaussian(0.2),
        context,
        ENDS,
        np.sin(2 * ENDS),
        also=also,
        key=key,
        steps=150,
        batch_size=8,
        progress=False,
    )
    assert both.history.objective[-1] < 0.2 * both.history.objective[0]


@pytest.mark.slow
def test_the_evidence_tunes_the_noise_of_an_observation(small):
    """Curvatures whose stated noise is a third of the true one: the weight of their term follows from the evidence."""
    model, prior = small
    also = [fsp.Observation(X2, Y2, Gaussian(0.1), of=ops.partial(0, 0))]
    posterior = fsp.laplace(model, prior, Gaussian(0.05), ENDS, np.sin(2 * ENDS), also=also, context_points=POINTS)
    tuned = fsp.tune(posterior, ENDS, np.sin(2 * ENDS), also=also, max_steps=30)
    assert float(tuned.posterior.log_evidence) > float(posterior.log_evidence) + 10
    assert 0.15 < float(tuned.also[0].scale) < 0.6
    assert "also[0].scale" in str(tuned)


def test_the_plan_counts_all_rows(small):
    model, prior = small
    alone, with_more = (fsp.plan(model, prior, ENDS, POINTS, also=also) for also in (None, [CURVATURES]))
    assert with_more.flops > alone.flops
    assert fsp.plan(model, prior, None, POINTS, also=[CURVATURES]).rank <= 150


@pytest.mark.parametrize(
    ("also", "message"),
    [
        ([], "X is None and there are no observations"),
        (CURVATURES, "pass a list"),
        ([(X2, Y2)], "pass a list, each an Observation"),
        ([fsp.Observation(X2, Y2[:4], Gaussian(0.1), of=ops.partial(0))], "partial"),
        (
            [fsp.Observation(X2, np.zeros((30, 3)), Gaussian(0.1), of=ops.partial(0))],
            r"partial\(0\) has 1 outputs, but Gaussian needs 3 for this y; change the operator",
        ),
        ([fsp.Observation(np.zeros((3, 2)), np.zeros(3), Gaussian(0.1), of=ops.partial(0))], "shape"),
        (
            [fsp.Observation(X2, Y2, Gaussian(0.1), of=ops.average(lambda x: x + 1, lambda x: x - 1, nodes=4))],
            "not below",
        ),
    ],
)
def test_bad_observations_are_refused(small, also, message):
    model, prior = small
    context = fsp.context.Uniform([-2.0], [2.0])
    with pytest.raises((TypeError, ValueError), match=message):
        fsp.laplace(model, prior, Gaussian(0.1), None, also=also, context_points=POINTS)
    with pytest.raises((TypeError, ValueError), match=message):
        fsp.train(model, prior, Gaussian(0.1), context, None, also=also, key=jr.key(0), steps=1, progress=False)


@pytest.mark.slow
def test_what_cannot_be_observed_is_said(small):
    model, prior = small
    with pytest.raises(ValueError, match="scale must be positive"):
        fsp.Observation(X2, Y2, Gaussian(0.0))
    with pytest.raises(TypeError, match="likelihood must be a Likelihood"):
        fsp.Observation(X2, Y2, 0.1)
    with pytest.raises(ValueError, match=r"Observation: X has shape \(0, 1\); pass at least one row"):
        fsp.Observation(X2[:0], Y2[:0], Gaussian(0.1))
    with pytest.raises(ValueError, match="infinite variance"):
        fsp.laplace(model, fsp.Prior(Matern32()), Gaussian(0.1), None, also=[CURVATURES], context_points=POINTS)
    with pytest.warns(UserWarning, match="outside the context region") as said:
        fsp.laplace(
            model, prior, Gaussian(0.1), None, context_points=POINTS,
            also=[
                fsp.Observation([[0.0], [3.0]], [0.0, 0.0], Gaussian(0.1), of=ops.partial(0)),
                fsp.Observation([[0.0], [1.5], [1.9]], np.zeros(3), Gaussian(0.1), of=ops.average(lambda x: x - 0.3, lambda x: x + 0.3)),
            ],
        )  # fmt: skip
    twice = fsp.Observation([[0.5], [0.0], [0.5]], [0.0, 0.0, 1.0], Gaussian(1e-6), of=ops.partial(0))
    with pytest.warns(
        UserWarning, match=r"also\[0\] \(partial\(0\)\): rows 0 and 2 have the same input, but targets 1 apart"
    ):
        fsp.laplace(model, prior, Gaussian(0.1), None, also=[twice], context_points=POINTS)
    found = [str(each.message) for each in said if "outside the context region" in str(each.message)]
    assert len(found) == 2
    assert "also[0] (partial(0)): 1 of 2 inputs" in found[0]
    assert "also[1] (average): 1 of 3 inputs" in found[1]


def test_a_derivative_far_outside_the_region_is_the_priors_and_an_integral_within_it_is_not(small):
    model, prior = small
    posterior = fsp.laplace(model, prior, Gaussian(0.1), X2, Y2, context_points=POINTS)
    slope = posterior.predict([[9.0]], of=ops.partial(0))
    np.testing.assert_allclose(slope.std, 1 / SCALE, rtol=1e-3)
    np.testing.assert_allclose(slope.mean, 0.0, atol=1e-3)
    within = ops.integral(-0.5, 0.5, nodes=12)
    np.testing.assert_allclose(posterior.predict([[9.0]], of=within).std, posterior.predict([[0.0]], of=within).std)


def in_units(scale=1.0, shift=0.0, size=1.0, mean=0.0):
    """Function and slopes, back in the units of nothing changed, of values and slopes whose inputs and targets are in others."""
    prior = fsp.Prior(RBF(lengthscale=SCALE * scale, variance=size**2), mean=mean * size)
    box = fsp.context.Uniform([-2 * scale + shift], [2 * scale + shift])
    model, _ = network((40,), prior=prior, context=box)
    few = np.linspace(-1.5, 1.5, 6)[:, None]
    slopes = fsp.Observation(
        few * scale + shift, 2 * np.cos(2 * few) * size / scale, Gaussian(0.2 * size / scale), of=ops.partial(0)
    )
    posterior = fsp.laplace(
        model, prior, Gaussian(0.1 * size), ENDS * scale + shift, (np.sin(2 * ENDS) + mean) * size, also=[slopes],
        context_points=POINTS * scale + shift,
    )  # fmt: skip
    x = TEST[::4] * scale + shift
    values, derivative = posterior.predict(x), posterior.predict(x, of=ops.partial(0))
    found = [
        values.mean / size - mean,
        values.std / size,
        derivative.mean * scale / size,
        derivative.std * scale / size,
    ]
    # The density of each target is in its own units.
    evidence = float(posterior.log_evidence) + len(ENDS) * np.log(size) + len(few) * np.log(size / scale)
    return np.concatenate(found, axis=1), evidence


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"scale": 1e3}, {"shift": 50.0}, {"size": 1e-5}, {"mean": 7.0}], ids=lambda each: next(iter(each))
)
def test_units_shifts_and_prior_means_change_nothing_of_what_slopes_say(change):
    found, evidence = in_units(**change)
    wanted, known = in_units()
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    assert evidence == pytest.approx(known, abs=0.01)


def test_conditioning_on_what_lies_outside_the_region_is_said(small):
    model, prior = small
    posterior = fsp.laplace(model, prior, Gaussian(0.1), X2, Y2 / 4, context_points=POINTS)
    moving = ops.average(lambda x: x - 0.3, lambda x: x + 0.3)
    with pytest.warns(
        UserWarning, match=r"condition: partial\(0\): 1 of 2 inputs lie, or reach, outside the context region"
    ):
        posterior.condition([[0.0], [3.0]], [0.0, 0.0], Gaussian(0.1), of=ops.partial(0))
    with pytest.warns(UserWarning, match=r"condition: average: 1 of 3 inputs lie, or reach, outside"):
        posterior.condition([[0.0], [1.5], [1.99]], np.zeros(3), Gaussian(0.1), of=moving)
    # A hair outside the outermost context points lie other draws of their sampler.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior.condition([[0.0], [2.02]], np.zeros(2), Gaussian(1.0), of=ops.partial(0))


def test_differences_of_samples_are_their_slopes_and_the_white_noise_that_is_stated(dtype):
    """In float32 and in float64: in units of that noise, what is between them is a standard normal."""
    model, prior = network()
    posterior = fsp.laplace(model, prior, Gaussian(0.1), X2, Y2 / 4, context_points=POINTS)
    x, key, step = np.linspace(-1.9, 1.9, 200)[:, None], jr.key(3), 0.002
    ends = [(x + shift).astype(dtype) for shift in (-step, step)]
    low, high = (np.asarray(posterior.sample(end, key=key, num_samples=50), np.float64) for end in ends)
    apart = (ends[1] - ends[0]).astype(np.float64)
    off = (high - low) / apart - posterior.sample(x, key=key, num_samples=50, of=ops.partial(0))
    values = sum(np.asarray(posterior.predict(end).unexplained, np.float64) for end in ends)
    slopes = np.asarray(posterior.predict(x, of=ops.partial(0)).unexplained, np.float64)
    variance = (values / apart**2 + slopes)[:, 0]
    # A third derivative of 30 and a rounding of a few 1e-7 are at most 2e-4 of a difference over this distance.
    noisy = variance > 1e-6
    assert rmse(off[:, ~noisy], 0.0) < 0.001
    in_units = off[:, noisy, 0] / np.sqrt(variance[noisy])
    assert np.mean(in_units**2) == pytest.approx(1.0, abs=5 * np.sqrt(2 / in_units.size))


def test_a_number_in_an_operator_may_be_traced(small):
    model, prior = small
    posterior = fsp.laplace(model, prior, Gaussian(0.1), X2, Y2, context_points=POINTS)

    def slope(factor):
        return posterior.predict(X2[:1], of=factor * ops.partial(0)).mean[0, 0]

    np.testing.assert_allclose(jax.jit(jax.grad(slope))(3.0), slope(1.0), rtol=1e-5)
