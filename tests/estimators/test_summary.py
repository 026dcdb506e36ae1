"""What an estimator says during and after a fit, against references."""

import html
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels import RBF, Linear, Matern32, Periodic
from gpjax.parameters import val
from sklearn.base import clone

import fsplaplace as fsp
from fsplaplace import methods
from fsplaplace.estimators import Columns, FSPClassifier, FSPRegressor, kernel_by_name
from fsplaplace.estimators._base import Method
from fsplaplace.estimators._summary import feature_relevance, kernel_words

pd = pytest.importorskip("pandas")
SMALL = {"network": (20, 20), "steps": 100, "num_context": 60, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = pd.DataFrame({"age": generator.uniform(20, 80, 40), "height": generator.normal(170, 10, 40)})
    y = 3 * np.sin(X["age"] / 10) + 0.3 * generator.normal(size=40) + 50
    return X, y.to_numpy()


@pytest.fixture(scope="module")
def fitted(data):
    return FSPRegressor(kernel="rbf", **SMALL).fit(*data)


@pytest.mark.slow
def test_the_summary_names_columns_and_units(fitted, data):
    text = str(fitted)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("FSPRegressor, fitted to 40 rows x 2 columns\nverdict: ")
    flat = " ".join(text.split())
    scale = np.asarray(val(fitted.prior_.kernel.lengthscale), float) * fitted.input_scale_.std
    assert f"age {scale[0]:.3g}" in flat
    assert (
        f"noise: standard deviation {fitted.noise_:.3g} (the targets' standard deviation: {np.std(data[1]):.3g})"
        in flat
    )
    assert f"log evidence: {fitted.log_evidence_:.6g}" in flat
    assert "leave-one-out: log density" in flat
    bundle = fitted._repr_mimebundle_()
    assert html.escape(text) in bundle["text/html"]
    assert repr(fitted).startswith("FSPRegressor(")  # the parameters, as scikit-learn prints them
    assert str(clone(fitted)) == repr(clone(fitted))


def test_leave_one_out_scores_are_those_of_the_posterior_in_the_targets_units(fitted, data):
    """Against a new posterior for each of some rows that were left out, with the same features."""
    X, y = (np.asarray(part) for part in data)
    left, scale = fitted.leave_one_out_, float(fitted.target_scale_.std[0])
    with jax.enable_x64(True):
        posterior = fitted._double_posterior()
        local = posterior.local(fitted.input_scale_.apply(X))
        features = np.asarray(local.features, float)[:, 0]
        unexplained = np.asarray(local.unexplained, float)[:, 0]
        mean = np.asarray(local.mean, float)[:, 0]
    noise = (fitted.noise_ / scale) ** 2
    target = fitted.target_scale_.apply(y[:, None])[:, 0]
    taken_as_noise = posterior.diagnostics.missed_as_noise
    added = noise + (unexplained if taken_as_noise else 0.0)
    leverage = np.sum(features**2, axis=1) / (added if taken_as_noise else noise)
    expected = mean - leverage / (1 - leverage) * (target - mean)
    assert left.rmse == pytest.approx(scale * np.sqrt(np.mean((target - expected) ** 2)), rel=1e-3)
    assert left.num_rows == 40
    assert 0.7 < left.coverage <= 1


def test_the_evidence_is_that_of_the_targets_in_their_own_units(fitted, data):
    """Targets in other units: the density of y = c z is that of z over c, for each of n rows."""
    X, y = data
    other = FSPRegressor(kernel="rbf", **SMALL).fit(X, 1000 * y)
    assert other.log_evidence_ == pytest.approx(fitted.log_evidence_ - 40 * np.log(1000), abs=0.05)


def test_relevance_is_the_priors_expected_change(fitted):
    relevance = fitted.feature_relevance_
    assert relevance.shape == (2,)
    assert relevance[0] > 5 * relevance[1]  # the target does not depend on height
    X = np.random.default_rng(1).normal(size=(30, 2))
    prior = fsp.Prior(RBF(lengthscale=jnp.array([0.5, 3.0]), variance=2.0))
    closed = np.sqrt(2 * 2.0 * (1 - np.exp(-0.5 / np.array([0.5, 3.0]) ** 2)))
    np.testing.assert_allclose(feature_relevance(prior, X, np.array([7.0])), 7 * closed, rtol=1e-5)
    linear = fsp.Prior(Linear(variance=4.0), num_outputs=2)
    np.testing.assert_allclose(feature_relevance(linear, X, np.ones(2)), [2.0, 2.0], rtol=1e-5)


def test_kernels_in_words():
    columns = Columns(("t", "age"), np.array([2.0, 10.0]), 3.0)
    kernel = Linear(active_dims=[1]) + Periodic(period=0.5, active_dims=[0]) * Matern32(
        lengthscale=1.0, active_dims=[0]
    )
    assert kernel_words(kernel, columns) == (
        "[trend (Linear) of age] + [[repeats (Periodic) of t: period 1, size 3] x [slightly rough (Matern32) of t: "
        "length scale 2, size 1]]"
    )


def test_a_product_has_the_units_of_the_target_once():
    """Its first stated variance has them: targets of spread 3 divide the product by 9, however it is written."""
    columns, x = Columns(("t",), np.array([1.0]), 3.0), jnp.zeros((1, 1))
    for text in (
        "rbf(1, variance=18) * periodic(1, variance=1)",
        "rbf(1, variance=9) * periodic(1, variance=2)",
        "(rbf(1, variance=9) + rbf(2, variance=9)) * periodic(1, variance=1)",
        "linear + periodic(1) * rbf(1, variance=18)",
    ):
        found = fsp.Prior(kernel_by_name(text, 1, ard=True, columns=columns)).variance(x)
        assert float(found[0, 0]) == pytest.approx(2.0)


def test_a_kernel_of_text_keeps_what_it_states():
    """The text's kernel is the one written by hand in standardised units."""
    columns = Columns(("t", "age"), np.array([2.0, 10.0]), 3.0)
    built = kernel_by_name(
        "linear(age) + periodic(1, lengthscale=0.7, t) * rbf(5, variance=9, t)", 2, ard=True, columns=columns
    )
    by_hand = Linear(active_dims=[1]) + Periodic(period=0.5, lengthscale=0.7, active_dims=[0]) * RBF(
        lengthscale=2.5, variance=1.0, active_dims=[0]
    )
    x = jnp.asarray(np.random.default_rng(0).normal(size=(9, 2)), jnp.float32)
    np.testing.assert_allclose(fsp.Prior(built).gram(x), fsp.Prior(by_hand).gram(x), rtol=1e-5, atol=1e-6)
    fixed = fsp.fit_prior(
        fsp.Prior(built), np.asarray(x), np.sin(np.asarray(x)[:, 0]), key=0, restarts=1, standard_errors=False
    ).prior  # fmt: skip
    product = fixed.kernel.kernels[1].kernels
    stated = [
        val(product[0].period),
        val(product[0].lengthscale),
        val(product[1].lengthscale),
        val(product[1].variance),
    ]
    np.testing.assert_allclose(np.asarray(stated, float), [0.5, 0.7, 2.5, 1.0], rtol=1e-5)


def test_every_phase_has_a_line(data, capsys):
    FSPRegressor(kernel="rbf", fit_prior=False, progress=True, **SMALL).fit(*data)
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["prior", "network", "training", "posterior"]
    assert "RBF" in said[0]
    assert "20 x 20 units" in said[1]
    assert "100 steps" in said[2]
    assert "verdict" in said[3]
    assert max(map(len, said)) <= 80
    FSPRegressor(kernel="rbf", fit_prior=False, **SMALL).fit(*data)
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [FSPRegressor, FSPClassifier])
def test_an_interrupted_fit_leaves_the_estimator_as_it_was(estimator, data, fitted, monkeypatch):
    X, y = np.asarray(data[0]), np.asarray(data[1]) > 50
    model = estimator(kernel="rbf", fit_prior=False, **SMALL)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fsplaplace.estimators._base.approximate", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        model.fit(X, y)
    assert "nothing was kept, it is not fitted" in caught.value.__notes__[-1]
    assert vars(model) == vars(clone(model))
    if estimator is FSPRegressor:
        before, again = fitted.predict(data[0]), vars(fitted).copy()
        with pytest.raises(KeyboardInterrupt) as caught:
            fitted.fit(X[:20, :1], y[:20])
        assert "the earlier fit is kept" in caught.value.__notes__[-1]
        assert vars(fitted) == again
        np.testing.assert_array_equal(fitted.predict(data[0]), before)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel", 3), ("kernel", "rbf("), ("ard", "yes"), ("network", "big"), ("network", ()), ("network", (0,)), ("method", "magic"),
        ("steps", 0), ("steps", 1.5), ("num_context", -1), ("standardize", None), ("fit_prior", 2), ("random_state", "a"), ("progress", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("estimator", [FSPRegressor, FSPClassifier])
def test_every_parameter_is_checked_before_anything_is_computed(estimator, name, value, monkeypatch):
    for step in ("_evidence.fit_prior", "_base.approximate", "_base.mlp"):
        monkeypatch.setattr(f"fsplaplace.estimators.{step}", lambda *_, **__: pytest.fail("computed first"))
    X = np.arange(12.0)[:, None]
    with pytest.raises((TypeError, ValueError), match=rf"{name}|{'seed' if name == 'random_state' else name}"):
        estimator(**{name: value}).fit(X, X[:, 0] > 5)


def test_the_methods_that_may_be_named_are_those_there_are():
    assert set(typing.get_args(Method)) == set(methods.names())
