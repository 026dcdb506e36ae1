"""fit_prior against scikit-learn's optimiser, known parameters, dense references and bad input."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern32, Periodic, SumKernel
from gpjax.kernels import Linear as LinearKernel
from gpjax.parameters import PositiveReal, val
from paramax import non_trainable
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from fsplaplace import Prior
from fsplaplace.likelihoods import Bernoulli, Categorical, Gaussian
from fsplaplace.means import Linear
from fsplaplace.tuning import dirichlet_labels, fit_prior

KEY = jr.key(0)
TRUE = {"kernel.lengthscale": 0.7, "kernel.variance": 2.0, "likelihood.scale": 0.3}


@pytest.fixture(scope="module")
def draw():
    """120 values of a function from a known Gaussian process, with noise."""
    generator = np.random.default_rng(3)
    X = np.sort(generator.uniform(0, 12, (120, 1)), axis=0)
    gram = 2.0 * np.exp(-0.5 * ((X - X.T) / 0.7) ** 2) + 0.09 * np.eye(120)
    return X, np.linalg.cholesky(gram) @ generator.normal(size=120)


@pytest.fixture(scope="module")
def fitted(draw):
    return fit_prior(Prior(RBF()), *draw, key=KEY)


def test_known_parameters_are_recovered_within_their_standard_errors(fitted):
    for name, value in TRUE.items():
        row = fitted.report[name]
        assert 0 < row.standard_error < value
        assert abs(row.after - value) < 2.5 * row.standard_error


def test_the_optimum_without_hyperpriors_is_that_of_scikit_learn(draw):
    X, y = draw
    fitted = fit_prior(Prior(RBF()), X, y, key=KEY, hyperpriors=False, standard_errors=False)
    kernel = sk.ConstantKernel() * sk.RBF() + sk.WhiteKernel()
    peer = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=0).fit(X, y)
    assert fitted.report.value == pytest.approx(peer.log_marginal_likelihood_value_, abs=1e-3)
    found = np.exp(peer.kernel_.theta)
    names = ("kernel.variance", "kernel.lengthscale", "likelihood.scale")
    values = [fitted.report[name].after ** (2 if name == "likelihood.scale" else 1) for name in names]
    np.testing.assert_allclose(values, found, rtol=5e-3)


def test_the_results_carry_the_fitted_values_in_their_own_dtype(fitted):
    kernel = fitted.prior.kernel
    assert val(kernel.lengthscale).dtype == jnp.float32
    np.testing.assert_allclose(val(kernel.lengthscale), fitted.report["kernel.lengthscale"].after, rtol=1e-5)
    np.testing.assert_allclose(fitted.likelihood.scale, fitted.report["likelihood.scale"].after, rtol=1e-5)
    assert "kernel.lengthscale" in str(fitted)


def test_float64_priors_come_back_in_float64(draw):
    with jax.enable_x64(True):
        result = fit_prior(Prior(RBF(lengthscale=jnp.asarray(1.0))), *draw, key=KEY, restarts=1, standard_errors=False)
        assert val(result.prior.kernel.lengthscale).dtype == jnp.float64


def test_parameters_that_are_not_trainable_stay(draw):
    kernel = RBF(lengthscale=non_trainable(PositiveReal(0.4)))
    result = fit_prior(Prior(kernel), *draw, key=KEY, restarts=1)
    assert float(val(result.prior.kernel.lengthscale)) == pytest.approx(0.4)
    assert {row.name for row in result.report.rows} == {"kernel.variance", "likelihood.scale"}


def test_rescaled_data_gives_rescaled_parameters(draw, fitted):
    """Units of 1e-12 and 1e12 change nothing but the units."""
    X, y = draw
    for x_unit, y_unit in ((1e-12, 1e12), (1e12, 1e-12)):
        result = fit_prior(Prior(RBF()), X * x_unit, y * y_unit, key=KEY, restarts=1, standard_errors=False)
        for name, unit in zip(TRUE, (x_unit, y_unit**2, y_unit), strict=True):
            assert result.report[name].after / unit == pytest.approx(fitted.report[name].after, rel=2e-2)


def test_ard_finds_the_column_that_matters():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (60, 2))
    y = np.sin(4 * X[:, 0]) + 0.05 * generator.normal(size=60)
    with pytest.warns(UserWarning, match=r"lengthscale\[1\]"):
        result = fit_prior(Prior(RBF()), X, y, key=KEY, ard=True, restarts=1, standard_errors=False, hyperpriors=False)
    scales = np.asarray(val(result.prior.kernel.lengthscale))
    assert scales.shape == (2,)
    assert scales[1] > 20 * scales[0]
    assert result.report["kernel.lengthscale[1]"].at_bound == "upper"


def test_hyperpriors_keep_a_length_scale_without_evidence_from_its_bound():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (60, 2))
    y = np.sin(4 * X[:, 0]) + 0.05 * generator.normal(size=60)
    result = fit_prior(Prior(RBF()), X, y, key=KEY, ard=True, restarts=1, standard_errors=False)
    scales = np.asarray(val(result.prior.kernel.lengthscale))
    assert scales[1] > 10 * scales[0]
    assert not any(row.at_bound for row in result.report.rows)


def test_the_report_has_the_likelihood_itself_and_names_what_was_maximised(draw, fitted):
    X, y = draw
    length, size, noise = (fitted.report[name].after for name in TRUE)
    gram = size * np.exp(-0.5 * ((X - X.T) / length) ** 2) + noise**2 * np.eye(120)
    assert fitted.report.value == pytest.approx(multivariate_normal(np.zeros(120), gram).logpdf(y), rel=1e-6)
    assert fitted.report.objective == "log marginal likelihood"
    assert "maximised: log marginal likelihood + log hyperprior" in str(fitted)


def test_the_maximum_is_that_of_the_dense_likelihood_with_the_stated_hyperpriors():
    """Few rows, so that the hyperpriors matter: log-normal length scale, variance and noise in units of the data."""
    generator = np.random.default_rng(5)
    X, y = generator.uniform(0, 3, (8, 1)), generator.normal(size=8)
    result = fit_prior(Prior(RBF()), X, y, key=KEY, standard_errors=False)
    spread, location = np.std(y), np.sqrt(2) + np.log(np.ptp(X))

    def negative(log):
        gram = np.exp(log[1]) * np.exp(-0.5 * ((X - X.T) / np.exp(log[0])) ** 2) + np.exp(2 * log[2]) * np.eye(8)
        hyper = (log[0] - location) ** 2 / 3 + (log[1] - 2 * np.log(spread)) ** 2 / 4
        hyper += (log[2] - np.log(0.15 * spread)) ** 2
        return -multivariate_normal(np.zeros(8), gram).logpdf(y) + hyper / 2

    starts = [(a, b, c) for a in (-1.0, 1.0) for b in (-1.0, 0.0) for c in (-2.0, 0.0)]
    best = min((minimize(negative, start) for start in starts), key=lambda found: found.fun)
    assert max(result.report.restarts) == pytest.approx(-best.fun, abs=1e-4)


def test_a_precise_fit_has_its_noise():
    generator = np.random.default_rng(0)
    X = np.sort(generator.uniform(0, 6, (60, 1)), axis=0)
    y = 100 * np.sin(X[:, 0]) + 0.05 * generator.normal(size=60)
    result = fit_prior(Prior(RBF()), X, y, key=KEY, restarts=1, standard_errors=False)
    assert float(result.likelihood.scale) == pytest.approx(0.05, rel=0.25)


def test_noise_is_not_taken_for_a_function_that_is_new_at_each_row():
    """Ten columns of the diabetes table: searches that begin with little noise end with a length scale below one there."""
    X, y = load_diabetes(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(X))[:100]
    X, y = (values[chosen] - values[chosen].mean(axis=0) for values in (X, y))
    X, y = X / X.std(axis=0), y / y.std()

    def fit(lengthscale, noise, **options):
        kernel = SumKernel(kernels=(LinearKernel(variance=0.1), Matern32(lengthscale=jnp.full(10, lengthscale))))
        found = fit_prior(
            Prior(kernel), X, y, Gaussian(noise), key=KEY, ard=True, standard_errors=False, **options
        )  # fmt: skip
        return found.report.trace[-1], float(found.likelihood.scale)

    highest, noise = fit(3.0, 0.1)
    smooth, _ = fit(50.0, 0.7, restarts=1, start="prior")
    rough, _ = fit(3.0, 0.1, restarts=1, start="prior")
    assert rough < smooth - 0.3
    assert highest >= smooth - 1e-3
    assert noise > 0.5


def test_length_scales_move_together_where_rows_are_few():
    """Ten rows in ten columns cannot tell them apart; sixty rows with one column that matters can."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(10, 10)) * np.arange(1, 11)
    few = fit_prior(Prior(RBF()), X, generator.normal(size=10), key=KEY, ard=True, restarts=1, standard_errors=False)
    scales = np.asarray(val(few.prior.kernel.lengthscale))
    spread = [np.median(part[part > 0]) for part in np.abs(X[:, None] - X[None]).transpose(2, 0, 1)]
    np.testing.assert_allclose(scales / scales[0], spread / spread[0], rtol=1e-4)
    assert any("in proportion to the spread" in note for note in few.report.notes)


