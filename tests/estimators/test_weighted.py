"""Weighted likelihoods against the likelihood of repeated rows."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF
from paramax import unwrap

import fsplaplace as fsp
from fsplaplace.estimators._weighted import weighted
from fsplaplace.likelihoods import Bernoulli, Categorical, Gaussian

_WEIGHTS = np.array([0.0, 1.0, 2.0, 3.0])
_CASES = [
    (Gaussian(0.3), 2, np.linspace(-1, 1, 8).reshape(4, 2)),
    (Gaussian([0.3, 0.5]), 2, np.linspace(-1, 1, 8).reshape(4, 2)),
    (Bernoulli(), 1, np.array([[0], [1], [1], [0]])),
    (Categorical(3), 3, np.array([0, 1, 2, 1])),
]


@pytest.mark.parametrize(("likelihood", "width", "targets"), _CASES, ids=lambda value: type(value).__name__)
def test_a_weight_is_a_number_of_observations(likelihood, width, targets):
    with jax.enable_x64(True):
        outputs = jnp.asarray(np.random.default_rng(0).normal(size=(4, width)))
        targets = jnp.asarray(targets)
        once = weighted(likelihood, _WEIGHTS)
        each = likelihood.log_prob(outputs, targets)
        np.testing.assert_allclose(once.log_prob(outputs, targets), _WEIGHTS * each, rtol=1e-6)
        curvature = _WEIGHTS[:, None, None] * likelihood.curvature(outputs, targets)
        np.testing.assert_allclose(once.curvature(outputs, targets), curvature, rtol=1e-6, atol=1e-9)
        vectors = jnp.asarray(np.random.default_rng(1).normal(size=(4, width, 5)))
        np.testing.assert_allclose(
            once.curvature_product(outputs, targets, vectors), curvature @ vectors, rtol=1e-6, atol=1e-8
        )
        part = once.rows(slice(1, 3))
        np.testing.assert_allclose(part.log_prob(outputs[1:3], targets[1:3]), (_WEIGHTS * each)[1:3], rtol=1e-6)


def test_a_gaussian_row_of_weight_four_has_half_the_scale():
    likelihood = weighted(Gaussian(0.6), np.array([1.0, 4.0]))
    assert isinstance(likelihood, Gaussian)
    np.testing.assert_allclose(likelihood.scale, [[0.6], [0.3]], rtol=1e-6)
    np.testing.assert_allclose(np.exp(unwrap(likelihood.log_scale)), 0.6, rtol=1e-6)


def test_the_noise_with_the_highest_evidence_counts_a_weight_as_observations():
    """Rows once, twice or not at all by weight, against the same rows written out."""
    generator = np.random.default_rng(2)
    X, weights = generator.uniform(-1, 1, (12, 1)), np.repeat([0.0, 1.0, 2.0], 4)
    y = np.sin(3 * X[:, 0]) + 0.3 * generator.normal(size=12)
    index = np.repeat(np.arange(12), weights.astype(int))
    with jax.enable_x64(True):
        prior = fsp.Prior(RBF(lengthscale=0.5))
        model = fsp.as_model(fsp.mlp([10], prior=prior, context=fsp.context.Uniform(-1.0, 1.0), key=jr.key(0)))
        options = {
            "context_points": np.linspace(-1, 1, 20)[:, None], "include_training": False, "delta": 1e-8,
            "missed_as_noise": False,
        }  # fmt: skip
        once = fsp.laplace(model, prior, weighted(Gaussian(0.1), weights), X, y, **options)
        repeated = fsp.laplace(model, prior, Gaussian(0.1), X[index], y[index], **options)
    assert repeated.diagnostics.noise_factor < 0.8
    assert once.diagnostics.noise_factor == pytest.approx(repeated.diagnostics.noise_factor, rel=1e-3)
