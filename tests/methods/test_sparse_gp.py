import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern52

import fsplaplace as fsp
from fsplaplace.methods import ExactGP, SparseGP

NOISE = 0.2


def network(inputs, outputs):
    return fsp.as_model((lambda params, x: x @ params, jnp.zeros((inputs, outputs))))


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.uniform(-2, 2, (60, 1))
    return X, np.sin(3 * X[:, 0]) + NOISE * generator.normal(size=60), np.linspace(-3, 3, 25)[:, None]


def fits(data, method):
    """With the noise known where the kernel is, and learned where the kernel is tuned."""
    X, y, _ = data
    likelihood = fsp.likelihoods.Gaussian(NOISE, learnable=method.tune)
    prior = fsp.Prior(RBF(lengthscale=0.5))
    return method.fit(network(1, 1), X, y, likelihood, key=jr.key(0), prior=prior, progress=False)


@pytest.mark.slow
def test_inducing_points_at_the_data_reach_the_exact_marginal_likelihood(data):
    exact, sparse = fits(data, ExactGP()), fits(data, SparseGP(num_inducing=60, steps=100))
    assert float(sparse.log_evidence) == pytest.approx(float(exact.log_evidence), rel=0.01)
    assert float(sparse.log_evidence) <= float(exact.log_evidence) + 1e-3


@pytest.mark.slow
def test_fixed_parameters_with_inducing_points_at_the_data_give_the_exact_posterior(data):
    exact, sparse = fits(data, ExactGP(tune=False)), fits(data, SparseGP(60, tune=False, steps=1))
    wanted, seen = exact.predict(data[2]), sparse.predict(data[2])
    np.testing.assert_allclose(seen.mean, wanted.mean, atol=2e-3)
    np.testing.assert_allclose(seen.std, wanted.std, atol=2e-3)


@pytest.mark.slow
def test_the_bound_grows_with_the_inducing_points(data):
    exact = float(fits(data, ExactGP(tune=False)).log_evidence)
    bounds = [float(fits(data, SparseGP(count, tune=False, steps=1)).log_evidence) for count in (3, 20)]
    assert bounds[0] < bounds[1] < exact + 1e-3


def test_samples_have_the_predicted_moments(data):
    posterior = fits(data, SparseGP(20, tune=False, steps=1))
    samples = posterior.sample(data[2], key=jr.key(1), num_samples=5000)
    prediction = posterior.predict(data[2])
    np.testing.assert_allclose(jnp.mean(samples, axis=0), prediction.mean, atol=0.08)
    np.testing.assert_allclose(jnp.std(samples, axis=0), prediction.std, atol=0.05)


@pytest.mark.slow
def test_minibatches_of_labels_are_classified():
    generator = np.random.default_rng(1)
    X = generator.normal(size=(400, 2))
    y = np.where(X[:, 0] > 0.4, 2, (X[:, 1] > 0).astype(int))
    method = SparseGP(num_inducing=20, steps=200, batch_size=100, learning_rate=0.05, tune=False)
    posterior = method.fit(
        network(2, 3), X, y, fsp.likelihoods.Categorical(3), key=jr.key(0),
        prior=fsp.Prior(Matern52(variance=4.0), num_outputs=3), progress=False,
    )  # fmt: skip
    probabilities = posterior.predict_proba(X)
    np.testing.assert_allclose(jnp.sum(probabilities, axis=1), 1.0, rtol=1e-5)
    assert np.mean(np.argmax(probabilities, axis=1) == y) > 0.93


@pytest.mark.slow
def test_a_kernel_per_output_equals_separate_processes(data):
    X, y, x = data
    kernels = [RBF(lengthscale=0.5), RBF(lengthscale=0.9, variance=2.0)]
    method, likelihood = SparseGP(60, tune=False, steps=1), fsp.likelihoods.Gaussian(NOISE)
    both = method.fit(
        network(1, 2), X, np.column_stack([y, y]), likelihood, key=jr.key(0), prior=fsp.Prior(kernels), progress=False
    ).predict(x)
    for output, kernel in enumerate(kernels):
        one = method.fit(network(1, 1), X, y, likelihood, key=jr.key(0), prior=fsp.Prior(kernel), progress=False)
        np.testing.assert_allclose(both.std[:, output], one.predict(x).std[:, 0], atol=1e-4)


def test_coupled_outputs_are_refused_by_name(data):
    prior = fsp.Prior(fsp.kernels.Helmholtz(RBF(), RBF()))
    X = np.zeros((4, 2)) + np.arange(4)[:, None]
    with pytest.raises(ValueError, match=r"SparseGP: the kernel couples its outputs.*use ExactGP"):
        SparseGP().fit(network(2, 2), X, X, fsp.likelihoods.Gaussian(), key=jr.key(0), prior=prior)
