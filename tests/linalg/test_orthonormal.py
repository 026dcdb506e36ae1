"""Orthonormal rows by matrix products, against NumPy's QR factorisation."""

import jax.numpy as jnp
import numpy as np
import pytest

from fsplaplace.linalg import orthonormal_rows


def conditioned(rows, columns, condition):
    left, _, right = np.linalg.svd(np.random.default_rng(0).normal(size=(rows, columns)), full_matrices=False)
    return (left * np.geomspace(1, 1 / condition, rows)) @ right


def projector(rows):
    rows = np.asarray(rows, dtype=float)
    return rows.T @ rows


# More columns than one product takes at a time, and a remainder.
@pytest.mark.parametrize("columns", [30, 5000])
@pytest.mark.parametrize("condition", [1.0, 1e3])
def test_spans_what_qr_spans_and_is_orthonormal(dtype, columns, condition):
    matrix = conditioned(12, columns, condition)
    rows = orthonormal_rows(jnp.asarray(matrix))
    eps = float(jnp.finfo(dtype).eps)
    assert rows.dtype == dtype
    np.testing.assert_allclose(rows @ rows.T, np.eye(12), atol=10 * eps)
    expected = np.linalg.qr(matrix.T)[0].T
    # What rounding of the matrix itself does to its span grows with the condition number.
    np.testing.assert_allclose(projector(rows), projector(expected), atol=10 * condition * eps)


def test_a_condition_number_beyond_rounding_keeps_the_span(dtype):
    matrix = jnp.asarray(conditioned(10, 40, 1e9))
    rows = orthonormal_rows(matrix)
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(rows @ rows.T, np.eye(10), atol=20 * eps)
    np.testing.assert_allclose(matrix @ projector(rows), matrix, atol=20 * eps)


def test_dependent_rows_and_rows_inside_a_block_leave_nothing_wrong(dtype):
    generator = np.random.default_rng(1)
    block = orthonormal_rows(jnp.asarray(generator.normal(size=(3, 50))))
    some = generator.normal(size=(2, 50))
    rows = np.asarray(
        orthonormal_rows(jnp.asarray(np.vstack([some, some, np.zeros((1, 50)), np.asarray(block)[:1]])), [block])
    )
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(rows @ np.asarray(block).T, 0, atol=10 * eps)
    # Each row is of length one or zero, and they are orthogonal.
    gram = rows @ rows.T
    np.testing.assert_allclose(gram, np.diag(np.round(np.diagonal(gram))), atol=20 * eps)
    off = some - (some @ np.asarray(block).T) @ np.asarray(block)
    np.testing.assert_allclose(off @ projector(rows), off, atol=100 * eps)


def test_overwrite_takes_the_memory_of_its_argument():
    matrix = jnp.asarray(conditioned(3, 10, 2.0))
    kept = orthonormal_rows(matrix)
    np.testing.assert_array_equal(orthonormal_rows(matrix, overwrite=True), kept)
    assert matrix.is_deleted()
