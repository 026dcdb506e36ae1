"""The posterior of an image network: its variance after the fact, and what it gains over the network alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF
from sklearn.datasets import load_digits

import fsplaplace as fsp
from fsplaplace import metrics
from fsplaplace.experiments._image_pixels import packed, unpacked
from fsplaplace.experiments._image_posterior import densities, most_cautious, samples, under_variance
from fsplaplace.methods import last_layer

LIKELIHOOD = fsp.likelihoods.Categorical(10)


class Network(eqx.Module):
    """A convolution and two dense layers for 8 x 8 digits."""

    convolution: eqx.nn.Conv2d
    dense: tuple[eqx.nn.Linear, eqx.nn.Linear]

    def __init__(self, key):
        first, second, third = jr.split(key, 3)
        self.convolution = eqx.nn.Conv2d(1, 16, 3, key=first)
        self.dense = (eqx.nn.Linear(144, 64, key=second), eqx.nn.Linear(64, 10, key=third))

    def __call__(self, x):
        x = jax.nn.relu(self.convolution(jnp.moveaxis(x, -1, 0)))
        x = jnp.max(x.reshape(16, 3, 2, 3, 2), axis=(2, 4)).ravel()
        return self.dense[1](jax.nn.relu(self.dense[0](x)))


def prior(variance):
    return fsp.Prior(RBF(lengthscale=2.0, variance=variance), num_outputs=10)


def digits(seed):
    """400 digits to train on, 400 to choose with, the rest to test on."""
    found, order = load_digits(), np.random.default_rng(seed).permutation(1797)
    images = (found.images[order][..., None] / 16).astype(np.float32)
    return [(images[part], found.target[order][part]) for part in (slice(400), slice(400, 800), slice(800, None))]


def shuffled(images, seed):
    """The four quarters of each image in another order."""
    quarters = images.reshape(-1, 2, 4, 2, 4).swapaxes(2, 3).reshape(-1, 4, 16)
    mixed = np.random.default_rng(seed).permuted(quarters, axis=1)
    return mixed.reshape(-1, 2, 2, 4, 4).swapaxes(2, 3).reshape(-1, 8, 8, 1)


@pytest.mark.parametrize("factor", [0.05, 4.0])
def test_another_variance_needs_no_other_pass(factor):
    """Equal to the posterior that is computed under that prior."""
    (X, y), (x, _), _ = digits(0)
    model = last_layer(fsp.as_model(Network(jr.key(0))), X)
    options = {"context_points": X[:30], "mean": "network", "rank": 100, "key": jr.key(1)}
    first, wanted = (fsp.laplace(model, prior(v), LIKELIHOOD, X, y, **options) for v in (1.0, factor))
    found = under_variance(first, prior(factor), factor)
    np.testing.assert_allclose(found.predict(x[:50]).variance, wanted.predict(x[:50]).variance, rtol=2e-3)
    np.testing.assert_allclose(found.predict(x[:50]).mean, wanted.predict(x[:50]).mean, rtol=1e-5)
    assert np.abs(np.asarray(first.predict(x[:50]).variance / wanted.predict(x[:50]).variance) - 1).max() > 0.5


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        ({0.1: -0.2, 1.0: -0.24, 4.0: -0.26}, 1.0),
        ({0.1: -0.5, 1.0: -0.4, 4.0: -0.6}, 1.0),
        ({4.0: -0.2, 0.1: -0.21}, 4.0),
    ],
    ids=["half of the gain", "no gain: the best", "whatever the order"],
)
def test_as_much_doubt_as_the_labels_allow(scores, wanted):
    assert most_cautious(scores, of_network=-0.3) == wanted


@pytest.mark.slow
def test_the_posterior_improves_on_its_own_network():
    """Mirrored and turned digits are foreign; the posterior's variance is chosen with validation labels, nothing else is."""
    (X, y), (X_valid, y_valid), (X_test, y_test) = digits(1)
    foreign = np.rot90(X_test, 1, axes=(1, 2))[:, :, ::-1].copy()
    context = shuffled(X, 1)
    trained = fsp.train(
        fsp.as_model(Network(jr.key(1))), prior(2.0), LIKELIHOOD, fsp.context.Data(context), X, y,
        key=jr.key(3), steps=800, batch_size=100, num_context=10, progress=False,
    )  # fmt: skip
    model = trained.model
    first = fsp.laplace(
        last_layer(model, X), prior(2.0), LIKELIHOOD, X, y, context_points=np.concatenate([context[:150], X[:150]]),
        mean="network", rank=300,
    )  # fmt: skip
    under = {variance: under_variance(first, prior(variance), variance / 2.0) for variance in (0.2, 0.5, 1.0, 2.0)}
    scores = densities(under, X_valid, y_valid, key=jr.key(4))
    of_network = metrics.log_predictive_density_from_logits(y_valid, np.asarray(model(X_valid))[None])
    best = under[most_cautious(scores, float(of_network))]

    alone = [np.asarray(model(x))[None] for x in (X_test, foreign)]
    drawn = [samples(best, x, key=jr.key(4), count=400) for x in (X_test, foreign)]
    network, posterior = (
        [np.asarray(metrics.predictive_probabilities(each)) for each in both] for both in (alone, drawn)
    )
    rows = np.arange(len(y_test))
    gain = np.log(posterior[0][rows, y_test]) - np.log(network[0][rows, y_test])
    assert gain.mean() > 0
    # The calibration error of 997 labels is known to about its root: that of a right share p is sqrt(p (1 - p) / n), 0.006.
    errors = [float(metrics.expected_calibration_error(y_test, each[0])) for each in (network, posterior)]
    assert errors[1] < errors[0] + 0.006
    areas = [float(metrics.auroc(*map(metrics.predictive_entropy, each))) for each in (network, posterior)]
    assert areas[1] > areas[0]
    assert float(np.mean(best.predict(foreign).std)) > float(np.mean(best.predict(X_test).std))


def test_images_come_back_from_a_result_file_as_they_were():
    images = np.random.default_rng(0).integers(0, 256, (3, 28, 28))
    for image, text in zip(images, packed(images / 255), strict=True):
        np.testing.assert_array_equal(unpacked(text), image)
