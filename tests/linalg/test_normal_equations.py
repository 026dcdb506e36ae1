"""Normal equations from blocks of rows, against the ridge formula."""

import numpy as np
import pytest

from fsplaplace.linalg import Probe, normal_equations


@pytest.fixture(scope="module")
def problem():
    """A tall matrix and targets."""
    generator = np.random.default_rng(2)
    return generator.normal(size=(50, 12)), generator.normal(size=(50, 4))


def blocks(J, B, size=7):
    return ((J[start : start + size], B[start : start + size]) for start in range(0, J.shape[0], size))


def ridge_formula(J, B, delta):
    return np.linalg.solve(J.T @ J + delta * np.linalg.norm(J, 2) ** 2 * np.eye(J.shape[1]), J.T @ B)


def test_blocks_of_rows_give_the_ridge_formula_and_its_misfit(problem):
    J, B = problem
    solution = normal_equations(blocks(J, B), deltas=[1e-3])
    expected = ridge_formula(J, B, 1e-3)
    np.testing.assert_allclose(solution.rows.T, expected, rtol=1e-10)
    misfit = np.linalg.norm(J @ expected - B, axis=0) / np.linalg.norm(B, axis=0)
    np.testing.assert_allclose(solution.misfit, misfit, rtol=1e-10)


def test_the_ridge_with_the_lowest_loss_at_the_probe_is_taken(problem):
    J, B = problem
    deltas, wanted = [1e-6, 1e-4, 1e-2, 1e-1], 1e-2
    further = np.random.default_rng(3).normal(size=(5, 12))
    target = further @ ridge_formula(J, B, wanted)
    probe = Probe(further, lambda reached: float(np.linalg.norm(reached - target)))
    assert normal_equations(blocks(J, B), deltas=deltas, probe=probe).delta == wanted
    with pytest.raises(ValueError, match="4 values of delta need a probe"):
        normal_equations(blocks(J, B), deltas=deltas)


def test_a_zero_matrix_has_the_zero_solution():
    solution = normal_equations([(np.zeros((5, 3)), np.ones((5, 2)))], deltas=[1e-10])
    np.testing.assert_array_equal(solution.rows, 0)
    np.testing.assert_array_equal(solution.misfit, 1)


def test_float32_blocks_are_summed_in_float64():
    """A condition number of 1e5 squares to 1e10: float32 sums would return noise."""
    generator = np.random.default_rng(4)
    left, right = (np.linalg.qr(generator.normal(size=(n, 12)))[0] for n in (80, 12))
    J = ((left * np.logspace(0, -5, 12)) @ right.T).astype(np.float32)
    expected = generator.normal(size=(12, 2))
    B = J.astype(np.float64) @ expected
    np.testing.assert_allclose(normal_equations(blocks(J, B), deltas=[1e-14]).rows.T, expected, rtol=0.05)
