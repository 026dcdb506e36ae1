"""The mathematics inside the experiments: projections, features, fields and choices made on training data alone."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import fsplaplace as fsp
from fsplaplace import datasets
from fsplaplace.experiments import get, mauna_loa, names, ocean
from fsplaplace.experiments._methods import rounded
from fsplaplace.experiments.null_space import null_space_share


@pytest.fixture(scope="module")
def co2():
    try:
        datasets.fetch("co2")
    except datasets.DatasetUnavailableError as error:
        pytest.skip(str(error))
    return mauna_loa.load()


@pytest.fixture(scope="module")
def gulf():
    try:
        datasets.fetch("gulfdrifters")
    except datasets.DatasetUnavailableError as error:
        pytest.skip(str(error))
    return ocean.load()


def test_null_space_share_equals_the_dense_projection():
    generator = np.random.default_rng(0)
    root, directions = generator.normal(size=(7, 30)), generator.normal(size=(5, 30))
    basis = np.linalg.qr(directions.T)[0]
    projector = np.eye(30) - basis @ basis.T
    curvature = root.T @ root
    expected = np.linalg.norm(projector @ curvature @ projector.T) / np.linalg.norm(curvature)
    share, rank = null_space_share(root, directions)
    assert share == pytest.approx(expected, rel=1e-10)
    assert rank == 5


def test_nothing_is_neglected_when_the_prior_sees_every_data_direction():
    root = np.random.default_rng(0).normal(size=(4, 20))
    assert null_space_share(root, np.concatenate([root, root[:2]])) == (pytest.approx(0.0, abs=1e-12), 4)


def test_mauna_loa_kernel_is_the_same_function_of_the_three_features(co2, x64):
    inputs = jnp.asarray(co2.X[::25])
    of_time = fsp.Prior(mauna_loa.kernel(co2)).gram(inputs)
    of_features = fsp.Prior(mauna_loa.feature_kernel(co2)).gram(inputs)
    np.testing.assert_allclose(of_features, of_time, rtol=1e-8)


def test_mauna_loa_split_is_chronological_and_standardised_on_the_training_months(co2):
    n = co2.num_train
    assert (len(co2.time), n) == (608, 425)
    assert np.all(np.diff(co2.time) > 0)
    assert abs(co2.y[:n].mean()) < 1e-12
    assert co2.y[:n].std() == pytest.approx(1.0)


def test_the_evidence_prefers_a_linear_mean_and_ignores_the_test_months(co2, x64):
    found, preferred = mauna_loa.choose_mean(co2)
    assert preferred == "linear"
    assert found["quadratic"]["log_marginal_likelihood"] >= found["linear"]["log_marginal_likelihood"]
    altered = co2.y.copy()
    altered[co2.num_train :] += 100.0
    assert mauna_loa.choose_mean(co2._replace(y=altered))[0] == found


def test_seasonal_context_lies_on_the_curve_of_inputs(co2):
    points = mauna_loa.SeasonalContext(-1.0, 2.0, co2.origin, co2.years).sample(50, key=jr.key(0))
    assert jnp.all((points[:, 0] >= -1.0) & (points[:, 0] <= 2.0))
    np.testing.assert_allclose(points[:, 1] ** 2 + points[:, 2] ** 2, 1.0, rtol=1e-5)


def test_helmholtz_network_parts_have_no_curl_and_no_divergence(x64):
    def scalar(key):
        return fsp.MLP(tuple(fsp.mlp([8, 8], prior=_rbf_prior(), context=_square(), key=key).layers), jnp.tanh)

    network = ocean.HelmholtzNetwork(scalar(jr.key(0)), scalar(jr.key(1)))
    still = ocean.HelmholtzNetwork(network.potential, lambda z: 0.0 * z[:1])
    swirl = ocean.HelmholtzNetwork(lambda z: 0.0 * z[:1], network.stream)
    for point in jr.normal(jr.key(2), (5, 2)):
        gradient, rotation = jax.jacfwd(still)(point), jax.jacfwd(swirl)(point)
        assert abs(gradient[0, 1] - gradient[1, 0]) < 1e-12  # curl of a gradient
        assert abs(rotation[0, 0] + rotation[1, 1]) < 1e-12  # divergence of a rotated gradient
        np.testing.assert_allclose(network(point), still(point) + swirl(point), rtol=1e-12)


def test_ocean_noise_maximises_the_evidence_of_the_readings(gulf, x64):
    from fsplaplace.tuning import log_marginal_likelihood

    prior = fsp.Prior(fsp.kernels.Helmholtz(*ocean.potential_and_stream()))
    noise, best = ocean.choose_noise(gulf, prior)
    X, y = jnp.asarray(gulf.X), jnp.asarray(gulf.y)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert log_marginal_likelihood(prior, (factor * noise) ** 2, X, y) < best


@pytest.mark.parametrize("name", names())
def test_every_preset_makes_distinct_cells_whose_counterparts_are_published(name):
    experiment = get(name)
    assert set(experiment.presets) == {"quick", "cpu", "paper"}
    for settings in experiment.presets.values():
        files = [cell.file_name for cell in experiment.cells(settings, 2)]
        assert len(files) == len(set(files)) > 0
    assert {number.method for number in experiment.published} <= set(experiment.counterparts.values())


def test_rounding_keeps_digits_and_zeros():
    assert rounded([0.0, 123.456789, -1.23456789e-7], 4) == [0.0, 123.5, pytest.approx(-1.235e-7)]


def _rbf_prior():
    return fsp.Prior(ocean._rbf(1.0, 1.0))


def _square():
    return fsp.context.Uniform(jnp.full(2, -1.0), jnp.full(2, 1.0))
