"""Choices of the covariance form, judged against the exact process: ridge, missed variance, rank."""

import gpjax
import jax
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern12
from scipy.stats import multivariate_normal

import fsplaplace as fsp
from fsplaplace.laplace._compare_means import score_means
from fsplaplace.laplace._data import Part, Rows
from fsplaplace.laplace._observed import observe
from fsplaplace.laplace._problem import Places, Problem
from fsplaplace.laplace._reference import _by_directions, _by_targets, closest_of_best, reference_at

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(10, 1))
Y = np.sin(3 * X[:, 0]) + 0.1 * GENERATOR.normal(size=10)
POINTS = np.linspace(-1, 1, 25)[:, None]
TEST = np.linspace(-0.97, 0.97, 17)[:, None]


def test_missed_variance_as_noise_is_the_fully_independent_training_conditional(x64):
    """Dense reference: features of a network too small for its prior, noise plus what they miss at each input."""
    prior = fsp.Prior(Matern12(lengthscale=0.3))
    model = fsp.as_model(fsp.mlp([3], prior=prior, context=fsp.context.Uniform(-1.0, 1.0), key=jr.key(3)))
    posterior = fsp.laplace(
        model, prior, fsp.likelihoods.Gaussian(0.1), X, Y, context_points=POINTS, mean="refined", missed_as_noise=True
    )
    C = np.asarray(posterior.context_points)
    jacobian = jax.jit(lambda x: jax.jacobian(lambda w: model.evaluate(model.unravel(w), x)[:, 0])(model.weights))
    at_context, at_data, at_test = (np.asarray(jacobian(x)) for x in (C, X, TEST))
    tangent = at_context @ at_context.T
    ridge = posterior.diagnostics.delta * np.linalg.eigvalsh(tangent)[-1]
    pull = np.linalg.solve(tangent + ridge * np.eye(len(C)), np.eye(len(C)))
    implied = at_context.T @ pull @ np.exp(-np.abs(C - C.T) / 0.3) @ pull.T @ at_context
    shrink = lambda rows: np.sqrt(np.minimum(1.0, 1.0 / np.sum(rows @ implied * rows, axis=1)))[:, None]  # noqa: E731
    missed = [np.maximum(1.0 - np.sum(rows @ implied * rows, axis=1), 0.0) for rows in (at_data, at_test)]
    at_data, at_test = shrink(at_data) * at_data, shrink(at_test) * at_test
    own, cross, gram = at_test @ implied @ at_test.T, at_test @ implied @ at_data.T, at_data @ implied @ at_data.T
    noise = 0.1**2 + missed[0]
    assert noise.max() > 0.02  # the network does miss something
    assert missed[1].max() > 0.02
    expected = own - cross @ np.linalg.solve(gram + np.diag(noise), cross.T) + np.diag(missed[1])
    np.testing.assert_allclose(posterior.covariance(TEST)[:, 0, :, 0], expected, atol=1e-4)
    prediction = posterior.predict(TEST)
    np.testing.assert_allclose(prediction.unexplained[:, 0], missed[1], atol=1e-4)
    np.testing.assert_allclose(prediction.variance[:, 0], np.diagonal(expected), atol=1e-4)
    np.testing.assert_allclose(prediction.mean[:, 0], cross @ np.linalg.solve(gram + np.diag(noise), Y), atol=1e-4)


def reference(guards, context):
    """Of the Matern-1/2 prior of length scale 0.5 and the data above."""
    prior, likelihood = fsp.Prior(Matern12(lengthscale=0.5)), fsp.likelihoods.Gaussian(0.1)
    data = Rows(lambda: iter([Part(X, Y[:, None])]))
    model = fsp.as_model((lambda weights, x: x @ weights, np.ones((1, 1))))
    observed = observe(model, prior, likelihood, data, ())
    problem = Problem(model, prior, likelihood, observed, data, context, guards, True, 1e9)
    return prior, reference_at(problem, Places.of(problem))


def test_choices_are_judged_by_the_divergence_from_the_exact_process(x64):
    """The divergence of the exact process's own features is zero, and grows when they are scaled or shifted."""
    _, judges = reference(TEST, POINTS[:3])
    assert judges.sample is not None
    inputs = np.concatenate([judges.points, *(part.inputs for part in judges.sample_parts)])
    factor = np.linalg.cholesky(np.exp(-np.abs(inputs - inputs.T) / 0.5) + 1e-12 * np.eye(len(inputs)))
    value = judges.divergence(factor, "function")
    np.testing.assert_allclose(value, 0.0, atol=1e-8)
    assert min(judges.divergence(0.5 * factor, "noise")) > 0.01
    assert judges.best_ridge(np.stack([0.5 * factor, factor, 0.9 * factor]), ("function", "noise")) == 1
    stated = judges.sample.stated._replace(mean=judges.sample.stated.mean + 3.0)
    shifted = judges._replace(sample=judges.sample._replace(stated=stated))
    assert min(shifted.divergence(factor, "function")) > 0.01


