"""The log marginal likelihood against dense references in SciPy, and its gradient against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern32
from gpjax.mean_functions import AbstractMeanFunction
from jax import Array
from scipy.stats import multivariate_normal

from fsplaplace import Prior
from fsplaplace.kernels import Helmholtz
from fsplaplace.means import Linear
from fsplaplace.tuning import log_marginal_likelihood
from fsplaplace.tuning._problem import set_up
from fsplaplace.tuning._profile import profile
from fsplaplace.tuning._repeats import distinct_rows

PRIORS = {
    "one output": (Prior(RBF(lengthscale=0.5, variance=2.0)), 1),
    "shared": (Prior(RBF(lengthscale=0.5), num_outputs=2), 2),
    "separate": (Prior([RBF(lengthscale=0.5), Matern32()]), 2),
    "joint": (Prior(Helmholtz(RBF(), RBF(lengthscale=0.7))), 2),
}
NOISE = {"scalar": lambda n, q: 0.3, "per output": lambda n, q: np.arange(1, q + 1) / 5, "per datum": None}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("structure", PRIORS)
def test_log_marginal_likelihood_equals_the_dense_normal_density(structure, noise):
    prior, q = PRIORS[structure]
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(12, 2)), generator.normal(size=(12, q))
    variance = generator.uniform(0.1, 1.0, (12, q)) if NOISE[noise] is None else NOISE[noise](12, q)
    with jax.enable_x64(True):
        ours = log_marginal_likelihood(prior, jnp.asarray(variance), jnp.asarray(X), jnp.asarray(y))
        dense = np.asarray(prior.covariance(jnp.asarray(X), jnp.asarray(X))).reshape(12 * q, 12 * q)
    dense = dense + np.diag(np.broadcast_to(variance, (12, q)).ravel())
    np.testing.assert_allclose(ours, multivariate_normal(np.zeros(12 * q), dense).logpdf(y.ravel()), rtol=1e-6)


def test_gradient_equals_finite_differences():
    generator = np.random.default_rng(1)
    X, y = generator.normal(size=(15, 1)), generator.normal(size=(15, 1))

    def value(log):
        prior = Prior(RBF(lengthscale=jnp.exp(log[0]), variance=jnp.exp(log[1])))
        return log_marginal_likelihood(prior, jnp.exp(log[2]), jnp.asarray(X), jnp.asarray(y))

    with jax.enable_x64(True):
        at = jnp.array([-0.3, 0.4, -1.0])
        gradient = jax.jit(jax.grad(value))(at)
        jitted = jax.jit(value)
        steps = 1e-5 * np.eye(3)
        numeric = [(jitted(at + step) - jitted(at - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5)


def _search(prior, X, y, noise_scale, **options):
    """What `fit_prior` maximises, and the vector of its parameters."""
    rows = distinct_rows(X, y, np.ones(len(X)))
    return set_up(
        prior, rows, noise_scale=np.asarray(noise_scale), **{"shared_constant": False, "hyperpriors": True} | options
    )


@pytest.mark.parametrize("structure", PRIORS)
def test_what_fit_prior_maximises_is_the_same_density_for_any_number_of_rows(structure):
    """In tiles of 128 rows, on the host, against the dense density; n on both sides of a tile, some rows repeated."""
    prior, q = PRIORS[structure]
    generator = np.random.default_rng(4)
    X, y = generator.normal(size=(131, 2)), generator.normal(size=(131, q))
    X[2] = X[0]
    scale = np.linspace(0.3, 0.5, q) if structure == "shared" else np.asarray(0.3)
    with jax.enable_x64(True):
        dense = np.asarray(prior.covariance(jnp.asarray(X), jnp.asarray(X))).reshape(131 * q, 131 * q)
        for n in (3, 40, 128, 129, 131):
            known = _search(prior, X[:n], y[:n], scale)
            value = known.problem.evaluate(known.given).value
            noise = np.broadcast_to(scale**2, (n, q)).ravel()
            expected = multivariate_normal(np.zeros(n * q), dense[: n * q, : n * q] + np.diag(noise))
            np.testing.assert_allclose(value, expected.logpdf(y[:n].ravel()), rtol=1e-7)


@pytest.mark.parametrize("structure", PRIORS)
def test_its_gradient_equals_differences_of_its_values(structure):
    prior, q = PRIORS[structure]
    generator = np.random.default_rng(5)
    X, y = generator.normal(size=(30, 2)), generator.normal(size=(30, q))
    X[3] = X[4]
    mean = (
        _Curved(jnp.ones(()))
        if structure == "separate"
        else {"shared": Linear(np.zeros((2, 2)), np.zeros(2))}.get(structure)
    )
    prior = Prior(prior.kernel, mean=mean, num_outputs=prior.num_outputs)
    with jax.enable_x64(True):
        known = _search(prior, X, y, np.full(q, 0.5))
        at = known.box.clip(known.start + 0.1 * known.box.unit * generator.normal(size=known.start.size))
        gradient = known.problem(at)[1]
        steps = 1e-5 * np.diag(known.box.unit)
        numeric = [(known.problem(at + step)[0] - known.problem(at - step)[0]) / 2e-5 for step in steps]
    free = ~known.box.fixed
    np.testing.assert_allclose((gradient * known.box.unit)[free], np.asarray(numeric)[free], rtol=1e-5, atol=1e-6)


class _Curved(AbstractMeanFunction):
    """A mean that is not linear in its parameter, which is therefore searched for."""

    rate: Array

    def __call__(self, x):
        return jnp.sin(self.rate * x[:, :1])


def test_profile_coefficients_are_those_of_generalised_least_squares():
    generator = np.random.default_rng(2)
    X, y = generator.normal(size=(10, 1)), generator.normal(size=(10, 2))
    design = generator.normal(size=(10, 2, 3))
    covariance = np.exp(-0.5 * (X - X.T) ** 2)
    found = profile(covariance[None].copy(), np.full((1, 10), 0.2), y[None], design[None], derivatives=False)
    dense = np.kron(covariance + 0.2 * np.eye(10), np.eye(2))
    columns, inverse = design.reshape(20, 3), np.linalg.inv(dense)
    precision = columns.T @ inverse @ columns
    expected = np.linalg.solve(precision, columns.T @ inverse @ y.ravel())
    np.testing.assert_allclose(found.beta, expected, rtol=1e-6)
    np.testing.assert_allclose(found.beta_covariance, np.linalg.inv(precision), rtol=1e-6)
    density = multivariate_normal(columns @ expected, dense).logpdf(y.ravel())
    np.testing.assert_allclose(found.value, density, rtol=1e-6)
