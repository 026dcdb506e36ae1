"""Every likelihood: normalised densities, and curvature that is minus the Hessian or documented otherwise."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace import likelihoods

N, Q = 6, 3
GENERATOR = np.random.default_rng(0)
OUTPUTS = GENERATOR.normal(size=(N, 4))


class Laplace(likelihoods.Likelihood):
    """A user's own: smooth, log-concave, with a parameter."""

    sharpness: float

    def log_density(self, output, target):
        return -jnp.sum(jnp.log(jnp.cosh(self.sharpness * (target - output))))


def student_t(output, target):
    return jnp.sum(jax.scipy.stats.t.logpdf(target, 3.0, loc=output))


# name: how to make it (in the width the test runs in), width of the output, targets, SciPy's log density per row
CASES = {
    "gaussian": (
        lambda: likelihoods.Gaussian(0.5),
        Q,
        GENERATOR.normal(size=(N, Q)),
        lambda f, y: scipy.stats.norm.logpdf(y, f, 0.5).sum(axis=1),
    ),
    "gaussian-per-output": (
        lambda: likelihoods.Gaussian([0.3, 1.0, 2.0]),
        Q,
        GENERATOR.normal(size=(N, Q)),
        lambda f, y: scipy.stats.norm.logpdf(y, f, [0.3, 1.0, 2.0]).sum(axis=1),
    ),
    "heteroscedastic": (
        lambda: likelihoods.HeteroscedasticGaussian(),
        4,
        GENERATOR.normal(size=(N, 2)),
        lambda f, y: scipy.stats.norm.logpdf(y, f[:, :2], np.exp(f[:, 2:])).sum(axis=1),
    ),
    "bernoulli": (
        lambda: likelihoods.Bernoulli(),
        2,
        GENERATOR.integers(0, 2, size=(N, 2)),
        lambda f, y: scipy.stats.bernoulli.logpmf(y, 1 / (1 + np.exp(-f))).sum(axis=1),
    ),
    "categorical": (
        lambda: likelihoods.Categorical(4),
        4,
        GENERATOR.integers(0, 4, size=N),
        lambda f, y: scipy.special.log_softmax(f, axis=1)[np.arange(N), y],
    ),
    "poisson": (
        lambda: likelihoods.Poisson(),
        2,
        GENERATOR.poisson(2.0, size=(N, 2)),
        lambda f, y: scipy.stats.poisson.logpmf(y, np.exp(f)).sum(axis=1),
    ),
    "student-t": (
        lambda: likelihoods.StudentT([0.5, 2.0], degrees=5.0),
        2,
        3 * GENERATOR.normal(size=(N, 2)),
        lambda f, y: scipy.stats.t.logpdf(y, 5.0, loc=f, scale=[0.5, 2.0]).sum(axis=1),
    ),
    "own-student-t": (
        lambda: likelihoods.FromLogDensity(student_t),
        1,
        3 * GENERATOR.normal(size=(N, 1)),
        lambda f, y: scipy.stats.t.logpdf(y, 3.0, loc=f).sum(axis=1),
    ),
    "subclass": (lambda: Laplace(2.0), Q, GENERATOR.normal(size=(N, Q)), None),
}
FISHER = {"heteroscedastic"}
NOT_LOG_CONCAVE = {"student-t", "own-student-t"}


@pytest.fixture(params=CASES)
def case(request, dtype):
    make, width, targets, log_density = CASES[request.param]
    likelihood = make()
    targets = likelihood.check_targets(targets, num_rows=N)
    return request.param, likelihood, jnp.asarray(OUTPUTS[:, :width]), jnp.asarray(targets), log_density


def hessians(likelihood, outputs, targets):
    return -jax.vmap(jax.hessian(lambda f, y: likelihood.log_prob(f[None], y[None])[0]))(outputs, targets)


def test_log_prob_is_the_normalised_density(dtype, case):
    name, likelihood, outputs, targets, log_density = case
    if log_density is None:
        pytest.skip("no peer in SciPy")
    expected = log_density(np.asarray(outputs, float), np.asarray(targets))
    values = likelihood.log_prob(outputs.astype(dtype), targets)
    assert values.dtype == dtype, name
    np.testing.assert_allclose(values, expected, rtol=1e-5 if dtype == jnp.float32 else 1e-11)


@pytest.mark.slow
def test_curvature_is_minus_the_hessian_of_the_log_density(dtype, case):
    name, likelihood, outputs, targets, _ = case
    if name in FISHER | NOT_LOG_CONCAVE:
        pytest.skip("has a claim of its own below")
    expected = hessians(likelihood, outputs, targets)
    tolerance = 1e-4 if dtype == jnp.float32 else 1e-11
    np.testing.assert_allclose(likelihood.curvature(outputs, targets), expected, rtol=tolerance, atol=tolerance)