@pytest.mark.parametrize("size", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("conditioned", [_by_targets, _by_directions])
def test_few_targets_tell_the_same_in_their_own_space_as_in_that_of_the_directions(conditioned, size):
    """Beside the mean and covariance of a Gaussian vector, some of whose entries are known."""
    generator = np.random.default_rng(0)
    features, seen = generator.normal(size=(7, 9)), size * generator.normal(size=(5, 9))
    targets = generator.normal(size=5)
    gain = np.linalg.solve(seen @ seen.T + np.eye(5), seen @ features.T).T
    found = conditioned(features, seen, targets)
    np.testing.assert_allclose(found.mean, gain @ targets, rtol=1e-7)
    expected = np.diagonal(features @ features.T - gain @ seen @ features.T)
    np.testing.assert_allclose(found.variance, expected, rtol=1e-7)


def test_means_that_are_equally_wrong_between_inputs_are_told_apart_at_the_context(x64):
    """As where inputs lie on a circle: points between them are no inputs."""
    prior, judges = reference(TEST, POINTS[::5])
    exact, between = judges.exact, np.arange(judges.exact.mean.size) < len(TEST)
    errors = {"refined": np.where(between, 5.01, 0.0), "network": np.where(between, 5.0, 1.0)}
    means = {name: (exact.mean + error)[:, None] for name, error in errors.items()}
    scores = score_means(prior, judges, means, {}).scores
    assert scores["refined"] < scores["network"]
    for name, error in errors.items():
        assert scores[name] == pytest.approx(np.sqrt(np.mean(error**2 / exact.variance)))


def test_rank_follows_the_noise():
    """Directions that noise of 0.1 would hide are kept where the noise is 0.001."""
    prior, X = fsp.Prior(RBF(lengthscale=0.5)), np.linspace(-1, 1, 20)[:, None]
    model = fsp.as_model(fsp.mlp([30], prior=prior, context=fsp.context.Uniform(-1.0, 1.0), key=jr.key(0)))
    ranks = [
        fsp.laplace(model, prior, fsp.likelihoods.Gaussian(scale), X, X[:, 0], context_points=POINTS).rank
        for scale in (0.3, 1e-3)
    ]
    assert ranks[0] < ranks[1]


@pytest.mark.parametrize(
    ("divergences", "errors", "wanted"),
    [([1.0, 1.1], [9, 1], 1), ([1.0, 1.3], [9, 1], 0), ([0.5, -1e-17, 2e-17], [1, 9, 3], 2)],
)
def test_of_ridges_that_diverge_alike_the_one_closest_to_the_prior_is_taken(divergences, errors, wanted):
    assert closest_of_best(divergences, errors) == wanted


@pytest.mark.parametrize("scale", [0.05, 0.5])
def test_the_noise_with_the_highest_evidence_is_that_of_the_dense_linearised_model(x64, scale):
    """N(y; m, Phi Phi^T + c^2 s^2 I) maximised over c on a grid, Phi from the pull-back written out."""
    prior = fsp.Prior(Matern12(lengthscale=0.3), mean=gpjax.mean_functions.Constant(0.4))
    model = fsp.as_model(fsp.mlp([4], prior=prior, context=fsp.context.Uniform(-1.0, 1.0), key=jr.key(3)))
    posterior = fsp.laplace(
        model, prior, fsp.likelihoods.Gaussian(scale), X, Y, context_points=POINTS[::3], missed_as_noise=False,
        include_training=False, rtol=1e-12,
    )  # fmt: skip
    C = np.asarray(posterior.context_points)
    jacobian = jax.jit(lambda x: jax.jacobian(lambda w: model.evaluate(model.unravel(w), x)[:, 0])(model.weights))
    at_context, at_data = (np.asarray(jacobian(x)) for x in (C, X))
    tangent = at_context @ at_context.T
    ridge = posterior.diagnostics.delta * np.linalg.eigvalsh(tangent)[-1]
    pull = at_data @ at_context.T @ np.linalg.inv(tangent + ridge * np.eye(len(C)))
    implied = pull @ np.exp(-np.abs(C - C.T) / 0.3) @ pull.T
    shrink = np.sqrt(np.minimum(1.0, 1.0 / np.diagonal(implied)))
    implied = shrink[:, None] * implied * shrink
    factors = np.exp(np.linspace(np.log(0.1), np.log(20), 4000))
    evidence = [
        multivariate_normal(np.full(len(Y), 0.4), implied + (factor * scale) ** 2 * np.eye(len(Y))).logpdf(Y)
        for factor in factors
    ]
    assert posterior.diagnostics.noise_factor == pytest.approx(factors[np.argmax(evidence)], rel=3e-3)
    assert f"{posterior.diagnostics.noise_factor:.3g} times the stated" in str(posterior)


def test_other_likelihoods_have_no_noise_factor():
    prior = fsp.Prior(RBF())
    model = fsp.as_model(fsp.mlp([4], prior=prior, context=fsp.context.Uniform(-1.0, 1.0), key=jr.key(3)))
    posterior = fsp.laplace(model, prior, fsp.likelihoods.Bernoulli(), X, Y > 0, context_points=POINTS)
    assert posterior.diagnostics.noise_factor is None
