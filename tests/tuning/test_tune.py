"""The evidence that `tune` maximises against `laplace` and dense references; its gradient; that it only rises."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern12
from gpjax.parameters import val
from scipy.stats import multivariate_normal

import fsplaplace as fsp
from fsplaplace.host._float64 import to_double
from fsplaplace.networks._jacobian import jacobian_matrix
from fsplaplace.tuning import tune, tune_and_train
from fsplaplace.tuning._linearised import Kind, linearise, log_evidence

KEY = jr.key(0)
X = np.linspace(-2, 2, 30)[:, None]
Y = np.sin(3 * X[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=30)
POINTS = np.linspace(-2.5, 2.5, 40)[:, None]
CASES = {
    "Gaussian": (fsp.likelihoods.Gaussian(0.5), Y, 1),
    "per-row Gaussian": (fsp.likelihoods.Gaussian(np.linspace(0.1, 0.6, 30)[:, None]), Y, 1),
    "Bernoulli": (fsp.likelihoods.Bernoulli(), (Y > 0).astype(int), 1),
    "Categorical": (fsp.likelihoods.Categorical(3), (Y > 0).astype(int) + (Y > 0.7), 3),
}


@pytest.fixture(scope="module")
def posteriors():
    """Posteriors of networks that were not trained: the evidence does not ask whether they were."""
    made = {}
    for name, (likelihood, y, q) in CASES.items():
        prior = fsp.Prior(RBF(lengthscale=0.8), num_outputs=q)
        network = fsp.mlp([20], prior=prior, context=fsp.context.Uniform(-2.5, 2.5), key=KEY)
        made[name] = fsp.laplace(fsp.as_model(network), prior, likelihood, X, y, context_points=POINTS, rtol=1e-10)
    return made


def _linearised(posterior, y):
    targets = jnp.asarray(posterior.likelihood.check_targets(y, num_rows=30))
    return linearise(
        posterior.model, posterior.context_points, [Kind(fsp.operators.value, jnp.asarray(X), targets)],
        delta=posterior.diagnostics.delta, missed_as_noise=posterior.diagnostics.missed_as_noise, budget=1e9,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_evidence_equals_that_of_laplace(posteriors, case):
    posterior = posteriors[case]
    linearised = _linearised(posterior, CASES[case][1])
    with jax.enable_x64(True):
        prior, likelihood = to_double((posterior.prior, posterior.likelihood))
        value = eqx.filter_jit(log_evidence)(linearised, prior, [likelihood])
    assert float(value) == pytest.approx(float(posterior.log_evidence), rel=2e-3)


def test_evidence_counts_missed_variance_as_noise_where_laplace_does():
    """Three units cannot hold a rough prior: the two treatments differ by nats, and each equals its own laplace."""
    prior = fsp.Prior(Matern12(lengthscale=0.3))
    network = fsp.mlp([3], prior=prior, context=fsp.context.Uniform(-2.5, 2.5), key=KEY)
    values = {}
    for missed in (False, True):
        posterior = fsp.laplace(
            fsp.as_model(network), prior, fsp.likelihoods.Gaussian(0.3), X, Y,
            context_points=POINTS, rtol=1e-10, missed_as_noise=missed,
        )  # fmt: skip
        linearised = _linearised(posterior, Y)
        with jax.enable_x64(True):
            value = eqx.filter_jit(log_evidence)(linearised, *to_double((posterior.prior, [posterior.likelihood])))
        assert float(value) == pytest.approx(float(posterior.log_evidence), rel=2e-3)
        values[missed] = float(value)
    assert abs(values[True] - values[False]) > 1.0


def test_evidence_away_from_context_points_is_that_of_the_prior_mean_and_the_features(posteriors):
    """Not of the network's own outputs there: it may have learnt them from the same targets."""
    model = posteriors["Gaussian"].model
    prior, points, delta, noise = (
        fsp.Prior(RBF(lengthscale=0.8), mean=0.3),
        np.linspace(-2.5, 2.5, 5)[:, None],
        1e-6,
        0.4,
    )
    linearised = linearise(
        model,
        jnp.asarray(points),
        [Kind(fsp.operators.value, jnp.asarray(X), jnp.asarray(Y)[:, None])],
        delta=delta,
        missed_as_noise=False,
        budget=1e9,
    )
    at_data, at_points = (np.asarray(jacobian_matrix(model, jnp.asarray(x)), float) for x in (X, points))
    own = at_points @ at_points.T
    moved = at_data @ at_points.T @ np.linalg.inv(own + delta * np.linalg.norm(own, 2) * np.eye(5))
    implied = moved @ np.exp(-0.5 * (points - points.T) ** 2 / 0.8**2) @ moved.T
    shrink = np.sqrt(np.minimum(1.0, 1.0 / np.diagonal(implied)))
    covariance = shrink[:, None] * implied * shrink + noise**2 * np.eye(30)
    with jax.enable_x64(True):
        value = log_evidence(linearised, to_double(prior), [to_double(fsp.likelihoods.Gaussian(noise))])
    assert float(value) == pytest.approx(multivariate_normal.logpdf(Y, np.full(30, 0.3), covariance), rel=1e-4)


