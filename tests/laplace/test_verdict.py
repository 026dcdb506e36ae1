"""Never silently wrong: exact prior variances at every input, and a verdict that says what was lost."""

import re

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import references
from gpjax.kernels import RBF, Matern12, Matern32
from scipy.spatial import KDTree
from scipy.stats import poisson

import fsplaplace as fsp
from fsplaplace.laplace import _choices
from fsplaplace.laplace._data import Part, Rows
from fsplaplace.laplace._problem import new_inputs

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(60, 1))
Y = np.sin(6 * X[:, 0]) + 0.1 * GENERATOR.normal(size=60)
CONTEXT = fsp.context.Uniform(-1.5, 1.5)
# Between the context points, at them, and three and ten times as far out.
EVERYWHERE = np.concatenate([np.linspace(-1.5, 1.5, 501), np.linspace(-15, 15, 101)])[:, None]
PRIORS = {
    "RBF": fsp.Prior(RBF(lengthscale=0.3)),
    "short RBF": fsp.Prior(RBF(lengthscale=0.03, variance=4.0)),
    "Matern-1/2": fsp.Prior(Matern12(lengthscale=0.3)),
}
LIKELIHOODS = {"Gaussian": fsp.likelihoods.Gaussian(0.1), "Bernoulli": fsp.likelihoods.Bernoulli()}


