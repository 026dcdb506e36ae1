"""The arc-cosine kernel: GPJax's values off the diagonal, the closed form on it, finite everywhere under jit."""

import gpjax.kernels as gpk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels.computations import DenseKernelComputation

from fsplaplace.kernels import covariance, lengthscales, smoothness, variance

ORDERS = (0, 1, 2)
POINTS = np.random.default_rng(0).normal(size=(40, 3))
WEIGHTS = np.cos(np.arange(1600.0)).reshape(40, 40)


def kernel(order, dtype, *, bias=0.3):
    made = gpk.ArcCosine(
        order=order, variance=2.0, weight_variance=jnp.array([0.5, 1.0, 2.0]), bias_variance=bias, active_dims=[0, 2, 1]
    )
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), made)


@pytest.mark.parametrize("order", ORDERS)
def test_values_and_gradients_equal_gpjax_in_float64(order, x64):
    x, y, weights = jnp.asarray(POINTS), jnp.asarray(POINTS[::-1] + 0.1), jnp.asarray(WEIGHTS)
    dense = DenseKernelComputation().cross_covariance

    @jax.jit
    def both(made):
        return [
            jax.value_and_grad(lambda *parts, k=function: jnp.sum(weights * k(*parts)), argnums=(0, 1, 2))(made, x, y)
            for function in (covariance, dense)
        ]

    # GPJax moves the cosine by 1e-15.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9), *both(kernel(order, "float64")))


@pytest.mark.parametrize("order", ORDERS)
def test_the_diagonal_has_its_closed_form(order, dtype):
    """J_n(0) / pi is 1, 1 and 3."""
    made, x = kernel(order, dtype), jnp.asarray(POINTS, dtype)
    squares = np.sum(POINTS[:, [0, 2, 1]] ** 2 * [0.5, 1.0, 2.0], axis=1) + 0.3
    wanted = 2.0 * (1, 1, 3)[order] * squares**order
    got = jax.jit(lambda x: (variance(made, x), jnp.diagonal(covariance(made, x, x))))(x)
    for values in got:
        np.testing.assert_allclose(values, wanted, rtol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("bias", [0.3, 0.0])
@pytest.mark.parametrize("order", ORDERS)
def test_values_and_gradients_are_finite_under_jit(order, bias, dtype):
    """Coincident and opposite points, and the origin, where the angle itself has no derivative."""
    x = jnp.asarray(np.concatenate([POINTS[:5], POINTS[:5], -POINTS[:5], np.zeros((1, 3))]), dtype)

    @jax.jit
    def value_and_gradients(made, x):
        def total(made, x):
            return jnp.sum(jnp.cos(jnp.arange(256.0)).reshape(16, 16) * covariance(made, x, x)) + jnp.sum(
                variance(made, x)
            )

        return jax.value_and_grad(total, argnums=(0, 1))(made, x)

    leaves = jax.tree.leaves(value_and_gradients(kernel(order, dtype, bias=bias), x))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)


@pytest.mark.parametrize("order", ORDERS)
def test_smoothness_is_that_of_the_networks_units(order):
    """Steps, ramps and squared ramps: nu = n + 1/2."""
    assert smoothness(kernel(order, "float32")) == (order + 0.5,)
    assert np.all(np.isfinite(lengthscales(kernel(order, "float32"), 3)))


@pytest.mark.parametrize("order", ORDERS)
def test_variances_of_many_points_are_finite_under_jit(order):
    """In float32 the cosine of a point with itself is above one at one point in a hundred."""
    x = jnp.asarray(3 * np.random.default_rng(0).normal(size=(3000, 2)), "float32")
    assert np.all(np.isfinite(jax.jit(variance)(gpk.ArcCosine(order=order), x)))
