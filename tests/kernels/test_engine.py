"""Covariance matrices against GPJax's dense engine in float64."""

import functools

import gpjax.kernels as gpk
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from gpjax.kernels.computations import DenseKernelComputation
from gpjax.parameters import PositiveReal

from fsplaplace.kernels import GemmComputation, Helmholtz, covariance, variance
from fsplaplace.kernels import _pairs as engine_module
from fsplaplace.kernels.engine import covariances

DTYPES = {"float32": 1e-5, "float64": 1e-10}


def constant(value):
    return gpk.Constant(constant=jnp.array(value))


def ard(width):
    return jnp.linspace(0.6, 1.4, width) * width**0.5


KERNELS = {
    "rbf": lambda d: gpk.RBF(lengthscale=0.7 * d**0.5, variance=2.0),
    "rbf-ard": lambda d: gpk.RBF(lengthscale=ard(d)),
    "matern12": lambda d: gpk.Matern12(lengthscale=0.7 * d**0.5, variance=0.5),
    "matern12-ard": lambda d: gpk.Matern12(lengthscale=ard(d)),
    "matern32": lambda d: gpk.Matern32(lengthscale=d**0.5),
    "matern52": lambda d: gpk.Matern52(lengthscale=ard(d), variance=3.0),
    "rational-quadratic": lambda d: gpk.RationalQuadratic(lengthscale=d**0.5, alpha=0.7),
    "powered-exponential": lambda d: gpk.PoweredExponential(lengthscale=d**0.5, power=0.8),
    "periodic": lambda d: gpk.Periodic(lengthscale=d**0.5, period=1.3),
    "periodic-ard": lambda d: gpk.Periodic(lengthscale=ard(d), period=0.9),
    "white": lambda d: gpk.White(variance=0.3),
    "constant": lambda d: constant(0.4),
    "sum": lambda d: gpk.RBF(lengthscale=d**0.5) + gpk.Matern12(lengthscale=2.0) + gpk.White(),
    "product": lambda d: gpk.Matern32(lengthscale=d**0.5) * gpk.Periodic(period=3.0, lengthscale=d**0.5),
    "nested": lambda d: (gpk.RBF(lengthscale=d**0.5) + constant(0.1)) * gpk.Matern52(lengthscale=ard(d)),
    "one-column": lambda d: gpk.RBF(active_dims=[d - 1]) + gpk.Matern12(active_dims=slice(0, 1)),
    "fallback": lambda d: gpk.Linear(variance=1.0 / d),
    "fallback-in-sum": lambda d: gpk.RBF(lengthscale=d**0.5) + gpk.Polynomial(variance=1 / d) * gpk.RBF(),
}
# Enough to go through the matrix product with a length-scale vector and with circles.
WIDE = ("matern12-ard", "periodic")


@functools.cache
def covariances_and_references(width, dtype):
    """All kernels' matrices from one compilation, which is most of what a test of one kernel costs."""
    with jax.enable_x64(True):
        kernels, (x, y) = build(KERNELS, width, dtype), points(width, dtype)
        got = jax.jit(covariances)(kernels, x, y)
        exact = DenseKernelComputation().cross_covariance
        x, y = x.astype("float64"), y.astype("float64")
        wanted = jax.jit(lambda kernels: [exact(kernel, x, y) for kernel in kernels])(cast(kernels, "float64"))
        return dict(zip(KERNELS, zip(got, wanted, strict=True), strict=True))


@functools.cache
def gradients(names, width, dtype, *, gap, dense=False):
    """Gradients in parameters and both sets of points of a weighted sum of each matrix."""
    with jax.enable_x64(True):
        kernels, (x, y) = build(names, width, dtype), points(width, dtype)
        evaluate = DenseKernelComputation().cross_covariance if dense else covariance
        weights = jnp.cos(jnp.arange(len(x) * len(y), dtype=dtype)).reshape(len(x), len(y))

        def weighted(kernel, x, y):
            return jnp.sum(weights * evaluate(kernel, x, y))

        gradient = jax.grad(weighted, argnums=(0, 1, 2))
        values = jax.jit(lambda kernels: [gradient(kernel, x, y + gap) for kernel in kernels])(kernels)
        return dict(zip(names, values, strict=True))


def build(names, width, dtype):
    return cast([KERNELS[name](width) for name in names], dtype)


def cast(kernels, dtype):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), kernels)


def points(width, dtype):
    """Coincident, nearly coincident and distant pairs, off the origin."""
    rng = np.random.default_rng(0)
    x = 4.0 + rng.normal(size=(45, width))
    y = np.concatenate([x[:12], x[12:24] + 1e-5 * rng.normal(size=(12, width)), rng.normal(size=(11, width))])
    return jnp.asarray(x, dtype), jnp.asarray(y, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 2, 60])
@pytest.mark.parametrize("name", KERNELS)
def test_covariance_equals_the_dense_engine_in_float64(name, width, dtype):
    got, wanted = covariances_and_references(width, dtype)[name]
    assert got.dtype == dtype
    # Twelve points coincide, so the largest entry is k(0, 0) for stationary kernels.
    np.testing.assert_allclose(got, wanted, rtol=0.0, atol=DTYPES[dtype] * np.max(np.abs(wanted)))