def test_linear_mean_is_that_of_generalised_least_squares():
    generator = np.random.default_rng(1)
    X = np.linspace(1974, 2024, 60)[:, None]
    y = 1.5 * X[:, 0] - 2000 + np.sin(X[:, 0] / 2) + 0.1 * generator.normal(size=60)
    prior = Prior(RBF(), mean=Linear(jnp.zeros(1)))
    result = fit_prior(prior, X, y, key=KEY, restarts=2)
    length, variance = (result.report[f"kernel.{name}"].after for name in ("lengthscale", "variance"))
    gram = variance * np.exp(-0.5 * ((X - X.T) / length) ** 2)
    inverse = np.linalg.inv(gram + result.report["likelihood.scale"].after ** 2 * np.eye(60))
    design = np.column_stack([X[:, 0], np.ones(60)])
    slope, intercept = np.linalg.solve(design.T @ inverse @ design, design.T @ inverse @ y)
    assert result.report["mean.slope[0]"].after == pytest.approx(slope, rel=1e-4)
    assert result.report["mean.intercept"].after == pytest.approx(intercept, rel=1e-4)
    assert abs(slope - 1.5) < 3 * result.report["mean.slope[0]"].standard_error


def test_period_comes_from_the_data():
    generator = np.random.default_rng(0)
    X = np.sort(generator.uniform(0, 10, (80, 1)), axis=0)
    y = np.sign(np.sin(2 * np.pi * X[:, 0] / 1.3)) + 0.1 * generator.normal(size=80)
    result = fit_prior(Prior(Periodic(period=7.0)), X, y, key=KEY, restarts=1, standard_errors=False)
    assert float(val(result.prior.kernel.period)) == pytest.approx(1.3, rel=1e-2)


