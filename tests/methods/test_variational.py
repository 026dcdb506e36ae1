import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern32

import fsplaplace as fsp
from fsplaplace.methods import FVI, GFSVI, by_name, names
from fsplaplace.methods._expected_log_likelihood import expected_log_likelihood
from fsplaplace.methods.fvi import functional_divergence
from fsplaplace.methods.gfsvi import regularised_divergence
from fsplaplace.methods.ssge import score

SCALES = np.array([0.5, 1.0, 2.0])


def entropy_gradient(num_samples, seed):
    """The estimated gradient of a Gaussian's entropy by the logarithms of its scales, which is one for each."""
    samples = SCALES * np.random.default_rng(seed).normal(size=(num_samples, 3)) + 7.0
    estimate = score(jnp.asarray(samples, jnp.float32))
    return -np.mean(np.asarray(estimate) * (samples - 7.0), axis=0)


@pytest.mark.slow
def test_entropy_gradient_of_a_gaussian_is_right_to_a_tenth_and_better_with_more_samples():
    errors = [
        np.sqrt(np.mean([(entropy_gradient(count, seed) - 1) ** 2 for seed in range(6)])) for count in (20, 80, 320)
    ]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.1


def test_only_the_asked_share_of_the_spectrum_is_used():
    samples = np.random.default_rng(0).normal(size=(40, 60))
    with jax.enable_x64(True):
        few, all_of_it = (np.asarray(score(jnp.asarray(samples), spectrum=share)) for share in (0.5, 1.0))
    assert np.linalg.matrix_rank(few) < 20 < np.linalg.matrix_rank(all_of_it)


@pytest.fixture(scope="module")
def context():
    points = jnp.asarray(np.random.default_rng(3).uniform(-2, 2, (6, 1)))
    return points, fsp.Prior(Matern32(lengthscale=0.8), num_outputs=2)


def gaussian_divergence(mean, covariance, prior_mean, prior_covariance):
    size = mean.size
    ratio = np.linalg.solve(prior_covariance, covariance)
    residual = mean - prior_mean
    distance = residual @ np.linalg.solve(prior_covariance, residual)
    return 0.5 * (distance + np.trace(ratio) - size - np.linalg.slogdet(ratio)[1])


def test_regularised_divergence_equals_the_dense_one(context):
    generator = np.random.default_rng(0)
    mean, root, gamma = generator.normal(size=(6, 2)), generator.normal(size=(12, 9)), 1e-2
    with jax.enable_x64(True):
        points, prior = jnp.asarray(np.asarray(context[0])), context[1]
        seen = regularised_divergence(prior, points, jnp.asarray(mean), jnp.asarray(root), gamma=gamma)
        covariance = np.asarray(prior.covariance(points, points)).reshape(12, 12)
    nugget = gamma * 6 * np.eye(12)
    wanted = gaussian_divergence(mean.ravel(), root @ root.T + nugget, np.zeros(12), covariance + nugget)
    np.testing.assert_allclose(seen, wanted, rtol=1e-6)


@pytest.mark.slow
def test_functional_divergence_has_the_gradient_of_the_gaussian_one(context):
    """For a Gaussian q(f) the derivative by a shift and by a common log scale is known in closed form."""
    points, prior = context[0][:3].astype(jnp.float32), fsp.Prior(Matern32(lengthscale=0.8))
    noise = jr.normal(jr.key(0), (500, 3, 1))

    def estimate(shift, log_scale):
        samples = shift + jnp.exp(log_scale) * noise
        return functional_divergence(prior, points, samples, noise=0.01, spectrum=0.99, key=jr.key(1))

    seen = np.asarray(jax.grad(estimate, (0, 1))(0.5, -0.3))
    covariance = np.asarray(prior.gram(points)[0]) + 1e-4 * np.eye(3)
    inverse, variance = np.linalg.inv(covariance), np.exp(-0.6)
    wanted = np.array([0.5 * inverse.sum(), np.trace(inverse) * variance - 3])
    np.testing.assert_allclose(seen, wanted, atol=0.1 * np.abs(wanted).max())


@pytest.mark.parametrize("likelihood", [fsp.likelihoods.Bernoulli(), fsp.likelihoods.Gaussian(0.3)], ids=str)
def test_expected_log_likelihood_equals_monte_carlo(likelihood):
    mean, root = jnp.asarray([[0.3], [-1.0]]), jnp.asarray([[[0.5]], [[1.2]]])
    targets = jnp.asarray([[1], [0]])
    seen = expected_log_likelihood(likelihood, targets, mean, root, key=jr.key(0))
    draws = mean + root[:, :, 0] * jr.normal(jr.key(1), (200_000, 2, 1))
    wanted = np.mean(jax.vmap(lambda f: likelihood.log_prob(f, targets))(draws), axis=0)
    np.testing.assert_allclose(seen, wanted, rtol=0.02)


@pytest.fixture(scope="module")
def problem():
    """Two basis functions with Gaussian weights: a prior over functions that the network can hold exactly."""
    X = np.linspace(-1, 1, 20)[:, None]
    y = np.sin(2 * X[:, 0])
    centres = jnp.linspace(-2, 2, 12)
    model = fsp.as_model((lambda w, x: jnp.exp(-((x - centres) ** 2)) @ w[:, None], jnp.zeros(12)))
    return model, X, y, fsp.likelihoods.Gaussian(0.2), fsp.Prior(RBF(lengthscale=0.7)), fsp.context.Uniform(-2, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        FVI(steps=150, num_context=20, kl_samples=50, learning_rate=0.05),
        GFSVI(steps=150, num_context=20, learning_rate=0.05),
    ],
)
def test_the_posterior_is_certain_at_the_data_and_not_elsewhere(problem, method):
    model, X, y, likelihood, prior, context = problem
    posterior = method.fit(model, X, y, likelihood, key=jr.key(0), prior=prior, context=context, progress=False)
    assert np.sqrt(np.mean((posterior.predict(X).mean[:, 0] - y) ** 2)) < 0.15
    inside, outside = posterior.predict(X).std, posterior.predict(np.array([[-2.0], [2.0]])).std
    assert np.mean(inside) < 0.5 * np.mean(outside)
    assert posterior.sample(X, key=jr.key(0), num_samples=3).shape == (3, 20, 1)


@pytest.mark.parametrize("name", names())
def test_every_method_refuses_bad_data_with_the_messages_of_the_core(problem, name):
    model, X, y, likelihood, prior, context = problem
    bad = X.copy()
    bad[3, 0] = np.nan
    fit = lambda *data: by_name(name).fit(  # noqa: E731
        model, *data, likelihood, key=jr.key(0), prior=prior, context=context, progress=False
    )
    with pytest.raises(
        ValueError, match=r"X has NaN or infinite values \(first in row 3\); remove or impute those rows"
    ):
        fit(bad, y)
    with pytest.raises(ValueError, match=r"Gaussian: y has shape \(19,\), but X has 20 rows; pass one target per row"):
        fit(X, y[:-1])
    with pytest.raises(ValueError, match="1 outputs, but Gaussian needs 2 for this y"):
        fit(X, np.column_stack([y, y]))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"method is 'hmc'; pass one of 'fsp-laplace', 'map'"):
        by_name("hmc")
