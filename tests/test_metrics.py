import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.tree import DecisionTreeClassifier

from fsplaplace import metrics

REGRESSION = [metrics.expected_log_likelihood, metrics.log_predictive_density]
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-12}


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param is np.float64):
        yield request.param


def regression_problem(dtype=np.float64, shape=(40, 3), seed=0):
    rng = np.random.default_rng(seed)
    y, mean = rng.normal(size=shape), rng.normal(size=shape)
    variance = rng.uniform(0.05, 2.0, size=shape)
    return y.astype(dtype), mean.astype(dtype), variance.astype(dtype)


def classification_problem(dtype=np.float64, num_samples=7, num_points=200, num_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=num_points)
    logits = rng.normal(scale=1.5, size=(num_samples, num_points, num_classes))
    logits += 2.0 * np.eye(num_classes)[labels]
    return labels, logits.astype(dtype)


def softmax(logits):
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


# --- Gaussian regression


@pytest.mark.parametrize("noise_shape", [(), (3,), (40, 3)])
def test_log_predictive_density_is_the_normal_density_with_added_variances(dtype, noise_shape):
    y, mean, variance = regression_problem(dtype)
    noise = np.random.default_rng(1).uniform(0.2, 1.0, size=noise_shape).astype(dtype)
    value = metrics.log_predictive_density(y, mean, variance, noise_variance=noise)
    dense = scipy.stats.norm.logpdf(*np.float64([y, mean, np.sqrt(variance + noise)])).sum(1).mean()
    assert value.dtype == dtype
    np.testing.assert_allclose(value, dense, rtol=TOLERANCE[dtype])


def test_expected_log_likelihood_is_the_integral_of_the_log_density(dtype):
    y, mean, variance = regression_problem(dtype, shape=(5,))
    noise = 0.3

    def expectation(y, mean, variance):
        weights = scipy.stats.norm(mean, np.sqrt(variance))
        return weights.expect(lambda f: scipy.stats.norm.logpdf(y, f, np.sqrt(noise)), epsabs=1e-12, epsrel=1e-12)

    dense = np.mean([expectation(*np.float64(row)) for row in zip(y, mean, variance, strict=True)])
    value = metrics.expected_log_likelihood(y, mean, variance, noise_variance=noise)
    np.testing.assert_allclose(value, dense, rtol=max(TOLERANCE[dtype], 1e-8))


@pytest.mark.parametrize("metric", REGRESSION)
def test_likelihood_scores_match_monte_carlo_over_correlated_outputs(metric):
    rng = np.random.default_rng(3)
    y, mean = rng.normal(size=2), rng.normal(size=2)
    covariance, noise = np.array([[1.0, 0.8], [0.8, 1.5]]), np.array([0.7, 1.1])
    if metric is metrics.log_predictive_density:  # a sum of marginals is the joint density only without correlation
        covariance = np.diag(np.diag(covariance))
    samples = rng.multivariate_normal(mean, covariance, size=400_000)
    log_likelihoods = scipy.stats.norm.logpdf(y, samples, np.sqrt(noise)).sum(1)
    dense = {
        metrics.expected_log_likelihood: log_likelihoods.mean(),
        metrics.log_predictive_density: np.log(np.exp(log_likelihoods).mean()),
    }[metric]
    with jax.enable_x64(True):
        value = metric(y[None], mean[None], np.diag(covariance)[None], noise_variance=noise)
    np.testing.assert_allclose(value, dense, atol=0.02)


def test_expected_log_likelihood_penalises_variance_and_stays_below_the_density():
    y, mean, variance = regression_problem()
    expected, density = (f(y, mean, variance, noise_variance=0.5, per_point=True) for f in REGRESSION)
    wider = metrics.expected_log_likelihood(y, mean, 2 * variance, noise_variance=0.5, per_point=True)
    assert (expected < density).all()
    assert (wider < expected).all()
    np.testing.assert_allclose(*(f(y, mean, 0 * variance, noise_variance=0.5) for f in REGRESSION), rtol=1e-6)