def fit(prior, likelihood=LIKELIHOODS["Gaussian"], width=20, num_points=60, **options):
    model = fsp.as_model(fsp.mlp([width, width], prior=prior, context=CONTEXT, key=jr.key(0)))
    targets = Y > 0 if isinstance(likelihood, fsp.likelihoods.Bernoulli) else Y
    points = np.linspace(-1.5, 1.5, num_points)[:, None]
    return fsp.laplace(model, prior, likelihood, X, targets, context_points=points, **options)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["dense", "normal-equations", "golub-kahan"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("name", PRIORS)
def test_the_posterior_variance_never_exceeds_the_priors(name, likelihood, solver):
    prior = PRIORS[name]
    prediction = fit(prior, LIKELIHOODS[likelihood], solver=solver).predict(EVERYWHERE)
    stated = np.asarray(prior.variance(jnp.asarray(EVERYWHERE)))
    assert np.all(np.asarray(prediction.variance) <= stated * (1 + 1e-4))
    np.testing.assert_array_equal(prediction.outside, np.abs(EVERYWHERE[:, 0]) > 1.5)


@pytest.mark.parametrize("name", PRIORS)
def test_without_data_to_learn_from_the_prior_variance_is_exact_everywhere(name):
    """One row with noise of a million: what is left is the prior, between context points and far outside, too."""
    prior = PRIORS[name]
    model = fsp.as_model(fsp.mlp([20, 20], prior=prior, context=CONTEXT, key=jr.key(0)))
    points = np.linspace(-1.5, 1.5, 60)[:, None]
    posterior = fsp.laplace(model, prior, fsp.likelihoods.Gaussian(1e6), X[:1], Y[:1], context_points=points)
    stated = np.asarray(prior.variance(jnp.asarray(EVERYWHERE)))
    np.testing.assert_allclose(posterior.predict(EVERYWHERE).variance, stated, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["refined", "network"])
@pytest.mark.parametrize(
    "kernel", [RBF(lengthscale=1.0), RBF(lengthscale=3.0, variance=4.0), Matern32(lengthscale=2.0)]
)
def test_the_prior_returns_outside_the_context_region(kernel, mean):
    """Saturated features are as sure as at the border: half the prior's std, and a mean one std off, at ten ranges."""
    prior = fsp.Prior(kernel, mean=5.0)
    model = fsp.as_model(fsp.mlp([20, 20], prior=prior, context=CONTEXT, key=jr.key(0)))
    points = np.linspace(-1.5, 1.5, 60)[:, None]
    posterior = fsp.laplace(model, prior, LIKELIHOODS["Gaussian"], X, Y + 5, context_points=points, mean=mean)
    size = float(np.sqrt(prior.variance(jnp.zeros((1, 1)))[0, 0]))
    far = posterior.predict(np.array([[-30.0], [15.0], [40.0]]))
    np.testing.assert_allclose(far.std, size, rtol=0.02)
    np.testing.assert_allclose(far.mean, 5.0, atol=0.02 * size)
    # Nothing jumps at the border.
    at = posterior.predict(np.array([[1.5 - 1e-4], [1.5 + 1e-4]]))
    np.testing.assert_allclose(at.std[0], at.std[1], atol=1e-3 * size)
    np.testing.assert_allclose(at.mean[0], at.mean[1], atol=2e-3 * size)
    # On the way the exact process is between: the nearest point of the region tells part of what all of it tells.
    way = np.linspace(1.5, 8, 40)[:, None]
    stated = lambda a, b: np.asarray(prior.covariance(jnp.asarray(a), jnp.asarray(b)))[:, 0, :, 0]  # noqa: E731
    process = references.exact_gp(stated(X, X), stated(way, X), stated(way, way), Y, np.array(0.1))
    assert np.sqrt(np.mean((np.asarray(posterior.predict(way).std)[:, 0] - process.std) ** 2)) < 0.15 * size


@pytest.mark.slow
def test_covariances_and_samples_have_the_predicted_variance_and_belong_to_the_input():
    posterior = fit(PRIORS["short RBF"])
    x = np.concatenate([EVERYWHERE[::50], EVERYWHERE[:1]])
    prediction = posterior.predict(x)
    assert float(np.max(prediction.unexplained)) > 0.1
    covariance = np.asarray(posterior.covariance(x), dtype=float)[:, 0, :, 0]
    np.testing.assert_allclose(np.diagonal(covariance), prediction.variance[:, 0], rtol=1e-4)
    # The last input is the first again.
    np.testing.assert_allclose(covariance[0], covariance[-1], atol=1e-5)
    assert np.linalg.eigvalsh(covariance).min() > -1e-4
    separate = np.asarray(posterior.covariance(x, joint=False))[:, 0, 0]
    np.testing.assert_allclose(separate, prediction.variance[:, 0], rtol=1e-4)
    draws = np.asarray(posterior.sample(x, key=jr.key(1), num_samples=4000), dtype=float)[:, :, 0]
    np.testing.assert_allclose(draws[:, 0], draws[:, -1], atol=1e-3)
    # Four standard errors of a variance from 4,000 draws: 9 %.
    np.testing.assert_allclose(np.var(draws, axis=0), prediction.variance[:, 0], rtol=0.09)
    some = np.asarray(posterior.sample(x[3:5], key=jr.key(1), num_samples=7))[:, :, 0]
    np.testing.assert_allclose(some, draws[:7, 3:5], atol=1e-3)


@pytest.mark.slow
def test_predictions_of_normalised_features_are_differentiable_in_the_input(x64):
    posterior = fit(PRIORS["short RBF"])
    for output in ("mean", "variance"):
        value = lambda at: getattr(posterior.predict(at[None, None]), output)[0, 0]  # noqa: B023, E731
        for at in (0.013, 1.21, 1.6, 4.0):
            numerical = (value(jnp.asarray(at + 1e-6)) - value(jnp.asarray(at - 1e-6))) / 2e-6
            assert float(jax.grad(value)(jnp.asarray(at))) == pytest.approx(float(numerical), rel=1e-3, abs=1e-6)


def exact(x, lengthscale):
    kernel = lambda a, b: references.rbf(a, b, lengthscale)  # noqa: E731
    return references.exact_gp(kernel(X, X), kernel(x, X), kernel(x, x), Y, np.array(0.1))


@pytest.mark.parametrize(("lengthscale", "width"), [(0.1, 50), (0.05, 50), (0.05, 100)])
def test_no_spikes_between_context_points(lengthscale, width):
    """Total standard deviation over the exact one; 3.97 and 3.7 times before the features were normalised."""
    prior, x = fsp.Prior(RBF(lengthscale=lengthscale)), np.linspace(-1.4, 1.4, 401)[:, None]
    total = np.sqrt(np.asarray(fit(prior, width=width, num_points=300).predict(x).total_variance)[:, 0])
    ratio = total / np.sqrt(exact(x, lengthscale).std ** 2 + 0.01)
    assert ratio.max() < 1.2
    assert ratio.min() > 0.8


@pytest.mark.parametrize("sizes", [(0.01, 100.0), (1.0, 1.0)])
def test_outputs_of_any_scale_share_a_network(sizes):
    """Standard deviations over the exact ones were .74 to 1.58 for outputs of .01 and 100."""
    prior = fsp.Prior([RBF(lengthscale=0.3, variance=size**2) for size in sizes])
    scale = 0.1 * np.array(sizes)
    targets = np.stack([size * Y for size in sizes], axis=1)
    model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=CONTEXT, key=jr.key(0)))
    points = np.linspace(-1.5, 1.5, 100)[:, None]
    posterior = fsp.laplace(model, prior, fsp.likelihoods.Gaussian(scale), X, targets, context_points=points)
    x = np.linspace(-1.2, 1.2, 50)[:, None]
    prediction, process = posterior.predict(x), exact(x, 0.3)
    for output, size in enumerate(sizes):
        np.testing.assert_allclose(prediction.std[:, output] / size, process.std, rtol=0.01)
        np.testing.assert_allclose(prediction.mean[:, output] / size, process.mean, atol=0.005)
    assert posterior.verdict.level == "good"


