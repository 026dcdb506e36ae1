"""FSPRegressor: what it predicts, its units, shapes, and the tools it works in."""

import pickle

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pandas as pd
import pytest
from gpjax.kernels import RBF
from scipy.stats import norm
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fsplaplace.estimators import FSPRegressor

_SMALL = {"kernel": "rbf", "network": (30,), "steps": 300, "num_context": 96, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (64, 1))
    return 10 * X + 5, 100 * np.sin(3 * X[:, 0]) + 5 * generator.normal(size=64)


@pytest.fixture(scope="module")
def fitted(data):
    return FSPRegressor(**_SMALL).fit(*data)


@pytest.fixture(scope="module")
def process(data):
    return FSPRegressor(**_SMALL, method="gp").fit(*data)


@pytest.mark.slow
def test_noise_is_found_in_the_targets_units(fitted):
    assert 4.0 < fitted.noise_ < 6.5


def off_by(fitted, process, X):
    """Largest distance between the means in standard deviations, and between the standard deviations relative to them."""
    (mean, std), (exact_mean, exact_std) = (model.predict(X, return_std=True) for model in (fitted, process))
    return np.max(np.abs(mean - exact_mean) / exact_std), np.max(np.abs(std / exact_std - 1))


@pytest.mark.slow
def test_predictions_are_those_of_the_gaussian_process(data, fitted, process):
    """Among the data with few context points; a quarter of their range beyond, where few are too few, with more."""
    assert max(off_by(fitted, process, np.linspace(-5, 15, 40)[:, None])) < 0.05
    more = FSPRegressor(**{**_SMALL, "num_context": 384}).fit(*data)
    assert max(off_by(more, process, np.linspace(-10, 20, 50)[:, None])) < 0.05


def test_covariance_has_the_squared_standard_deviation_on_its_diagonal(fitted):
    X = np.linspace(-5, 15, 9)[:, None]
    _, std = fitted.predict(X, return_std=True)
    _, covariance = fitted.predict(X, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std, rtol=1e-6)
    np.testing.assert_allclose(covariance, covariance.T, rtol=1e-8)
    with pytest.raises(RuntimeError, match="At most one of return_std or return_cov"):
        fitted.predict(X, return_std=True, return_cov=True)


def test_samples_have_the_predictive_moments(fitted):
    X = np.linspace(-5, 15, 5)[:, None]
    mean, std = fitted.predict(X, return_std=True)
    samples = fitted.sample_y(X, n_samples=4000, random_state=1)
    assert samples.shape == (5, 4000)
    np.testing.assert_allclose(samples.mean(axis=1), mean, atol=5 * std.max() / 4000**0.5)
    np.testing.assert_allclose(samples.std(axis=1), std, rtol=0.06)
    functions = fitted.sample_y(X, n_samples=4000, random_state=1, noise=False)
    np.testing.assert_allclose(functions.std(axis=1), np.sqrt(std**2 - fitted.noise_**2), rtol=0.06)


def test_pickled_estimator_predicts_the_same_bits(data, fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(data[0]), fitted.predict(data[0]))


def test_conditioning_adds_rows_in_the_targets_units(data, fitted):
    """A datum far from the mean pulls the prediction as the posterior's own covariance says; the first estimator stays."""
    X, before = np.array([[7.0]]), fitted.predict(np.array([[7.0]]), return_std=True)
    later = fitted.condition(X, before[0] + 3 * before[1])
    mean, std = later.predict(X, return_std=True)
    total, noise = before[1] ** 2, fitted.noise_**2
    function = total - noise
    np.testing.assert_allclose(mean, before[0] + function / total * 3 * before[1], rtol=1e-4)
    np.testing.assert_allclose(std**2, noise + function * noise / total, rtol=1e-3)
    np.testing.assert_array_equal(fitted.predict(X), before[0])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(later)).predict(X), mean)
    with pytest.raises(ValueError, match=r"y has shape \(1, 2\), but the first y had"):
        fitted.condition(X, [[1.0, 2.0]])
    with pytest.raises(ValueError, match="X has 2 features"):
        fitted.condition([[1.0, 2.0]], [1.0])


def test_clone_and_same_seed_fit_the_same(data, fitted):
    np.testing.assert_array_equal(clone(fitted).fit(*data).predict(data[0]), fitted.predict(data[0]))


def test_shuffled_rows_fit_the_same(data, fitted):
    X, y = data
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = FSPRegressor(**_SMALL).fit(X[order], y[order])
    np.testing.assert_allclose(shuffled.predict(X), fitted.predict(X), rtol=1e-6)


