import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax import Dataset
from gpjax.gps import Prior as GPJaxPrior
from gpjax.kernels import RBF, Matern32
from gpjax.likelihoods import Gaussian as GPJaxGaussian
from gpjax.mean_functions import Zero
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import fsplaplace as fsp
from fsplaplace.methods import ExactGP

LENGTHSCALE, VARIANCE, NOISE = 0.7, 1.3, 0.2


def network(inputs, outputs):
    return fsp.as_model((lambda params, x: x @ params, jnp.zeros((inputs, outputs))))


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.uniform(-2, 2, (30, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + NOISE * generator.normal(size=30)
    return X, y, generator.uniform(-3, 3, (20, 2))


@pytest.fixture(scope="module")
def regressor(data):
    kernel = sk.ConstantKernel(VARIANCE) * sk.RBF(LENGTHSCALE)
    return GaussianProcessRegressor(kernel, alpha=NOISE**2, optimizer=None).fit(*data[:2])


def fitted(data, outputs=1, kernel=None, scale=NOISE):
    X, y, _ = data
    prior = fsp.Prior(kernel or RBF(lengthscale=LENGTHSCALE, variance=VARIANCE), num_outputs=outputs)
    y = y if outputs == 1 else np.column_stack([y, -2 * y][:outputs])
    return ExactGP(tune=False).fit(
        network(2, outputs), X, y, fsp.likelihoods.Gaussian(scale), key=jr.key(0), prior=prior
    )


def test_regression_equals_scikit_learn(data, regressor):
    with jax.enable_x64(True):
        posterior = fitted(data)
        prediction = posterior.predict(data[2])
    mean, std = regressor.predict(data[2], return_std=True)
    np.testing.assert_allclose(prediction.mean[:, 0], mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(prediction.std[:, 0], std, rtol=1e-8)
    np.testing.assert_allclose(posterior.log_evidence, regressor.log_marginal_likelihood_value_, rtol=1e-8)


def test_log_evidence_equals_gpjax(data):
    with jax.enable_x64(True):
        kernel = RBF(lengthscale=LENGTHSCALE, variance=VARIANCE)
        model = GPJaxPrior(kernel=kernel, mean_function=Zero()) * GPJaxGaussian(obs_stddev=jnp.asarray(NOISE))
        condition = model.condition(Dataset(jnp.asarray(data[0]), jnp.asarray(data[1])[:, None]))
        assert abs(condition.log_marginal_likelihood - fitted(data).log_evidence) < 1e-3


def test_predictions_are_accurate_in_float32(data, regressor):
    prediction = fitted(data).predict(data[2])
    assert prediction.mean.dtype == jnp.float32
    np.testing.assert_allclose(prediction.std[:, 0], regressor.predict(data[2], return_std=True)[1], rtol=1e-5)


@pytest.mark.parametrize("scale", [NOISE, np.array([NOISE, NOISE])], ids=["one noise", "noise per output"])
def test_outputs_that_share_a_kernel_are_independent_processes(data, scale):
    one, two = fitted(data).predict(data[2]), fitted(data, outputs=2, scale=scale).predict(data[2])
    np.testing.assert_allclose(two.mean, np.column_stack([one.mean[:, 0], -2 * one.mean[:, 0]]), atol=1e-5)
    np.testing.assert_allclose(two.variance, np.column_stack([one.variance[:, 0]] * 2), atol=1e-6)


@pytest.mark.slow
def test_divergence_free_kernel_equals_dense_conditioning(data):
    kernel = fsp.kernels.Helmholtz(RBF(lengthscale=1.0), RBF(lengthscale=0.8))
    with jax.enable_x64(True):
        posterior = fitted(data, outputs=2, kernel=kernel)
        prediction = posterior.predict(data[2])
        blocks = lambda x, z: np.asarray(posterior.prior.covariance(x, z)).reshape(2 * len(x), 2 * len(z))  # noqa: E731
        X, x = posterior.X, jnp.asarray(data[2])
        noisy = blocks(X, X) + NOISE**2 * np.eye(60)
        y = np.column_stack([data[1], -2 * data[1]]).ravel()
        mean = blocks(x, X) @ np.linalg.solve(noisy, y)
        covariance = blocks(x, x) - blocks(x, X) @ np.linalg.solve(noisy, blocks(X, x))
    np.testing.assert_allclose(np.ravel(prediction.mean), mean, atol=1e-9)
    np.testing.assert_allclose(np.ravel(prediction.variance), np.diag(covariance), atol=1e-9)


def test_samples_have_the_posterior_covariance(data, regressor):
    samples = np.asarray(fitted(data).sample(data[2], key=jr.key(1), num_samples=20_000))[:, :, 0]
    _, covariance = regressor.predict(data[2], return_cov=True)
    np.testing.assert_allclose(np.cov(samples.T), covariance, atol=5 * VARIANCE / np.sqrt(20_000) * 1.5)


def test_tuning_reaches_scikit_learn_optimum(data):
    X, y, _ = data
    kernel = sk.ConstantKernel(1.0) * sk.RBF(1.0) + sk.WhiteKernel(0.1)
    reference = GaussianProcessRegressor(kernel, n_restarts_optimizer=3, random_state=0).fit(X, y)
    likelihood = fsp.likelihoods.Gaussian(0.3, learnable=True)
    posterior = ExactGP().fit(network(2, 1), X, y, likelihood, key=jr.key(0), prior=fsp.Prior(RBF()))
    assert posterior.log_evidence > reference.log_marginal_likelihood_value_ - 1e-3


@pytest.fixture(scope="module")
def labels(data):
    X = data[0]
    return (X[:, 0] * X[:, 1] + 0.3 * np.random.default_rng(1).normal(size=30) > 0).astype(int)


@pytest.mark.slow
def test_binary_classification_equals_scikit_learn(data, labels):
    kernel = sk.ConstantKernel(VARIANCE) * sk.RBF(LENGTHSCALE)
    reference = GaussianProcessClassifier(kernel, optimizer=None).fit(data[0], labels)
    base = reference.base_estimator_
    with jax.enable_x64(True):
        prior = fsp.Prior(RBF(lengthscale=LENGTHSCALE, variance=VARIANCE))
        posterior = ExactGP(tune=False).fit(
            network(2, 1), data[0], labels, fsp.likelihoods.Bernoulli(), key=jr.key(0), prior=prior
        )
        prediction = posterior.predict(data[2])
        cross = base.kernel_(base.X_train_, data[2])
        probabilities = posterior.predict_proba(data[2], num_samples=20_000)[:, 0]
    root = np.linalg.solve(base.L_, base.W_sr_[:, None] * cross)
    np.testing.assert_allclose(posterior.log_evidence, reference.log_marginal_likelihood_value_, rtol=1e-6)
    np.testing.assert_allclose(prediction.mean[:, 0], cross.T @ (base.y_train_ - base.pi_), atol=1e-5)
    np.testing.assert_allclose(prediction.variance[:, 0], VARIANCE - np.sum(root**2, axis=0), atol=1e-5)
    np.testing.assert_allclose(probabilities, reference.predict_proba(data[2])[:, 1], atol=0.015)


def test_softmax_evidence_and_covariance_equal_a_dense_reference(data):
    X = data[0][:12]
    y = np.arange(12) % 3
    prior = fsp.Prior(Matern32(lengthscale=LENGTHSCALE), num_outputs=3)
    likelihood = fsp.likelihoods.Categorical(3)
    with jax.enable_x64(True):
        posterior = ExactGP(tune=False).fit(network(2, 3), X, y, likelihood, key=jr.key(0), prior=prior)
        gram = np.asarray(posterior.prior.gram(posterior.X)[0])
        f = np.asarray(posterior.predict(X).mean)
        variance = np.asarray(posterior.predict(X).variance)
    probabilities = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    # The stationarity condition of the mode.
    np.testing.assert_allclose(f, gram @ (np.eye(3)[y] - probabilities), atol=1e-7)
    K = np.kron(gram, np.eye(3))
    W = np.zeros((36, 36))
    for i, pi in enumerate(probabilities):
        W[3 * i : 3 * i + 3, 3 * i : 3 * i + 3] = np.diag(pi) - np.outer(pi, pi)
    covariance = K - K @ W @ np.linalg.solve(np.eye(36) + K @ W, K)
    np.testing.assert_allclose(variance.ravel(), np.diag(covariance), atol=1e-9)
    evidence = np.log(probabilities[np.arange(12), y]).sum() - 0.5 * f.ravel() @ np.linalg.solve(K, f.ravel())
    evidence -= 0.5 * np.linalg.slogdet(np.eye(36) + K @ W)[1]
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-8)


@pytest.mark.slow
def test_tuning_for_labels_beats_scikit_learn_optimum(data, labels):
    kernel = sk.ConstantKernel(1.0) * sk.RBF(1.0)
    reference = GaussianProcessClassifier(kernel, n_restarts_optimizer=2, random_state=0).fit(data[0], labels)
    posterior = ExactGP().fit(
        network(2, 1), data[0], labels, fsp.likelihoods.Bernoulli(), key=jr.key(0), prior=fsp.Prior(RBF())
    )
    assert posterior.log_evidence > reference.log_marginal_likelihood_value_ - 1e-2


def test_sixty_thousand_rows_are_refused_and_the_sparse_process_named():
    X = np.broadcast_to(np.zeros((1, 2)), (60_000, 2))
    with pytest.raises(MemoryError, match=r"60000 rows need .* use SparseGP"):
        ExactGP().fit(network(2, 1), X, X[:, 0], fsp.likelihoods.Gaussian(), key=jr.key(0), prior=fsp.Prior(RBF()))


def test_a_missing_prior_is_named(data):
    with pytest.raises(ValueError, match=r"ExactGP\.fit: prior is None.*fsplaplace\.Prior"):
        ExactGP().fit(network(2, 1), data[0], data[1], fsp.likelihoods.Gaussian(), key=jr.key(0))
