"""The Helmholtz kernel against its closed form, and the calculus of its fields."""

import gpjax.kernels as gpk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fsplaplace.kernels import Helmholtz, block_covariance, block_variance

BASES = {
    "rbf": gpk.RBF(lengthscale=0.8, variance=1.5),
    "rbf-ard": gpk.RBF(lengthscale=jnp.array([0.5, 1.2])),
    "matern52": gpk.Matern52(),
    "rational-quadratic": gpk.RationalQuadratic(alpha=0.9),
    "sum-of-products": gpk.RBF() * gpk.Matern52(lengthscale=2.0) + gpk.RBF(lengthscale=3.0),
    "polynomial": gpk.Polynomial(degree=3),
}


def points(dtype="float32"):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(6, 2)), dtype), jnp.asarray(rng.normal(size=(7, 2)), dtype)


def cast(kernel, dtype):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), kernel)


def field(kernel, anchors, weights):
    """A function in the span of the kernel: what a draw or a posterior mean looks like."""
    return lambda x: jnp.einsum("amb,mb->a", block_covariance(kernel, x[None], anchors)[0], weights)


@pytest.mark.parametrize("base", BASES)
def test_fields_of_the_stream_kernel_have_no_divergence(base):
    with jax.enable_x64(True):
        x, anchors = points("float64")
        weights = jnp.cos(jnp.arange(14.0)).reshape(7, 2)
        jacobian = jax.vmap(jax.jacfwd(field(Helmholtz(stream=cast(BASES[base], "float64")), anchors, weights)))(x)
        scale = np.max(np.abs(jacobian))
        assert scale > 1e-3
        np.testing.assert_allclose(jacobian[:, 0, 0] + jacobian[:, 1, 1], 0.0, atol=1e-13 * scale)


@pytest.mark.parametrize("base", BASES)
def test_fields_of_the_potential_kernel_have_no_curl(base):
    with jax.enable_x64(True):
        x, anchors = points("float64")
        weights = jnp.sin(jnp.arange(14.0)).reshape(7, 2)
        kernel = Helmholtz(potential=cast(BASES[base], "float64"))
        jacobian = jax.vmap(jax.jacfwd(field(kernel, anchors, weights)))(x)
        scale = np.max(np.abs(jacobian))
        assert scale > 1e-3
        np.testing.assert_allclose(jacobian[:, 1, 0] - jacobian[:, 0, 1], 0.0, atol=1e-13 * scale)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rbf_parts_equal_the_closed_form(dtype):
    with jax.enable_x64(True):
        x, y = points(dtype)
        kernel = cast(Helmholtz(gpk.RBF(lengthscale=0.8, variance=1.5), gpk.RBF(lengthscale=0.4)), dtype)

        def gradient_part(lengthscale, variance):
            difference = np.float64(x)[:, None] - np.float64(y)[None]
            value = variance * np.exp(-0.5 * np.sum(difference**2, axis=-1) / lengthscale**2)
            outer = difference[..., :, None] * difference[..., None, :] / lengthscale**4
            return value[..., None, None] * (np.eye(2) / lengthscale**2 - outer)

        rotation = np.array([[0.0, 1.0], [-1.0, 0.0]])
        wanted = gradient_part(0.8, 1.5) + rotation @ gradient_part(0.4, 1.0) @ rotation.T
        got = jnp.moveaxis(block_covariance(kernel, x, y), 2, 1)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, atol={"float32": 2e-5, "float64": 1e-11}[dtype])


@pytest.mark.parametrize("base", BASES)
def test_blocks_equal_the_pairwise_derivatives_of_the_base_kernel(base):
    with jax.enable_x64(True):
        x, y = points("float64")
        kernel = cast(BASES[base], "float64")
        pairwise = jax.jacfwd(jax.jacrev(kernel, argnums=0), argnums=1)
        wanted = jax.vmap(lambda a: jax.vmap(lambda b: pairwise(a, b))(y))(x)
        got = jnp.moveaxis(block_covariance(Helmholtz(potential=kernel), x, y), 2, 1)
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)


def test_variance_at_a_point_is_the_curvature_of_the_base_kernels():
    x, _ = points()
    kernel = Helmholtz(gpk.RBF(lengthscale=2.0, variance=8.0), gpk.Matern52())
    np.testing.assert_allclose(block_variance(kernel, x), 8.0 / 2.0**2 + 5.0 / 3.0, rtol=1e-6)


def test_parameters_are_leaves_with_finite_gradients():
    x, _ = points()
    kernel = Helmholtz(gpk.RBF(), gpk.Matern52())
    gradient = jax.jit(jax.grad(lambda kernel: jnp.sum(block_covariance(kernel, x, x) ** 2)))(kernel)
    leaves = jax.tree.leaves(gradient)
    assert len(leaves) == 4
    assert all(np.isfinite(leaf) and leaf != 0.0 for leaf in leaves)


@pytest.mark.slow
def test_two_columns_can_be_chosen():
    x, y = points()
    wide = [jnp.concatenate([p[:, :1], jnp.ones((len(p), 1)), p[:, 1:]], axis=1) for p in (x, y)]
    chosen = Helmholtz(gpk.RBF(), active_dims=[0, 2])
    np.testing.assert_allclose(block_covariance(chosen, *wide), block_covariance(Helmholtz(gpk.RBF()), x, y), rtol=1e-6)


def test_points_off_the_plane_and_an_empty_kernel_are_refused():
    with pytest.raises(ValueError, match="acts on 2 columns, but got points with 3"):
        block_covariance(Helmholtz(gpk.RBF()), jnp.zeros((4, 3)), jnp.zeros((4, 3)))
    with pytest.raises(ValueError, match="neither potential nor stream"):
        Helmholtz()
