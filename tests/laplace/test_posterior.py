"""The posterior as an object: transformations, chunks, samples and what it says about itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern12

import fsplaplace as fsp
from fsplaplace.host._float64 import cast
from fsplaplace.networks import _jacobian

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(12, 2))
Y = np.column_stack([np.sin(3 * X[:, 0]), X[:, 1] ** 2])
TEST = GENERATOR.uniform(-1, 1, size=(9, 2))


def fit(likelihood, targets, *, model=None, **options):
    prior = fsp.Prior(RBF(lengthscale=0.7), num_outputs=2)
    box = fsp.context.Uniform([-1.0, -1.0], [1.0, 1.0])
    model = model or fsp.as_model(fsp.mlp([30], prior=prior, context=box, key=jr.key(0)))
    points = np.concatenate([X, np.asarray(fsp.context.Halton([-1, -1], [1, 1]).sample(30, key=jr.key(0)))])
    return fsp.laplace(model, prior, likelihood, X, targets, context_points=points, **options)


@pytest.fixture(scope="module")
def posterior():
    with jax.enable_x64(True):
        return fit(fsp.likelihoods.Gaussian([0.1, 0.3]), Y)


@eqx.filter_jit
def moments(posterior, x):
    prediction = posterior.predict(x)
    return prediction.mean, prediction.variance


@pytest.mark.slow
def test_predict_under_jit_and_vmap_equals_eager(x64, posterior):
    eager = posterior.predict(TEST)
    for got, want in zip(moments(posterior, jnp.asarray(TEST)), (eager.mean, eager.variance), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-12)
    batched = jax.vmap(lambda x: posterior.predict(x).variance)(jnp.asarray(TEST).reshape(3, 3, 2))
    np.testing.assert_allclose(batched.reshape(9, 2), eager.variance, atol=1e-12)


def test_the_mean_alone_is_that_of_predict_and_the_network_s_own_takes_no_features(x64, posterior):
    likelihood = fsp.likelihoods.Gaussian([0.1, 0.3])
    model = posterior.model
    own, paper = fit(likelihood, Y, model=model, mean="network"), fit(likelihood, Y, model=model, form="precision")
    far = np.concatenate([TEST, 5 * TEST])
    for each in (posterior, own, paper, own.condition(TEST[:2], Y[:2]), paper.condition(TEST[:2], Y[:2])):
        whole, mean = each.predict(far), each.predict(far, variance=False)
        for name in ("mean", "map", "outside"):
            np.testing.assert_allclose(getattr(mean, name), getattr(whole, name), atol=1e-12)
    slope = fsp.operators.partial(0)
    wanted = own.predict(TEST, of=slope).mean
    np.testing.assert_allclose(own.predict(TEST, of=slope, variance=False).mean, wanted, atol=1e-12)

    def work(variance: bool) -> float:
        program = jax.jit(lambda x: own.predict(x, variance=variance)).lower(jnp.asarray(far)).compile()
        return program.cost_analysis()["flops"]

    assert work(False) < 0.2 * work(True)


def test_gradients_in_x_equal_finite_differences(x64, posterior):
    @jax.jit
    def score(x):
        prediction = posterior.predict(x[None])
        return jnp.sum(prediction.mean) + jnp.sum(prediction.std)

    point, step = jnp.asarray(TEST[0]), 1e-5
    slope = jax.jit(jax.grad(score))(point)
    numeric = [(score(point + step * e) - score(point - step * e)) / (2 * step) for e in np.eye(2)]
    np.testing.assert_allclose(slope, numeric, rtol=1e-6, atol=1e-8)


def test_chunks_change_nothing(x64, posterior, monkeypatch):
    whole = posterior.predict(TEST)
    monkeypatch.setattr(_jacobian, "_MOST_ROWS", dict.fromkeys(_jacobian._MOST_ROWS, 4))
    chunked = posterior.predict(TEST)
    np.testing.assert_allclose(chunked.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(chunked.variance, whole.variance, atol=1e-12)
    inside = jax.jit(lambda x: posterior.predict(x).variance)(jnp.asarray(TEST))
    np.testing.assert_allclose(inside, whole.variance, atol=1e-12)
    tight = posterior.predict(TEST, memory_budget=5000)
    np.testing.assert_allclose(tight.variance, whole.variance, atol=1e-12)


def test_covariance_has_the_variance_on_its_diagonal_and_is_positive_semi_definite(x64, posterior):
    joint = np.asarray(posterior.covariance(TEST))
    assert joint.shape == (9, 2, 9, 2)
    flat = joint.reshape(18, 18)
    np.testing.assert_allclose(np.diag(flat), np.asarray(posterior.predict(TEST).variance).ravel(), atol=1e-12)
    assert np.linalg.eigvalsh(flat).min() > -1e-12
    per_point = posterior.covariance(TEST, joint=False)
    np.testing.assert_allclose(per_point, joint[np.arange(9), :, np.arange(9), :], atol=1e-12)


def test_moments_of_samples_are_those_of_predict(x64, posterior):
    """4,000 draws: the mean scatters by std / 63 and the covariance by 2.2 % of the variances."""
    draws = np.asarray(posterior.sample(TEST, key=jr.key(0), num_samples=4000))
    prediction = posterior.predict(TEST)
    assert draws.shape == (4000, 9, 2)
    assert np.all(np.abs(draws.mean(axis=0) - prediction.mean) < 5 * np.asarray(prediction.std) / np.sqrt(4000))
    expected = np.asarray(posterior.covariance(TEST)).reshape(18, 18)
    np.testing.assert_allclose(np.cov(draws.reshape(4000, 18).T), expected, atol=0.12 * expected.max())


def test_one_key_is_one_function_at_any_inputs(x64, posterior):
    everywhere = posterior.sample(TEST, key=jr.key(1), num_samples=3)
    np.testing.assert_allclose(posterior.sample(TEST[4:], key=jr.key(1), num_samples=3), everywhere[:, 4:], atol=1e-12)
    assert not np.allclose(posterior.sample(TEST, key=jr.key(2), num_samples=3), everywhere)


def test_total_variance_is_epistemic_plus_noise(x64, posterior):
    prediction = posterior.predict(TEST)
    np.testing.assert_allclose(prediction.total_variance, prediction.variance + np.array([0.01, 0.09]), atol=1e-14)
    np.testing.assert_allclose(prediction.std**2, prediction.variance, atol=1e-14)


def test_posterior_variance_never_exceeds_that_of_the_implied_prior(x64, posterior):
    """More noise, less information: in the limit of no information the implied prior itself."""
    prior = fit(fsp.likelihoods.Gaussian(1e6), Y)
    assert np.all(posterior.predict(TEST).variance <= prior.predict(TEST).variance + 1e-12)
    np.testing.assert_allclose(prior.predict(X).variance, 1.0, atol=0.05)


def test_float32_agrees_with_float64(x64, posterior):
    """The same weights and the same ridge, well above the rounding of float32."""
    options = {"delta": 1e-7, "mean": "refined"}
    wide = fit(fsp.likelihoods.Gaussian([0.1, 0.3]), Y, **options).predict(TEST)
    with jax.enable_x64(False):
        narrow = fit(fsp.likelihoods.Gaussian([0.1, 0.3]), Y, model=cast(posterior.model, jnp.float32), **options)
        prediction = narrow.predict(TEST)
        assert prediction.mean.dtype == prediction.variance.dtype == jnp.float32
    np.testing.assert_allclose(prediction.std, wide.std, atol=2e-3)
    np.testing.assert_allclose(prediction.mean, wide.mean, atol=2e-3)


def test_no_noise_variance_where_there_is_none_to_give(x64):
    per_row = fit(fsp.likelihoods.Gaussian(np.full((12, 2), 0.1)), Y)
    with pytest.raises(ValueError, match=r"total_variance: the likelihood has no noise variance at new inputs"):
        _ = per_row.predict(TEST).total_variance


@pytest.fixture(scope="module")
def classifier():
    labels = (X[:, 0] > 0).astype(int)
    with jax.enable_x64(True):
        return fit(fsp.likelihoods.Categorical(2), labels)


@pytest.mark.slow
def test_class_probabilities_are_probabilities_and_reproducible(x64, classifier):
    for method in ("monte-carlo", "probit"):
        probabilities = np.asarray(classifier.predict_proba(TEST, method=method))
        assert np.all(probabilities > 0)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
        np.testing.assert_array_equal(probabilities, classifier.predict_proba(TEST, method=method))
        assert np.mean((probabilities[:, 1] > 0.5) == (TEST[:, 0] > 0)) > 0.7


def test_probit_shrinks_each_logit_by_its_variance(x64, classifier):
    prediction = classifier.predict(TEST)
    logits = np.asarray(prediction.mean) / np.sqrt(1 + np.pi / 8 * np.asarray(prediction.variance))
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_proba(TEST, method="probit"), expected, atol=1e-12)


def test_monte_carlo_probabilities_are_means_over_samples(x64, classifier):
    draws = np.asarray(classifier.sample(TEST, key=jr.key(5), num_samples=300))
    expected = np.mean(np.exp(draws) / np.exp(draws).sum(axis=2, keepdims=True), axis=0)
    np.testing.assert_allclose(classifier.predict_proba(TEST, key=jr.key(5), num_samples=300), expected, atol=1e-10)


def test_it_prints_as_a_short_table(posterior):
    table = str(posterior)
    for entry in (
        "FSP-Laplace, covariance form",
        "rank",
        "captured",
        "implied / stated prior variance, guard",
        "mean",
        " s, ",
    ):
        assert entry in table
    assert len(table.splitlines()) < 20
    assert repr(posterior).startswith("Posterior(MLP, ")
    assert f"rank {posterior.rank}" in repr(posterior)


def test_diagnostics_hold_times_and_memory_of_every_stage(posterior):
    stages = posterior.diagnostics.stages
    assert list(stages) == ["prior factor", "pull-back (dense)", "data", "diagnostics", "posterior"]
    assert all(float(stage.seconds) >= 0 and float(stage.bytes) > 0 for stage in stages.values())
    assert float(posterior.diagnostics.pull_back_residual) < 0.1


def test_it_is_a_pytree_of_arrays(x64, posterior):
    leaves, structure = jax.tree.flatten(posterior)
    again = jax.tree.unflatten(structure, leaves)
    np.testing.assert_array_equal(again.predict(TEST).mean, posterior.predict(TEST).mean)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda p: p.predict(TEST[:, :1]),
            r"x has rows of shape \(1,\), but the model was fitted to \(2,\); pass the same",
        ),
        (lambda p: p.predict(TEST[0]), r"x has shape \(2,\); pass at least one row, as \(n, d\)"),
        (lambda p: p.predict(np.full((2, 2), np.nan)), r"x has NaN or infinite values \(first in row 0\)"),
        (lambda p: p.predict(TEST, memory_budget=-1), r"memory_budget is -1; pass a positive number of bytes"),
        (lambda p: p.sample(TEST, key=jr.key(0), num_samples=0), r"Posterior.sample: num_samples is 0; pass 1 or more"),
        (lambda p: p.predict_proba(TEST), r"Posterior.predict_proba: Gaussian has no classes"),
    ],
)
def test_impossible_requests_are_refused(posterior, call, message):
    with pytest.raises(ValueError, match=message):
        call(posterior)


def test_impossible_requests_for_probabilities_are_refused(classifier):
    with pytest.raises(ValueError, match=r"predict_proba: method is 'exact'; pass one of 'monte-carlo', 'probit'"):
        classifier.predict_proba(TEST, method="exact")
    with pytest.raises(ValueError, match=r"Posterior.predict_proba: num_samples is 0; pass 1 or more"):
        classifier.predict_proba(TEST, num_samples=0)


def test_a_posterior_whose_features_miss_more_than_the_noise_says_so():
    line = np.linspace(-1, 1, 20)[:, None]
    prior = fsp.Prior(Matern12(lengthscale=0.05))
    # Three units cannot hold a rough prior with a noise of a thousandth.
    model = fsp.as_model(fsp.mlp([3], prior=prior, context=fsp.context.Uniform([-1.0], [1.0]), key=jr.key(0)))
    rough = fsp.laplace(model, prior, fsp.likelihoods.Gaussian(1e-3), line, np.sin(3 * line[:, 0]))
    missed = 1 - float(rough.diagnostics.ratios["training"].median)
    assert rough.misfit_to_noise == pytest.approx(missed / 1e-6, rel=1e-4)
    assert "Caution: the features miss" in str(rough)
    calm = fsp.laplace(model, prior, fsp.likelihoods.Gaussian(2.0), line, np.sin(3 * line[:, 0]))
    assert calm.misfit_to_noise < 1
    assert "Caution" not in str(calm)
