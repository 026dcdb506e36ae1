"""The inverse factor of Lanczos against dense inverses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fsplaplace.linalg import lanczos_inverse_factor


def matrix_with(eigenvalues, seed=0):
    """A symmetric matrix with these eigenvalues, and a vector with a part along each eigenvector."""
    size = len(eigenvalues)
    generator = np.random.default_rng(seed)
    vectors = np.linalg.qr(generator.normal(size=(size, size)))[0]
    return (vectors * np.asarray(eigenvalues)) @ vectors.T, vectors @ np.ones(size)


def run(matrix, start, rank):
    matrix, start = jnp.asarray(matrix), jnp.asarray(start)
    tolerance = float(jnp.finfo(start.dtype).eps) ** 0.5
    columns, used = jax.jit(lambda K, v: lanczos_inverse_factor(lambda w: K @ w, v, rank=rank, tolerance=tolerance))(
        matrix, start
    )
    return np.asarray(columns), int(used)


def test_full_rank_factor_is_the_inverse(dtype):
    matrix, start = matrix_with(np.linspace(0.5, 3.0, 12))
    columns, used = run(matrix, start, 12)
    assert used == 12
    error = 1e-4 if dtype == jnp.float32 else 1e-10
    np.testing.assert_allclose(columns @ columns.T, np.linalg.inv(matrix), atol=error)


def test_singular_matrix_gives_its_pseudo_inverse(x64):
    matrix, _ = matrix_with([0.0, 0.0, 0.0, 0.5, 1.0, 2.0])
    start = matrix @ np.arange(1.0, 7.0)
    columns, used = run(matrix, start, 6)
    assert used == 3
    np.testing.assert_allclose(columns @ columns.T, np.linalg.pinv(matrix, rcond=1e-9), atol=1e-9)


def test_one_direction_per_distinct_eigenvalue(x64):
    """Why independent outputs need one run each: equal eigenvalues share a single Krylov direction."""
    matrix, start = matrix_with([1.0] * 5 + [2.0] * 5 + [3.0] * 5)
    columns, used = run(matrix, start, 15)
    assert used == 3
    assert not np.any(columns[:, 3:])
    # Inside the Krylov space it is still the inverse.
    np.testing.assert_allclose(columns @ columns.T @ (matrix @ start), start, atol=1e-10)


def test_rank_limit_leaves_a_factor_below_the_inverse(x64):
    matrix, start = matrix_with(np.geomspace(1e-3, 1.0, 20))
    columns, used = run(matrix, start, 7)
    assert columns.shape == (20, 7)
    assert used == 7
    missing = np.linalg.eigvalsh(np.linalg.inv(matrix) - columns @ columns.T)
    assert missing.min() > -1e-8 * missing.max()


@pytest.mark.parametrize("start", [np.zeros(4), np.array([1.0, 0.0, 0.0, 0.0])])
def test_exhausted_krylov_space_ends_the_iteration(x64, start):
    columns, used = run(np.diag([4.0, 1.0, 1.0, 1.0]), start, 4)
    assert used == np.count_nonzero(start)
    np.testing.assert_allclose(columns @ columns.T, np.diag(start / 4), atol=1e-15)