def test_frames_keep_their_column_names(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["depth"])
    model = FSPRegressor(**{**_SMALL, "steps": 20}).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["depth"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"depth": "height"}))


@pytest.mark.slow
def test_several_targets_have_a_noise_and_a_covariance_each(data):
    X, y = data
    model = FSPRegressor(**{**_SMALL, "steps": 20}).fit(X, np.column_stack([y, -2 * y]))
    mean, std = model.predict(X[:7], return_std=True)
    _, covariance = model.predict(X[:7], return_cov=True)
    assert mean.shape == std.shape == (7, 2)
    assert covariance.shape == (7, 7, 2)
    assert model.sample_y(X[:7], 3).shape == (7, 2, 3)
    np.testing.assert_allclose(np.einsum("nnq->nq", covariance), std**2, rtol=1e-6)
    np.testing.assert_allclose(model.noise_[1] / model.noise_[0], 2.0, rtol=0.2)


@pytest.mark.slow
def test_a_network_and_a_kernel_of_ones_own(data):
    X, y = data
    # Equinox's default final activation is a lambda, which nothing can pickle.
    options = {"activation": jax.nn.relu, "final_activation": jax.nn.identity}
    network = eqx.nn.MLP(1, 1, 8, 1, **options, key=jr.key(0))
    model = FSPRegressor(kernel=RBF(lengthscale=0.5), network=network, steps=20, num_context=96, random_state=0)
    model.fit(X, y)
    assert model.posterior_.model.num_params == 25
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("method", ["map", "laplace"])
def test_other_methods_answer_the_same_calls(data, method):
    mean, std = FSPRegressor(**_SMALL, method=method).fit(*data).predict(data[0], return_std=True)
    assert np.corrcoef(mean, data[1])[0, 1] > 0.9
    assert np.all(std > 0)


def test_a_constant_target_is_predicted(data):
    X, _ = data
    mean = FSPRegressor(**{**_SMALL, "steps": 100}).fit(X, np.full(len(X), 42.0)).predict(X)
    np.testing.assert_allclose(mean, 42.0, atol=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "cubic"}, "kernel is 'cubic'; pass one of 'rbf'"),
        ({"method": "magic"}, "method is 'magic'; pass one of 'fsp-laplace'"),
        ({"network": "deep"}, "network is 'deep'; pass widths of hidden layers"),
    ],
)
def test_options_that_do_not_exist_are_named(data, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        FSPRegressor(**{**_SMALL, "fit_prior": False, **options}).fit(*data)


def test_what_another_library_says_of_its_own_arrays_is_said_with_the_argument(data, fitted):
    """Whatever kind of error it is, and however long."""
    gone = jax.numpy.ones((4, 1))
    gone.delete()
    with pytest.raises(TypeError, match="FSPRegressor: X: Array has been deleted"):
        fitted.predict(gone)
    X, _ = data
    with pytest.raises(TypeError, match="FSPRegressor: X or y: ") as said:
        FSPRegressor(**_SMALL).fit(X, eqx.nn.MLP(1, 1, 4, 9, key=jr.key(0)))
    assert len(str(said.value)) < 1000


@pytest.mark.slow
@pytest.mark.parametrize(("network", "rows"), [((8,), 200), ((20,), 300)])
def test_a_network_too_small_for_its_prior_is_not_overconfident(network, rows):
    """What the features miss is noise of new targets, or the evidence finds more noise: else 39 % and 72 % are covered."""
    generator = np.random.default_rng(5)
    X = generator.uniform(-1, 1, (800, 3))
    y = np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1]) + np.sin(3 * X[:, 2]) + 0.1 * generator.normal(size=800)
    model = FSPRegressor(**_SMALL | {"network": network}).fit(X[:rows], y[:rows])
    mean, std = model.predict(X[300:], return_std=True)
    assert 0.8 < np.mean(np.abs(y[300:] - mean) < norm.ppf(0.95) * std) < 0.97
    _, covariance = model.predict(X[300:310], return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), std[:10], rtol=1e-5)
    draws = model.sample_y(X[300:310], n_samples=4000)
    np.testing.assert_allclose(draws.std(axis=1), std[:10], rtol=0.05)


def test_counts_at_repeated_inputs_have_their_noise():
    """Distinct rows alone would say 1.6 times as much, and half of the intervals would hold 70 % of new targets."""
    generator = np.random.default_rng(0)
    X = generator.integers(0, 8, (1500, 2)).astype(float)
    y = np.round(1.5 * np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.43 * generator.normal(size=1500))
    model = FSPRegressor(**_SMALL | {"method": "gp"}).fit(X, y)
    assert model.noise_ == pytest.approx(np.sqrt(0.43**2 + 1 / 12), rel=0.05)
    mean, std = model.predict(X, return_std=True)
    assert 0.42 < np.mean(np.abs(y - mean) < norm.ppf(0.75) * std) < 0.58


