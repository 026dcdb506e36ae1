"""Properties that hold for any data, kernel, noise and network of one shape: found by random search, the same in every run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern32, Matern52
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fsplaplace as fsp
from fsplaplace.host import to_double

ROWS, POINTS = 10, np.linspace(-1.6, 1.6, 15)[:, None]
CONTEXT = np.linspace(-1.5, 1.5, 20)[:, None]
# One shape for all examples: they share their compiled programs.
FEW = settings(
    max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


# Seed, kernel, length scale, variance, and noise in units of its root: everything is random but the sizes.
problems = st.tuples(
    st.integers(0, 2**31 - 1), st.sampled_from([RBF, Matern32, Matern52]), st.floats(0.2, 2.0), st.floats(0.1, 10.0),
    st.floats(0.02, 1.0),
)  # fmt: skip


def made(problem, hidden=(8,)):
    """Network, prior, noise and data of a problem."""
    seed, kernel, length, size, noise = problem
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (ROWS, 1))
    y = np.sqrt(size) * generator.normal(size=ROWS)
    prior = fsp.Prior(kernel(lengthscale=length, variance=size))
    network = fsp.mlp(list(hidden), prior=prior, context=fsp.context.Uniform([-1.5], [1.5]), key=seed % 1000)
    return fsp.as_model(network), prior, noise * np.sqrt(size), X, y


def posterior_of(model, prior, noise, X, y, **options):
    return fsp.laplace(
        model, prior, fsp.likelihoods.Gaussian(noise), X, y,
        context_points=CONTEXT, delta=1e-8, missed_as_noise=False, mean="refined", **options,
    )  # fmt: skip


def moments(posterior, x=POINTS):
    prediction = posterior.predict(x)
    return np.asarray(prediction.mean, np.float64), np.asarray(prediction.variance, np.float64)


@pytest.mark.slow
@FEW
@given(problem=problems)
def test_the_posterior_variance_lies_between_zero_and_the_prior_s(problem):
    model, prior, *data = made(problem)
    _, variance = moments(posterior_of(model, prior, *data))
    stated = np.asarray(prior.variance(jnp.asarray(POINTS, jnp.float32)))
    assert np.all(variance >= 0)
    assert np.all(variance <= stated * (1 + 1e-4))


@FEW
@given(problem=problems, seed=st.integers(0, 1000))
def test_the_order_of_the_rows_changes_nothing(problem, seed):
    model, prior, noise, X, y = made(problem)
    order = np.random.default_rng(seed).permutation(ROWS)
    first, second = (
        moments(posterior_of(model, prior, noise, *data, include_training=False))
        for data in ((X, y), (X[order], y[order]))
    )
    scale = float(prior.variance(jnp.zeros((1, 1)))[0, 0])
    np.testing.assert_allclose(first[0], second[0], atol=2e-3 * np.sqrt(scale))
    np.testing.assert_allclose(first[1], second[1], atol=2e-3 * scale)


@FEW
@given(problem=problems)
def test_a_row_twice_is_a_row_with_half_the_noise_variance(problem):
    model, prior, noise, X, y = made(problem)
    half = ROWS // 2
    twice = X[:half].repeat(2, axis=0), y[:half].repeat(2)
    doubled = posterior_of(model, prior, noise, *twice, include_training=False)
    scales = np.full((ROWS, 1), noise / np.sqrt(2))
    scales[half:] = 1e4 * noise
    once = posterior_of(model, prior, scales, X, np.where(np.arange(ROWS) < half, y, 0.0), include_training=False)
    scale = float(prior.variance(jnp.zeros((1, 1)))[0, 0])
    np.testing.assert_allclose(moments(doubled)[0], moments(once)[0], atol=5e-3 * np.sqrt(scale))
    np.testing.assert_allclose(moments(doubled)[1], moments(once)[1], atol=5e-3 * scale)


@FEW
@given(problem=problems, unit=st.floats(1e-3, 1e3))
def test_units_of_the_targets_change_units_only(problem, unit):
    """y, noise and prior standard deviation times u give mean times u and variance times u^2."""
    _, prior, noise, X, y = made(problem)
    _, kernel, length, size, _ = problem
    scaled = fsp.Prior(kernel(lengthscale=length, variance=size * unit**2))
    context = fsp.context.Uniform([-1.5], [1.5])
    first, second = (
        moments(posterior_of(fsp.as_model(fsp.mlp([8], prior=p, context=context, key=5)), p, noise * u, X, y * u))
        for p, u in ((prior, 1.0), (scaled, unit))
    )
    np.testing.assert_allclose(second[0] / unit, first[0], atol=5e-3 * np.sqrt(size))
    np.testing.assert_allclose(second[1] / unit**2, first[1], atol=5e-3 * size)


@FEW
@given(problem=problems, unit=st.floats(1e-3, 1e3))
def test_units_of_the_inputs_change_nothing(problem, unit):
    """x, context and length scale times u give the same function of x / u."""
    seed, kernel, length, size, _ = problem
    _, _, noise, X, y = made(problem)
    found = []
    for u in (1.0, unit):
        prior = fsp.Prior(kernel(lengthscale=length * u, variance=size))
        context = fsp.context.Uniform([-1.5 * u], [1.5 * u])
        model = fsp.as_model(fsp.mlp([8], prior=prior, context=context, key=seed % 1000))
        found.append(
            moments(
                fsp.laplace(
                    model, prior, fsp.likelihoods.Gaussian(noise), X * u, y,
                    context_points=CONTEXT * u, delta=1e-8, missed_as_noise=False, mean="refined",
                ),
                POINTS * u,
            )
        )  # fmt: skip
    np.testing.assert_allclose(found[1][0], found[0][0], atol=5e-3 * np.sqrt(size))
    np.testing.assert_allclose(found[1][1], found[0][1], atol=5e-3 * size)


@pytest.mark.slow
@FEW
@given(problem=problems, first=st.integers(1, 3))
def test_conditioning_never_raises_the_variance_and_evidences_add_up(problem, first):
    """log p(a, b) = log p(a) + log p(b | a), in float64, whatever the split."""
    with jax.enable_x64(True):
        model, prior, noise, X, y = to_double(made(problem))
        # Three splits: each is a shape of its own.
        cut = {1: 2, 2: 5, 3: 8}[first]
        some = posterior_of(model, prior, noise, X[:cut], y[:cut], include_training=False)
        later = some.condition(X[cut:], y[cut:])
        both = posterior_of(model, prior, noise, X, y, include_training=False)
        before, after = moments(some)[1], moments(later)[1]
        assert np.all(after <= before * (1 + 1e-9) + 1e-12)
        np.testing.assert_allclose(float(later.log_evidence), float(both.log_evidence), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@FEW
@given(problem=problems)
def test_float32_agrees_with_float64(problem):
    single = made(problem)
    found = moments(posterior_of(*single))
    with jax.enable_x64(True):
        wanted = moments(posterior_of(*to_double(single)))
    size = problem[3]
    np.testing.assert_allclose(found[0], wanted[0], atol=2e-2 * np.sqrt(size))
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-2 * size)


@pytest.mark.slow
@FEW
@given(
    problem=problems, rows=st.sampled_from([1, 7]), likelihood=st.sampled_from(["bernoulli", "poisson"]),
    hidden=st.sampled_from([(3,), (8, 5)]),
)  # fmt: skip
def test_other_likelihoods_networks_and_sizes_stay_below_the_prior(problem, rows, likelihood, hidden):
    model, prior, _, X, y = made(problem, hidden)
    chosen = {"bernoulli": fsp.likelihoods.Bernoulli(), "poisson": fsp.likelihoods.Poisson()}[likelihood]
    posterior = fsp.laplace(
        model,
        prior,
        chosen,
        X[:rows],
        (y[:rows] > 0).astype(int),
        context_points=CONTEXT,
        delta=1e-8,
        missed_as_noise=False,
    )
    variance = moments(posterior)[1]
    stated = np.asarray(prior.variance(jnp.asarray(POINTS, jnp.float32)))
    assert np.all((variance >= 0) & (variance <= stated * (1 + 1e-4)))


@pytest.fixture(scope="module")
def fitted():
    """One posterior for properties of what it predicts."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (ROWS, 1))
    prior = fsp.Prior(Matern52(lengthscale=0.6))
    model = fsp.as_model(fsp.mlp([8], prior=prior, context=fsp.context.Uniform([-1.5], [1.5]), key=0))
    return posterior_of(model, prior, 0.1, X, np.sin(3 * X[:, 0]))