@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_a_network_that_holds_the_prior_is_called_good(offset):
    prior = fsp.Prior(RBF(lengthscale=0.3), mean=offset)
    model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=CONTEXT, key=jr.key(0)))
    posterior = fsp.laplace(
        model, prior, fsp.likelihoods.Gaussian(0.1), X, Y + offset, context_points=EVERYWHERE[:501:5]
    )
    assert posterior.verdict.level == "good"
    assert posterior.verdict.loss < 0.001
    assert str(posterior).startswith("Verdict: good: about")


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_network_too_small_for_its_prior_is_not_called_good(likelihood):
    prior = fsp.Prior(RBF(lengthscale=0.02, variance=4.0))
    with pytest.warns(fsp.VerdictWarning, match="laplace: this posterior: .* use a wider network"):
        posterior = fit(prior, LIKELIHOODS[likelihood], width=4)
    assert posterior.verdict.level != "good"
    assert any("times the prior variance that was stated" in reason for reason in posterior.verdict.reasons)
    assert any("method='gp'" in remedy for remedy in posterior.verdict.remedies)


NEW = new_inputs(Rows(lambda: iter([Part(X, Y[:, None])])), X)


def judged(prior, likelihood, targets, width=10, **options):
    """A posterior in float64, so that it is judged at `NEW`."""
    model = fsp.as_model(fsp.mlp([width, width], prior=prior, context=CONTEXT, key=jr.key(0)))
    return fsp.laplace(model, prior, likelihood, X, targets, context_points=EVERYWHERE[:501:4], **options)


def matern32(a, b):
    scaled = np.sqrt(3) * np.abs(a - b.T) / 0.1
    return (1 + scaled) * np.exp(-scaled)


def gaussian_loss(posterior):
    process = references.exact_gp(matern32(X, X), matern32(NEW, X), matern32(NEW, NEW), Y, np.array(0.1))
    prediction, wanted = posterior.predict(NEW), process.std**2 + 0.01
    given = np.asarray(prediction.total_variance)[:, 0]
    squared = (np.asarray(prediction.mean)[:, 0] - process.mean) ** 2
    return 0.5 * np.mean((squared + wanted) / given - 1 + np.log(given / wanted))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["covariance", "precision"])