def test_per_point_noise_of_a_single_output_is_not_broadcast_against_points():
    y, mean, variance = regression_problem(np.float32, shape=(6,))
    noise = np.linspace(0.1, 1.0, 6, dtype=np.float32)
    value = metrics.log_predictive_density(y, mean[:, None], variance, noise_variance=noise, per_point=True)
    assert value.shape == (6,)
    np.testing.assert_allclose(value, scipy.stats.norm.logpdf(y, mean, np.sqrt(variance + noise)), rtol=1e-5)


def test_errors_average_over_points_and_outputs(dtype):
    y, mean, _ = regression_problem(dtype)
    np.testing.assert_allclose(metrics.mse(y, mean), np.square(y - mean).mean(), rtol=1e-6)
    np.testing.assert_allclose(metrics.rmse(y, mean) ** 2, metrics.mse(y, mean), rtol=1e-6)


def test_crps_is_the_integrated_squared_distance_of_distribution_functions(dtype):
    y, mean, variance = regression_problem(dtype, shape=(4, 2))
    std = np.sqrt(variance)

    def integral(y, mean, std):
        below, _ = scipy.integrate.quad(lambda t: scipy.stats.norm.cdf(t, mean, std) ** 2, -np.inf, y)
        above, _ = scipy.integrate.quad(lambda t: scipy.stats.norm.sf(t, mean, std) ** 2, y, np.inf)
        return below + above

    dense = np.vectorize(integral)(*np.float64([y, mean, std])).mean()
    np.testing.assert_allclose(metrics.crps(y, mean, std), dense, rtol=1e-5 if dtype is np.float32 else 1e-7)


def test_crps_of_a_vanishing_std_is_the_absolute_error():
    y, mean = jnp.array([1.0, -2.0]), jnp.array([0.5, 1.0])
    # A few roundings of float32; the default of 1e-7 is less than one.
    rounding = 4 * np.finfo(np.float32).eps
    np.testing.assert_allclose(metrics.crps(y, mean, jnp.zeros(2), per_point=True), [0.5, 3.0], rtol=rounding)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_coverage_of_a_true_model_is_the_level_and_width_the_quantile_range(dtype, level):
    std = np.full(100_000, 2.0, dtype)
    y = (std * np.random.default_rng(0).normal(size=std.size)).astype(dtype)
    lower, upper = scipy.stats.norm.interval(level, 0, 2.0)
    assert metrics.interval_coverage(y, 0 * y, std, level=level) == pytest.approx(level, abs=5e-3)
    np.testing.assert_allclose(
        metrics.interval_coverage(y, 0 * y, std, level=level), np.mean((lower <= y) & (y <= upper)), atol=1e-4
    )
    np.testing.assert_allclose(metrics.interval_width(std, level=level), upper - lower, rtol=1e-4)


# --- Classification


def test_log_predictive_density_is_minus_the_log_loss_of_averaged_probabilities(dtype):
    labels, logits = classification_problem(dtype)
    dense = -log_loss(labels, softmax(np.float64(logits)).mean(0))
    rtol = TOLERANCE[dtype]
    np.testing.assert_allclose(metrics.log_predictive_density_from_logits(labels, logits), dense, rtol=rtol)
    probabilities = metrics.predictive_probabilities(logits)
    from_probabilities = metrics.log_predictive_density_from_probabilities(labels, probabilities)
    np.testing.assert_allclose(from_probabilities, dense, rtol=rtol)


def test_expected_log_likelihood_averages_the_log_losses_of_samples(dtype):
    labels, logits = classification_problem(dtype)
    dense = -np.mean([log_loss(labels, softmax(np.float64(sample))) for sample in logits])
    value = metrics.expected_log_likelihood_from_logits(labels, logits)
    assert value.dtype == dtype
    np.testing.assert_allclose(value, dense, rtol=TOLERANCE[dtype])
    assert value < metrics.log_predictive_density_from_logits(labels, logits)


