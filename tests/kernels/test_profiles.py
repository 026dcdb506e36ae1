"""Radial profiles: derivatives in the squared distance against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fsplaplace.kernels import _profiles as profiles

# Value, first and second derivative at s = 0 of profiles that have them.
TAYLOR = {
    "rbf": (profiles.rbf, 1.0, -0.5, 0.25),
    "rational_quadratic": (lambda s: profiles.rational_quadratic(s, 2.0), 1.0, -0.5, 0.375),
    "matern52": (profiles.matern52, 1.0, -5.0 / 6.0, 25.0 / 12.0),
}


@pytest.mark.parametrize("name", TAYLOR)
def test_derivatives_at_zero_distance_are_the_taylor_coefficients(name):
    profile, value, first, second = TAYLOR[name]
    derivatives = [profile(0.0), jax.grad(profile)(0.0), jax.grad(jax.grad(profile))(0.0)]
    np.testing.assert_allclose(derivatives, [value, first, second], rtol=1e-6)


def test_matern32_has_its_first_derivative_at_zero_distance():
    np.testing.assert_allclose(jax.grad(profiles.matern32)(0.0), -1.5, rtol=1e-6)


@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52"])
def test_derivatives_away_from_zero_equal_finite_differences(name):
    with jax.enable_x64(True):
        profile, s, step = getattr(profiles, name), 0.7, 1e-4
        slope = (profile(s + step) - profile(s - step)) / (2 * step)
        curvature = (profile(s + step) - 2 * profile(s) + profile(s - step)) / step**2
        np.testing.assert_allclose(jax.grad(profile)(s), slope, rtol=1e-6)
        np.testing.assert_allclose(jax.grad(jax.grad(profile))(s), curvature, rtol=1e-5)


@pytest.mark.parametrize("power", [0.5, 1.0, 1.7])
def test_powered_exponential_has_finite_derivatives_at_zero_distance(power):
    by_distance, by_power = jax.grad(profiles.powered_exponential, argnums=(0, 1))(0.0, power)
    assert np.isfinite(by_distance)
    assert np.isfinite(by_power)


def test_rational_quadratic_tends_to_the_rbf():
    s = jnp.linspace(0.0, 20.0, 9)
    np.testing.assert_allclose(profiles.rational_quadratic(s, 1e6), profiles.rbf(s), rtol=1e-4)