@pytest.mark.slow
def test_a_stated_period_is_never_worse_than_one_that_is_fixed():
    """A season on a trend, from poor starts of everything else: where the free period ends, the fixed one is no better."""
    generator = np.random.default_rng(1)
    X = np.linspace(0, 12, 140)[:, None]
    y = 0.3 * (X[:, 0] - 6) ** 2 + np.sin(2 * np.pi * X[:, 0]) + 0.4 * np.cos(4 * np.pi * X[:, 0])
    y = y + 0.05 * generator.normal(size=140)
    values = []
    for period in (1.0, non_trainable(PositiveReal(1.0))):
        kernel = RBF() + Periodic(period=period) * RBF()
        found = fit_prior(Prior(kernel), X, y, key=KEY, restarts=1, standard_errors=False)
        values.append(found.report.value)
    assert values[0] > values[1] - 0.5


def test_per_row_scales_are_kept_and_give_the_dense_optimum():
    generator = np.random.default_rng(2)
    X, scale = np.linspace(0, 5, 40)[:, None], generator.uniform(0.05, 0.8, (40, 1))
    y = np.sin(2 * X) + scale * generator.normal(size=(40, 1))
    result = fit_prior(Prior(RBF()), X, y, Gaussian(scale), key=KEY, restarts=1, hyperpriors=False)

    def negative(log):
        gram = np.exp(log[1]) * np.exp(-0.5 * ((X - X.T) / np.exp(log[0])) ** 2) + np.diag(scale[:, 0] ** 2)
        return -multivariate_normal(np.zeros(40), gram).logpdf(y[:, 0])

    best = minimize(negative, [0.0, 0.0])
    np.testing.assert_allclose(result.report.value, -best.fun, rtol=1e-5)
    np.testing.assert_allclose(val(result.prior.kernel.lengthscale), np.exp(best.x[0]), rtol=1e-2)
    np.testing.assert_allclose(result.likelihood.scale, scale, rtol=1e-6)