def test_curvature_is_positive_semi_definite_and_products_agree(dtype, case):
    _, likelihood, outputs, targets, _ = case
    outputs = outputs.astype(dtype)
    curvature = np.asarray(likelihood.curvature(outputs, targets))
    assert curvature.dtype == dtype
    np.testing.assert_allclose(curvature, curvature.transpose(0, 2, 1), atol=1e-5)
    assert np.linalg.eigvalsh(curvature).min() >= -1e-6
    vectors = jnp.asarray(np.random.default_rng(1).normal(size=(*outputs.shape, 5)), dtype)
    np.testing.assert_allclose(
        likelihood.curvature_product(outputs, targets, vectors), curvature @ np.asarray(vectors), atol=1e-5
    )


def test_gradient_of_the_log_density_has_mean_zero_under_the_model(x64):
    """A density that is not normalised in y would fail: checked by summing over every label and count."""
    f = jnp.array([0.3, -1.2, 0.8])
    for labels, likelihood in (
        (jnp.arange(3), likelihoods.Categorical(3)),
        (jnp.arange(60)[:, None], likelihoods.Poisson()),
    ):
        output = f if likelihood.num_outputs(labels) == 3 else f[:1]
        outputs = jnp.broadcast_to(output, (labels.shape[0], output.shape[0]))
        assert float(jnp.sum(jnp.exp(likelihood.log_prob(outputs, labels)))) == pytest.approx(1.0, abs=1e-12)


def test_heteroscedastic_curvature_is_the_fisher_information(x64):
    """The mean of minus the Hessian over targets drawn from the model, by Gauss-Hermite quadrature: exact here."""
    likelihood, output = likelihoods.HeteroscedasticGaussian(), jnp.array([0.4, -0.7])
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    targets = jnp.asarray(0.4 + np.exp(-0.7) * nodes)[:, None]
    outputs = jnp.broadcast_to(output, (5, 2))
    expected = np.einsum("i,iab->ab", weights / weights.sum(), hessians(likelihood, outputs, targets))
    np.testing.assert_allclose(likelihood.curvature(outputs, targets)[0], expected, atol=1e-12)


@pytest.mark.parametrize(
    "likelihood", [likelihoods.FromLogDensity(student_t), likelihoods.StudentT(1.0, degrees=3.0)], ids=["own", "ours"]
)
def test_curvature_of_a_likelihood_that_is_not_log_concave_is_the_positive_part(likelihood, x64):
    """Student's t bends upwards beyond sqrt(df) of its centre: there the curvature is zero, not negative."""
    outputs, targets = jnp.zeros((3, 1)), jnp.array([[0.5], [1.0], [4.0]])
    exact = np.asarray(hessians(likelihood, outputs, targets))[:, 0, 0]
    assert exact[2] < 0 < exact[0]
    np.testing.assert_allclose(likelihood.curvature(outputs, targets)[:, 0, 0], np.maximum(exact, 0), atol=1e-14)


def test_per_row_scales_follow_their_rows(dtype):
    scale = np.linspace(0.1, 1.0, N)[:, None] * [1.0, 2.0]
    likelihood = likelihoods.Gaussian(scale)
    outputs, targets = jnp.zeros((N, 2), dtype), jnp.asarray(GENERATOR.normal(size=(N, 2)), dtype)
    expected = scipy.stats.norm.logpdf(targets, 0, scale).sum(axis=1)
    np.testing.assert_allclose(likelihood.log_prob(outputs, targets), expected, rtol=1e-4)
    index = jnp.array([4, 1])
    some = likelihood.rows(index)
    np.testing.assert_allclose(some.log_prob(outputs[index], targets[index]), expected[[4, 1]], rtol=1e-4)
    np.testing.assert_allclose(some.curvature(outputs[index], targets[index])[1], np.diag(scale[1] ** -2.0), rtol=1e-4)
    assert likelihood.noise_variance(outputs) is None
    assert likelihoods.Gaussian(0.1).rows(index) == likelihoods.Gaussian(0.1)


def test_noise_variance_is_that_of_the_density(dtype):
    outputs = jnp.asarray(OUTPUTS, dtype)
    np.testing.assert_allclose(
        likelihoods.Gaussian([1.0, 2.0, 3.0, 4.0]).noise_variance(outputs)[0], [1, 4, 9, 16], rtol=1e-6
    )
    heavy = likelihoods.StudentT(0.5, degrees=5.0).noise_variance(outputs)
    np.testing.assert_allclose(heavy, scipy.stats.t.var(5.0, scale=0.5), rtol=1e-5)
    heteroscedastic = likelihoods.HeteroscedasticGaussian().noise_variance(outputs)
    np.testing.assert_allclose(heteroscedastic, np.exp(2 * OUTPUTS[:, 2:]), rtol=1e-5)
    assert likelihoods.Categorical(4).noise_variance(outputs) is None


def test_extreme_logits_stay_finite(dtype):
    outputs = jnp.array([[200.0], [-200.0]], dtype)
    labels = jnp.array([[0], [1]])
    np.testing.assert_allclose(likelihoods.Bernoulli().log_prob(outputs, labels), [-200.0, -200.0])
    assert np.all(np.isfinite(likelihoods.Bernoulli().curvature(outputs, labels)))


