"""The Mauna Loa kernel against the formula of Rasmussen and Williams, Section 5.4.3."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fsplaplace.experiments import mauna_loa_kernel as mauna_loa
from fsplaplace.kernels import covariance


def rasmussen_williams(s, t):
    d = s[:, None] - t[None, :]
    trend = 66.0**2 * np.exp(-(d**2) / (2 * 67.0**2))
    season = 2.4**2 * np.exp(-(d**2) / (2 * 90.0**2) - 2 * np.sin(np.pi * d) ** 2 / 1.3**2)
    irregularity = 0.66**2 * (1 + d**2 / (2 * 0.78 * 1.2**2)) ** -0.78
    weather = 0.18**2 * np.exp(-(d**2) / (2 * 0.134**2))
    return trend + season + irregularity + weather


def times(dtype):
    rng = np.random.default_rng(0)
    return (np.sort(1958.0 + 66.0 * rng.random(size)).astype(dtype) for size in (30, 25))


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-6), ("float64", 1e-12)])
def test_kernel_equals_the_published_formula(dtype, rtol):
    with jax.enable_x64(True):
        s, t = times(dtype)
        kernel = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), mauna_loa())
        wanted = rasmussen_williams(s.astype("float64"), t.astype("float64"))
        np.testing.assert_allclose(covariance(kernel, s[:, None], t[:, None]), wanted, rtol=rtol)


def test_standardised_data_and_time_give_the_same_kernel_in_their_units():
    with jax.enable_x64(True):
        s, t = times("float64")
        kernel = mauna_loa(scale=14.0, time_scale=9.5)
        got = covariance(kernel, (s[:, None] - 1990.0) / 9.5, (t[:, None] - 1990.0) / 9.5)
        np.testing.assert_allclose(14.0**2 * got, rasmussen_williams(s, t), rtol=1e-12)


def test_only_the_time_column_is_read():
    with jax.enable_x64(True):
        s, t = times("float64")
        features = [np.stack([np.sin(u), u, np.cos(u)], axis=1) for u in (s, t)]
        got = covariance(mauna_loa(active_dims=[1]), *features)
        np.testing.assert_allclose(got, rasmussen_williams(s, t), rtol=1e-12)
