"""Length scales and smoothness against what was put into the kernels."""

import gpjax.kernels as gpk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.parameters import CoregionalizationMatrix

from fsplaplace.experiments import mauna_loa_kernel as mauna_loa
from fsplaplace.kernels import Helmholtz, covariance, lengthscales, smoothness

INF = np.inf


def coregionalization():
    return CoregionalizationMatrix(num_outputs=2, rank=1, key=jax.random.key(0))


CASES = {
    "rbf": (gpk.RBF(lengthscale=0.3), [[0.3, 0.3]], (INF,)),
    "ard": (gpk.Matern32(lengthscale=jnp.array([0.3, 2.0])), [[0.3, 2.0]], (1.5,)),
    "one-column": (gpk.Matern52(lengthscale=0.4, active_dims=[1]), [[INF, 0.4]], (2.5,)),
    "slice": (gpk.Matern12(lengthscale=0.4, active_dims=slice(0, 1)), [[0.4, INF]], (0.5,)),
    "periodic": (gpk.Periodic(lengthscale=0.5, period=np.pi), [[0.5, 0.5]], (INF,)),
    "rational-quadratic": (gpk.RationalQuadratic(lengthscale=0.7), [[0.7, 0.7]], (INF,)),
    "powered-exponential": (gpk.PoweredExponential(lengthscale=0.7, power=1.2), [[0.7, 0.7]], (0.6,)),
    "gaussian-power": (gpk.PoweredExponential(power=2.0), [[1.0, 1.0]], (INF,)),
    "sum": (gpk.RBF(lengthscale=0.3) + gpk.Matern12(lengthscale=2.0), [[0.3, 0.3], [2.0, 2.0]], (INF, 0.5)),
    "product": (gpk.RBF(lengthscale=3.0) * gpk.Matern32(lengthscale=4.0), [[2.4, 2.4]], (1.5,)),
    "distributed": (
        (gpk.RBF(lengthscale=3.0) + gpk.RBF()) * gpk.Matern52(lengthscale=4.0, active_dims=[0]),
        [[2.4, 3.0], [17**-0.5 * 4, 1.0]],
        (2.5, 2.5),
    ),
    "scale-free terms": (gpk.RBF() + gpk.Linear() + gpk.Polynomial() + gpk.White(), [[1.0, 1.0]], (INF,)),
    "scale-free factor": (gpk.Linear() * gpk.Matern12(lengthscale=2.0), [[2.0, 2.0]], (0.5,)),
    "white factor": (gpk.White() * gpk.RBF(lengthscale=2.0), np.zeros((0, 2)), ()),
    "helmholtz": (Helmholtz(gpk.RBF(lengthscale=7.0), gpk.Matern52()), [[7.0, 7.0], [1.0, 1.0]], (INF, 1.5)),
    "icm": (gpk.ICMKernel(gpk.Matern12(lengthscale=0.2), coregionalization()), [[0.2, 0.2]], (0.5,)),
    "lcm": (
        gpk.LCMKernel([gpk.Matern12(), gpk.RBF(lengthscale=3.0)], [coregionalization()] * 2),
        [[1.0, 1.0], [3.0, 3.0]],
        (0.5, INF),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_components_report_what_they_were_built_with(name):
    kernel, scales, nu = CASES[name]
    np.testing.assert_allclose(lengthscales(kernel, 2), scales, rtol=1e-5)
    np.testing.assert_allclose(smoothness(kernel), nu, rtol=1e-6)


@pytest.mark.parametrize("name", ["rbf", "periodic", "rational-quadratic"])
def test_a_length_scale_is_the_curvature_of_the_correlation(name):
    kernel, _, _ = CASES[name]
    origin = jnp.zeros((1, 2))
    curvature = jax.grad(jax.grad(lambda h: covariance(kernel, origin, jnp.array([[h, 0.0]]))[0, 0]))(0.0)
    np.testing.assert_allclose(lengthscales(kernel, 2)[0, 0], (-curvature) ** -0.5, rtol=1e-5)


def test_mauna_loa_has_four_time_scales_on_its_column():
    scales = lengthscales(mauna_loa(time_scale=2.0), 3)
    season = (90.0**-2 + (0.65 / np.pi) ** -2) ** -0.5
    np.testing.assert_allclose(scales[:, 0], np.array([67.0, season, 1.2, 0.134]) / 2.0, rtol=1e-5)
    assert np.all(np.isinf(scales[:, 1:]))


class Unknown(gpk.RBF):
    """A kernel type the library has no formula for."""


class Rough(gpk.PoweredExponential):
    """Another one."""


@pytest.mark.slow
def test_a_kernel_of_unknown_form_is_probed():
    kernel = Unknown(lengthscale=jnp.array([0.3, 2.0]), variance=3.0, active_dims=[0, 2])
    np.testing.assert_allclose(lengthscales(kernel, 3), [[0.3, INF, 2.0]], rtol=1e-4)
    assert smoothness(kernel) == (INF,)


def test_probing_finds_the_roughness_and_the_e_to_minus_one_half_distance():
    kernel = Rough(lengthscale=0.5, power=1.2)
    np.testing.assert_allclose(lengthscales(kernel, 1), [[0.5 * 0.5 ** (1 / 1.2)]], rtol=1e-4)
    np.testing.assert_allclose(smoothness(kernel), (0.6,), rtol=1e-3)


def test_lengthscales_can_be_traced():
    scales = jax.jit(lambda kernel: lengthscales(kernel, 2))(gpk.RBF(lengthscale=0.3) + Unknown())
    np.testing.assert_allclose(scales, [[0.3, 0.3], [1.0, 1.0]], rtol=1e-4)
