"""Noise that varies with the inputs: found where it is there, left alone where it is not."""

import json

import numpy as np
import pytest
from gpjax.kernels import Matern32
from scipy.stats import norm

import fsplaplace as fsp
from fsplaplace.estimators import FSPRegressor, _noise_network, weighted
from fsplaplace.estimators._noise import LEAST_GAIN, NoiseProfile
from fsplaplace.estimators._noise_network import LogNetwork, Misses, NoiseNetworks
from fsplaplace.likelihoods import Gaussian
from fsplaplace.tuning import fit_log_variance

SMALL = {"kernel": "rbf", "network": (30, 30), "steps": 300, "num_context": 96, "random_state": 0}


def scale_at(X: np.ndarray) -> np.ndarray:
    return np.exp(-2 + 1.5 * X[:, 0])


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (320, 1))
    return X, 3 + 10 * (np.sin(3 * X[:, 0]) + scale_at(X) * generator.normal(size=320))


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    return FSPRegressor(noise="auto", **SMALL).fit(X[:200], y[:200])


def test_a_log_variance_is_found_and_a_constant_one_is_not_left():
    generator = np.random.default_rng(1)
    X = generator.uniform(-1, 1, (300, 2))
    squares = generator.chisquare(1, 300)
    constant = fit_log_variance(fsp.Prior(Matern32()), X, squares)
    assert constant.gain < LEAST_GAIN
    truth = np.exp(2 * X[:, 0])
    found = fit_log_variance(fsp.Prior(Matern32()), X, truth * squares)
    assert found.gain > 20
    at = generator.uniform(-0.9, 0.9, (50, 2))
    np.testing.assert_allclose(np.log(found.variance(at)), 2 * at[:, 0], atol=0.8)
    # In another unit of the squares the same function, moved.
    moved = fit_log_variance(fsp.Prior(Matern32()), X, 1e6 * truth * squares)
    np.testing.assert_allclose(np.log(moved.variance(at) / found.variance(at)), np.log(1e6), atol=1e-2)
    assert moved.gain == pytest.approx(found.gain, abs=1e-2)


def test_squares_that_are_none_are_refused():
    with pytest.raises(ValueError, match="none of them negative"):
        fit_log_variance(fsp.Prior(Matern32()), np.eye(3), [-1.0, 1.0, 1.0])


@pytest.mark.slow
def test_auto_finds_noise_that_varies(fitted, data):
    X, y = data
    assert fitted.noise_profile_ is not None
    found, truth = fitted.noise_std(X[200:]), 10 * scale_at(X[200:])
    assert np.corrcoef(np.log(found), np.log(truth))[0, 1] > 0.9
    constant = FSPRegressor(**SMALL).fit(X[:200], y[:200])
    density = [np.mean(norm.logpdf(y[200:], *model.predict(X[200:], return_std=True))) for model in (fitted, constant)]
    assert density[0] > density[1] + 0.2
    assert constant.noise_profile_ is None
    np.testing.assert_allclose(constant.noise_std(X[:3]), constant.noise_)


@pytest.mark.slow
def test_everything_that_has_noise_has_the_one_that_varies(fitted, data):
    X = data[0][200:203]
    noise = fitted.noise_std(X)
    _, std = fitted.predict(X, return_std=True)
    _, covariance = fitted.predict(X, return_cov=True)
    np.testing.assert_allclose(np.diagonal(covariance), std**2, rtol=1e-6)
    functions = fitted.sample_y(X, n_samples=2000, random_state=0, noise=False)
    targets = fitted.sample_y(X, n_samples=2000, random_state=0)
    np.testing.assert_allclose((targets - functions).std(axis=1), noise, rtol=0.1)
    assert "varying from" in " ".join(str(fitted).split())
    # New rows where there is more noise say less.
    low, high = (np.array([[where]]) for where in (-0.8, 0.8))
    before, after = [
        [model.predict(at, return_std=True)[1][0] ** 2 - model.noise_std(at)[0] ** 2 for at in (low, high)]
        for model in (fitted, fitted.condition(np.repeat([low[0], high[0]], 5, axis=0), np.zeros(10)))
    ]
    assert after[0] / before[0] < after[1] / before[1]


def test_a_relative_scale_is_a_scale_of_each_row():
    generator = np.random.default_rng(2)
    outputs, targets = generator.normal(size=(2, 4, 2)).astype(np.float32)
    relative = np.full((4, 2), 2.0)
    relative[1] = [0.5, 3.0]
    likelihood, plain = weighted(Gaussian(0.3), np.ones(4), relative), Gaussian(0.3 * relative)
    np.testing.assert_allclose(likelihood.log_prob(outputs, targets), plain.log_prob(outputs, targets), rtol=1e-5)
    found, expected = likelihood.noise((4, 2)), plain.noise((4, 2))
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-5)
    assert found.log_normaliser == pytest.approx(expected.log_normaliser, rel=1e-5)
    np.testing.assert_allclose(likelihood.rows(slice(1, 3)).scale, 0.3 * relative[1:3], rtol=1e-5)


def test_a_profile_has_one_function_for_each_target():
    generator = np.random.default_rng(3)
    X = generator.uniform(-1, 1, (120, 1))
    squares = generator.chisquare(1, (120, 2)) * np.exp(np.column_stack([2 * X[:, 0], -2 * X[:, 0]]))
    relative = NoiseProfile.of(X, squares).relative(np.array([[-0.9], [0.9]]))
    assert relative[1, 0] > relative[0, 0]
    assert relative[1, 1] < relative[0, 1]


