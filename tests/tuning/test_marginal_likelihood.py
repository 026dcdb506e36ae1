"""The log marginal likelihood against dense references in SciPy, and its gradient against finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern32
from scipy.stats import multivariate_normal

from fsplaplace import Prior
from fsplaplace.kernels import Helmholtz
from fsplaplace.tuning import log_marginal_likelihood
from fsplaplace.tuning._marginal_likelihood import profile_likelihood

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


def test_profile_coefficients_are_those_of_generalised_least_squares():
    generator = np.random.default_rng(2)
    X, y = generator.normal(size=(10, 1)), generator.normal(size=(10, 2))
    design = generator.normal(size=(10, 2, 3))
    prior = Prior(RBF(), num_outputs=2)
    with jax.enable_x64(True):
        value, beta, covariance = profile_likelihood(
            prior, jnp.asarray(0.2), jnp.asarray(X), jnp.asarray(y), jnp.asarray(design)
        )
        dense = np.asarray(prior.covariance(jnp.asarray(X), jnp.asarray(X))).reshape(20, 20) + 0.2 * np.eye(20)
    columns, inverse = design.reshape(20, 3), np.linalg.inv(dense)
    precision = columns.T @ inverse @ columns
    expected = np.linalg.solve(precision, columns.T @ inverse @ y.ravel())
    np.testing.assert_allclose(beta, expected, rtol=1e-6)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-6)
    density = multivariate_normal(columns @ expected, dense).logpdf(y.ravel())
    np.testing.assert_allclose(value, density, rtol=1e-6)
