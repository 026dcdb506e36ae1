"""Orthonormal rows by matrix products, against NumPy's QR factorisation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fsplaplace.linalg import Basis, _orthonormal, orthonormal_rows


def conditioned(rows, columns, condition, *, seed=0):
    left, _, right = np.linalg.svd(np.random.default_rng(seed).normal(size=(rows, columns)), full_matrices=False)
    return (left * np.geomspace(1, 1 / condition, rows)) @ right


def projector(rows):
    rows = np.asarray(rows, dtype=float)
    return rows.T @ rows


def gram(rows):
    """In float64: a check that sums in float32 sees its own rounding, which differs between processors."""
    rows = np.asarray(rows, dtype=float)
    return rows @ rows.T


# More columns than one product takes at a time, and a remainder.
@pytest.mark.parametrize("columns", [30, 5000])
@pytest.mark.parametrize("condition", [1.0, 1e3])
def test_spans_what_qr_spans_and_is_orthonormal(dtype, columns, condition):
    matrix = conditioned(12, columns, condition)
    rows = orthonormal_rows(jnp.asarray(matrix))
    eps = float(jnp.finfo(dtype).eps)
    assert rows.dtype == dtype
    np.testing.assert_allclose(gram(rows), np.eye(12), atol=10 * eps)
    expected = np.linalg.qr(matrix.T)[0].T
    # What rounding of the matrix itself does to its span grows with the condition number.
    np.testing.assert_allclose(projector(rows), projector(expected), atol=10 * condition * eps)


def test_a_condition_number_beyond_rounding_keeps_the_span(dtype):
    matrix = jnp.asarray(conditioned(10, 40, 1e9))
    rows = orthonormal_rows(matrix)
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(gram(rows), np.eye(10), atol=20 * eps)
    given = np.asarray(matrix, dtype=float)
    np.testing.assert_allclose(given @ projector(rows), given, atol=20 * eps)


def test_dependent_rows_leave_nothing_wrong(dtype):
    some = np.random.default_rng(1).normal(size=(2, 50))
    rows = np.asarray(orthonormal_rows(jnp.asarray(np.vstack([some, some, np.zeros((1, 50))]))))
    eps = float(jnp.finfo(dtype).eps)
    # Each row is of length one or zero, and they are orthogonal.
    products = gram(rows)
    np.testing.assert_allclose(products, np.diag(np.round(np.diagonal(products))), atol=20 * eps)
    np.testing.assert_allclose(some @ projector(rows), some, atol=100 * eps)


def test_overwrite_takes_the_memory_of_its_argument():
    matrix = jnp.asarray(conditioned(3, 10, 2.0))
    kept = orthonormal_rows(matrix)
    np.testing.assert_array_equal(orthonormal_rows(matrix, overwrite=True), kept)
    assert matrix.is_deleted()


def test_products_of_many_columns_are_summed_in_float64():
    """Whole numbers whose products are exact in float32 within a part, whose sum over all parts is not."""
    rows = np.random.default_rng(2).integers(-30, 31, (4, 400_000))
    exact = rows @ rows.T
    assert np.max(exact) > 2**24
    with jax.enable_x64(True):
        (products,) = _orthonormal._products(jnp.asarray(rows, jnp.float32), ())
    np.testing.assert_array_equal(products, exact)


def basis_of(blocks):
    basis = Basis()
    for block in blocks:
        basis.add(jnp.asarray(block))
    return basis


# Well enough conditioned to be kept as they are, the second block not, the first block not.
@pytest.mark.parametrize("conditions", [(2.0, 2.0), (2.0, 1e3), (1e3, 2.0)])
def test_a_basis_is_orthonormal_and_spans_its_blocks(dtype, conditions):
    first = conditioned(6, 500, conditions[0])
    given = [first, conditioned(4, 500, conditions[1], seed=1) + 0.3 * first[:4]]
    basis = basis_of(given)
    kept = [np.array_equal(block, jnp.asarray(one)) for block, one in zip(basis.blocks, given, strict=True)]
    assert kept == [condition == 2.0 for condition in conditions]
    W = basis.coefficients @ np.concatenate([np.asarray(block, dtype=float) for block in basis.blocks])
    tolerance = 1e-3 if dtype == jnp.float32 else 1e-7
    np.testing.assert_allclose(W @ W.T, np.eye(10), atol=tolerance)
    stacked = np.concatenate(given)
    np.testing.assert_allclose(stacked @ projector(W), stacked, atol=tolerance)


def test_images_and_combinations_are_those_of_the_orthonormal_rows(x64):
    generator = np.random.default_rng(3)
    given = [conditioned(5, 90, 3.0), generator.normal(size=(5, 90))]
    J, mixture = generator.normal(size=(7, 90)), generator.normal(size=(5, 10))
    basis = basis_of(given)
    W = basis.coefficients @ np.concatenate(given)
    images = [J @ block.T for block in given]
    np.testing.assert_allclose(basis.image(images), J @ W.T, atol=1e-12)
    np.testing.assert_allclose(basis.image(images, last=5), (J @ W.T)[:, 5:], atol=1e-12)
    np.testing.assert_allclose(basis.combine(mixture), mixture @ W, atol=1e-12)


def test_rows_inside_the_basis_add_nothing_wrong(dtype):
    generator = np.random.default_rng(1)
    block, some = generator.normal(size=(3, 50)), generator.normal(size=(2, 50))
    basis = basis_of([block, np.vstack([some, some, np.zeros((1, 50)), block[:1]])])
    rows = np.asarray(basis.blocks[1])
    first = orthonormal_rows(jnp.asarray(block))
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(rows.astype(float) @ np.asarray(first, dtype=float).T, 0, atol=1e3 * eps)
    off = some - some @ projector(first)
    np.testing.assert_allclose(off @ projector(rows), off, atol=1e3 * eps)