@pytest.mark.parametrize("case", ["Gaussian", "Categorical"])
def test_evidence_gradient_equals_finite_differences(posteriors, case):
    posterior = posteriors[case]
    linearised = _linearised(posterior, CASES[case][1])
    likelihood, q = posterior.likelihood, CASES[case][2]
    with jax.enable_x64(True):
        likelihood = to_double(likelihood)
        value = jax.jit(
            lambda log: log_evidence(
                linearised,
                fsp.Prior(RBF(lengthscale=jnp.exp(log[0]), variance=jnp.exp(log[1])), num_outputs=q),
                [likelihood],
            )
        )
        at = jnp.array([-0.2, 0.3])
        gradient = jax.jit(jax.grad(value))(at)
        numeric = [(value(at + step) - value(at - step)) / 2e-4 for step in 1e-4 * np.eye(2)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-3)


def test_tuning_only_raises_the_evidence_and_laplace_confirms_it(posteriors):
    posterior = posteriors["Gaussian"]
    tuned = tune(posterior, X, Y, rtol=1e-10)
    trace = np.array(tuned.report.trace)
    assert np.all(np.diff(trace) >= -1e-6 * np.abs(trace[:-1]))
    assert tuned.report.value > trace[0] + 1
    assert float(tuned.posterior.log_evidence) == pytest.approx(tuned.report.value, rel=2e-3)
    assert float(tuned.likelihood.scale) == pytest.approx(0.2, rel=0.4)
    assert float(val(tuned.prior.kernel.lengthscale)) == pytest.approx(
        tuned.report["kernel.lengthscale"].after, rel=1e-4
    )


@pytest.mark.slow
def test_tuned_noise_is_better_calibrated_than_the_training_loss_noise():
    """Fitted with the weights the noise collapses to the residuals of an interpolating network; the evidence's does not."""
    generator = np.random.default_rng(1)
    inputs = generator.uniform(-2, 2, (25, 1))
    y = np.sin(3 * inputs[:, 0]) + 0.3 * generator.normal(size=25)
    test = np.linspace(-2, 2, 50)[:, None]
    truth = np.sin(3 * test[:, 0]) + 0.3 * generator.normal(size=50)
    prior = fsp.Prior(RBF(lengthscale=0.15))
    context = fsp.context.Uniform(-2.5, 2.5)
    network = fsp.as_model(fsp.mlp([30, 30], prior=prior, context=context, key=KEY))
    learnable = fsp.likelihoods.Gaussian(0.5, learnable=True)
    trained = fsp.train(
        network, prior, learnable, context, inputs, y, key=KEY, steps=600, num_context=40, progress=False
    )
    posterior = fsp.laplace(trained.model, prior, trained.likelihood, inputs, y, context_points=POINTS)
    tuned = tune(posterior, inputs, y)
    scores = []
    for each in (posterior, tuned.posterior):
        prediction = each.predict(test)
        total = np.asarray(prediction.variance[:, 0]) + float(each.likelihood.scale) ** 2
        error = truth - np.asarray(prediction.mean[:, 0])
        scores.append(np.mean(-0.5 * np.log(2 * np.pi * total) - 0.5 * error**2 / total))
    assert abs(np.log(float(tuned.likelihood.scale) / 0.3)) < abs(np.log(float(trained.likelihood.scale) / 0.3))
    assert scores[1] > scores[0]


@pytest.mark.slow
def test_alternating_with_training_raises_the_evidence():
    prior = fsp.Prior(RBF(lengthscale=0.8))
    context = fsp.context.Uniform(-2.5, 2.5)
    network = fsp.as_model(fsp.mlp([20], prior=prior, context=context, key=KEY))
    options = dict(key=KEY, steps=100, num_context=30, progress=False)
    first = tune_and_train(network, prior, fsp.likelihoods.Gaussian(1.0), context, X, Y, rounds=1, **options)
    second = tune_and_train(network, prior, fsp.likelihoods.Gaussian(1.0), context, X, Y, rounds=2, **options)
    assert second.report.value > first.report.value - 1.0
    assert second.report.trace[-1] >= second.report.trace[0]


def test_the_precision_form_is_refused(posteriors):
    posterior = posteriors["Gaussian"]
    precision = fsp.laplace(
        posterior.model, posterior.prior, posterior.likelihood, X, Y, context_points=POINTS, form="precision"
    )
    with pytest.raises(ValueError, match="form='covariance'"):
        tune(precision, X, Y)


def test_wrong_arguments_are_named(posteriors):
    with pytest.raises(TypeError, match="call laplace first"):
        tune("posterior", X, Y)
    with pytest.raises(ValueError, match="max_steps is 0"):
        tune(posteriors["Gaussian"], X, Y, max_steps=0)
    with pytest.raises(MemoryError, match="memory_budget"):
        tune(posteriors["Gaussian"], X, Y, memory_budget=1e3)
