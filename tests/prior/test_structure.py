"""The three block structures against the covariance that they cut up."""

import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels import RBF, ArcCosine, Matern32

from fsplaplace import Prior
from fsplaplace.kernels import Helmholtz
from fsplaplace.prior import moments

PRIORS = {
    "shared": lambda: Prior(RBF(lengthscale=0.5, variance=2.0), num_outputs=3),
    "separate": lambda: Prior([RBF(lengthscale=0.5), Matern32(lengthscale=1.0, variance=3.0)]),
    "joint": lambda: Prior(Helmholtz(RBF(lengthscale=0.8), RBF(lengthscale=0.6))),
}
POINTS = np.random.default_rng(0).normal(size=(7, 2))


@pytest.fixture(params=PRIORS)
def prior(request, x64):
    made = PRIORS[request.param]()
    assert made.structure == request.param
    return made


def dense(prior):
    size = 7 * prior.num_outputs
    return np.asarray(prior.covariance(jnp.asarray(POINTS), jnp.asarray(POINTS))).reshape(size, size)


def test_blocks_are_as_many_and_as_large_as_the_structure_says(prior):
    blocks, gram = prior.blocks, prior.gram(jnp.asarray(POINTS))
    assert gram.shape == (blocks.num_blocks, 7 * blocks.rows_per_point, 7 * blocks.rows_per_point)
    assert gram.size == 49 * blocks.numbers_per_pair
    assert len(blocks.kernels) == len(blocks.outputs) == blocks.num_blocks
    assert sorted(output for outputs in blocks.outputs for output in outputs) == list(range(prior.num_outputs))
    assert blocks.num_independent * blocks.rows_per_point == prior.num_outputs


def test_products_with_blocks_are_products_with_the_covariance(prior):
    values = np.random.default_rng(1).normal(size=(7, prior.num_outputs, 4))
    product = prior.from_blocks(prior.gram(jnp.asarray(POINTS)) @ prior.to_blocks(jnp.asarray(values)))
    np.testing.assert_allclose(product.reshape(-1, 4), dense(prior) @ values.reshape(-1, 4), atol=1e-12)


def test_diagonal_and_columns_are_those_of_the_blocks(prior):
    blocks, points = prior.blocks, jnp.asarray(POINTS)
    gram, pivots = blocks.gram(points, points), jnp.array([5, 0, 3])
    np.testing.assert_allclose(blocks.diagonal(points), jnp.diagonal(gram, axis1=1, axis2=2), rtol=1e-12)
    for block in range(blocks.num_blocks):
        np.testing.assert_allclose(blocks.columns(block, points, pivots), gram[block][:, pivots], atol=1e-12)


def test_separated_blocks_describe_the_same_covariance(prior):
    blocks, points = prior.blocks.separated(), jnp.asarray(POINTS)
    whole = blocks.whole(blocks.gram(points, points))
    np.testing.assert_allclose(whole.reshape(dense(prior).shape), dense(prior), atol=1e-12)
    parts = prior.independent_parts()
    assert blocks.copies == 1
    assert len(parts) == blocks.num_blocks == prior.blocks.num_independent
    for part, block in zip(parts, blocks.gram(points, points), strict=True):
        np.testing.assert_allclose(part.gram(points)[0], block, atol=1e-12)


def test_separated_outputs_evaluate_a_shared_kernel_once(monkeypatch):
    calls = []
    monkeypatch.setattr("fsplaplace.kernels.covariance", lambda *parts: calls.append(parts) or jnp.eye(7))
    assert PRIORS["shared"]().blocks.separated().gram(jnp.asarray(POINTS), jnp.asarray(POINTS)).shape == (3, 7, 7)
    assert len(calls) == 1


def test_placed_columns_of_the_blocks_factor_the_whole_covariance(prior):
    blocks = np.asarray(prior.gram(jnp.asarray(POINTS)))
    columns = prior.blocks.place_columns([np.linalg.cholesky(block + 1e-13 * np.eye(len(block))) for block in blocks])
    matrix = columns.reshape(-1, columns.shape[2])
    np.testing.assert_allclose(matrix @ matrix.T, dense(prior), atol=1e-11)


def test_moments_on_the_host_equal_those_on_the_device(prior):
    covariance = moments.covariance(prior, POINTS)
    np.testing.assert_allclose(covariance, dense(prior), atol=1e-12)
    assert isinstance(covariance, np.ndarray)
    np.testing.assert_allclose(moments.variance(prior, POINTS).ravel(), np.diag(dense(prior)), rtol=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_an_arc_cosine_prior_has_a_finite_variance_and_factor(order, dtype):
    prior, points = Prior(ArcCosine(order=order)), jnp.asarray(POINTS, dtype)
    assert np.all(np.isfinite(prior.variance(points)))
    factor = prior.factor(points, rtol=0.0).columns[:, 0]
    np.testing.assert_allclose(np.sum(np.square(factor), axis=1), prior.variance(points)[:, 0], rtol=1e-4)