def test_the_loss_is_what_the_log_predictive_density_loses_against_the_exact_process(form, x64):
    """In expectation over new targets of the exact process, at inputs like the data."""
    posterior = judged(fsp.Prior(Matern32(lengthscale=0.1)), LIKELIHOODS["Gaussian"], Y, form=form)
    loss = gaussian_loss(posterior)
    assert loss > 0.01
    assert posterior.verdict.loss == pytest.approx(loss, rel=0.01)


def test_of_many_rows_the_nearest_tell_what_the_exact_process_says(x64, monkeypatch):
    """As if 60 rows were many, of which 30 are near a new input."""
    monkeypatch.setattr(_choices, "MOST_TARGETS", 40)
    monkeypatch.setattr(_choices, "SAMPLE_TARGETS", 30)
    posterior = judged(fsp.Prior(Matern32(lengthscale=0.1)), LIKELIHOODS["Gaussian"], Y)
    assert posterior.verdict.loss == pytest.approx(gaussian_loss(posterior), rel=0.05)


def test_the_loss_of_labels_is_the_divergence_of_their_probabilities(x64):
    """Against a dense Laplace approximation of the latent process, by quadrature on a grid."""
    labels, prior = (Y > 0).astype(int), fsp.Prior(Matern32(lengthscale=0.1, variance=4.0))
    posterior = judged(prior, fsp.likelihoods.Bernoulli(), labels, width=4)
    kernel = lambda a, b: 4 * matern32(a, b)  # noqa: E731
    process = references.gp_laplace(
        kernel(X, X), kernel(NEW, X), kernel(NEW, NEW), references.bernoulli_expansion(labels)
    )
    found = posterior.predict(NEW)
    grid = np.linspace(-8, 8, 801)
    weights = np.exp(-0.5 * grid**2) / np.sum(np.exp(-0.5 * grid**2))
    p, q = (
        (1 / (1 + np.exp(-(np.asarray(mean)[:, None] + np.asarray(std)[:, None] * grid)))) @ weights
        for mean, std in ((process.mean, process.std), (found.mean[:, 0], found.std[:, 0]))
    )
    loss = np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
    assert loss > 0.003
    assert posterior.verdict.loss == pytest.approx(loss, rel=0.01)


@pytest.mark.slow
def test_counts_are_judged_in_nats_of_a_count(x64):
    """The first two terms of the divergence of two Poisson mixtures, by summing over counts."""
    counts, prior = np.random.default_rng(0).poisson(np.exp(1 + Y)), fsp.Prior(Matern32(lengthscale=0.1), mean=1.0)
    posterior = judged(prior, fsp.likelihoods.Poisson(), counts)

    def expansion(f):
        rate = np.exp(1 + f)
        return np.sum(counts * (1 + f) - rate), counts - rate, np.diag(rate)

    process = references.gp_laplace(matern32(X, X), matern32(NEW, X), matern32(NEW, NEW), expansion)
    found, grid = posterior.predict(NEW), np.linspace(-6, 6, 241)
    weights = np.exp(-0.5 * grid**2) / np.sum(np.exp(-0.5 * grid**2))
    p, q = (
        poisson.pmf(np.arange(200)[:, None, None], np.exp(np.asarray(mean)[:, None] + np.asarray(std)[:, None] * grid))
        @ weights
        for mean, std in ((1 + process.mean, process.std), (found.mean[:, 0], found.std[:, 0]))
    )
    loss = np.mean(np.sum(p * (np.log(p + 1e-300) - np.log(q + 1e-300)), axis=0))
    assert posterior.verdict.loss == pytest.approx(loss, rel=0.5)