def test_integer_targets_reach_the_users_own_density_as_integers():
    """A density over labels indexes with them."""
    likelihood = likelihoods.FromLogDensity(lambda output, label: jax.nn.log_softmax(output)[label])
    labels = jnp.asarray(likelihood.check_targets([0, 2, 1], num_rows=3))
    outputs = jnp.asarray(OUTPUTS[:3, :3])
    np.testing.assert_allclose(
        likelihood.log_prob(outputs, labels), likelihoods.Categorical(3).log_prob(outputs, labels), rtol=1e-6
    )


def test_a_density_that_is_not_one_number_is_refused():
    likelihood = likelihoods.FromLogDensity(lambda output, target: -((output - target) ** 2))
    with pytest.raises(ValueError, match=r"FromLogDensity: log_density must return one number .* shape \(2,\)"):
        likelihood.log_prob(jnp.zeros((3, 2)), jnp.zeros((3, 2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: likelihoods.Gaussian(0.0), "Gaussian: scale must be positive and finite, but its smallest is 0"),
        (lambda: likelihoods.Gaussian(-1.0), "Gaussian: scale must be positive and finite, but its smallest is -1"),
        (lambda: likelihoods.Gaussian(np.nan), "Gaussian: scale must be positive and finite, but its smallest is nan"),
        (lambda: likelihoods.Gaussian(np.ones((2, 2, 2))), r"Gaussian: scale has shape \(2, 2, 2\); pass a number"),
        (lambda: likelihoods.Categorical(1), "Categorical: num_classes is 1; pass 2 or more"),
    ],
)
def test_impossible_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("likelihood", "targets", "message"),
    [
        (
            likelihoods.Gaussian(),
            [[1.0]] * 2,
            r"Gaussian: y has shape \(2, 1\), but X has 3 rows; pass one target per row",
        ),
        (likelihoods.Gaussian(), 1.0, r"Gaussian: y has shape \(\), but X has 3 rows"),
        (likelihoods.Gaussian(), [0, np.nan, 0], r"Gaussian: y has NaN or infinite values \(first in row 1\)"),
        (likelihoods.Gaussian(), [0, 0, np.inf], r"Gaussian: y has NaN or infinite values \(first in row 2\)"),
        (likelihoods.Gaussian(), ["a", "b", "c"], "Gaussian: y has dtype <U1, words such as 'a'; pass numbers"),
        (
            likelihoods.Gaussian([1.0, 2.0]),
            [0, 0, 0],
            r"Gaussian: scale has shape \(2,\), but y has 3 rows and 1 outputs",
        ),
        (likelihoods.Bernoulli(), [0, 1, 2], "Bernoulli: y must hold 0 and 1, but it has values from 0 to 2; recode"),
        (likelihoods.Bernoulli(), [-1, 1, 1], "Bernoulli: y must hold 0 and 1, but it has values from -1 to 1"),
        (likelihoods.Bernoulli(), [0, 0.5, 1], "Bernoulli: y must hold whole numbers, but it has values such as 0.5"),
        (likelihoods.Categorical(3), [0, 1, 3], r"Categorical: y must lie in 0, ..., 2, but it has values from 0 to 3"),
        (
            likelihoods.Categorical(3),
            [-1, 1, 2],
            r"Categorical: y must lie in 0, ..., 2, but it has values from -1 to 2",
        ),
        (
            likelihoods.Categorical(3),
            np.eye(3),
            r"Categorical: y has shape \(3, 3\); pass one whole-number label per row",
        ),
        (likelihoods.Poisson(), [0, -2, 1], "Poisson: y must hold counts, but its smallest value is -2"),
    ],
)
def test_targets_outside_the_support_are_refused(likelihood, targets, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check_targets(targets, num_rows=3)


def test_a_target_far_off_hardly_moves_a_function_under_heavy_tails():
    """The refined mean with one target at 1e3: under Student's t within 0.1 of the fit without it, under Gaussian noise far away."""
    X = np.linspace(-1, 1, 25)[:, None].astype(np.float32)
    clean = np.sin(3 * X[:, 0])
    broken = clean.copy()
    broken[12] = 1e3
    prior, context = fsp.Prior(RBF(lengthscale=0.5)), fsp.context.Uniform(-1.2, 1.2)
    model = fsp.as_model(fsp.mlp([30], prior=prior, context=context, key=jr.key(0)))
    error = {}
    for likelihood in (likelihoods.StudentT(0.1), likelihoods.Gaussian(0.1)):
        found = [
            np.asarray(fsp.laplace(model, prior, likelihood, X, y, mean="refined", context_points=X).predict(X).mean)
            for y in (clean, broken)
        ]
        error[type(likelihood).__name__] = float(np.max(np.abs(found[1] - found[0])))
    assert error["StudentT"] < 0.1
    assert error["Gaussian"] > 10.0


@pytest.mark.parametrize(("options", "seen"), [({"scale": -1.0}, "scale"), ({"degrees": 2.0}, "degrees is 2.0")])
def test_student_t_refuses_what_has_no_variance(options, seen):
    with pytest.raises(ValueError, match=f"StudentT: {seen}"):
        likelihoods.StudentT(**options)
