"""Noise for the expected log-likelihood: left-out rows equal refits, and no other noise scores them higher."""

import jax
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace import metrics
from fsplaplace.estimators import FSPRegressor
from fsplaplace.experiments._expected_score import LeftOut, left_out_of_estimator, left_out_of_process
from fsplaplace.methods import ExactGP


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (12, 2))
    return X, (np.sin(3 * X[:, :1]) + 0.2 * generator.normal(size=(12, 1)))


def test_a_process_predicts_each_row_as_if_it_had_been_fitted_without_it(rows):
    X, y = rows
    with jax.enable_x64(True):
        prior, likelihood = fsp.Prior(RBF()), fsp.likelihoods.Gaussian(0.2)
        network = fsp.as_model(fsp.mlp([3], prior=prior, context=fsp.context.around(X), key=jax.random.key(0)))

        def fitted(kept):
            return ExactGP(tune=False).fit(network, X[kept], y[kept], likelihood, key=jax.random.key(0), prior=prior)

        found = left_out_of_process(fitted(np.arange(12)))
        for row in range(12):
            alone = fitted(np.delete(np.arange(12), row)).predict(X[row : row + 1])
            np.testing.assert_allclose(found.off[row], y[row, 0] - float(alone.mean[0, 0]), rtol=1e-6)
            np.testing.assert_allclose(found.variance[row], float(alone.variance[0, 0]), rtol=1e-6)


def test_no_other_noise_has_a_higher_expected_log_likelihood():
    generator = np.random.default_rng(1)
    off, variance, weights = generator.normal(size=20), generator.uniform(0, 1, 20), generator.integers(1, 4, 20)
    best = LeftOut(off, variance, weights.astype(float)).noise_variance
    again = lambda values: np.repeat(values, weights)[:, None]  # noqa: E731

    def score(noise):
        y = again(off)
        return float(metrics.expected_log_likelihood(y, 0 * y, again(variance), noise_variance=np.full_like(y, noise)))

    scores = [score(best * factor) for factor in (0.8, 0.99, 1.0, 1.01, 1.25)]
    assert np.argmax(scores) == 2


@pytest.mark.parametrize("method", ["fsp-laplace", "gp"])
def test_rows_of_an_estimator_are_those_of_its_own_score(rows, method):
    X, y = rows
    regressor = FSPRegressor(
        kernel="rbf", method=method, network=(10,), steps=20, num_context=40, fit_prior=False, random_state=0
    )
    fitted = regressor.fit(X, y[:, 0])
    found = left_out_of_estimator(fitted)
    assert found is not None
    noise, unit = (fitted.noise_ / fitted.target_scale_.std[0]) ** 2, fitted.target_scale_.std[0]
    if method == "fsp-laplace":
        total = found.variance + noise
        density = np.mean(-0.5 * found.off**2 / total - 0.5 * np.log(2 * np.pi * total)) - np.log(unit)
        own = fitted.leave_one_out_
        assert own is not None
        assert density == pytest.approx(own.log_density, rel=1e-6)
    assert found.noise_variance > np.mean(found.variance)
    assert left_out_of_estimator(regressor.set_params(method="map").fit(X, y[:, 0])) is None