def test_new_inputs_are_as_far_from_the_data_as_other_draws_of_them():
    """The median distance to the nearest row is that of a second draw, to a third; repeated rows are met again."""
    generator = np.random.default_rng(0)
    for dimension in (1, 3, 8):
        drawn, others = generator.normal(size=(2, 300, dimension))
        new = new_inputs(Rows(lambda drawn=drawn: iter([Part(drawn, drawn[:, :1])])), drawn)
        medians = [np.median(KDTree(drawn).query(points)[0]) for points in (new, others)]
        assert medians[0] == pytest.approx(medians[1], rel=0.35)
    repeated = np.repeat(drawn[:20], 10, axis=0)
    new = new_inputs(Rows(lambda: iter([Part(repeated, repeated[:, :1])])), repeated)
    np.testing.assert_allclose(KDTree(repeated).query(new)[0], 0.0, atol=1e-12)


def test_inputs_that_were_rounded_are_a_reason_for_caution():
    shift = 1e6
    prior, context = fsp.Prior(RBF(lengthscale=0.3)), fsp.context.around(X + shift)
    model = fsp.as_model(fsp.mlp([30, 30], prior=prior, context=context, key=jr.key(0)))
    rounded = (X + shift).astype(np.float32)
    with pytest.warns(fsp.PrecisionWarning), pytest.warns(fsp.VerdictWarning, match="numbers of float32 are"):
        posterior = fsp.laplace(model, prior, LIKELIHOODS["Gaussian"], rounded, Y)
    assert posterior.verdict.level == "caution"
    assert any("subtract a centre" in remedy for remedy in posterior.verdict.remedies)


def test_reasons_name_a_mean_that_is_far_off_and_inputs_outside_the_context():
    prior = fsp.Prior(RBF(lengthscale=0.3))
    model = fsp.as_model(fsp.mlp([20, 20], prior=prior, context=CONTEXT, key=jr.key(0)))
    points = np.linspace(-0.5, 0.5, 20)[:, None]
    with pytest.warns(fsp.VerdictWarning):
        posterior = fsp.laplace(
            model, prior, LIKELIHOODS["Gaussian"], X, Y, context_points=points, include_training=False, mean="network"
        )
    reasons = " ".join(posterior.verdict.reasons)
    assert "standard deviations of a new target from the exact process's" in reasons
    assert "of the training inputs lie outside the box of the context points" in reasons


def test_one_row_that_says_nothing_does_not_silence_the_verdict():
    """The mean of squared scales would be that row's: beside it whatever the features miss would look small."""
    prior, scale = fsp.Prior(RBF(lengthscale=0.02)), np.full((60, 1), 0.1)
    scale[-1] = 1e6
    with pytest.warns(fsp.VerdictWarning):
        posterior = fit(prior, fsp.likelihoods.Gaussian(scale), width=4)
    assert posterior.verdict.level != "good"
    assert float(posterior.diagnostics.misfit_to_noise) > 1


def test_rows_of_very_different_noise_are_judged_by_targets_with_the_noise_of_each():
    """Eight units lose .8 nats for such a target, and .03 for one with the median noise, which is as large as the function."""
    prior, scale = fsp.Prior(RBF(lengthscale=0.2)), 10 ** np.linspace(-3, 3, 60)
    with pytest.warns(fsp.VerdictWarning):
        posterior = fit(prior, fsp.likelihoods.Gaussian(scale[:, None]), width=8)
    x = np.linspace(-1, 1, 201)[:, None]
    kernel = lambda a, b: references.rbf(a, b, 0.2)  # noqa: E731
    exact = references.exact_gp(kernel(X, X), kernel(x, X), kernel(x, x), Y, scale)
    found = posterior.predict(x)
    mean, wanted = np.asarray(found.mean, float)[:, 0], exact.std**2 + scale[:, None] ** 2
    given = np.asarray(found.variance, float)[:, 0] + scale[:, None] ** 2
    losses = 0.5 * np.mean(((mean - exact.mean) ** 2 + wanted) / given - 1 + np.log(given / wanted), axis=1)
    assert np.median(losses) < 0.1 * np.mean(losses)
    assert 0.5 * np.mean(losses) < float(posterior.verdict.loss) < 2 * np.mean(losses)


