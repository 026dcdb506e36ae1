"""Packages that take scikit-learn estimators take ours: each claim is checked against the package itself."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import fsplaplace as fsp

# Exact references need no wide network, and compiled programs are shared by fits of one size.
_SETTINGS = {"network": (20,), "steps": 50, "num_context": 60, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (90, 2))
    return X, np.sin(3 * X[:, 0]) + 0.1 * generator.normal(size=90)


@pytest.fixture(scope="module")
def regressor(data):
    X, y = data
    return fsp.FSPRegressor(kernel="rbf", **_SETTINGS).fit(X[:40], y[:40])


@pytest.mark.slow
def test_conformal_intervals_are_the_quantile_of_standardised_residuals(data, regressor):
    scores = pytest.importorskip("mapie.conformity_scores", reason="MAPIE is not installed (extra: neighbours)")
    from mapie.regression import SplitConformalRegressor

    (X, y), level = data, 0.9
    conformal = SplitConformalRegressor(
        regressor, confidence_level=level, conformity_score=scores.StdConformityScore(sym=True), prefit=True
    )
    conformal.conformalize(X[40:79], y[40:79])
    _, found = conformal.predict_interval(X[79:])
    mean, std = regressor.predict(X[40:79], return_std=True)
    ranked = np.sort(np.abs(y[40:79] - mean) / std)
    quantile = ranked[int(np.ceil(level * (39 + 1))) - 1]
    new_mean, new_std = regressor.predict(X[79:], return_std=True)
    np.testing.assert_allclose(found[:, 0, 0], new_mean - quantile * new_std, rtol=1e-9)
    np.testing.assert_allclose(found[:, 1, 0], new_mean + quantile * new_std, rtol=1e-9)


def test_a_distribution_is_the_normal_of_mean_and_std(data, regressor):
    adapters = pytest.importorskip(
        "skpro.regression.adapters.sklearn", reason="skpro is not installed (extra: neighbours)"
    )
    pandas = pytest.importorskip("pandas", reason="pandas is not installed (extra: data)")
    X, y = data
    frame = pandas.DataFrame(X, columns=["a", "b"])
    wrapped = adapters.SklearnProbaReg(fsp.FSPRegressor(kernel="rbf", **_SETTINGS))
    wrapped.fit(frame[:40], pandas.DataFrame({"y": y[:40]}))
    found = wrapped.predict_proba(frame[40:45])
    mean, std = regressor.predict(X[40:45], return_std=True)
    np.testing.assert_allclose(np.ravel(found.mean()), mean, rtol=1e-6)
    np.testing.assert_allclose(np.ravel(found.var()), std**2, rtol=1e-6)


def test_a_recursive_forecast_is_repeated_prediction():
    compose = pytest.importorskip("sktime.forecasting.compose", reason="sktime is not installed (extra: neighbours)")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed (extra: data)")
    series = pandas.Series(np.sin(np.arange(42.0)))
    forecaster = compose.make_reduction(
        fsp.FSPRegressor(kernel="rbf", **_SETTINGS), window_length=2, strategy="recursive"
    )
    found = forecaster.fit(series, fh=[1, 2]).predict()
    values = series.to_numpy()
    windows = np.stack([values[:-2], values[1:-1]], axis=1)
    direct = fsp.FSPRegressor(kernel="rbf", **_SETTINGS).fit(windows, values[2:])
    first = direct.predict([[values[-2], values[-1]]])[0]
    second = direct.predict([[values[-1], first]])[0]
    np.testing.assert_allclose(np.ravel(found), [first, second], rtol=1e-6)


def test_importance_and_dependence_are_those_of_the_predictions(data, regressor):
    X, y = data
    importance = permutation_importance(regressor, X, y, n_repeats=3, random_state=0).importances_mean
    assert importance[0] > 10 * abs(importance[1])
    found = partial_dependence(regressor, X, [0], grid_resolution=3, method="brute")
    for value, average in zip(found["grid_values"][0], found["average"][0], strict=True):
        moved = X.copy()
        moved[:, 0] = value
        assert average == pytest.approx(regressor.predict(moved).mean(), rel=1e-9)


@pytest.mark.slow
def test_categories_pass_through_a_column_transformer():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed (extra: data)")
    generator = np.random.default_rng(1)
    table = pandas.DataFrame({"x": generator.uniform(-1, 1, 40), "kind": generator.choice(["a", "b"], 40)})
    y = np.sin(3 * table["x"]) + 2.0 * (table["kind"] == "b")
    columns = make_column_transformer((OneHotEncoder(drop="if_binary"), ["kind"]), remainder="passthrough")
    pipeline = make_pipeline(columns, fsp.FSPRegressor(kernel="rbf", **_SETTINGS)).fit(table, y)
    mean, std = pipeline.predict(pandas.DataFrame({"x": [0.0, 0.0], "kind": ["a", "b"]}), return_std=True)
    assert mean[1] - mean[0] == pytest.approx(2.0, abs=0.2)
    assert np.all(std > 0)


@pytest.mark.slow
def test_calibration_keeps_probabilities_that_sum_to_one(data):
    X, _ = data
    labels = (X[:, 0] > 0).astype(int)
    classifier = fsp.FSPClassifier(**_SETTINGS).fit(X[:40], labels[:40])
    calibrated = CalibratedClassifierCV(FrozenEstimator(classifier), method="sigmoid").fit(X[40:80], labels[40:80])
    found = calibrated.predict_proba(X)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-6)
    assert np.mean(calibrated.predict(X) == labels) > 0.9
