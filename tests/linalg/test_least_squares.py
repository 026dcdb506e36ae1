"""Ridge solutions, dense and matrix-free, against NumPy's least squares."""

import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from fsplaplace.host import blas_threads_for, one_blas_thread
from fsplaplace.linalg import (
    block_golub_kahan,
    eigenpairs,
    minimum_norm_solve,
    psd_factor,
    ridge,
)

DELTA = 1e-3


@pytest.fixture(scope="module")
def problem():
    """A wide matrix and targets."""
    generator = np.random.default_rng(2)
    return generator.normal(size=(15, 60)), generator.normal(size=(15, 4))


def dense_ridge(J, B, delta):
    return J.T @ np.linalg.solve(J @ J.T + delta * np.linalg.norm(J, 2) ** 2 * np.eye(J.shape[0]), B)


def golub_kahan(J, B, **options):
    return block_golub_kahan(lambda rows: J @ rows.T, lambda U: (J.T @ U).T, B, **options)


def test_minimum_norm_solve_is_the_ridge_formula(dtype, problem):
    J, B = problem
    solution = minimum_norm_solve(jnp.asarray(J), B, deltas=[DELTA])
    assert solution.rows.dtype == dtype
    assert solution.delta == DELTA
    expected = dense_ridge(J, B, DELTA)
    np.testing.assert_allclose(solution.rows.T, expected, atol=1e-6 if dtype == jnp.float32 else 1e-12)
    np.testing.assert_allclose(solution.reached, J @ expected, atol=1e-6)


def test_float32_matrix_is_solved_in_float64():
    """A condition number of 1e5 squares to 1e10 in the Gram matrix: float32 inside would return noise."""
    generator = np.random.default_rng(3)
    left, right = (np.linalg.qr(generator.normal(size=shape))[0] for shape in ((8, 8), (20, 8)))
    J = ((left * np.geomspace(1, 1e-5, 8)) @ right.T).astype(np.float32)
    B = J @ generator.normal(size=(20, 1))
    solution = minimum_norm_solve(jnp.asarray(J), B, deltas=[1e-14])
    np.testing.assert_allclose(solution.rows.T, np.linalg.pinv(J.astype(float)) @ B, rtol=0.01, atol=0.01)


def test_a_matrix_of_zeros_has_the_solution_zero(problem):
    solution = minimum_norm_solve(jnp.zeros((15, 60)), problem[1], deltas=[DELTA])
    assert not np.any(solution.rows)
    assert not np.any(solution.reached)


def test_ridge_of_a_tall_matrix_is_the_normal_equations(problem):
    M, B = problem[0].T, np.random.default_rng(4).normal(size=(60, 3))
    normal = M.T @ M + DELTA * np.linalg.norm(M, 2) ** 2 * np.eye(15)
    solution = ridge(M, B, deltas=[DELTA])
    np.testing.assert_allclose(solution.rows.T, np.linalg.solve(normal, M.T @ B), atol=1e-12)
    np.testing.assert_allclose(solution.reached, M @ solution.rows.T, atol=1e-12)


@pytest.mark.parametrize("passes", [1, 2, 4])
def test_golub_kahan_is_the_ridge_solution_once_the_basis_spans_the_rows(dtype, problem, passes):
    """15 rows and 4 targets: four blocks of four directions hold the row space, fewer do not."""
    solution = golub_kahan(*map(jnp.asarray, problem), passes=passes, deltas=[DELTA])
    expected = dense_ridge(*problem, DELTA)
    error = np.abs(solution.rows.T - expected).max()
    if passes == 4:
        assert error < (1e-5 if dtype == jnp.float32 else 1e-10)
        np.testing.assert_allclose(solution.reached, problem[0] @ expected, atol=1e-5)
    else:
        assert error > 1e-3


def test_golub_kahan_takes_more_targets_than_rows(x64, problem):
    solution = golub_kahan(jnp.asarray(problem[0]), jnp.eye(15, 16), passes=1, deltas=[DELTA])
    np.testing.assert_allclose(solution.rows.T, dense_ridge(problem[0], np.eye(15, 16), DELTA), atol=1e-11)