def test_rows_that_each_tell_one_of_two_outputs_are_judged():
    """What is missing has noise so large that it says nothing: every row is missing in one output."""
    missing, noise = np.arange(60) % 2, 0.1
    scale = np.full((60, 2), noise)
    scale[np.arange(60), missing] = 1e6
    prior = fsp.Prior(RBF(lengthscale=0.3), num_outputs=2)
    model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=CONTEXT, key=jr.key(0)))
    posterior = fsp.laplace(model, prior, fsp.likelihoods.Gaussian(scale), X, np.stack([Y, Y], axis=1))
    assert posterior.verdict.level == "good"
    x, kernel = np.linspace(-1, 1, 101)[:, None], lambda a, b: references.rbf(a, b, 0.3)
    for output in (0, 1):
        told = missing != output
        exact = references.exact_gp(
            kernel(X[told], X[told]), kernel(x, X[told]), kernel(x, x), Y[told], np.array(noise)
        )
        np.testing.assert_allclose(posterior.predict(x).mean[:, output], exact.mean, atol=5e-3)


def test_rows_in_turns_are_all_seen_by_the_exact_process(monkeypatch):
    """Every fourth of 400 rows from four sensors is always the same sensor's; a process given those alone is .55 away."""
    monkeypatch.setattr(_choices, "MOST_TARGETS", 300)
    monkeypatch.setattr(_choices, "FEWER_TARGETS", 100)
    generator, edges = np.random.default_rng(0), np.linspace(-1, 1, 5)
    inputs = generator.uniform(edges[:4], edges[1:], (100, 4)).reshape(400, 1)
    targets = np.sin(6 * inputs[:, 0]) + 0.1 * generator.normal(size=400)
    prior = fsp.Prior(RBF(lengthscale=0.2))
    model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=CONTEXT, key=jr.key(0)))
    posterior = fsp.laplace(model, prior, fsp.likelihoods.Gaussian(0.1), inputs, targets)
    assert float(posterior.diagnostics.objectives["refined"]) < 0.35
    kernel = lambda a, b: references.rbf(a, b, 0.2)  # noqa: E731
    x = np.linspace(-1, 1, 101)[:, None]
    exact = references.exact_gp(kernel(inputs, inputs), kernel(x, inputs), kernel(x, x), targets, np.array(0.1))
    np.testing.assert_allclose(posterior.predict(x).mean[:, 0], exact.mean, atol=1e-3)


@pytest.mark.parametrize(("lengthscale", "noise"), [(0.3, 0.2), (0.6, 0.1)])
def test_a_standard_deviation_that_is_wrong_at_single_inputs_is_said_although_the_mean_loss_is_small(
    lengthscale, noise
):
    prior, likelihood = fsp.Prior(Matern12(lengthscale=lengthscale)), fsp.likelihoods.Gaussian(noise)
    verdict = (posterior := fit(prior, likelihood)).verdict
    assert float(verdict.loss) < _choices.CAUTION_LOSS
    assert verdict.level == "caution"
    x = np.linspace(-1.5, 1.5, 1201)[:, None]
    stated = lambda a, b: np.asarray(prior.covariance(jnp.asarray(a), jnp.asarray(b)))[:, 0, :, 0]  # noqa: E731
    exact = references.exact_gp(stated(X, X), stated(x, X), stated(x, x), Y, np.array(noise))
    ratio = np.sqrt((np.asarray(posterior.predict(x).variance)[:, 0] + noise**2) / (exact.std**2 + noise**2))
    assert ratio.max() > 1.4
    low, high = (
        float(word) for word in re.search(r"target is ([\d.]+) to ([\d.]+) times", verdict.reasons[0]).groups()
    )
    # The verdict has seen inputs like the data, not every one: it misses the tip of a spike, and invents none.
    for said, true in ((low, ratio.min()), (high, ratio.max())):
        assert 0.6 < np.log(said) / np.log(true) < 1.1


