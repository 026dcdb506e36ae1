"""Both forms of the posterior against exact Gaussian processes, closed forms and dense linear algebra."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import references
from gpjax.kernels import RBF, AbstractKernel, ICMKernel, Matern12, Matern32
from gpjax.parameters import CoregionalizationMatrix

import fsplaplace as fsp

FORMS = {
    "dense": {"solver": "dense"},
    "golub-kahan": {"solver": "golub-kahan"},
    "precision": {"form": "precision"},
}
# In float64, where the context points are few enough for J_C to have full row rank, nothing need be dropped or damped.
EXACT = {"rtol": 1e-13, "delta": 1e-15}
GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(10, 1))
Y = np.sin(3 * X[:, 0]) + 0.1 * GENERATOR.normal(size=10)
# Off the training inputs and off the context points.
TEST = np.linspace(-0.97, 0.97, 17)[:, None]
BOX = fsp.context.Uniform(-1.0, 1.0)


def network(prior, width=100, key=0):
    return fsp.as_model(fsp.mlp([width], prior=prior, context=BOX, key=jr.key(key)))


# ---------------------------------------------------------------------------------------- the exact Gaussian process


def test_sine_task_equals_the_exact_gaussian_process(sine, sine_posterior):
    """Float32 throughout, 1,000 steps of training: measured 0.001 for both."""
    prediction = sine_posterior.predict(sine.x)
    np.testing.assert_allclose(prediction.std[:, 0], sine.exact.std, atol=0.005)
    np.testing.assert_allclose(prediction.mean[:, 0], sine.exact.mean, atol=0.005)
    assert sine_posterior.diagnostics.mean == "refined"


def test_log_evidence_of_the_sine_task_is_the_marginal_likelihood(sine, sine_posterior):
    assert float(sine_posterior.log_evidence) == pytest.approx(sine.exact.log_evidence, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "budget"), [("golub-kahan", 2e7), ("normal-equations", None)])
def test_solvers_in_blocks_equal_the_exact_gaussian_process(sine, solver, budget):
    posterior = fsp.laplace(
        sine.trained.model, sine.prior, sine.likelihood, sine.X, sine.y,
        context_points=sine.context_points, solver=solver, memory_budget=budget,
    )  # fmt: skip
    assert posterior.diagnostics.solver == solver
    np.testing.assert_allclose(posterior.predict(sine.x).std[:, 0], sine.exact.std, atol=0.01)
    np.testing.assert_allclose(posterior.predict(sine.x).mean[:, 0], sine.exact.mean, atol=0.02)


@pytest.mark.parametrize("rows", [3, 10])
def test_few_rows_condition_the_prior_that_the_features_carry(x64, rows):
    """Few of 30 directions are told of: `posterior_weights` turns those by reflections. All are, beside all ten rows."""
    prior, points = fsp.Prior(Matern32(lengthscale=0.6)), np.linspace(-1, 1, 20)[:, None]
    posterior = fsp.laplace(
        network(prior), prior, fsp.likelihoods.Gaussian(0.1), X[:rows], Y[:rows], context_points=points, mean="refined", delta=1e-9,
        missed_as_noise=False,
    )  # fmt: skip
    assert np.sum(np.asarray(posterior.information) > 1 + 1e-9) == rows
    inputs = np.concatenate([X[:rows], TEST])
    features = np.asarray(fsp.networks.push_forward(posterior.model, inputs, posterior.scale, budget=1e9))[:, 0]
    carried = (features * np.asarray(posterior.information)) @ features.T
    K, cross, test = carried[:rows, :rows], carried[rows:, :rows], carried[rows:, rows:]
    wanted = test - cross @ np.linalg.solve(K + 0.01 * np.eye(rows), cross.T)
    np.testing.assert_allclose(features[rows:] @ features[rows:].T, wanted, atol=1e-6)


def test_implied_prior_is_the_stated_one_and_bounds_the_posterior(sine, sine_posterior):
    for place in ("context", "training", "guard"):
        ratio = sine_posterior.diagnostics.ratios[place]
        assert 0.98 < float(ratio.smallest) <= float(ratio.median) <= float(ratio.largest) < 1.02
    assert np.all(sine_posterior.predict(sine.context_points).variance <= 1.02)
    assert 0.999999 < float(sine_posterior.diagnostics.captured) <= 1 + 1e-6


# ------------------------------------------------------------------------------------------------------ closed forms


def features(x):
    return jnp.concatenate([jnp.ones_like(x), x, jnp.sin(2 * x), jnp.cos(3 * x), x**2, jnp.tanh(4 * x)], axis=1)


class FeatureKernel(AbstractKernel):
    """k(x, y) = features(x) . features(y): the prior that standard normal weights imply."""

    def __init__(self):
        super().__init__()

    def __call__(self, x, y):
        return features(x[None])[0] @ features(y[None])[0]


def linear(weights, x):
    return features(x) @ weights[:, None]


@pytest.mark.parametrize("form", FORMS)
def test_a_network_linear_in_its_weights_is_bayesian_linear_regression(dtype, form):
    """Twelve context points determine the six weights, so that nothing is left to approximate."""
    columns, test_columns = np.asarray(features(jnp.asarray(X)), float), np.asarray(features(jnp.asarray(TEST)), float)
    exact = references.bayesian_linear_regression(columns, test_columns, Y, 0.2)
    # The precision form has the network's own mean, so it starts at the mode.
    weights = np.linalg.solve(np.eye(6) + columns.T @ columns / 0.04, columns.T @ Y / 0.04)
    weights = weights if form == "precision" else GENERATOR.normal(size=6)
    model = fsp.as_model((linear, jnp.asarray(weights, dtype)))
    posterior = fsp.laplace(
        model, fsp.Prior(FeatureKernel()), fsp.likelihoods.Gaussian(0.2), X, Y,
        context_points=np.linspace(-1.5, 1.5, 12)[:, None], **FORMS[form],
        **(EXACT if dtype == jnp.float64 else {}),
    )  # fmt: skip
    tolerance = 1e-5 if dtype == jnp.float32 else 1e-10
    prediction = posterior.predict(TEST)
    assert prediction.mean.dtype == dtype
    assert posterior.rank == 6
    np.testing.assert_allclose(prediction.mean[:, 0], exact.mean, atol=tolerance)
    np.testing.assert_allclose(posterior.covariance(TEST)[:, 0, :, 0], exact.covariance, atol=tolerance)
    assert float(posterior.log_evidence) == pytest.approx(exact.log_evidence, abs=10 * tolerance)


def test_only_unmasked_weights_are_bayesian(x64):
    """A posterior over the last layer is Bayesian linear regression on the hidden layer."""
    prior = fsp.Prior(RBF(lengthscale=0.5))
    net = fsp.mlp([6], prior=prior, context=BOX, key=jr.key(0))
    hidden = lambda x: np.asarray(jnp.tanh(jnp.asarray(x) @ net.layers[0].weight.T + net.layers[0].bias))  # noqa: E731
    design = lambda x: np.column_stack([hidden(x), np.ones(len(x))])  # noqa: E731
    kernel = HiddenKernel(net.layers[0])
    exact = references.bayesian_linear_regression(design(X), design(TEST), Y, 0.2)
    # Without units: the features are the hidden layer's as they are.
    model = fsp.as_model(fsp.MLP(net.layers, net.activation), mask=lambda path: "layers[1]" in path)
    assert model.num_params == 7
    posterior = fsp.laplace(
        model, fsp.Prior(kernel), fsp.likelihoods.Gaussian(0.2), X, Y,
        context_points=np.linspace(-1, 1, 20)[:, None], **EXACT,
    )  # fmt: skip
    np.testing.assert_allclose(posterior.predict(TEST).std[:, 0], exact.std, atol=1e-6)
    np.testing.assert_allclose(posterior.predict(TEST).mean[:, 0], exact.mean, atol=1e-6)


class HiddenKernel(AbstractKernel):
    layer: eqx.nn.Linear

    def __init__(self, layer):
        self.layer = layer
        super().__init__()

    def __call__(self, x, y):
        return jnp.tanh(self.layer(x)) @ jnp.tanh(self.layer(y)) + 1.0


# ------------------------------------------------------------------------------------------------- dense linear algebra


@pytest.fixture(scope="module")
def full_row_rank():
    """A wide network, few context points and a rough kernel: J_C has full row rank and Sigma is well conditioned."""
    with jax.enable_x64(True):
        prior = fsp.Prior(Matern12(lengthscale=0.5))
        return prior, network(prior), np.linspace(-1, 1, 12)[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_both_forms_are_the_dense_posterior_where_the_jacobian_has_full_row_rank(x64, full_row_rank, form):
    r"""Weights have prior covariance J_C^+ Sigma J_C^{+T} and are conditioned on the data as in any linear model."""
    prior, model, C = full_row_rank

    @jax.jit
    def jacobian(x):
        return jax.jacobian(lambda w: model.evaluate(model.unravel(w), x)[:, 0])(model.weights)

    inverse, at_data, at_test = (
        np.linalg.pinv(np.asarray(jacobian(C))),
        np.asarray(jacobian(X)),
        np.asarray(jacobian(TEST)),
    )
    prior_factor = inverse @ np.linalg.cholesky(np.exp(-np.abs(C - C.T) / 0.5))
    left, right = at_data @ prior_factor, at_test @ prior_factor
    unexplained = np.zeros(len(TEST))
    if form != "precision":
        # Between context points a rough prior's features have too much or too little of its variance.
        unexplained = np.maximum(1.0 - np.sum(right**2, axis=1), 0.0)
        left, right = (part / np.maximum(np.linalg.norm(part, axis=1), 1.0)[:, None] for part in (left, right))
    gain = np.linalg.solve(left @ left.T + 0.01 * np.eye(10), left @ right.T)
    expected = right @ right.T - (right @ left.T) @ gain
    expected = expected + np.diag(unexplained * np.diagonal(expected) / np.sum(right**2, axis=1))
    posterior = fsp.laplace(
        model,
        prior,
        fsp.likelihoods.Gaussian(0.1),
        X,
        Y,
        context_points=C,
        include_training=False,
        missed_as_noise=False,
        **EXACT,
        **FORMS[form],
    )
    np.testing.assert_allclose(posterior.covariance(TEST)[:, 0, :, 0], expected, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "precision"])
def test_points_without_data_keep_the_prior_variance(dtype, form):
    """Posterior and prior are equal there but for rounding, which must not make the truncation drop directions."""
    prior = fsp.Prior(Matern12(lengthscale=0.05))
    C = np.linspace(-1, 1, 12)[:, None]
    kernel = np.exp(-np.abs(C - C.T) / 0.05)
    exact = references.exact_gp(kernel[:1, :1], kernel[:, :1], kernel, np.array([0.3]), np.array(0.1))
    posterior = fsp.laplace(
        network(prior), prior, fsp.likelihoods.Gaussian(0.1), C[:1], [0.3], context_points=C, delta=1e-14, **FORMS[form]
    )
    assert posterior.rank == 12
    np.testing.assert_allclose(posterior.predict(C).std[:, 0], exact.std, atol=1e-5)


# ------------------------------------------------------------------------------------------------------ several outputs

# Training inputs among the context points: there the prior is met exactly, whatever the network.
POINTS = np.concatenate([np.linspace(-1, 1, 12)[:, None], X])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "precision"])
@pytest.mark.parametrize("kernels", ["shared", "separate"])
def test_ten_outputs_have_the_std_of_ten_single_output_models(x64, form, kernels):
    lengthscales = [0.5] * 10 if kernels == "shared" else np.linspace(0.3, 1.0, 10)
    parts = [Matern12(lengthscale=scale) for scale in lengthscales]
    prior = fsp.Prior(parts[0], num_outputs=10) if kernels == "shared" else fsp.Prior(parts)
    targets = np.random.default_rng(1).normal(size=(10, 10))
    likelihood = fsp.likelihoods.Gaussian(0.1)
    posterior = fsp.laplace(
        network(prior), prior, likelihood, X, targets, context_points=POINTS, **EXACT, **FORMS[form]
    )
    together = posterior.predict(POINTS).std
    for output in (0, 9):
        one = fsp.Prior(parts[output])
        alone = fsp.laplace(
            network(one), one, likelihood, X, targets[:, 0], context_points=POINTS, **EXACT, **FORMS[form]
        )
        np.testing.assert_allclose(together[:, output], alone.predict(POINTS).std[:, 0], rtol=0.01)


MULTI_OUTPUT = {
    "helmholtz": lambda: fsp.kernels.Helmholtz(Matern32(lengthscale=0.8), RBF(lengthscale=0.6)),
    "icm": lambda: ICMKernel(Matern12(lengthscale=0.5), CoregionalizationMatrix(num_outputs=2, rank=2, key=jr.key(0))),
}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", MULTI_OUTPUT)
def test_multi_output_kernels_give_the_exact_posterior_in_both_forms(x64, kernel):
    prior, box = fsp.Prior(MULTI_OUTPUT[kernel]()), fsp.context.Uniform([-1.0, -1.0], [1.0, 1.0])
    C = np.asarray(fsp.context.Halton([-1, -1], [1, 1]).sample(25, key=jr.key(0)))
    inputs, targets = C[:12], np.random.default_rng(2).normal(size=(12, 2))
    sigma = np.asarray(eqx.filter_jit(fsp.Prior.covariance)(prior, jnp.asarray(C), jnp.asarray(C))).reshape(50, 50)
    exact = references.exact_gp(sigma[:24, :24], sigma[:, :24], sigma, targets.ravel(), np.array(0.1))
    model = fsp.as_model(fsp.mlp([60], prior=prior, context=box, key=jr.key(3)))
    likelihood = fsp.likelihoods.Gaussian(0.1)
    trained = fsp.train(model, prior, likelihood, box, inputs, targets, key=jr.key(0), steps=5, progress=False)
    assert np.all(np.isfinite(trained.history.objective))
    for form in ("dense", "precision"):
        posterior = fsp.laplace(model, prior, likelihood, inputs, targets, context_points=C, **EXACT, **FORMS[form])
        # Relative to prior standard deviations of up to 2.5.
        np.testing.assert_allclose(posterior.predict(C).std.ravel(), exact.std, atol=0.01)
        if form == "dense":
            np.testing.assert_allclose(posterior.predict(C).mean.ravel(), exact.mean, atol=0.01)


def test_noise_per_output_and_per_datum_enter_the_posterior(x64):
    prior = fsp.Prior(Matern12(lengthscale=0.5), num_outputs=2)
    kernel = np.exp(-np.abs(POINTS - POINTS.T) / 0.5)
    targets = np.random.default_rng(3).normal(size=(10, 2))
    per_row = np.random.default_rng(4).uniform(0.05, 1.0, size=(10, 2))
    for scale in (np.array([0.1, 1.0]), per_row):
        posterior = fsp.laplace(
            network(prior),
            prior,
            fsp.likelihoods.Gaussian(scale),
            X,
            targets,
            context_points=POINTS,
            mean="refined",
            **EXACT,
        )
        for output in range(2):
            noise = np.broadcast_to(scale, (10, 2))[:, output]
            exact = references.exact_gp(kernel[12:, 12:], kernel[:, 12:], kernel, targets[:, output], noise)
            np.testing.assert_allclose(posterior.predict(POINTS).std[:, output], exact.std, atol=2e-3)
            np.testing.assert_allclose(posterior.predict(POINTS).mean[:, output], exact.mean, atol=5e-3)


def test_the_prior_mean_is_what_the_posterior_returns_to(x64):
    """The exact posterior of f - mu, with mu added back."""
    prior = fsp.Prior(Matern12(lengthscale=0.05), mean=lambda x: 5.0 + x[:, 0])
    C = POINTS[:12]
    kernel = np.exp(-np.abs(C - C.T) / 0.05)
    centred = references.exact_gp(kernel[:1, :1], kernel[:, :1], kernel, np.array([-4.0]), np.array(0.1))
    likelihood = fsp.likelihoods.Gaussian(0.1)
    posterior = fsp.laplace(network(prior), prior, likelihood, C[:1], [0.0], context_points=C, mean="refined", **EXACT)
    np.testing.assert_allclose(posterior.predict(C).mean[:, 0], 5.0 + C[:, 0] + centred.mean, atol=1e-3)


# ------------------------------------------------------------------------------------------- likelihoods with a mode

LABELS = (X[:, 0] > 0).astype(int)
LABELS[0] = 1 - LABELS[0]
CLASSES = np.random.default_rng(5).integers(0, 3, size=10)
COUNTS = np.random.default_rng(6).poisson(2.0, size=10)
LIKELIHOODS = {
    "bernoulli": (fsp.likelihoods.Bernoulli(), 1, LABELS, references.bernoulli_expansion(LABELS)),
    "categorical": (fsp.likelihoods.Categorical(3), 3, CLASSES, references.softmax_expansion(CLASSES, 3)),
    "poisson": (fsp.likelihoods.Poisson(), 1, COUNTS, references.poisson_expansion(COUNTS)),
}


@pytest.fixture(scope="module", params=LIKELIHOODS)
def latent(request):
    """Posterior and dense reference for a smooth prior that the untrained network can represent."""
    likelihood, q, targets, expansion = LIKELIHOODS[request.param]
    with jax.enable_x64(True):
        prior = fsp.Prior(RBF(lengthscale=0.5, variance=4.0), num_outputs=q)
        C = np.concatenate([np.linspace(-1, 1, 40)[:, None], X])
        posterior = fsp.laplace(network(prior), prior, likelihood, X, targets, context_points=C)
    kernel = lambda a, b: np.kron(references.rbf(a, b, 0.5, 4.0), np.eye(q))  # noqa: E731
    return posterior, references.gp_laplace(kernel(X, X), kernel(TEST, X), kernel(TEST, TEST), expansion)


@pytest.mark.slow
def test_mode_and_covariance_equal_the_dense_laplace_approximation(x64, latent):
    """The network's features miss the prior by 1e-4 at these points (eigenvalues below rtol = 1e-6 of the largest are
    dropped, and the ridge delta = 1e-10 damps the weakest features), so agreement to 1e-3 of the prior's scale of 2 is
    what the representation allows; measured 4e-5 for the mode and 1e-4 for the covariance."""
    posterior, dense = latent
    assert posterior.diagnostics.mean == "refined"
    np.testing.assert_allclose(posterior.predict(TEST).mean.ravel(), dense.mean, atol=2e-3)
    joint = np.asarray(posterior.covariance(TEST)).reshape(dense.covariance.shape)
    np.testing.assert_allclose(joint, dense.covariance, atol=2e-3)
    assert float(posterior.log_evidence) == pytest.approx(dense.log_evidence, abs=1e-3)


def test_class_probabilities_equal_the_integral_over_the_dense_posterior(x64, latent):
    posterior, dense = latent
    if isinstance(posterior.likelihood, fsp.likelihoods.Poisson):
        with pytest.raises(ValueError, match=r"Posterior.predict_proba: Poisson has no classes; use predict"):
            posterior.predict_proba(TEST)
        return
    q = posterior.prior.num_outputs
    blocks = dense.covariance.reshape(17, q, 17, q)[np.arange(17), :, np.arange(17), :]
    draws = np.random.default_rng(7).normal(size=(20_000, 17, q))
    logits = dense.mean.reshape(17, q) + np.einsum("nab,snb->sna", np.linalg.cholesky(blocks + 1e-9 * np.eye(q)), draws)
    exact = 1 / (1 + np.exp(-logits)) if q == 1 else np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    sampled = posterior.predict_proba(TEST, key=jr.key(0), num_samples=5000)
    # Standard error of 5,000 draws of a number in [0, 1]: below 0.007.
    np.testing.assert_allclose(sampled, exact.mean(axis=0), atol=0.03)
    probit = posterior.predict_proba(TEST, method="probit")
    np.testing.assert_allclose(probit, exact.mean(axis=0), atol=0.02 if q == 1 else 0.1)
    if q > 1:
        np.testing.assert_allclose(sampled.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.slow
def test_a_likelihood_that_is_not_log_concave_gives_a_posterior_below_the_prior(x64):
    student = fsp.likelihoods.FromLogDensity(lambda f, y: jnp.sum(jax.scipy.stats.t.logpdf(y, 3.0, loc=f, scale=0.1)))
    prior = fsp.Prior(RBF(lengthscale=0.5))
    outlier = np.where(np.arange(10) == 3, Y + 5.0, Y)[:, None]
    posterior = fsp.laplace(network(prior), prior, student, X, outlier, context_points=POINTS)
    prediction = posterior.predict(X)
    assert np.all(prediction.variance < 1.001)
    # One outlier of fifty noise scales: a Gaussian likelihood would follow it.
    assert np.abs(np.delete(np.asarray(prediction.mean[:, 0]) - Y, 3)).max() < 0.5


@pytest.mark.parametrize("solver", ["dense", "golub-kahan"])
def test_heteroscedastic_noise_is_predicted_where_it_was_seen(x64, solver):
    prior = fsp.Prior(RBF(lengthscale=1.0), num_outputs=2)
    inputs = np.linspace(-1, 1, 60)[:, None]
    noise = np.where(inputs[:, 0] < 0, 0.05, 1.0)
    targets = noise * np.random.default_rng(8).normal(size=60)
    posterior = fsp.laplace(
        network(prior),
        prior,
        fsp.likelihoods.HeteroscedasticGaussian(),
        inputs,
        targets,
        context_points=inputs,
        mean="refined",
        solver=solver,
        **EXACT,
    )
    total = np.sqrt(np.asarray(posterior.predict(np.array([[-0.8], [0.8]])).total_variance))
    assert total.shape == (2, 1)
    assert total[0, 0] < 0.3 < 0.6 < total[1, 0] < 2.0