def test_labels_are_fitted_with_dense_dirichlet_noise():
    generator = np.random.default_rng(4)
    X = generator.uniform(-1, 1, (30, 1))
    labels = (X[:, 0] > 0).astype(int) + (X[:, 0] > 0.6)
    result = fit_prior(Prior(RBF(), num_outputs=3), X, labels, Categorical(3), key=KEY, restarts=1)
    targets, variances = dirichlet_labels(labels, 3)
    length, size = (result.report[f"kernel.{name}"].after for name in ("lengthscale", "variance"))
    gram = size * np.exp(-0.5 * ((X - X.T) / length) ** 2)
    inverses = [np.linalg.inv(gram + np.diag(column)) for column in variances.T]
    ones = np.ones(30)
    # One constant shared by all classes, which softmax ignores.
    constant = sum(ones @ inverse @ column for inverse, column in zip(inverses, targets.T, strict=True)) / sum(
        ones @ inverse @ ones for inverse in inverses
    )
    dense = sum(
        multivariate_normal(constant * ones, gram + np.diag(noise)).logpdf(column)
        for noise, column in zip(variances.T, targets.T, strict=True)
    )
    assert result.report.value == pytest.approx(dense, rel=1e-6)
    assert result.likelihood == Categorical(3)


def test_minibatches_come_near_the_exact_optimum(draw, fitted):
    result = fit_prior(Prior(RBF()), *draw, key=KEY, restarts=1, exact_rows=60, batch_size=60, steps=60)
    assert result.report.method == "Adam on subsets"
    for name in TRUE:
        exact = fitted.report[name]
        assert abs(result.report[name].after - exact.after) < 3 * exact.standard_error


def test_noise_is_found_where_the_few_rows_of_the_restarts_could_do_without():
    """300 rows of this function have their largest marginal likelihood without noise; all rows have it with 0.1."""
    generator = np.random.default_rng(9)
    X = generator.uniform(-1.7, 1.7, (1200, 4))
    function = 2 * np.sin(2 * X[:, 0]) * np.sin(2 * X[:, 1]) + np.sin(1.5 * X[:, 2] * X[:, 3])
    y = function / function.std() + 0.1 * generator.normal(size=1200)
    result = fit_prior(
        Prior(Matern32()), X, y, key=KEY, ard=True, exact_rows=300, batch_size=300, steps=150, standard_errors=False
    )
    assert result.report.method == "Adam on subsets"
    assert result.report["likelihood.scale"].after == pytest.approx(0.1, rel=0.3)


def test_duplicated_rows_with_different_targets_become_noise():
    X = np.repeat(np.linspace(0, 3, 15), 2)[:, None]
    y = np.sin(X[:, 0]) + np.tile([0.2, -0.2], 15)
    result = fit_prior(Prior(RBF()), X, y, key=KEY, restarts=1, standard_errors=False)
    # Pairs at +-0.2: residual variance 0.04, less what the fit of the mean takes.
    assert float(result.likelihood.scale) == pytest.approx(0.2, rel=0.2)


