"""Pivoted Cholesky: what is left stays a covariance, and is known exactly."""

import jax.numpy as jnp
import numpy as np
import pytest
import references

from fsplaplace.linalg import pivoted_cholesky


def factor(matrix, **options):
    matrix = jnp.asarray(matrix)
    columns, remaining = pivoted_cholesky(lambda i: matrix[:, i], jnp.diagonal(matrix), **options)
    return np.asarray(columns), np.asarray(remaining)


@pytest.fixture(scope="module")
def covariance():
    points = np.random.default_rng(1).uniform(size=(40, 2))
    return references.rbf(points, points, 0.4, variance=2.0)


@pytest.mark.parametrize("rank", [1, 5, 20])
def test_residual_is_positive_semi_definite_and_its_diagonal_is_returned(x64, covariance, rank):
    columns, remaining = factor(covariance, rank=rank, rtol=1e-12)
    residual = covariance - columns @ columns.T
    assert np.linalg.eigvalsh(residual).min() > -1e-10
    np.testing.assert_allclose(remaining, np.diag(residual), atol=1e-12)


def test_factor_is_exact_at_full_rank(x64):
    matrix = np.diag([3.0, 1.0, 2.0]) + 0.5
    columns, remaining = factor(matrix, rank=3, rtol=1e-12)
    np.testing.assert_allclose(columns @ columns.T, matrix, atol=1e-14)
    assert np.all(remaining == 0)


def test_stops_at_the_relative_tolerance(dtype, covariance):
    columns, remaining = factor(covariance, rank=40, rtol=1e-3)
    used = int(np.count_nonzero(columns.any(axis=0)))
    assert used < 40
    assert remaining.max() <= 1e-3 * 2.0
    # One column fewer would not have been enough.
    _, before = factor(covariance, rank=used - 1, rtol=1e-3)
    assert before.max() > 1e-3 * 2.0


def test_stops_at_the_wanted_share_of_the_trace(x64, covariance):
    columns, _ = factor(covariance, rank=40, rtol=1e-12, captured=0.99)
    used = int(np.count_nonzero(columns.any(axis=0)))
    assert 0.99 <= np.sum(columns**2) / np.trace(covariance) < 1
    fewer, _ = factor(covariance, rank=used - 1, rtol=1e-12)
    assert np.sum(fewer**2) / np.trace(covariance) < 0.99


def test_repeated_points_add_no_columns(x64, covariance):
    twice = np.kron(np.ones((2, 2)), covariance)
    columns, _ = factor(twice, rank=80, rtol=1e-8)
    assert np.count_nonzero(columns.any(axis=0)) <= 40
    np.testing.assert_allclose(columns @ columns.T, twice, atol=1e-6)