@pytest.mark.parametrize(("rows", "columns", "tables"), [(50, 300, 3), (10, 10, 6)])
def test_few_rows_in_many_columns_are_covered(rows, columns, tables):
    """Over several tables: ten rows of a single one say too little about the size of the targets."""
    covered = []
    for seed in range(tables):
        generator = np.random.default_rng(seed)
        X = generator.normal(size=(rows + 300, columns))
        y = np.sin(X @ generator.normal(size=columns) / columns**0.5) + 0.2 * generator.normal(size=rows + 300)
        model = FSPRegressor(random_state=0, method="gp").fit(X[:rows], y[:rows])
        mean, std = model.predict(X[rows:], return_std=True)
        covered.append(np.mean(np.abs(y[rows:] - mean) < norm.ppf(0.95) * std))
    assert 0.8 < np.mean(covered) < 0.97


def test_what_the_fit_of_the_prior_says_is_said(data):
    with pytest.warns(UserWarning, match="fit_prior: y has 2 values for 3 parameters"):
        FSPRegressor(**_SMALL | {"method": "gp", "kernel": "rbf"}).fit(data[0][:2], data[1][:2])


def test_the_verdict_is_the_posteriors_with_what_the_fit_of_the_prior_said(data, fitted, process):
    assert fitted.verdict_.level == fitted.posterior_.verdict.level == "good"
    assert process.verdict_ is None
    with pytest.warns(UserWarning, match="fit_prior: y has 2 values for 3 parameters"):
        few = FSPRegressor(**_SMALL | {"steps": 10}).fit(data[0][:2], data[1][:2])
    assert few.verdict_.level != "good"
    assert any("y has 2 values" in reason for reason in few.verdict_.reasons)


@pytest.mark.slow
def test_works_in_pipeline_search_validation_and_transformed_target(data):
    X, y = data
    quick = FSPRegressor(**{**_SMALL, "steps": 20})
    pipeline = make_pipeline(StandardScaler(), quick)
    search = GridSearchCV(pipeline, {"fspregressor__kernel": ["rbf", "matern52"]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8
    assert cross_val_score(quick, X, y, cv=2).min() > 0.8
    transformed = TransformedTargetRegressor(quick, func=np.arcsinh, inverse_func=np.sinh).fit(X, y)
    assert transformed.score(X, y) > 0.8


@pytest.mark.slow
def test_the_width_follows_the_fitted_prior(data):
    """A curve of half a period is held by the narrowest network; the fit is that of these widths, and says so."""
    chosen = FSPRegressor(**{**_SMALL, "network": "auto"}).fit(*data)
    assert chosen.held_.hidden == (50, 50)
    assert chosen.held_.enough
    assert chosen.score(*data) > 0.95
    np.testing.assert_allclose(
        chosen.predict(data[0]), FSPRegressor(**{**_SMALL, "network": (50, 50)}).fit(*data).predict(data[0]), rtol=1e-6
    )


def test_a_network_by_another_name_is_refused(data):
    with pytest.raises(
        ValueError, match=r"FSPRegressor: network is 'large'; pass widths of hidden layers, 'auto', or a"
    ):
        FSPRegressor(**{**_SMALL, "network": "large"}).fit(*data)


def test_another_number_of_rows_in_the_bucket_compiles_nothing(data, compilations):
    """50 and 55 rows are both padded to 64, in all of `fit_prior`, training, approximation and prediction."""
    X, y = data
    FSPRegressor(**_SMALL).fit(X[:50], y[:50]).predict(X, return_std=True)
    compilations.clear()
    FSPRegressor(**_SMALL).fit(X[:55], y[:55]).predict(X, return_std=True)
    assert len(compilations) == 0


def test_a_target_that_is_constant_leaves_the_kernel_to_the_others():
    generator = np.random.default_rng(3)
    X = generator.normal(size=(30, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * generator.normal(size=30)
    options = {"kernel": "rbf", "method": "gp", "random_state": 0}
    alone = FSPRegressor(**options).fit(X, y)
    both = FSPRegressor(**options).fit(X, np.column_stack([np.ones(30), y]))
    np.testing.assert_allclose(both.noise_[1], alone.noise_, rtol=1e-3)
    np.testing.assert_allclose(both.predict(X)[:, 1], alone.predict(X), atol=1e-3)
    np.testing.assert_allclose(both.predict(X)[:, 0], 1.0, atol=1e-6)
