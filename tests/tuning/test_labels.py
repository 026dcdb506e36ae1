"""Dirichlet labels against sampled Gamma variables and against the formulas of Milios et al., one label at a time."""

import math

import numpy as np
import pytest

from fsplaplace.likelihoods import Bernoulli, Categorical, FromLogDensity, HeteroscedasticGaussian, Poisson
from fsplaplace.tuning import dirichlet_labels
from fsplaplace.tuning.labels import gaussian_targets


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_dirichlet_labels_match_the_moments_of_gamma_weights(epsilon):
    targets, variances = dirichlet_labels([0, 2, 1], 3, alpha_epsilon=epsilon)
    for row, label in enumerate([0, 2, 1]):
        for column in range(3):
            alpha = epsilon + (1 if column == label else 0)
            # A log-normal with these parameters has the Gamma's mean and variance, both alpha.
            mean = math.exp(targets[row, column] + variances[row, column] / 2)
            variance = (math.exp(variances[row, column]) - 1) * mean**2
            assert mean == pytest.approx(alpha)
            assert variance == pytest.approx(alpha)


def test_every_label_has_its_own_variance():
    _, variances = dirichlet_labels([0, 1], 2)
    np.testing.assert_allclose(variances, np.log(1 + 1 / np.array([[1.01, 0.01], [0.01, 1.01]])))


def test_bernoulli_targets_are_differences_of_two_classes():
    labels = np.array([[0], [1], [1]])
    values, variances = dirichlet_labels(labels[:, 0], 2)
    targets, noise = gaussian_targets(Bernoulli(), labels, alpha_epsilon=0.01)
    np.testing.assert_allclose(targets[:, 0], values[:, 1] - values[:, 0])
    np.testing.assert_allclose(noise[:, 0], variances.sum(axis=1))


def test_poisson_targets_have_the_variance_of_a_log_count():
    targets, noise = gaussian_targets(Poisson(), np.array([[0], [100]]), alpha_epsilon=0.01)
    np.testing.assert_allclose(targets[:, 0], np.log([0.5, 100.5]))
    np.testing.assert_allclose(noise[:, 0], [2.0, 1 / 100.5])


@pytest.mark.parametrize("likelihood", [HeteroscedasticGaussian(), FromLogDensity(lambda f, y: -(f[0] ** 2))])
def test_other_likelihoods_are_refused_by_name(likelihood):
    with pytest.raises(TypeError, match=type(likelihood).__name__):
        gaussian_targets(likelihood, np.zeros((3, 1)), alpha_epsilon=0.01)


def test_a_single_class_is_refused():
    with pytest.raises(ValueError, match="single class 1"):
        gaussian_targets(Categorical(3), np.array([1, 1, 1]), alpha_epsilon=0.01)


def test_a_weight_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="alpha_epsilon is 0"):
        dirichlet_labels([0, 1], 2, alpha_epsilon=0.0)
