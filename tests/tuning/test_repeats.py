"""Repeated rows: sufficient statistics against the dense density of all rows, and what counts as an observation."""

import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF
from scipy.stats import multivariate_normal, norm

from fsplaplace import Prior
from fsplaplace.likelihoods import Gaussian
from fsplaplace.tuning import fit_prior
from fsplaplace.tuning._repeats import distinct_rows, observation_weights

KEY = jr.key(0)


def repeated(rows: int = 60):
    """Inputs that repeat, targets that differ."""
    generator = np.random.default_rng(0)
    X = generator.integers(0, 8, (rows, 1)).astype(float)
    return X, np.sin(X) + 0.3 * generator.normal(size=(rows, 1))


@pytest.mark.parametrize("known", [False, True])
def test_merged_rows_have_the_density_of_all_rows(known):
    X, y = repeated()
    variance = np.random.default_rng(1).uniform(0.05, 0.5, y.shape) if known else None
    rows = distinct_rows(X, y, np.ones(60), variance)
    sigma = 1.0 if known else 0.37
    gram = lambda x: np.exp(-0.5 * (x - x.T) ** 2)  # noqa: E731
    noise = sigma**2 * (np.ones(60) if variance is None else variance[:, 0])
    dense = multivariate_normal(np.zeros(60), gram(X) + np.diag(noise)).logpdf(y[:, 0])
    merged = gram(rows.X) + np.diag(sigma**2 / rows.precision[:, 0])
    value = multivariate_normal(np.zeros(len(rows.X)), merged).logpdf(rows.y[:, 0])
    value += float(np.sum(rows.log_within(sigma**2)))
    assert len(rows.X) == 8
    assert value == pytest.approx(dense, rel=1e-6)


def test_a_weight_is_that_many_rows():
    X, y = repeated(12)
    number = np.arange(1, 13) % 3 + 1
    once = distinct_rows(X, y, number.astype(float))
    often = distinct_rows(X.repeat(number, axis=0), y.repeat(number, axis=0), np.ones(number.sum()))
    for left, right in zip(once, often, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


def test_the_reported_value_is_the_density_of_all_rows():
    X, y = repeated()
    report = fit_prior(Prior(RBF()), X, y, key=KEY, restarts=1, standard_errors=False).report
    length, size, noise = (report[name].after for name in ("kernel.lengthscale", "kernel.variance", "likelihood.scale"))
    gram = size * np.exp(-0.5 * ((X - X.T) / length) ** 2) + noise**2 * np.eye(60)
    assert report.value == pytest.approx(multivariate_normal(np.zeros(60), gram).logpdf(y[:, 0]), rel=1e-6)


def test_counts_at_whole_inputs_are_observations_and_give_their_noise():
    generator = np.random.default_rng(0)
    X = generator.integers(0, 10, (600, 1)).astype(float)
    y = np.round(np.sin(X[:, 0]) * 2 + 0.43 * generator.normal(size=600))
    np.testing.assert_array_equal(observation_weights(X, y[:, None], np.ones(600)), 1.0)
    result = fit_prior(Prior(RBF()), X, y, key=KEY, restarts=1, standard_errors=False)
    residual = y - [y[X[:, 0] == x].mean() for x in X[:, 0]]
    assert float(result.likelihood.scale) == pytest.approx(np.sqrt(np.sum(residual**2) / 590), rel=0.03)


def test_copies_of_records_count_once():
    """A fifth of the rows twice, as in the wine table, and never with another target: no evidence of no noise."""
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 6, (80, 1))
    y = np.round(2 * np.sin(X[:, 0]) + generator.normal(size=80))
    copies = np.append(np.arange(80), generator.permutation(80)[:16])
    plain, copied = (
        fit_prior(Prior(RBF()), X[rows], y[rows], key=KEY, restarts=1, standard_errors=False).likelihood
        for rows in (np.arange(80), copies)
    )
    assert isinstance(plain, Gaussian)
    np.testing.assert_allclose(copied.scale, plain.scale, rtol=1e-4)


def test_replicates_of_a_fine_measurement_with_some_copies_are_told_apart():
    """Continuous targets agree by copying only: copies count once, replicates stay."""
    generator = np.random.default_rng(0)
    X = np.repeat(generator.uniform(0, 6, (30, 1)), 2, axis=0)
    y = np.sin(X) + norm.rvs(scale=0.2, size=X.shape, random_state=generator)
    table = np.append(np.arange(60), np.arange(0, 60, 3))
    weights = observation_weights(X[table], y[table], np.ones(80))
    assert weights.sum() == 60
    assert set(weights) == {0.0, 1.0}


def test_weights_of_the_wrong_kind_are_refused():
    X, y = repeated(12)
    with pytest.raises(ValueError, match="weights has shape"):
        fit_prior(Prior(RBF()), X, y, key=KEY, weights=-np.ones(12))