@pytest.mark.slow
@FEW
@given(cut=st.integers(1, POINTS.shape[0] - 1))
def test_predictions_do_not_depend_on_the_batch(fitted, cut):
    whole = moments(fitted)
    parts = [moments(fitted, x) for x in (POINTS[:cut], POINTS[cut:])]
    for index in range(2):
        np.testing.assert_allclose(np.concatenate([part[index] for part in parts]), whole[index], rtol=1e-4, atol=1e-5)


@FEW
@given(seed=st.integers(0, 2**32 - 1))
def test_samples_have_the_posterior_s_moments(fitted, seed):
    """Mean and variance of 4,000 draws, within five standard errors at every point."""
    count = 4000
    draws = np.asarray(fitted.sample(POINTS, key=seed, num_samples=count), np.float64)
    mean, variance = moments(fitted)
    assert np.all(np.abs(draws.mean(axis=0) - mean) <= 5 * np.sqrt(variance / count) + 1e-5)
    assert np.all(np.abs(draws.var(axis=0) - variance) <= 5 * variance * np.sqrt(2 / count) + 1e-6)


@FEW
@given(seed=st.integers(0, 1000))
def test_a_posterior_with_other_numbers_is_loaded_bit_by_bit(fitted, tmp_path_factory, seed):
    generator = np.random.default_rng(seed)
    scale = jnp.asarray(generator.normal(size=fitted.scale.shape) * 10.0 ** generator.integers(-30, 16), jnp.float32)
    changed = eqx.tree_at(lambda tree: tree.scale, fitted, scale)
    path = tmp_path_factory.mktemp("saved") / "posterior.safetensors"
    fsp.save(path, changed)
    loaded = fsp.load(path, fitted.model)
    np.testing.assert_array_equal(loaded.scale, changed.scale)
    assert str(loaded.diagnostics) == str(changed.diagnostics)


def test_a_number_is_its_key(fitted):
    np.testing.assert_array_equal(fitted.sample(POINTS, key=7), fitted.sample(POINTS, key=jr.key(7)))