def said_at_single_inputs(verdict):
    """The extremes that the verdict names: smallest and largest ratio of standard deviations, distance of the means."""
    pattern = r"is ([\d.]+) to ([\d.]+) times the exact one(?:, and its mean up to ([\d.]+))?"
    low, high, apart = re.search(pattern, verdict.reasons[0]).groups()
    return float(low), float(high), float(apart or "nan")


def test_extremes_in_a_gap_of_the_data_are_among_those_that_are_said():
    """Inputs like the data lie beside the gap, where the smallest ratio is .87; in it .83."""
    prior, noise, kept = fsp.Prior(Matern32(lengthscale=0.3)), 0.1, np.abs(X[:, 0]) > 0.4
    guards = np.linspace(-1.5, 1.5, 199)[:, None]
    model = fsp.as_model(fsp.mlp([6, 6], prior=prior, context=CONTEXT, key=jr.key(0)))
    with pytest.warns(fsp.VerdictWarning):
        posterior = fsp.laplace(
            model, prior, fsp.likelihoods.Gaussian(noise), X[kept], Y[kept],
            context_points=np.linspace(-1.5, 1.5, 60)[:, None], guard_points=guards,
        )  # fmt: skip
    stated = lambda a, b: matern32(a / 3, b / 3)  # noqa: E731
    exact = references.exact_gp(
        stated(X[kept], X[kept]), stated(guards, X[kept]), stated(guards, guards), Y[kept], np.array(noise)
    )
    found, wanted = posterior.predict(guards), np.sqrt(exact.std**2 + noise**2)
    ratio = np.sqrt(np.asarray(found.variance)[:, 0] + noise**2) / wanted
    apart = np.abs(np.asarray(found.mean)[:, 0] - exact.mean) / wanted
    low, high, far = said_at_single_inputs(posterior.verdict)
    assert low == pytest.approx(ratio.min(), rel=0.02)
    assert high == pytest.approx(ratio.max(), rel=0.1)
    assert far == pytest.approx(apart.max(), rel=0.1)


def test_a_latent_function_that_is_wrong_at_single_inputs_is_named(x64):
    """Labels tell little of it, so that the loss in nats of a label is small."""
    labels, size = (Y > 0).astype(int), 9.0
    prior, guards = fsp.Prior(RBF(lengthscale=0.1, variance=size)), np.linspace(-1.2, 1.2, 150)[:, None]
    posterior = judged(prior, fsp.likelihoods.Bernoulli(), labels, width=6, guard_points=guards)
    everywhere = np.concatenate([NEW, guards])
    kernel = lambda a, b: references.rbf(a, b, 0.1, size)  # noqa: E731
    exact = references.gp_laplace(
        kernel(X, X), kernel(everywhere, X), kernel(everywhere, everywhere), references.bernoulli_expansion(labels)
    )
    found = posterior.predict(everywhere)
    resolved = _choices.LATENT_RESOLVED * size
    ratio = np.sqrt((np.asarray(found.variance)[:, 0] + resolved) / (exact.std**2 + resolved))
    assert "latent function is" in posterior.verdict.reasons[0]
    low, high, _ = said_at_single_inputs(posterior.verdict)
    assert low == pytest.approx(ratio.min(), rel=0.03)
    assert high == pytest.approx(ratio.max(), rel=0.03)
    assert ratio.min() < 1 / _choices.NAMED_EXTREMES.latent_factor


def test_a_posterior_that_holds_its_prior_has_no_extremes_to_name():
    assert "times the exact one" not in str(fit(PRIORS["RBF"]).verdict)
