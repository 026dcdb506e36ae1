"""Probabilities averaged over Gaussian outputs, and labels left out, against quadrature and dense problems."""

import numpy as np
import pytest
from scipy.special import expit, softmax

from fsplaplace.estimators._calibration import SHARES, averaged_probabilities, variance_share, without_own_label
from fsplaplace.tuning._label_evidence import Classes, YesOrNo, label_evidence


def test_one_output_is_averaged_as_by_quadrature():
    mean, variance = np.array([[-2.0], [0.0], [1.5]]), np.array([4.0, 9.0, 0.25])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    exact = expit(mean + np.sqrt(variance)[:, None] * nodes) @ weights / weights.sum()
    found = averaged_probabilities(mean, variance[:, None, None])
    np.testing.assert_allclose(found[:, 1], exact, atol=0.02)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


def test_a_row_has_the_same_probabilities_in_any_company():
    generator = np.random.default_rng(0)
    mean, root = generator.normal(size=(600, 3)), generator.normal(size=(600, 3, 3))
    covariance = root @ root.transpose(0, 2, 1)
    whole = averaged_probabilities(mean, covariance)
    np.testing.assert_allclose(averaged_probabilities(mean[300:303], covariance[300:303]), whole[300:303], rtol=1e-12)
    np.testing.assert_allclose(averaged_probabilities(mean, 0 * covariance), softmax(mean, axis=1), atol=1e-12)


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_a_label_left_out_is_the_posterior_without_it_to_first_order(num_outputs):
    """Many labels at nearby inputs: each moves the mode little, so that one Newton step is the whole of it."""
    generator, n = np.random.default_rng(1), 60
    X = generator.normal(size=(n, 1))
    K = 2.0 * np.exp(-0.5 * (X - X.T) ** 2) + 1e-8 * np.eye(n)
    y = generator.integers(0, max(2, num_outputs), n)
    mode, covariance = _posterior(K, y, num_outputs, np.ones(n))
    left, spread = without_own_label(mode, covariance, y, np.ones(n))
    for row in (0, 17):
        # A weight of nearly zero leaves the row in the list, but not in the data.
        weights = np.where(np.arange(n) == row, 1e-9, 1.0)
        dense_mode, dense_covariance = _posterior(K, y, num_outputs, weights)
        np.testing.assert_allclose(left[row], dense_mode[row], atol=0.03)
        np.testing.assert_allclose(spread[row], dense_covariance[row], atol=0.03)


def _posterior(K, y, num_outputs: int, weights):
    """Mode and covariance of each row's outputs, from the dense problem."""
    n, q = len(y), num_outputs
    counts = weights[:, None] * np.eye(max(2, q))[y]
    labels = YesOrNo(counts) if q == 1 else Classes(counts)
    found = label_evidence(K, labels, None, derivatives=False)
    assert found.coefficients is not None
    mode = K @ found.coefficients
    p = softmax(mode, axis=1) if q > 1 else expit(mode)
    W = np.zeros((n, q, n, q))
    for row in range(n):
        W[row, :, row] = weights[row] * (np.diag(p[row]) - np.outer(p[row], p[row]))
    W = W.reshape(n * q, n * q)
    whole = np.einsum("ij,ab->iajb", K, np.eye(q)).reshape(n * q, n * q)
    covariance = np.linalg.solve(np.eye(n * q) + whole @ W, whole).reshape(n, q, n, q)
    rows = np.arange(n)
    return mode, covariance[rows, :, rows]


def test_sure_and_right_outputs_keep_little_of_the_variance_and_wrong_ones_all():
    n = 50
    labels = np.arange(n) % 2
    mean, covariance = np.where(labels == 1, 4.0, -4.0)[:, None], np.full((n, 1, 1), 20.0)
    assert variance_share(mean, covariance, labels, np.ones(n)) == SHARES[0]
    flipped = np.where(np.arange(n) % 5 == 0, 1 - labels, labels)
    assert variance_share(mean, covariance, flipped, np.ones(n)) > SHARES[0]


def test_variance_that_no_label_has_reduced_is_not_taken_for_one_that_has():
    """A label with a leverage above one: the mean stays, and with it a share that suits outputs that are right."""
    n = 60
    labels = np.arange(n) % 3
    mean, covariance = 3.0 * np.eye(3)[labels], 400.0 * np.eye(3) * np.ones((n, 1, 1))
    left, spread = without_own_label(mean, covariance, labels, np.ones(n))
    # Softmax does not see a shift of all outputs, which has no leverage at all.
    np.testing.assert_allclose(
        left - left.mean(axis=1, keepdims=True), mean - mean.mean(axis=1, keepdims=True), atol=1e-6
    )
    np.testing.assert_allclose(spread, covariance, rtol=1e-6, atol=1e-9)
    assert variance_share(mean, covariance, labels, np.ones(n)) == SHARES[0]