def test_one_sample_makes_both_likelihood_scores_equal():
    labels, logits = classification_problem(np.float32, num_samples=1)
    expected = metrics.expected_log_likelihood_from_logits(labels, logits, per_point=True)
    density = metrics.log_predictive_density_from_logits(labels, logits, per_point=True)
    np.testing.assert_allclose(expected, density, rtol=1e-6)


def test_likelihood_scores_survive_logits_whose_probabilities_underflow():
    logits = jnp.array([[[0.0, 500.0]], [[0.0, 600.0]]])
    labels = jnp.array([0])
    np.testing.assert_allclose(metrics.expected_log_likelihood_from_logits(labels, logits), -550.0)
    np.testing.assert_allclose(metrics.log_predictive_density_from_logits(labels, logits), -500 - np.log(2), rtol=1e-6)


def test_probability_zero_is_not_clipped():
    probabilities = jnp.array([[1.0, 0.0]])
    assert metrics.log_predictive_density_from_probabilities(jnp.array([1]), probabilities) == -jnp.inf
    assert metrics.predictive_entropy(probabilities) == 0.0


def test_accuracy_and_brier_score_match_their_definitions(dtype):
    labels, logits = classification_problem(dtype)
    probabilities = softmax(logits).mean(0)
    assert metrics.accuracy(labels, probabilities) == pytest.approx(
        (probabilities.argmax(1) == labels).mean(), rel=1e-6
    )
    # The mean squared distance to the labels as vectors, as scikit-learn from 1.8 on has it, too, with scale_by_half=False.
    dense = np.mean(np.sum((probabilities - np.eye(probabilities.shape[1])[labels]) ** 2, axis=1))
    np.testing.assert_allclose(metrics.brier_score(labels, probabilities), dense, rtol=TOLERANCE[dtype])


def test_calibration_error_matches_a_loop_over_bins(dtype):
    labels, logits = classification_problem(dtype)
    probabilities = softmax(logits).mean(0)
    confidence, hits = probabilities.max(1), probabilities.argmax(1) == labels
    dense = 0.0
    for b in range(15):
        inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
        if inside.any():
            dense += inside.mean() * abs(hits[inside].mean() - confidence[inside].mean())
    np.testing.assert_allclose(metrics.expected_calibration_error(labels, probabilities), dense, rtol=1e-5)


def test_calibration_error_of_certain_predictions_is_the_error_rate():
    probabilities = jnp.eye(2)[jnp.array([0, 0, 0, 1])] * (1 + 1e-6)  # rounding may push a softmax above one
    labels = jnp.array([0, 0, 1, 1])
    np.testing.assert_allclose(metrics.expected_calibration_error(labels, probabilities), 0.25, atol=1e-5)


def test_calibrated_predictions_have_vanishing_calibration_error():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=200_000).astype(np.float32)
    labels = (rng.uniform(size=p.size) < p).astype(int)
    assert metrics.expected_calibration_error(labels, np.stack([1 - p, p], 1)) < 5e-3


