"""One entry teaches the library a kernel; what an entry leaves out is found out from the kernel itself."""

import gpjax.kernels as gpk
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels.stationary.base import StationaryKernel

import fsplaplace as fsp
from fsplaplace.kernels import (
    KernelEntry,
    Remarks,
    Start,
    covariance,
    lengthscales,
    parameter_starts,
    radial_entry,
    register_kernel,
    smoothness,
    variance,
)
from fsplaplace.kernels import _registry as registry
from fsplaplace.tuning._starts import starts_from_data

X = np.linspace(0.0, 4.0, 30)[:, None]
Y = np.sin(3 * X)


class Cauchy(StationaryKernel):
    """v / (1 + s); calling it pair by pair would say something else."""

    def __call__(self, x, y):
        raise AssertionError("the entry has a covariance of its own")


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Kernels that a test registers are forgotten."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def entry() -> KernelEntry:
    radial = radial_entry(lambda kernel, s: 1 / (1 + s), lambda kernel: 7.5)
    return KernelEntry(
        radial.covariance,
        radial.variance,
        lengthscales=radial.lengthscales,
        smoothness=radial.smoothness,
        starts={
            "lengthscale": lambda data, shape: Start(5.0, 4.0, 6.0),
            "variance": lambda data, shape: Start(2, 1, 3),
        },
        remarks=lambda kernel, ranges: Remarks(
            ("functions have heavy tails.",), ("a toy",) if ranges is not None else ()
        ),
    )


def test_one_entry_teaches_every_reader():
    register_kernel(Cauchy, entry())
    kernel = Cauchy(lengthscale=0.5, variance=2.0)
    points = jnp.asarray(X)
    np.testing.assert_allclose(covariance(kernel, points, points), 2 / (1 + 4 * (X - X.T) ** 2), rtol=1e-5)
    np.testing.assert_allclose(variance(kernel, points), 2.0)
    np.testing.assert_allclose(lengthscales(kernel, 1), [[0.5]])
    assert smoothness(kernel) == (7.5,)
    prior = fsp.Prior(gpk.RBF() + kernel)
    found = starts_from_data(prior, X, Y).by_id
    assert tuple(map(float, found[id(kernel.lengthscale)][:3])) == (5.0, 4.0, 6.0)
    assert tuple(map(float, found[id(kernel.variance)][:3])) == (2.0, 1.0, 3.0)
    text = fsp.describe(prior, X, Y)
    assert "functions have heavy tails." in text.sentences
    assert "a toy" in text.warnings
    assert "7 times differentiable" in str(text)


def test_a_subclass_inherits_what_follows_from_the_parameters_only():
    """It may override the kernel function, but a period stays a period."""

    class Halved(gpk.Periodic):
        def __call__(self, x, y):
            return 0.5 * super().__call__(x, y)

    kernel, points = Halved(lengthscale=0.3, period=2.0), jnp.asarray(X)
    np.testing.assert_allclose(variance(kernel, points), 0.5, rtol=1e-6)
    found = starts_from_data(fsp.Prior(kernel), X, Y).by_id
    assert float(found[id(kernel.lengthscale)].value) == 1.0
    assert "functions repeat with period 2." in fsp.describe(fsp.Prior(kernel)).sentences


def test_an_unknown_kernel_starts_by_the_names_of_its_parameters():
    class Data:
        variance, mean_square = 4.0, 1.0

        def lengthscale(self, shape):
            return Start(np.full(shape, 0.5), 0.1, 1.0)

        def period(self):
            raise AssertionError("the kernel has no period")

    found = parameter_starts(Cauchy(lengthscale=jnp.ones(2)), Data())
    assert set(found) == {"lengthscale", "variance"}
    assert found["variance"].value == 4.0
    assert found["lengthscale"].value.shape == (2,)
