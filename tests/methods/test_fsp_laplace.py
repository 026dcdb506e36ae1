import dataclasses
import inspect

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.estimators._effort import choices
from fsplaplace.laplace import choose_context_points, fit_posterior
from fsplaplace.methods import FSPLaplace, by_name


def problem():
    X = np.linspace(-1, 1, 8)[:, None].astype(np.float32)
    prior, context = fsp.Prior(RBF(lengthscale=0.5)), fsp.context.Uniform(-2, 2)
    model = fsp.as_model(fsp.mlp([5], prior=prior, context=context, key=jr.key(0)))
    return model, prior, fsp.likelihoods.Gaussian(0.2), context, X, np.sin(3 * X[:, 0])


def test_the_method_is_train_and_then_laplace():
    model, prior, likelihood, context, X, y = problem()
    method = FSPLaplace(steps=20, num_context=10, num_posterior_context=8, fit_noise=False)
    seen = method.fit(model, X, y, likelihood, key=jr.key(1), prior=prior, context=context, progress=False)

    train_key, context_key, laplace_key = jr.split(jr.key(1), 3)
    trained = fsp.train(
        model, prior, likelihood, context, X, y, key=train_key, steps=20, num_context=10, progress=False
    )
    # Every training input once, and of the context as many as bring the whole to 12 = 6 units of 8 / 4.
    points = np.asarray(seen.context_points)
    np.testing.assert_array_equal(np.unique(points[:8], axis=0), X)
    np.testing.assert_allclose(points[8:], context.sample(12, key=context_key)[np.array([0, 3, 7, 11])], rtol=1e-6)
    wanted = fsp.laplace(
        trained.model, prior, trained.likelihood, X, y,
        context_points=points, include_training=False, key=laplace_key,
    )  # fmt: skip
    x = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_array_equal(seen.predict(x).mean, wanted.predict(x).mean)
    np.testing.assert_array_equal(seen.predict(x).variance, wanted.predict(x).variance)
    np.testing.assert_array_equal(seen.log_evidence, wanted.log_evidence)
    assert float(jnp.max(jnp.abs(trained.model.weights - model.weights))) > 0


@pytest.mark.parametrize("likelihood", [fsp.likelihoods.Gaussian(0.01), fsp.likelihoods.Bernoulli()])
def test_the_estimator_is_the_method_of_that_name(likelihood, monkeypatch):
    """Same inputs, key and defaults: one posterior, also where the noise grows (0.01 is far below what the targets have)."""
    from fsplaplace.estimators import _approximate
    from fsplaplace.estimators._rows import WeightedRows

    generator = np.random.default_rng(0)
    X = np.sort(generator.uniform(-1, 1, (32, 1)), axis=0)
    y = np.sin(3 * X[:, 0]) + 0.3 * generator.normal(size=32)
    y = (y > 0).astype(float) if isinstance(likelihood, fsp.likelihoods.Bernoulli) else y
    prior, context = fsp.Prior(RBF(lengthscale=1.0)), fsp.context.around(X)
    model = fsp.as_model(fsp.mlp([3], prior=prior, context=context, key=jr.key(0)))
    # Weights of one: the same likelihood by another formula, which would differ in the last bit.
    monkeypatch.setattr(_approximate, "weighted", lambda likelihood, weights, scales: likelihood)
    estimated = _approximate.approximate(
        "fsp-laplace", model, prior, likelihood, context, WeightedRows(X, y[:, None], np.ones(32)),
        steps=30, num_context=1000, key=jr.key(1), progress=False,
    ).posterior  # fmt: skip
    named = by_name("fsp-laplace", steps=30).fit(
        model, X, y, likelihood, key=jr.key(1), prior=prior, context=None, progress=False
    )
    np.testing.assert_array_equal(estimated.context_points, named.context_points)
    # Sums of float32 in another order: arrays of another size go through other programs.
    np.testing.assert_allclose(estimated.model.weights, named.model.weights, rtol=1e-3, atol=1e-4)
    x = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_allclose(estimated.predict(x).mean, named.predict(x).mean, atol=1e-3)
    np.testing.assert_allclose(estimated.predict(x).variance, named.predict(x).variance, atol=1e-3)
    assert float(estimated.log_evidence) == pytest.approx(float(named.log_evidence), abs=0.01)
    if isinstance(likelihood, fsp.likelihoods.Gaussian):
        assert float(estimated.likelihood.scale) == pytest.approx(float(named.likelihood.scale), rel=1e-3)
        assert float(named.likelihood.scale) > 1.1 * 0.01


def test_defaults_of_the_estimators_the_method_and_the_fit_agree():
    method = {field.name: field.default for field in dataclasses.fields(FSPLaplace)}
    fit = inspect.signature(fit_posterior).parameters
    estimator = choices("normal", 100, 3, 1, network=None, steps=None, num_context=None)
    assert method["num_posterior_context"] == fit["num_points"].default == estimator.num_context
    assert method["fit_noise"] == fit["fit_noise"].default
    assert method["hold_out"] == fit["hold_out"].default
    assert method["num_context"] == inspect.signature(fsp.train).parameters["num_context"].default


@pytest.mark.parametrize("num_rows", [2, 10, 100, 400])
def test_context_points_are_distinct_training_inputs_and_others_in_a_round_number(num_rows):
    X = np.repeat(np.random.default_rng(0).normal(size=(num_rows, 2)), 2, axis=0)
    points = choose_context_points(X, 100, key=jr.key(0))
    taken = min(num_rows, 150)
    rows = {tuple(row) for row in X}
    assert sum(tuple(row) in rows for row in points) >= taken
    assert len({tuple(row) for row in points[:taken]} & rows) == taken
    assert len(points) % 25 == 0
    assert len(points) - taken >= 50