def test_entropies_match_scipy_and_information_is_their_difference(dtype):
    _, logits = classification_problem(dtype)
    probabilities = softmax(np.float64(logits))
    total = scipy.stats.entropy(probabilities.mean(0), axis=-1)
    aleatoric = scipy.stats.entropy(probabilities, axis=-1).mean(0)
    tolerance = dict(rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(metrics.predictive_entropy(metrics.predictive_probabilities(logits)), total, **tolerance)
    np.testing.assert_allclose(metrics.expected_entropy(logits), aleatoric, **tolerance)
    np.testing.assert_allclose(metrics.mutual_information(logits), total - aleatoric, **tolerance)


def test_mutual_information_of_agreeing_samples_keeps_its_digits_in_float32():
    # Two classes, logits +-h: p = 1/2 +- h/2, so that I = h^2 / 2 to leading order, 5e-9 here.
    h = 1e-4
    logits = jnp.array([[[h, -h]], [[-h, h]]], jnp.float32)
    np.testing.assert_allclose(metrics.mutual_information(logits), h**2 / 2, rtol=0.02)


def test_mutual_information_of_certain_and_opposed_samples_is_one_bit():
    logits = jnp.array([[[0.0, -jnp.inf, -jnp.inf]], [[-jnp.inf, 0.0, -jnp.inf]]])
    np.testing.assert_allclose(metrics.mutual_information(logits), np.log(2), rtol=1e-6)


# --- Out-of-distribution detection


def scores(seed, *, ties, num_in=60, num_out=45):
    rng = np.random.default_rng(seed)
    inside, outside = rng.normal(size=num_in), rng.normal(1.0, size=num_out)
    return (np.round(inside, 0), np.round(outside, 0)) if ties else (inside, outside)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_ood_accuracy_is_the_best_over_all_thresholds(seed, ties):
    inside, outside = scores(seed, ties=ties)
    thresholds = np.concatenate([[-np.inf], inside, outside])
    dense = max(((inside <= t).sum() + (outside > t).sum()) / (inside.size + outside.size) for t in thresholds)
    assert metrics.ood_accuracy(inside, outside) == pytest.approx(dense, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_ood_accuracy_is_never_below_a_decision_stump(seed):
    inside, outside = scores(seed, ties=False)
    X, y = np.concatenate([inside, outside])[:, None], np.repeat([0, 1], [inside.size, outside.size])
    stump = DecisionTreeClassifier(max_depth=1).fit(X, y)
    assert metrics.ood_accuracy(inside, outside) >= stump.score(X, y) - 1e-6


def test_ood_accuracy_of_separable_and_of_inverted_scores():
    low, high = jnp.arange(3.0), jnp.arange(10.0, 17.0)
    assert metrics.ood_accuracy(low, high) == 1.0
    assert metrics.ood_accuracy(high, low) == pytest.approx(0.7)  # calls nothing out-of-distribution
    assert metrics.auroc(low, high) == 1.0
    assert metrics.auroc(high, low) == 0.0


@pytest.mark.parametrize("ties", [False, True])
def test_auroc_matches_scikit_learn(dtype, ties):
    inside, outside = scores(0, ties=ties)
    dense = roc_auc_score(np.repeat([0, 1], [inside.size, outside.size]), np.concatenate([inside, outside]))
    np.testing.assert_allclose(metrics.auroc(inside.astype(dtype), outside.astype(dtype)), dense, rtol=1e-6)


# --- Every metric


def every_metric():
    y, mean, variance = regression_problem(np.float32)
    labels, logits = classification_problem(np.float32)
    probabilities = softmax(logits).mean(0)
    inside, outside = (np.float32(s) for s in scores(0, ties=False))
    return {
        metrics.expected_log_likelihood: ((y, mean, variance), {"noise_variance": 0.3}),
        metrics.log_predictive_density: ((y, mean, variance), {"noise_variance": 0.3}),
        metrics.mse: ((y, mean), {}),
        metrics.rmse: ((y, mean), {}),
        metrics.crps: ((y, mean, variance), {}),
        metrics.interval_coverage: ((y, mean, variance), {}),
        metrics.interval_width: ((variance,), {}),
        metrics.expected_log_likelihood_from_logits: ((labels, logits), {}),
        metrics.log_predictive_density_from_logits: ((labels, logits), {}),
        metrics.log_predictive_density_from_probabilities: ((labels, probabilities), {}),
        metrics.predictive_probabilities: ((logits,), {}),
        metrics.accuracy: ((labels, probabilities), {}),
        metrics.expected_calibration_error: ((labels, probabilities), {}),
        metrics.brier_score: ((labels, probabilities), {}),
        metrics.predictive_entropy: ((probabilities,), {}),
        metrics.expected_entropy: ((logits,), {}),
        metrics.mutual_information: ((logits,), {}),
        metrics.ood_accuracy: ((inside, outside), {}),
        metrics.auroc: ((inside, outside), {}),
    }


@pytest.mark.parametrize("metric", every_metric(), ids=lambda f: f.__name__)
def test_metric_is_the_same_under_jit(metric):
    arguments, options = every_metric()[metric]
    compiled = jax.jit(lambda *a: metric(*a, **options))(*arguments)
    np.testing.assert_allclose(compiled, metric(*arguments, **options), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("metric", every_metric(), ids=lambda f: f.__name__)
def test_a_nan_prediction_never_gives_a_score(metric):
    arguments, options = every_metric()[metric]
    *others, predictions = arguments
    spoiled = np.array(predictions)
    spoiled[0] = np.nan
    assert np.isnan(metric(*others, spoiled, **options)).any()


@pytest.mark.parametrize("metric", every_metric(), ids=lambda f: f.__name__)
def test_empty_and_misshapen_arguments_are_refused_by_name(metric):
    arguments, options = every_metric()[metric]
    with pytest.raises(ValueError, match=r"empty|n > 0"):
        metric(*(a[..., :0] if a.ndim == 1 else a[..., :0, :] for a in arguments), **options)
    with pytest.raises(ValueError, match="has shape"):
        metric(*arguments[:-1], arguments[-1][None, None], **options)


def test_a_transposed_mean_is_refused_instead_of_broadcast():
    with pytest.raises(ValueError, match=r"mean has shape \(1, 4\), but y has \(4,\)"):
        metrics.mse(np.zeros(4), np.zeros((1, 4)))


@pytest.mark.parametrize("noise_variance", [np.ones(2), np.ones((40, 1))])
def test_noise_of_a_wrong_shape_is_refused(noise_variance):
    with pytest.raises(ValueError, match=r"noise_variance has shape .*pass a scalar, \(3,\)"):
        metrics.log_predictive_density(*regression_problem(), noise_variance=noise_variance)


@pytest.mark.parametrize("level", [0.0, 1.0, 90])
def test_levels_outside_the_unit_interval_are_refused(level):
    with pytest.raises(ValueError, match=f"level is {level}"):
        metrics.interval_width(np.ones(3), level=level)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            [0, 4],
            r"labels run from 0 to 4, but the predictions \(probabilities or logits\) have 4 classes; pass indices 0 to 3",
        ),
        ([-1, 0], "labels run from -1"),
        ([0.0, 1.0], "labels has dtype float32"),
        ([0, 1, 2], r"labels has shape \(3,\); pass \(2,\)"),
    ],
)
def test_labels_that_name_no_class_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        metrics.accuracy(np.array(labels), np.full((2, 4), 0.25))
    with pytest.raises(ValueError, match=message):
        metrics.expected_log_likelihood_from_logits(np.array(labels), np.zeros((3, 2, 4)))


@pytest.mark.parametrize(
    "metric",
    [
        metrics.accuracy,
        metrics.brier_score,
        metrics.expected_calibration_error,
        metrics.log_predictive_density_from_probabilities,
        lambda _, probabilities: metrics.predictive_entropy(probabilities),
    ],
)
@pytest.mark.parametrize("values", [[[2.0, -1.0], [0.0, 3.0]], [[0.5, 0.4], [0.5, 0.5]], [[50.0, 50.0], [90.0, 10.0]]])
def test_what_are_no_probabilities_is_refused(metric, values):
    """Logits, rows that lack a class, percentages."""
    with pytest.raises(
        ValueError, match=r"probabilities run from .*, and their rows add up to .*, not to 1; pass prob"
    ):
        metric([0, 1], np.array(values))


def test_no_bins_are_refused():
    with pytest.raises(ValueError, match="num_bins is 0"):
        metrics.expected_calibration_error(np.array([0]), np.ones((1, 2)), num_bins=0)