@pytest.mark.parametrize("name", KERNELS)
def test_variance_is_the_diagonal_of_the_covariance(name):
    kernel, (x, _) = KERNELS[name](3), points(3, "float32")
    np.testing.assert_allclose(variance(kernel, x), jnp.diag(covariance(kernel, x, x)), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_gradients_equal_the_dense_engine_away_from_coincidence(name):
    got = gradients(tuple(KERNELS), 2, "float64", gap=0.1)[name]
    wanted = gradients(tuple(KERNELS), 2, "float64", gap=0.1, dense=True)[name]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8), got, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_gradients_equal_the_dense_engine_in_many_dimensions(name):
    got = gradients(WIDE, 60, "float64", gap=0.1)[name]
    wanted = gradients(WIDE, 60, "float64", gap=0.1, dense=True)[name]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8), got, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_gradients_are_finite_where_points_coincide(name):
    leaves = jax.tree.leaves(gradients(tuple(KERNELS), 1, "float32", gap=0.0)[name])
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)


@pytest.mark.parametrize("name", WIDE)
def test_gradients_are_finite_where_points_coincide_in_many_dimensions(name):
    leaves = jax.tree.leaves(gradients(WIDE, 60, "float32", gap=0.0)[name])
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)


@pytest.mark.parametrize(
    ("kernel", "curvature"), [(gpk.RBF(), 1.0), (gpk.Matern32(), 3.0), (gpk.Matern52(), 5.0 / 3.0)]
)
def test_mixed_second_derivative_at_coincidence_is_the_curvature(kernel, curvature):
    def shifted(s, t):
        return covariance(kernel, jnp.reshape(s, (1, 1)), jnp.reshape(t, (1, 1)))[0, 0]

    mixed = jax.grad(jax.grad(shifted, argnums=0), argnums=1)(0.3, 0.3)
    np.testing.assert_allclose(mixed, curvature, rtol=1e-6)


def test_isotropic_kernels_on_the_same_columns_share_one_distance(monkeypatch):
    calls = []
    original = engine_module.squared_distance
    monkeypatch.setattr(engine_module, "squared_distance", lambda *a: calls.append(a) or original(*a))
    x, y = points(3, "float32")
    kernel = gpk.RBF(lengthscale=0.3) + gpk.Matern12(lengthscale=2.0) * gpk.Matern52() + gpk.White()
    covariance(kernel, x, y)
    assert len(calls) == 1


def test_anisotropic_kernels_share_a_distance_with_their_length_scale_object(monkeypatch):
    calls = []
    original = engine_module.squared_distance
    monkeypatch.setattr(engine_module, "squared_distance", lambda *a: calls.append(a) or original(*a))
    x, y = points(3, "float32")
    shared = PositiveReal(jnp.array([0.5, 1.0, 2.0]))
    covariance(gpk.RBF(lengthscale=shared) * gpk.Matern32(lengthscale=shared), x, y)
    assert len(calls) == 1


def test_a_subclass_with_its_own_formula_is_not_taken_for_its_parent():
    class Halved(gpk.RBF):
        def __call__(self, x, y):
            return 0.5 * super().__call__(x, y)

    x, y = points(2, "float32")
    np.testing.assert_allclose(covariance(Halved(), x, y), 0.5 * covariance(gpk.RBF(), x, y), rtol=1e-5)


def test_gemm_computation_serves_a_gpjax_kernel():
    x, y = points(60, "float32")
    plain, engined = gpk.Matern52(lengthscale=5.0), gpk.Matern52(lengthscale=5.0, compute_engine=GemmComputation())
    np.testing.assert_allclose(engined.cross_covariance(x, y), plain.cross_covariance(x, y), atol=1e-5)
    np.testing.assert_allclose(engined.gram(x).as_matrix(), plain.gram(x).as_matrix(), atol=1e-5)
    np.testing.assert_allclose(lx.diagonal(engined.diagonal(x)), lx.diagonal(plain.diagonal(x)), atol=1e-6)


def test_gemm_computation_on_an_unknown_kernel_evaluates_pair_by_pair():
    x, y = points(4, "float32")
    plain, engined = gpk.Polynomial(), gpk.Polynomial(compute_engine=GemmComputation())
    np.testing.assert_allclose(engined.cross_covariance(x, y), plain.cross_covariance(x, y), rtol=1e-6)
    np.testing.assert_allclose(variance(engined, x), jnp.diag(engined.gram(x).as_matrix()), rtol=1e-5)


def test_gemm_computations_are_equal_so_that_jit_compiles_once():
    assert GemmComputation() == GemmComputation()
    assert hash(GemmComputation()) == hash(GemmComputation())


def test_points_of_different_width_are_refused():
    with pytest.raises(ValueError, match=r"\(4, 2\) and y \(3, 3\)"):
        covariance(gpk.RBF(), jnp.zeros((4, 2)), jnp.zeros((3, 3)))


def test_a_multi_output_kernel_is_refused_by_name():
    with pytest.raises(ValueError, match="Helmholtz has 2 outputs"):
        covariance(Helmholtz(gpk.RBF()) + gpk.RBF(), jnp.zeros((4, 2)), jnp.zeros((3, 2)))
