"""Kernels on features of frozen networks: equal to the base on features written down, fitted, factored, saved."""

import equinox as eqx
import gpjax.kernels as gpk
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import fsplaplace as fsp
from fsplaplace.kernels import OnFeatures, RandomConvolutions, covariance, variance

SHAPE = (8, 8, 1)
IMAGES = np.random.default_rng(0).uniform(size=(12, *SHAPE)).astype(np.float32)
NETWORK = RandomConvolutions(SHAPE, channels=(3, 5), key=jr.key(0))


def by_hand(images, *, unit_length=True):
    """Convolutions by loops over places, in float64."""
    x = np.asarray(images, np.float64)
    for weight in NETWORK.weights:
        w, (n, h, b, _) = np.asarray(weight, np.float64), x.shape
        padded, out = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), np.zeros((n, h, b, w.shape[3]))
        for i in range(h):
            for j in range(b):
                out[:, i, j] = np.einsum("nabc,abcd->nd", padded[:, i : i + 3, j : j + 3], w)
        out = np.maximum(out, 0)
        x = out.reshape(n, h // 2, 2, b // 2, 2, -1).mean(axis=(2, 4))
    features = x.reshape(len(x), -1)
    scale = np.linalg.norm(features, axis=1, keepdims=True) if unit_length else np.sqrt(features.shape[1])
    return features / scale


@pytest.mark.parametrize("unit_length", [True, False])
@pytest.mark.parametrize("base", [gpk.RBF(lengthscale=0.4, variance=2.0), gpk.Linear(variance=1.5)])
def test_gram_matrix_equals_the_explicit_one(base, unit_length, dtype):
    kernel, x = OnFeatures(NETWORK, base, unit_length=unit_length), jnp.asarray(IMAGES.reshape(12, -1), dtype)
    features = by_hand(IMAGES, unit_length=unit_length)
    explicit = base.cross_covariance(jnp.asarray(features), jnp.asarray(features))
    np.testing.assert_allclose(covariance(kernel, x, x), explicit, atol=1e-5)
    np.testing.assert_allclose(variance(kernel, x), np.diagonal(explicit), atol=1e-5)
    np.testing.assert_allclose(kernel(x[0], x[1]), explicit[0, 1], atol=1e-5)


def test_a_sum_with_a_kernel_on_pixels_is_written_on_columns():
    """What evaluates covariances many times sees features as columns: the same matrix, and the same with half of the columns."""
    parts = [
        OnFeatures(NETWORK, gpk.RBF(lengthscale=0.4)),
        gpk.Matern32(lengthscale=3.0, active_dims=[0, 5, -1]),
        OnFeatures(NETWORK, gpk.RBF(lengthscale=0.3, active_dims=slice(0, 10)) * gpk.Linear()),
    ]
    prior, x = fsp.Prior(gpk.SumKernel(parts)), jnp.asarray(IMAGES.reshape(12, -1))
    written, columns = prior.on_columns(x)
    assert not written.on_features
    assert columns.shape == (12, 64 + 2 * 20)
    np.testing.assert_allclose(written.gram(columns), prior.gram(x), atol=1e-6)
    vectors = jnp.asarray(np.random.default_rng(1).normal(size=(12, 1, 2)), jnp.float32)
    product = prior.gram_product(jnp.asarray(IMAGES), vectors)
    np.testing.assert_allclose(product[:, 0], prior.gram(x)[0] @ vectors[:, 0], rtol=1e-4, atol=1e-4)
    # Alone, features need no pixels beside them.
    assert fsp.Prior(parts[0]).on_columns(x)[1].shape == (12, 20)


@pytest.mark.parametrize("base", [gpk.Linear(variance=2.0), gpk.RBF(lengthscale=0.4)])
def test_the_factor_has_the_covariance(base):
    """Of a linear base by its features, of which there are fewer than points."""
    many = np.random.default_rng(2).uniform(size=(40, *SHAPE)).astype(np.float32)
    prior = fsp.Prior(OnFeatures(NETWORK, base), num_outputs=2)
    factor = prior.factor(jnp.asarray(many), rtol=1e-12)
    found = np.asarray(factor.columns)
    assert factor.rank <= 2 * (20 if isinstance(base, gpk.Linear) else 40)
    np.testing.assert_allclose(found[:, 0] @ found[:, 0].T, prior.gram(jnp.asarray(many))[0], atol=1e-5)
    np.testing.assert_allclose(found[:, 0] @ found[:, 1].T, 0.0, atol=1e-12)


@pytest.mark.slow
def test_fitting_finds_the_base_and_leaves_the_network_alone():
    """Targets drawn with a length scale of 0.3 on features: by hand on the features, and through the kernel."""
    many = np.random.default_rng(3).uniform(size=(60, *SHAPE)).astype(np.float32) ** 3
    features = by_hand(many)
    truth = fsp.Prior(gpk.RBF(lengthscale=0.3, variance=4.0))
    y = np.asarray(truth.sample(jnp.asarray(features), key=jr.key(0)))[0]
    options = {"key": jr.key(1), "restarts": 1, "standard_errors": False}
    explicit = fsp.fit_prior(fsp.Prior(gpk.RBF()), features, y, **options)
    through = fsp.fit_prior(fsp.Prior(OnFeatures(NETWORK, gpk.RBF())), many, y, **options)
    np.testing.assert_allclose(
        jax.tree.leaves(through.prior.kernel.base), jax.tree.leaves(explicit.prior.kernel), rtol=2e-2, atol=2e-2
    )
    assert through.report.value == pytest.approx(explicit.report.value, abs=1e-2)
    before, after = (jax.tree.leaves(each) for each in (NETWORK, through.prior.kernel.network))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.slow
def test_a_posterior_with_random_features_is_read_back(tmp_path):
    class Small(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, x):
            return self.layer(x.ravel())

    model = fsp.as_model(Small(eqx.nn.Linear(64, 1, key=jr.key(0))))
    prior = fsp.Prior(OnFeatures(NETWORK, gpk.RBF(lengthscale=0.4)))
    y = IMAGES[:, 0, 0, 0]
    posterior = fsp.laplace(
        model, prior, fsp.likelihoods.Gaussian(0.1), IMAGES, y, context_points=IMAGES[:6] + 0.1, key=jr.key(0)
    )
    fsp.save(tmp_path / "posterior.safetensors", posterior)
    again = fsp.load(tmp_path / "posterior.safetensors", model)
    np.testing.assert_array_equal(again.predict(IMAGES).variance, posterior.predict(IMAGES).variance)
    words = str(fsp.describe(again.prior, IMAGES))
    assert "20 features" in words
    assert "RBF on features" in words


def test_networks_of_any_library_are_features(tmp_path):
    weights = np.random.default_rng(4).normal(size=(64, 7)).astype(np.float32)
    kernel = OnFeatures((lambda params, x: jnp.tanh(x.reshape(len(x), -1) @ params), weights), shape=SHAPE)
    features = np.tanh(IMAGES.reshape(12, -1) @ weights)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(kernel.features(IMAGES.reshape(12, -1)), features, atol=1e-5)
    with pytest.raises(ValueError, match="code and not data"):
        fsp.save(tmp_path / "prior.safetensors", fsp.Prior(kernel))


def test_bad_features_are_refused_by_name():
    with pytest.raises(ValueError, match="shape is None"):
        OnFeatures((lambda params, x: x @ params, np.eye(3)))
    with pytest.raises(ValueError, match=r"cannot take inputs of shape \(1, 8, 8\)"):
        OnFeatures(NETWORK, shape=(1, 8, 8))
    with pytest.raises(ValueError, match="depends on the batch"):
        OnFeatures((lambda params, x: x * params - jnp.mean(x, axis=0), np.ones(3)), shape=(3,))
    with pytest.raises(ValueError, match="64 columns, but the inputs have 63"):
        fsp.Prior(OnFeatures(NETWORK)).check_columns(63)
    with pytest.raises(ValueError, match="halve 8 x 8 pixels to none"):
        RandomConvolutions(SHAPE, channels=(2, 2, 2, 2), key=jr.key(0))
    for channels in ((), (0,), (4, -3)):
        with pytest.raises(ValueError, match=r"channels is \(.*\); pass one layer or more"):
            RandomConvolutions(SHAPE, channels=channels, key=jr.key(0))
    for shape in ((), (-1, 8, 1)):
        with pytest.raises(ValueError, match=r"OnFeatures: shape is \(.*\); pass the sizes of one input"):
            OnFeatures((lambda params, x: x @ params, np.eye(3)), shape=shape)
