"""The prior's moments on the host, in tiles, against the prior's own at all points at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern32
from gpjax.mean_functions import Constant

from fsplaplace import Prior
from fsplaplace.host._float64 import to_double
from fsplaplace.kernels import Helmholtz
from fsplaplace.prior import moments as _prior_moments

# More points than one tile, a multiple of nothing.
POINTS = np.random.default_rng(0).uniform(-1, 1, size=(300, 2)).astype(np.float32)
PRIORS = {
    "shared": lambda: Prior(RBF(lengthscale=0.5, variance=2.0), num_outputs=3, mean=np.array([1.0, -2.0, 0.5])),
    "separate": lambda: Prior([RBF(lengthscale=0.5), Matern32(lengthscale=1.0, variance=3.0)], mean=Constant(0.7)),
    "joint": lambda: Prior(Helmholtz(RBF(lengthscale=0.8), RBF(lengthscale=0.6))),
}


@pytest.fixture(params=PRIORS)
def case(request):
    """A prior, and its moments at all points in one call."""
    prior = PRIORS[request.param]()
    with jax.enable_x64(True):
        double, x = to_double(prior), jnp.asarray(POINTS, jnp.float64)
        moments = map(np.asarray, (double.gram(x), double.covariance(x, x), double.variance(x), double.mean_at(x)))
        return prior, *moments


def test_moments_are_those_of_the_prior(case):
    prior, gram, covariance, variance, mean = case
    np.testing.assert_allclose(_prior_moments.gram(prior, POINTS), gram, atol=1e-12)
    size = POINTS.shape[0] * prior.num_outputs
    np.testing.assert_allclose(_prior_moments.covariance(prior, POINTS), covariance.reshape(size, size), atol=1e-12)
    np.testing.assert_allclose(_prior_moments.variance(prior, POINTS), variance, atol=1e-12)
    np.testing.assert_allclose(_prior_moments.mean(prior, POINTS), mean, atol=1e-12)


def test_variances_of_many_points_take_no_tiles(case):
    prior, variance = case[0], case[3]
    many = np.tile(POINTS, (8, 1))
    np.testing.assert_allclose(_prior_moments.variance(prior, many), np.tile(variance, (8, 1)), atol=1e-12)


def test_inputs_of_any_shape_are_flattened():
    prior = PRIORS["shared"]()
    images = POINTS[:40].reshape(40, 2, 1)
    np.testing.assert_array_equal(_prior_moments.gram(prior, images), _prior_moments.gram(prior, POINTS[:40]))


def test_tiles_of_many_outputs_stay_small(monkeypatch):
    """As for a thousand outputs, whose 256 points would make a tile of half a terabyte."""
    monkeypatch.setattr(_prior_moments, "_LARGEST_TILE", 100)
    prior = PRIORS["joint"]()
    assert _prior_moments._tiles(prior, POINTS)[0].shape == (5, 2)
    with jax.enable_x64(True):
        expected = to_double(prior).gram(jnp.asarray(POINTS[:13], jnp.float64))
    np.testing.assert_allclose(_prior_moments.gram(prior, POINTS[:13]), expected, atol=1e-12)


def test_another_number_of_points_compiles_nothing(compilations):
    prior = Prior(RBF(lengthscale=0.51, variance=2.0), num_outputs=4)
    compilations.clear()
    _prior_moments.gram(prior, POINTS)
    assert len(compilations) == 1
    _prior_moments.covariance(prior, POINTS[:17])
    _prior_moments.variance(prior, POINTS[:290])
    assert len(compilations) == 1