def test_a_constant_column_is_named_and_the_fit_goes_on():
    generator = np.random.default_rng(0)
    X = np.column_stack([np.linspace(0, 3, 30), np.full(30, 7.0)])
    y = np.sin(2 * X[:, 0]) + 0.1 * generator.normal(size=30)
    with pytest.warns(UserWarning, match="column 1 of X is constant"):
        result = fit_prior(Prior(RBF(lengthscale=jnp.ones(2))), X, y, key=KEY, restarts=1)
    assert result.report["kernel.lengthscale[1]"].fixed
    assert np.all(np.isfinite(np.asarray(val(result.prior.kernel.lengthscale))))


def test_fewer_rows_than_parameters_is_said():
    X, y = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.2]]), np.array([0.0, 1.0, 0.4])
    with pytest.warns(UserWarning, match="values for 4 parameters|ended at a bound|look free of noise") as caught:
        result = fit_prior(Prior(RBF(lengthscale=jnp.ones(2))), X, y, key=KEY, restarts=1)
    assert any("y has 3 values for 4 parameters" in str(warning.message) for warning in caught)
    assert all(np.isfinite(row.after) for row in result.report.rows)


def test_targets_without_noise_are_said():
    X = np.linspace(0, 3, 40)[:, None]
    with pytest.warns(UserWarning, match="look free of noise; likelihood.scale = ") as caught:
        result = fit_prior(Prior(RBF()), X, np.sin(2 * X[:, 0]), Gaussian(0.1), key=KEY, restarts=1)
    assert result.report["likelihood.scale"].is_smallest_noise
    assert not any("likelihood.scale" in str(w.message) for w in caught if "ended at a bound" in str(w.message))


def test_a_period_longer_than_the_data_is_said():
    X = np.linspace(0, 1, 30)[:, None]
    with pytest.warns(UserWarning, match="longer than the data's range|ended at a bound|look free of noise") as caught:
        fit_prior(Prior(Periodic()), X, X[:, 0], key=KEY, restarts=1, standard_errors=False)
    assert any("longer than the data's range of 1" in str(warning.message) for warning in caught)


X, Y = np.linspace(0, 1, 10)[:, None], np.linspace(0, 1, 10)
BAD = {
    "constant target": (dict(y=np.full(10, 3.0)), "output 0 of y is constant"),
    "all rows equal": (dict(X=np.ones((10, 1))), "all rows of X are the same"),
    "one row": (dict(X=X[:1], y=Y[:1]), "at least two rows"),
    "NaN input": (dict(X=np.where(X > 0.5, np.nan, X)), "X has NaN"),
    "NaN target": (dict(y=np.where(Y > 0.5, np.nan, Y)), "y has NaN"),
    "rows differ": (dict(y=Y[:5]), "X has 10 rows"),
    "outputs differ": (dict(y=np.stack([Y, Y], axis=1)), "num_outputs=2"),
    "single class": (dict(y=np.zeros(10, int), likelihood=Bernoulli()), "single class 0"),
    "no restarts": (dict(restarts=0), "restarts is 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_a_reason(case):
    change, message = BAD[case]
    arguments = {"X": X, "y": Y, "likelihood": None, **change}
    with pytest.raises(ValueError, match=message):
        fit_prior(Prior(RBF()), key=KEY, **arguments)


def test_a_separate_kernel_needs_an_output_that_varies():
    y = np.stack([Y, np.full(10, 2.0)], axis=1)
    with pytest.raises(ValueError, match="output 1 of y is constant"):
        fit_prior(Prior([RBF(), Matern32()]), X, y, key=KEY)


def test_wrong_types_are_named():
    with pytest.raises(TypeError, match="RBF"):
        fit_prior(RBF(), X, Y, key=KEY)
