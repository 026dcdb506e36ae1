"""The kernel "auto": as smooth as the rows, with a linear part where the evidence asks for it."""

import warnings

import numpy as np
import pytest
from gpjax.kernels import Matern32, Matern52, SumKernel
from sklearn.linear_model import BayesianRidge

from fsplaplace.estimators import FSPClassifier, FSPRegressor, candidates

GP = {"method": "gp", "random_state": 0}


@pytest.fixture(scope="module")
def linear():
    generator = np.random.default_rng(0)
    X, weights = generator.normal(size=(120, 6)), generator.normal(size=6)
    return X, X @ weights + 0.3 * generator.normal(size=120)


@pytest.mark.slow
def test_a_linear_truth_has_a_linear_part_and_is_predicted_as_by_ridge(linear):
    X, y = linear
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = FSPRegressor(**GP).fit(X[:20], y[:20])
        plain = FSPRegressor(kernel="matern32", **GP).fit(X[:20], y[:20])
    assert isinstance(model.prior_.kernel, SumKernel)
    assert model.prior_report_.value > plain.prior_report_.value + 1
    errors = [
        np.sqrt(np.mean((each.fit(X[:20], y[:20]).predict(X[20:]) - y[20:]) ** 2)) for each in (BayesianRidge(),)
    ] + [np.sqrt(np.mean((each.predict(X[20:]) - y[20:]) ** 2)) for each in (model, plain)]
    assert errors[1] < 1.15 * errors[0] < errors[2]


def test_a_truth_without_a_trend_has_none(linear):
    X, _ = linear
    y = np.sin(4 * X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=120)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = FSPRegressor(**GP).fit(X[:, :1], y)
    assert isinstance(model.prior_.kernel, Matern32)


@pytest.mark.parametrize(("truth", "expected"), [(np.sin, Matern52), (np.abs, Matern32)], ids=["smooth", "kink"])
def test_rows_without_noise_tell_how_smooth_the_function_is(linear, truth, expected):
    X, _ = linear
    y = truth(3 * X[:, 0])
    model = FSPRegressor(**GP).fit(X[:, :1], y)
    assert isinstance(model.prior_.kernel, expected)
    if expected is Matern52:
        plain = FSPRegressor(kernel="matern32", **GP).fit(X[:, :1], y)
        assert model.prior_report_.value > plain.prior_report_.value + 1
        # The smallest noise that is tried is no accusation, and is said.
        assert "look free of noise" in str(model)


def test_labels_of_a_linear_truth_have_a_linear_part(linear):
    X, y = linear
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = FSPClassifier(**GP).fit(X, y > 0)
    assert isinstance(model.prior_.kernel, SumKernel)


def test_other_kernels_are_the_only_candidate():
    kernel = Matern32()
    assert [each.kernel for each in candidates("rbf")] == ["rbf"]
    assert [each.kernel for each in candidates(kernel)] == [kernel]
    assert all(each.trended is None for each in (*candidates("rbf"), *candidates(kernel)))
    assert len(candidates("auto")) > 1
