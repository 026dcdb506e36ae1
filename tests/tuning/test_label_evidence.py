"""The evidence of labels against dense Laplace approximations, finite differences and scikit-learn."""

import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF as GPJaxRBF
from scipy.special import expit, softmax
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

import fsplaplace as fsp
from fsplaplace.likelihoods import Bernoulli, Categorical
from fsplaplace.tuning._label_evidence import Classes, LaplaceEvidence, Squares, YesOrNo, label_evidence

KEY = jr.key(0)
N = 12


@pytest.fixture(scope="module")
def covariance():
    X = np.random.default_rng(0).normal(size=(N, 2))
    return 4 * np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1)) + 1e-6 * np.eye(N)


def counts(num_classes: int) -> np.ndarray:
    """Several labels at an input, none of a class at others."""
    found = np.random.default_rng(1).integers(0, 3, (N, num_classes)).astype(float)
    found[:, 0] += 1
    return found


def labels_of(num_outputs: int):
    return YesOrNo(counts(2)) if num_outputs == 1 else Classes(counts(num_outputs))


def dense(covariance, labels, found: LaplaceEvidence) -> float:
    """The same evidence from the curvature of all values at once."""
    assert found.coefficients is not None
    f, q = covariance @ found.coefficients, labels.num_outputs
    W = np.zeros((N, q, N, q))
    for row in range(N):
        p = softmax(f[row]) if q > 1 else expit(f[row])
        curvature = np.diag(p) - np.outer(p, p)
        W[row, :, row] = labels.counts[row].sum() * curvature
    K = np.einsum("ij,ab->iajb", covariance, np.eye(q)).reshape(N * q, N * q)
    log_determinant = np.linalg.slogdet(np.eye(N * q) + K @ W.reshape(N * q, N * q))[1]
    return labels.log_density(f) - 0.5 * float(np.sum(found.coefficients * f)) - 0.5 * log_determinant


@pytest.mark.parametrize("num_outputs", [1, 2, 3])
def test_evidence_and_slope_are_those_of_the_dense_problem(covariance, num_outputs):
    labels = labels_of(num_outputs)
    found = label_evidence(covariance, labels, None, derivatives=True)
    assert found.coefficients is not None
    assert found.slope is not None
    # At the mode the coefficients are the slope of the likelihood.
    np.testing.assert_allclose(found.coefficients, labels.slope(covariance @ found.coefficients), atol=1e-6)
    assert found.value == pytest.approx(dense(covariance, labels, found), abs=1e-9)
    direction = np.random.default_rng(2).normal(size=(N, N))
    direction, step = 0.1 * direction @ direction.T, 1e-5
    ends = [label_evidence(covariance + sign * step * direction, labels, None, derivatives=False) for sign in (1, -1)]
    assert np.sum(found.slope * direction) == pytest.approx((ends[0].value - ends[1].value) / (2 * step), rel=1e-6)


def test_squares_have_the_slope_of_their_evidence(covariance):
    labels = Squares(np.random.default_rng(5).chisquare(1, N))
    found = label_evidence(0.2 * covariance, labels, None, derivatives=True)
    assert found.slope is not None
    step = 1e-5
    ends = [label_evidence((0.2 + sign * step) * covariance, labels, None, derivatives=False) for sign in (1, -1)]
    assert np.sum(found.slope * covariance) == pytest.approx((ends[0].value - ends[1].value) / (2 * step), rel=1e-6)


def test_where_the_search_begins_changes_nothing(covariance):
    labels = labels_of(3)
    cold = label_evidence(covariance, labels, None, derivatives=False)
    warm = label_evidence(covariance, labels, 0.3 * labels.slope(np.zeros((N, 3))), derivatives=False)
    assert warm.value == pytest.approx(cold.value, abs=1e-7)


def test_two_classes_of_softmax_are_one_logit_of_twice_the_variance(covariance):
    """The difference of two independent outputs is all that softmax sees."""
    two = label_evidence(covariance, Classes(counts(2)), None, derivatives=False)
    one = label_evidence(2 * covariance, YesOrNo(counts(2)), None, derivatives=False)
    assert two.value == pytest.approx(one.value, abs=1e-7)


def test_fit_prior_finds_the_optimum_of_scikit_learn():
    generator = np.random.default_rng(3)
    X = generator.uniform(-2, 2, (60, 1))
    y = (np.sin(2 * X[:, 0]) + 0.5 * generator.normal(size=60) > 0).astype(int)
    fitted = fsp.fit_prior(
        fsp.Prior(GPJaxRBF()), X, y, Bernoulli(), key=KEY, labels="laplace", hyperpriors=False, standard_errors=False
    )
    peer = GaussianProcessClassifier(ConstantKernel(1.0) * RBF(1.0), random_state=0).fit(X, y)
    assert fitted.report.value == pytest.approx(peer.log_marginal_likelihood_value_, abs=1e-3)
    length = fitted.report["kernel.lengthscale"].after
    assert length == pytest.approx(np.exp(peer.kernel_.theta[1]), rel=2e-2)


def test_repeated_labels_count_as_their_weights():
    generator = np.random.default_rng(4)
    X, y = generator.normal(size=(20, 1)), generator.integers(0, 3, 20)
    y[:3] = [0, 1, 2]
    weights = 1.0 + (np.arange(20) < 5)
    options = {"key": KEY, "labels": "laplace", "standard_errors": False, "restarts": 1}
    prior = fsp.Prior(GPJaxRBF(), num_outputs=3)
    weighted = fsp.fit_prior(prior, X, y, Categorical(3), weights=weights, **options)
    twice = fsp.fit_prior(prior, np.concatenate([X, X[:5]]), np.concatenate([y, y[:5]]), Categorical(3), **options)
    assert weighted.report.value == pytest.approx(twice.report.value, abs=1e-6)


def test_other_problems_are_refused_by_name():
    prior = fsp.Prior((GPJaxRBF(), GPJaxRBF()))
    with pytest.raises(ValueError, match="labels='dirichlet'"):
        fsp.fit_prior(prior, np.eye(4), [0, 1, 0, 1], Categorical(2), key=KEY, labels="laplace")