@pytest.mark.parametrize("matrix_free", [False, True])
def test_the_ridge_is_the_one_with_the_lowest_loss_at_the_probe(x64, problem, matrix_free):
    """Targets with noise, judged against the noiseless truth at other rows."""
    generator = np.random.default_rng(6)
    J, at_probe, truth = problem[0], generator.normal(size=(30, 60)), generator.normal(size=(60, 4))
    B = J @ truth + 3.0 * generator.normal(size=(15, 4))
    deltas = [1e-6, 1e-2, 1e-1, 1e2]

    def loss(reached):
        return float(np.linalg.norm(reached - at_probe @ truth))

    losses = {delta: loss(at_probe @ dense_ridge(J, B, delta)) for delta in deltas}
    if matrix_free:
        probe = (lambda rows: jnp.asarray(at_probe) @ rows.T, loss)
        solution = golub_kahan(jnp.asarray(J), jnp.asarray(B), passes=4, deltas=deltas, probe=probe)
    else:
        matrix = jnp.asarray(np.concatenate([J, at_probe]))
        choose = lambda reached: int(np.argmin([*map(loss, reached)]))  # noqa: E731
        solution = minimum_norm_solve(matrix, B, deltas=deltas, choose=choose)
    assert solution.delta == min(losses, key=losses.__getitem__)
    np.testing.assert_allclose(solution.rows.T, dense_ridge(J, B, solution.delta), atol=1e-8)


def test_several_ridges_need_a_probe(problem):
    with pytest.raises(ValueError, match=r"2 values of delta need a probe to choose between them"):
        ridge(problem[0].T, np.ones((60, 1)), deltas=[1e-3, 1e-6])


def test_psd_factor_is_the_positive_part_with_signed_eigenvalues():
    vectors = np.linalg.qr(np.random.default_rng(5).normal(size=(4, 4)))[0]
    columns, eigenvalues = psd_factor((vectors * [4.0, 1.0, 0.0, -2.0]) @ vectors.T)
    np.testing.assert_allclose(eigenvalues, [4, 1, 0, -2], atol=1e-14)
    np.testing.assert_allclose(columns @ columns.T, (vectors * [4.0, 1.0, 0.0, 0.0]) @ vectors.T, atol=1e-7)


def smooth_covariance(size=120):
    x = np.linspace(0, 4, size)
    return np.exp(-0.5 * (x[:, None] - x) ** 2)


@pytest.mark.parametrize("rtol", [1e-4, 1e-8])
def test_few_eigenpairs_are_those_of_the_whole_matrix(rtol):
    matrix = smooth_covariance()
    eigenvalues, eigenvectors = eigenpairs(matrix, rtol=rtol)
    wanted = np.linalg.eigvalsh(matrix)[::-1]
    assert np.sum(wanted > rtol * wanted[0]) <= eigenvalues.size <= 30
    np.testing.assert_allclose(eigenvalues, wanted[: eigenvalues.size], atol=0.01 * rtol * wanted[0])
    np.testing.assert_allclose((eigenvectors * eigenvalues) @ eigenvectors.T, matrix, atol=0.01 * rtol * wanted[0])
    large = eigenvectors[:, eigenvalues > rtol * wanted[0]]
    np.testing.assert_allclose(large.T @ large, np.eye(large.shape[1]), atol=1e-6)


def test_an_indefinite_matrix_of_low_rank_keeps_its_negative_eigenvalue():
    matrix = smooth_covariance()
    direction = np.linalg.qr(np.random.default_rng(6).normal(size=(120, 1)))[0]
    eigenvalues, _ = eigenpairs(matrix - 0.5 * direction @ direction.T, rtol=1e-6)
    assert eigenvalues[-1] < -0.4


def test_probes_may_be_rows_of_the_matrix_itself(problem):
    J, B = problem
    seen = []

    def choose(candidates):
        seen.extend(candidates)
        return 0

    solution = minimum_norm_solve(jnp.asarray(J), B, deltas=[DELTA, 10 * DELTA], choose=choose, probes=np.array([3, 1]))
    np.testing.assert_allclose(seen[0], solution.reached[[3, 1]], rtol=1e-5)


def test_one_blas_thread_restores_the_setting():
    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    with one_blas_thread():
        assert set(threads()) == {1}
        with blas_threads_for(1e11):
            assert threads() == before
        with blas_threads_for(1e6):
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == before
