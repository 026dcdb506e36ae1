"""Circle features against the sines of the periodic kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels import Periodic
from gpjax.parameters import val

from fsplaplace.kernels._distance import squared_distance
from fsplaplace.kernels._periodic import periodic_features


@pytest.mark.parametrize("period", [1.0, 0.37, 12.5])
@pytest.mark.parametrize("offset", [0.0, 2000.0])
def test_feature_distances_are_squared_sines_many_cycles_from_the_origin(period, offset):
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(offset + 50.0 * rng.random((40, 2)), jnp.float32) for _ in range(2))
    kernel = Periodic(lengthscale=jnp.array([0.6, 1.5]), period=period)
    p, lengthscale = np.float64(val(kernel.period)), np.asarray(val(kernel.lengthscale), np.float64)
    difference = np.asarray(x, np.float64)[:, None] - np.asarray(y, np.float64)[None]
    wanted = np.sum((np.sin(np.pi * difference / p) / lengthscale) ** 2, axis=-1)
    np.testing.assert_allclose(squared_distance(*periodic_features(kernel, x, y)), wanted, atol=5e-6)


def test_derivative_in_the_period_equals_that_of_the_sines():
    with jax.enable_x64(True):
        x, y = jnp.array([[3.1], [-20.4]]), jnp.array([[0.2], [7.7], [90.3]])

        def by_features(period):
            features = periodic_features(Periodic(lengthscale=0.8, period=period), x, y)
            return squared_distance(*features)

        def by_sines(period):
            return (jnp.sin(jnp.pi * (x - y.T) / period) / 0.8) ** 2

        got, wanted = jax.jacobian(by_features)(1.7), jax.jacobian(by_sines)(1.7)
        np.testing.assert_allclose(got, wanted, rtol=1e-9)
