"""The options of `laplace`: means, rank, ridge, solver, context and guard points, budgets."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import references
from gpjax.kernels import RBF, Matern12

import fsplaplace as fsp

# In float64, where the context points are few enough for J_C to have full row rank, nothing need be dropped or damped.
EXACT = {"rtol": 1e-13, "delta": 1e-15}
GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(10, 1))
Y = np.sin(3 * X[:, 0]) + 0.1 * GENERATOR.normal(size=10)
POINTS = np.concatenate([np.linspace(-1, 1, 12)[:, None], X])
# Off the training inputs and off the context points.
TEST = np.linspace(-0.97, 0.97, 17)[:, None]


def network(prior, width=100, key=0):
    context = fsp.context.Uniform(-1.0, 1.0)
    return fsp.as_model(fsp.mlp([width], prior=prior, context=context, key=jr.key(key)))


@pytest.fixture(scope="module")
def small():
    prior = fsp.Prior(RBF(lengthscale=0.5))
    return network(prior, width=30), prior, fsp.likelihoods.Gaussian(0.1), X, Y


def test_network_mean_is_the_networks_output_and_refined_mean_is_not(small):
    own = fsp.laplace(*small, context_points=POINTS, mean="network")
    np.testing.assert_allclose(own.predict(TEST).mean, small[0](jnp.asarray(TEST, jnp.float32)), atol=1e-6)
    refined = fsp.laplace(*small, context_points=POINTS, mean="refined")
    np.testing.assert_allclose(refined.predict(TEST).map, own.predict(TEST).mean, atol=1e-6)
    assert np.abs(refined.predict(TEST).mean - own.predict(TEST).mean).max() > 0.1
    # For a Gaussian likelihood the curvature does not depend on the mean.
    np.testing.assert_allclose(refined.predict(TEST).std, own.predict(TEST).std, rtol=1e-5)


def test_auto_mean_is_the_one_with_the_lower_objective(small):
    posterior = fsp.laplace(*small, context_points=POINTS)
    objectives = posterior.diagnostics.objectives
    assert posterior.diagnostics.mean == min(objectives, key=objectives.__getitem__) == "refined"
    assert posterior.diagnostics.mean_gain == pytest.approx(objectives["network"] - objectives["refined"])
    # A refined mean that leaves the prior off the context set loses: one context point cannot hold it.
    far = fsp.laplace(*small, context_points=POINTS[:1], guard_points=POINTS)
    assert far.diagnostics.mean == min(far.diagnostics.objectives, key=far.diagnostics.objectives.__getitem__)


@pytest.mark.slow
def test_memory_budget_changes_nothing_but_memory(small):
    """A budget that forces blocks of rows in every stage."""
    free = fsp.laplace(*small, context_points=POINTS, solver="golub-kahan")
    tight = fsp.laplace(*small, context_points=POINTS, solver="golub-kahan", memory_budget=66_000)
    np.testing.assert_allclose(tight.predict(TEST).std, free.predict(TEST).std, atol=2e-3)
    assert float(tight.log_evidence) == pytest.approx(float(free.log_evidence), abs=0.02)


def test_rank_limits_the_directions_and_more_than_there_are_has_no_effect(small):
    assert fsp.laplace(*small, context_points=POINTS, rank=3).rank == 3
    unlimited = fsp.laplace(*small, context_points=POINTS)
    beyond = fsp.laplace(*small, context_points=POINTS, rank=10_000)
    np.testing.assert_array_equal(beyond.predict(TEST).variance, unlimited.predict(TEST).variance)
    precise = fsp.laplace(*small, context_points=POINTS, rank=10_000, form="precision")
    assert precise.rank <= POINTS.shape[0]


def test_repeated_context_points_count_once(small):
    once = fsp.laplace(*small, context_points=POINTS)
    twice = fsp.laplace(*small, context_points=np.concatenate([POINTS, POINTS[::-1]]))
    np.testing.assert_array_equal(twice.context_points, once.context_points)
    np.testing.assert_array_equal(twice.predict(TEST).variance, once.predict(TEST).variance)


def test_default_context_points_hold_the_training_inputs_and_depend_on_the_key_alone(small):
    first, again = fsp.laplace(*small), fsp.laplace(*small)
    np.testing.assert_array_equal(first.context_points, again.context_points)
    assert first.context_points.shape == (510, 1)
    assert {float(x) for x in X.astype(np.float32)[:, 0]} <= {float(x) for x in first.context_points[:, 0]}
    other = fsp.laplace(*small, key=jr.key(9))
    assert not np.array_equal(other.context_points, first.context_points)


def test_precision_form_bounds_the_variance_at_guard_points(small):
    guards = np.linspace(-1.5, 1.5, 40)[:, None]
    bounded = fsp.laplace(*small, context_points=POINTS, form="precision", guard_points=guards)
    assert np.all(bounded.predict(guards).variance <= 1.001)


def test_one_data_row_is_enough(x64):
    prior = fsp.Prior(Matern12(lengthscale=0.5))
    posterior = fsp.laplace(
        network(prior),
        prior,
        fsp.likelihoods.Gaussian(0.1),
        POINTS[12:13],
        [1.0],
        context_points=POINTS,
        mean="refined",
        **EXACT,
    )
    kernel = np.exp(-np.abs(POINTS - POINTS.T) / 0.5)
    exact = references.exact_gp(kernel[12:13, 12:13], kernel[:, 12:13], kernel, np.ones(1), np.array(0.1))
    np.testing.assert_allclose(posterior.predict(POINTS).mean[:, 0], exact.mean, atol=2e-3)
    np.testing.assert_allclose(posterior.predict(POINTS).std[:, 0], exact.std, atol=2e-3)


def test_equal_inputs_are_repeated_measurements(x64):
    """n equal rows are one row with noise scale / sqrt(n)."""
    prior, model = fsp.Prior(Matern12(lengthscale=0.5)), network(fsp.Prior(Matern12(lengthscale=0.5)))
    row = POINTS[12:13]
    many = fsp.laplace(
        model, prior, fsp.likelihoods.Gaussian(0.4), np.repeat(row, 16, axis=0), np.full(16, 0.7),
        context_points=POINTS, **EXACT,
    )  # fmt: skip
    one = fsp.laplace(model, prior, fsp.likelihoods.Gaussian(0.1), row, [0.7], context_points=POINTS, **EXACT)
    np.testing.assert_allclose(many.predict(POINTS).std, one.predict(POINTS).std, atol=1e-8)
    np.testing.assert_allclose(many.predict(POINTS).mean, one.predict(POINTS).mean, atol=1e-8)


def test_laplace_leaves_the_model_untouched(small):
    before = np.asarray(small[0].weights)
    posterior = fsp.laplace(*small, context_points=POINTS)
    np.testing.assert_array_equal(posterior.model.weights, before)
    np.testing.assert_array_equal(small[0].weights, before)


def test_a_posterior_compiles_the_jacobian_and_nothing_else(compilations):
    """A first call is as fast as its compilations are few. A kernel and a width that no other test has; the kernel is compiled
    when the network is made, for the scale of its outputs."""
    prior = fsp.Prior(RBF(lengthscale=0.5) + Matern12(lengthscale=2.0) + Matern12(lengthscale=3.0))
    model = network(prior, width=31)
    likelihood, louder = fsp.likelihoods.Gaussian(0.1), fsp.likelihoods.Gaussian(0.2)
    compilations.clear()
    posterior = fsp.laplace(model, prior, likelihood, X[:9], Y[:9], context_points=POINTS)
    assert len(compilations) == 1
    posterior.predict(TEST)
    assert len(compilations) == 2
    fsp.laplace(model, prior, louder, X[:9], Y[:9] + 1.0, context_points=POINTS)
    assert len(compilations) == 2


@pytest.mark.parametrize("num_guards", [501, 1000, 1001])
@pytest.mark.parametrize("num_rows", [10, 100])
def test_the_mean_with_the_lower_distance_is_chosen_whatever_the_number_of_guard_points(num_guards, num_rows):
    """Means are judged where the network was evaluated: the exact process at the same points is written out here."""
    generator = np.random.default_rng(1)
    inputs = generator.uniform(-1, 1, size=(num_rows, 1))
    targets = np.sin(6 * inputs[:, 0]) + 0.1 * generator.normal(size=num_rows)
    prior, likelihood = fsp.Prior(RBF(lengthscale=0.3)), fsp.likelihoods.Gaussian(0.1)
    guards = generator.uniform(-1, 1, size=(num_guards, 1))
    model = network(prior, width=50)
    options = {"context_points": np.linspace(-1.2, 1.2, 60)[:, None], "guard_points": guards}
    chosen = fsp.laplace(model, prior, likelihood, inputs, targets, **options)
    kernel = lambda a, b: references.rbf(a, b, 0.3)  # noqa: E731
    exact = references.exact_gp(
        kernel(inputs, inputs), kernel(guards, inputs), kernel(guards, guards), targets, np.array(0.1)
    )
    distances = {}
    for name in ("network", "refined"):
        mean = fsp.laplace(model, prior, likelihood, inputs, targets, mean=name, **options).predict(guards).mean
        distances[name] = np.sqrt(np.mean((np.asarray(mean)[:, 0] - exact.mean) ** 2 / (exact.std**2 + 0.01)))
        # Judged at some of the guard points and at some of the context.
        assert chosen.diagnostics.objectives[name] == pytest.approx(distances[name], rel=0.3, abs=0.01)
    assert chosen.diagnostics.mean == min(distances, key=distances.__getitem__) == "refined"
