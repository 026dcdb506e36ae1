"""Weighted likelihoods against the likelihood of repeated rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paramax import unwrap

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
