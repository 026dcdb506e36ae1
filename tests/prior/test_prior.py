"""The prior: matrix-free products, factors and draws against dense covariance matrices."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import references
from gpjax.kernels import RBF, AbstractKernel, ICMKernel, Matern32
from gpjax.mean_functions import Constant
from gpjax.parameters import CoregionalizationMatrix

from fsplaplace import Prior
from fsplaplace.host._float64 import to_double
from fsplaplace.kernels import Helmholtz
from fsplaplace.prior import _factor as factor_module

POINTS = np.random.default_rng(0).uniform(-1, 1, size=(23, 2))


def coregionalised():
    return ICMKernel(RBF(lengthscale=0.7), CoregionalizationMatrix(num_outputs=3, rank=2, key=jr.key(0)))


STRUCTURES = {
    "one output": lambda: Prior(RBF(lengthscale=0.5, variance=2.0)),
    "shared": lambda: Prior(RBF(lengthscale=0.5, variance=2.0), num_outputs=3),
    "separate": lambda: Prior([RBF(lengthscale=0.5), Matern32(lengthscale=1.0, variance=3.0)]),
    "helmholtz": lambda: Prior(Helmholtz(RBF(lengthscale=0.8), RBF(lengthscale=0.6))),
    "icm": lambda: Prior(coregionalised()),
}


def dense(prior, x):
    """Sigma(x, x) over points and outputs, points first; its entries are the business of the tests of the kernels."""
    with jax.enable_x64(True):
        x = jnp.asarray(x)
        return np.asarray(_covariance(to_double(prior), x, x)).reshape(x.shape[0] * prior.num_outputs, -1)


_covariance, _variance, _correlation, _squared_norm = map(
    eqx.filter_jit, (Prior.covariance, Prior.variance, Prior.correlation, Prior.squared_norm)
)


@functools.cache
def case(name, dtype):
    prior = STRUCTURES[name]()
    return prior, dense(prior, POINTS)


@pytest.fixture(params=STRUCTURES)
def prior_and_covariance(request, dtype):
    """Each structure with its dense covariance at POINTS, in float64."""
    return case(request.param, dtype)


def test_covariance_is_block_diagonal_over_independent_outputs(x64):
    shared, separate = STRUCTURES["shared"](), STRUCTURES["separate"]()
    kernel = references.rbf(POINTS, POINTS, 0.5, variance=2.0)
    np.testing.assert_allclose(dense(shared, POINTS), np.kron(kernel, np.eye(3)), atol=1e-12)
    blocks = dense(separate, POINTS).reshape(23, 2, 23, 2)
    np.testing.assert_allclose(blocks[:, 0, :, 0], references.rbf(POINTS, POINTS, 0.5), atol=1e-12)
    assert not blocks[:, 0, :, 1].any()
    distance = np.sqrt(3 * np.sum((POINTS[:, None] - POINTS[None]) ** 2, axis=2))
    np.testing.assert_allclose(blocks[:, 1, :, 1], 3.0 * (1 + distance) * np.exp(-distance), atol=1e-7)


def test_variance_is_the_diagonal_of_the_covariance(prior_and_covariance):
    prior, covariance = prior_and_covariance
    variance = np.asarray(_variance(prior, jnp.asarray(POINTS)))
    assert variance.shape == (23, prior.num_outputs)
    np.testing.assert_allclose(variance.ravel(), np.diag(covariance), rtol=1e-5)


def test_correlation_of_pairs_is_that_of_the_dense_covariance(prior_and_covariance):
    prior, covariance = prior_and_covariance
    q, pairs = prior.num_outputs, np.roll(np.arange(23), 1)
    found = np.asarray(_correlation(prior, jnp.asarray(POINTS), jnp.asarray(POINTS[pairs])))
    scale = np.sqrt(np.diag(covariance))
    wanted = (covariance / scale / scale[:, None]).reshape(23, q, 23, q)
    for output in range(q):
        np.testing.assert_allclose(found[:, output], wanted[np.arange(23), output, pairs, output], atol=1e-5)


@pytest.mark.parametrize("budget", [None, 3000])
def test_gram_product_is_the_dense_product_whatever_the_budget(prior_and_covariance, dtype, budget):
    """3,000 bytes hold no more than a few of the 23 rows: the product is made in blocks, the last one not full."""
    prior, covariance = prior_and_covariance
    vectors = np.random.default_rng(1).normal(size=(23, prior.num_outputs, 4))
    product = prior.gram_product(jnp.asarray(POINTS), jnp.asarray(vectors), memory_budget=budget)
    expected = (covariance @ vectors.reshape(-1, 4)).reshape(vectors.shape)
    np.testing.assert_allclose(product, expected, atol=2e-4 if dtype == jnp.float32 else 1e-11)


@pytest.mark.parametrize("method", ["eigh", "pivoted Cholesky"])
def test_factor_reproduces_the_covariance(prior_and_covariance, method, monkeypatch):
    prior, covariance = prior_and_covariance
    if method != "eigh":
        monkeypatch.setattr(factor_module, "_LARGEST_EIGENPROBLEM", 10)
    factor = prior.factor(jnp.asarray(POINTS), rtol=1e-10)
    assert factor.method == method
    assert factor.matrix.dtype == jnp.float64, "in float64 whatever the width of the inputs"
    B = np.asarray(factor.matrix)
    np.testing.assert_allclose(B @ B.T, covariance, atol=2e-6)
    assert float(factor.captured) == pytest.approx(np.sum(B**2) / np.trace(covariance), rel=1e-5)


def test_captured_share_is_that_of_the_eigenvalues_kept(x64):
    prior = STRUCTURES["one output"]()
    eigenvalues = np.linalg.eigvalsh(references.rbf(POINTS, POINTS, 0.5, variance=2.0))[::-1]
    limited = prior.factor(jnp.asarray(POINTS), rank=4)
    assert limited.rank == 4
    assert float(limited.captured) == pytest.approx(eigenvalues[:4].sum() / eigenvalues.sum(), abs=1e-10)
    for rtol in (1e-1, 1e-3):
        assert prior.factor(jnp.asarray(POINTS), rtol=rtol).rank == np.sum(eigenvalues > rtol * eigenvalues[0])


def test_factor_never_exceeds_the_covariance_when_its_rank_is_limited(prior_and_covariance, monkeypatch):
    prior, covariance = prior_and_covariance
    monkeypatch.setattr(factor_module, "_LARGEST_EIGENPROBLEM", 10)
    rank = 3 * prior.num_outputs
    B = np.asarray(prior.factor(jnp.asarray(POINTS), rank=rank).matrix)
    assert B.shape[1] <= rank
    residual = np.linalg.eigvalsh(covariance - B @ B.T)
    assert residual.min() > -1e-5


def test_rank_beyond_the_number_of_points_has_no_effect(x64):
    prior, points = STRUCTURES["shared"](), jnp.asarray(POINTS)
    np.testing.assert_array_equal(prior.factor(points, rank=10_000).matrix, prior.factor(points).matrix)


def test_pivoted_cholesky_takes_over_for_many_points():
    points = jnp.linspace(0, 1, 2100)[:, None]
    factor = Prior(RBF(lengthscale=0.3)).factor(points)
    assert factor.method == "pivoted Cholesky"
    assert float(factor.captured) > 1 - 1e-6
    some = np.asarray(points)[::300].astype(float)
    B = np.asarray(factor.matrix)[::300]
    np.testing.assert_allclose(B @ B.T, references.rbf(some, some, 0.3), atol=1e-5)


def test_draws_have_the_mean_and_covariance_of_the_prior(x64):
    """4,000 draws: entries of the sample covariance scatter with standard deviation up to 2 sqrt(2 / 4000) = 0.045."""
    prior = Prior(RBF(lengthscale=0.5, variance=2.0), num_outputs=2, mean=jnp.array([1.0, -3.0]))
    points = jnp.asarray(POINTS[:6])
    draws = np.asarray(prior.sample(points, key=jr.key(0), num_samples=4000))
    assert draws.shape == (4000, 6, 2)
    np.testing.assert_allclose(draws.mean(axis=0), np.tile([1.0, -3.0], (6, 1)), atol=0.1)
    covariance = np.cov(draws.reshape(4000, -1).T)
    np.testing.assert_allclose(covariance, dense(prior, POINTS[:6]), atol=0.18)


def test_draws_are_reproducible_and_take_integer_inputs():
    prior, x = Prior(RBF(lengthscale=1.0)), jnp.arange(5)[:, None]
    draws = prior.sample(x, key=jr.key(1), num_samples=2)
    np.testing.assert_array_equal(draws, prior.sample(x, key=jr.key(1), num_samples=2))
    assert not np.array_equal(draws[0], draws[1])


MEANS = {
    "zero": (None, np.zeros((23, 2))),
    "number": (1.5, np.full((23, 2), 1.5)),
    "per output": (np.array([1.0, 2.0]), np.tile([1.0, 2.0], (23, 1))),
    "function of one column": (lambda x: 2 * x[:, 0], np.tile(2 * POINTS[:, :1], (1, 2))),
    "function of all outputs": (lambda x: x**2, POINTS**2),
    "gpjax": (Constant(jnp.array(0.7)), np.full((23, 2), 0.7)),
}


@pytest.mark.parametrize("name", MEANS)
def test_mean_in_all_its_spellings(dtype, name):
    mean, expected = MEANS[name]
    values = Prior(RBF(), mean=mean, num_outputs=2).mean_at(jnp.asarray(POINTS, dtype))
    assert values.dtype == dtype
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_structured_inputs_are_flattened_for_kernel_and_mean(x64):
    prior = Prior(RBF(lengthscale=0.5), mean=lambda x: x.sum(axis=1))
    images = jnp.asarray(POINTS[:20].reshape(10, 2, 2))
    flat = images.reshape(10, 4)
    np.testing.assert_array_equal(prior.gram(images), prior.gram(flat))
    np.testing.assert_array_equal(prior.mean_at(images), prior.mean_at(flat))


def test_squared_norm_is_the_quadratic_form_with_relative_jitter(prior_and_covariance, dtype):
    prior, covariance = prior_and_covariance
    residual = np.random.default_rng(2).normal(size=(23, prior.num_outputs))
    q, jitter = prior.num_outputs, 1e-2
    # Relative to the mean of the diagonal of each block that is factored on its own.
    diagonal = np.diag(covariance).reshape(23, q)
    nugget = np.tile(diagonal.mean(axis=0), 23) if prior.structure != "joint" else np.full(23 * q, diagonal.mean())
    expected = residual.ravel() @ np.linalg.solve(covariance + jitter * np.diag(nugget), residual.ravel())
    value = _squared_norm(prior, jnp.asarray(POINTS), jnp.asarray(residual), jitter=jitter)
    assert float(value) == pytest.approx(expected, rel=1e-3 if dtype == jnp.float32 else 1e-10)


def test_a_single_point_has_a_factor(x64):
    factor = Prior(RBF(variance=4.0)).factor(jnp.zeros((1, 2)))
    np.testing.assert_allclose(factor.matrix, [[2.0]])


def test_repeated_points_lower_the_rank_and_nothing_else(x64):
    prior, once = STRUCTURES["one output"](), jnp.asarray(POINTS[:5])
    factor = prior.factor(jnp.concatenate([once, once]), rtol=1e-10)
    assert factor.rank == 5
    B = np.asarray(factor.matrix)
    np.testing.assert_allclose(B[:5] @ B[:5].T, dense(prior, POINTS[:5]), atol=1e-10)


class Broken(AbstractKernel):
    """k(x, y) = value everywhere, or minus the squared distance, which is no covariance."""

    value: float | None = None

    def __init__(self, value=None):
        self.value = value
        super().__init__()

    def __call__(self, x, y):
        return jnp.sum(0 * x) + self.value if self.value is not None else -jnp.sum((x - y) ** 2)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Broken(np.nan), "Prior: the kernel Broken gave NaN or infinite covariances at the context points; check its"),
        (Broken(), "Prior: the kernel Broken is not positive semi-definite at the context points .* use a valid"),
    ],
)
def test_a_kernel_that_is_no_covariance_is_refused_by_name(kernel, message, large, monkeypatch):
    if large:
        monkeypatch.setattr(factor_module, "_LARGEST_EIGENPROBLEM", 10)
    with pytest.raises(ValueError, match=message):
        Prior(kernel).factor(jnp.asarray(POINTS))


def test_a_factor_beyond_the_budget_is_refused_with_a_rank_that_fits():
    prior, points = Prior(RBF(lengthscale=0.1)), jnp.linspace(0, 1, 50)[:, None]
    with pytest.raises(
        MemoryError, match=r"50 columns at 50 rows need 58.6 KiB, but memory_budget is 11.7 KiB; pass rank=10"
    ):
        prior.factor(points, memory_budget=12_000)
    assert prior.factor(points, rank=10, memory_budget=12_000).rank == 10


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Prior("RBF"), TypeError, "Prior: kernel is 'RBF'; pass a GPJax kernel or a list"),
        (
            lambda: Prior([RBF(), RBF()], num_outputs=3),
            ValueError,
            "Prior: the kernel has 2 outputs, but num_outputs is 3",
        ),
        (lambda: Prior(coregionalised(), num_outputs=2), ValueError, "the kernel has 3 outputs, but num_outputs is 2"),
        (lambda: Prior([coregionalised()] * 2), ValueError, "a sequence of kernels must hold single-output kernels"),
        (lambda: Prior([]), ValueError, "Prior: kernel is an empty sequence; pass at least one kernel"),
        (lambda: Prior(RBF(), num_outputs=0), ValueError, "Prior: num_outputs is 0; pass 1 or more"),
        (lambda: Prior(RBF(), num_outputs=-1), ValueError, "Prior: num_outputs is -1; pass 1 or more"),
        (
            lambda: Prior(RBF(), mean=np.zeros(3), num_outputs=2).mean_at(jnp.zeros((4, 1))),
            ValueError,
            "Prior: mean returned 3 outputs, but the prior has 2",
        ),
        (lambda: Prior(RBF()).factor(jnp.zeros((3, 1)), rank=0), ValueError, "Prior.factor: rank is 0; pass 1 or more"),
        (
            lambda: Prior(RBF(), num_outputs=10).factor(jnp.zeros((3, 1)), rank=5),
            ValueError,
            "Prior.factor: rank is 5; pass 10 or more, one for each independent output",
        ),
        (
            lambda: Prior(RBF()).gram_product(jnp.zeros((3, 1)), jnp.zeros((3, 1, 1)), memory_budget=0),
            ValueError,
            "memory_budget is 0; pass a positive number of bytes",
        ),
    ],
)
def test_impossible_priors_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
