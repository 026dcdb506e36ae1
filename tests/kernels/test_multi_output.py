"""Blocks of multi-output kernels against GPJax's Kronecker products."""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from gpjax.kernels import RBF, ICMKernel, LCMKernel, Matern52
from gpjax.parameters import CoregionalizationMatrix

from fsplaplace.kernels import Helmholtz, block_covariance, block_variance, num_outputs

X = jax.random.normal(jax.random.key(0), (5, 2))
Y = jax.random.normal(jax.random.key(1), (4, 2))


def coregionalization(seed):
    return CoregionalizationMatrix(num_outputs=3, rank=2, key=jax.random.key(seed))


KERNELS = {
    "icm": ICMKernel(RBF(lengthscale=0.7), coregionalization(2)),
    "lcm": LCMKernel([RBF(lengthscale=0.7), Matern52()], [coregionalization(3), coregionalization(4)]),
    "helmholtz": Helmholtz(RBF(lengthscale=0.7), Matern52()),
}


def output_major(blocks):
    n, q, m, _ = blocks.shape
    return blocks.transpose(1, 0, 3, 2).reshape(q * n, q * m)


@pytest.mark.parametrize("name", KERNELS)
def test_blocks_reorder_the_output_major_matrix_of_gpjax(name):
    kernel = KERNELS[name]
    wanted = kernel.cross_covariance(X, Y)
    np.testing.assert_allclose(output_major(block_covariance(kernel, X, Y)), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_block_variance_is_the_diagonal_of_the_blocks(name):
    kernel = KERNELS[name]
    wanted = jnp.einsum("nana->na", block_covariance(kernel, X, X))
    np.testing.assert_allclose(block_variance(kernel, X), wanted, rtol=1e-5)
    np.testing.assert_allclose(lx.diagonal(kernel.diagonal(X)), wanted.T.reshape(-1), rtol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_blocks_form_a_positive_semidefinite_matrix(name):
    with jax.enable_x64(True):
        kernel = jax.tree.map(lambda leaf: leaf.astype("float64"), KERNELS[name])
        blocks = block_covariance(kernel, X.astype("float64"), X.astype("float64"))
        matrix = np.asarray(output_major(blocks))
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
        assert np.linalg.eigvalsh(matrix)[0] > -1e-12
        np.testing.assert_allclose(kernel.gram(X.astype("float64")).as_matrix(), matrix, atol=1e-12)


def test_number_of_outputs_is_none_for_scalar_kernels():
    assert [num_outputs(kernel) for kernel in KERNELS.values()] == [3, 3, 2]
    assert num_outputs(RBF()) is None


def test_a_scalar_kernel_has_no_blocks():
    with pytest.raises(ValueError, match="RBF is scalar"):
        block_covariance(RBF(), X, Y)
    with pytest.raises(ValueError, match="RBF is scalar"):
        block_variance(RBF(), X)