def test_varying_noise_is_refused_by_other_methods():
    with pytest.raises(ValueError, match="noise is 'varying', which method='gp' has not"):
        FSPRegressor(noise="varying", method="gp").fit(np.arange(6.0)[:, None], np.arange(6.0))


def misses(X: np.ndarray, log: np.ndarray, seed: int) -> Misses:
    """What a perfect mean misses under a noise of this logarithm, the function being known to a tenth of the noise."""
    generator = np.random.default_rng(seed)
    variance = np.full(len(X), 0.1)
    return Misses((variance + np.exp(log)) * generator.chisquare(1, len(X)), variance, np.ones(len(X)))


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(_noise_network, "_STEPS", 500)


def test_networks_find_noise_that_varies_and_leave_constant_noise_alone(few_steps):
    generator = np.random.default_rng(4)
    X = generator.normal(size=(1500, 3))
    log = np.sin(2 * X[:, 0]) + X[:, 1]
    found = NoiseNetworks.of(X, (misses(X, log, 0), misses(X, np.zeros(1500), 1)), np.random.default_rng(0))
    assert found.varies
    at = generator.normal(size=(400, 3))
    logs = 2 * np.log(found.relative(at))
    assert np.corrcoef(logs[:, 0], np.sin(2 * at[:, 0]) + at[:, 1])[0, 1] > 0.85
    assert np.std(logs[:, 1]) < 0.2
    assert not NoiseNetworks.of(X[:600], (misses(X[:600], np.zeros(600), 2),), np.random.default_rng(0)).varies
    # Far outside they say what they said at the edge of the data.
    assert np.all(2 * np.log(found.relative(1e6 * at)[:, 0]) <= found.limits[0][1] - found.levels[0] + 1e-12)


def test_the_size_of_varying_noise_is_that_of_rows_held_out(few_steps):
    X = np.random.default_rng(8).normal(size=(800, 1))
    found = NoiseNetworks.of(X[:400], (misses(X[:400], X[:400, 0], 5),), np.random.default_rng(0))
    moved = found.levelled(X[400:], (misses(X[400:], X[400:, 0] + 1.5, 6),))
    assert np.mean(2 * np.log(moved.relative(X)) - X) == pytest.approx(1.5, abs=0.3)
    # Only the size is new.
    change = np.log(moved.relative(X) / found.relative(X))
    np.testing.assert_allclose(change, change[0, 0], atol=1e-9)


def test_the_gradient_of_a_noise_network_is_that_of_its_loss():
    generator = np.random.default_rng(5)
    X = generator.normal(size=(7, 2))
    of_rows = misses(X, X[:, 0], 3)._replace(weights=generator.uniform(0.5, 2, 7))
    network = LogNetwork.constant(2, 0.3, generator)
    network = LogNetwork((*network.layers[:2], (generator.normal(size=(32, 1)), np.full(1, 0.3))))
    for number, slopes in enumerate(network.gradient(X, of_rows)):
        for place, slope in enumerate(slopes):
            direction = generator.normal(size=slope.shape)

            def loss(size, number=number, place=place, direction=direction):
                layers = [list(layer) for layer in network.layers]
                layers[number][place] = layers[number][place] + size * direction
                return np.mean(of_rows.loss(LogNetwork(tuple(map(tuple, layers)))(X)))

            assert (loss(1e-5) - loss(-1e-5)) / 2e-5 == pytest.approx(np.sum(slope * direction), rel=1e-5, abs=1e-9)


def test_noise_networks_go_through_a_file_and_others_are_refused(few_steps):
    X = np.random.default_rng(6).normal(size=(300, 2))
    found = NoiseNetworks.of(X, (misses(X, X[:, 0], 4),), np.random.default_rng(0))
    content = json.loads(json.dumps(found.described()))
    again = NoiseNetworks.restored(content, 2)
    assert again is not None
    np.testing.assert_array_equal(again.relative(X), found.relative(X))
    assert NoiseNetworks.restored(content, 3) is None
    for broken in ({}, [], "x", content | {"limits": [2.0, 1.0]}, content | {"networks": []}, content | {"level": 1e6}):
        assert NoiseNetworks.restored(broken, 2) is None
    content["networks"][0][1][0][0][0] = float("nan")
    assert NoiseNetworks.restored(content, 2) is None


@pytest.mark.slow
def test_many_rows_have_varying_noise_by_default():
    generator = np.random.default_rng(7)
    X = generator.uniform(-1, 1, (2600, 1))
    y = np.sin(3 * X[:, 0]) + 2 * scale_at(X) * generator.normal(size=2600)
    small = SMALL | {"network": (20,), "steps": 150}
    fitted = FSPRegressor(**small).fit(X[:2200], y[:2200])
    assert isinstance(fitted.noise_profile_, NoiseNetworks)
    np.testing.assert_allclose(fitted.noise_std(X[2200:]) / (2 * scale_at(X[2200:])), 1, atol=0.35)
    constant = FSPRegressor(noise="constant", **small).fit(X[:2200], y[:2200])
    density = [
        np.mean(norm.logpdf(y[2200:], *model.predict(X[2200:], return_std=True))) for model in (fitted, constant)
    ]
    assert density[0] > density[1] + 0.2
