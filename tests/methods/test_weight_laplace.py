import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import fsplaplace as fsp
from fsplaplace.host._float64 import cast
from fsplaplace.methods import MAP, WeightLaplace
from fsplaplace.methods._kfac import kronecker_factors
from fsplaplace.methods.weight_laplace import last_layer, layer_groups
from fsplaplace.networks._jacobian import jacobian_matrix

NOISE, PRECISION = 0.3, 1.7
KEY = jr.key(0)


@pytest.fixture(autouse=True, scope="module")
def _float64():
    with jax.enable_x64(True):
        yield


def make_network(widths, seed=0):
    keys = jr.split(jr.key(seed), len(widths) - 1)
    sizes = zip(widths, widths[1:], keys, strict=False)
    return fsp.MLP(tuple(eqx.nn.Linear(i, o, key=k) for i, o, k in sizes), jnp.tanh)


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    return generator.normal(size=(15, 2)), generator.normal(size=(15, 2)), generator.normal(size=(6, 2))


def fits(data, structure, model=None, likelihood=None, precision=PRECISION, y=None):
    model = fsp.as_model(make_network([2, 5, 2])) if model is None else model
    likelihood = likelihood or fsp.likelihoods.Gaussian(NOISE)
    method = WeightLaplace(structure, precision, train=None)
    return method.fit(model, data[0], data[1] if y is None else y, likelihood, key=KEY)


def dense_covariance(model, X, precision=PRECISION):
    rows = np.asarray(jacobian_matrix(model, jnp.asarray(X)))
    return rows, np.linalg.inv(rows.T @ rows / NOISE**2 + precision * np.eye(rows.shape[1]))


def test_a_linear_model_is_bayesian_linear_regression(data):
    X, y, x = data
    gram = X.T @ X / NOISE**2 + PRECISION * np.eye(2)
    best = np.linalg.solve(gram, X.T @ y[:, :1] / NOISE**2)
    model = fsp.as_model((lambda params, x: x @ params, jnp.asarray(best)))
    posterior = fits((X, y[:, :1], x), "full", model)
    prediction = posterior.predict(x)
    np.testing.assert_allclose(prediction.mean, x @ best, atol=1e-12)
    np.testing.assert_allclose(prediction.variance[:, 0], np.diag(x @ np.linalg.solve(gram, x.T)), rtol=1e-10)
    covariance = X @ X.T / PRECISION + NOISE**2 * np.eye(15)
    evidence = -0.5 * y[:, 0] @ np.linalg.solve(covariance, y[:, 0])
    evidence -= 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-10)


@pytest.mark.parametrize("num_rows", [5, 15], ids=["fewer data than weights", "more data than weights"])
def test_full_covariance_equals_the_inverse_of_the_precision(data, num_rows):
    model = fsp.as_model(make_network([2, 3, 2]))
    X, y, x = data
    posterior = fits((X[:num_rows], y[:num_rows], x), "full", model)
    _, covariance = dense_covariance(model, X[:num_rows])
    rows, _ = dense_covariance(model, x)
    wanted = (rows @ covariance @ rows.T).reshape(6, 2, 6, 2)
    np.testing.assert_allclose(posterior.covariance(x), wanted, atol=1e-10)


def test_diagonal_curvature_is_the_diagonal_of_the_full(data):
    posterior = fits(data, "diagonal")
    rows, _ = dense_covariance(posterior.model, data[0])
    wanted = 1 / (np.sum(rows**2, axis=0) / NOISE**2 + PRECISION)
    np.testing.assert_allclose(posterior.weight_covariance.scale**2, wanted, rtol=1e-10)


def test_last_layer_is_full_over_the_last_layers_weights(data):
    posterior = fits(data, "last_layer")
    part = last_layer(fsp.as_model(make_network([2, 5, 2])))
    assert part.num_params == 12
    _, covariance = dense_covariance(part, data[0])
    test_rows, _ = dense_covariance(part, data[2])
    np.testing.assert_allclose(
        posterior.predict(data[2]).variance.ravel(), np.diag(test_rows @ covariance @ test_rows.T), rtol=1e-9
    )


def test_kfac_blocks_are_exact_for_one_data_point(data):
    model = fsp.as_model(make_network([2, 5, 2]))
    X, y = data[0][:1], data[1][:1]
    layers = kronecker_factors(model, fsp.likelihoods.Gaussian(NOISE), jnp.asarray(X), jnp.asarray(y))
    rows, _ = dense_covariance(model, X)
    ggn = rows.T @ rows / NOISE**2
    for layer in layers:
        o, i = layer.output_factor.shape[0], layer.input_factor.shape[0]
        weight = slice(layer.weight_slot, layer.weight_slot + o * i)
        bias = slice(layer.bias_slot, layer.bias_slot + o)
        np.testing.assert_allclose(np.kron(layer.output_factor, layer.input_factor), ggn[weight, weight], atol=1e-10)
        np.testing.assert_allclose(layer.output_factor, ggn[bias, bias], atol=1e-10)


def test_kfac_is_exact_for_a_network_of_one_layer_without_bias(data):
    network = eqx.nn.Sequential([eqx.nn.Linear(2, 2, use_bias=False, key=KEY)])
    kfac, full = (fits(data, structure, fsp.as_model(network)) for structure in ("kfac", "full"))
    np.testing.assert_allclose(kfac.log_evidence, full.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(kfac.predict(data[2]).variance, full.predict(data[2]).variance, rtol=1e-9)


def test_kfac_of_a_convolution_over_one_position_is_that_of_the_linear_layer_it_is():
    images = np.random.default_rng(0).normal(size=(4, 1, 2, 2))
    convolution = eqx.nn.Conv2d(1, 3, 2, key=KEY)
    as_linear = eqx.tree_at(
        lambda layer: (layer.weight, layer.bias),
        eqx.nn.Linear(4, 3, key=KEY),
        (convolution.weight.reshape(3, 4), convolution.bias.ravel()),
    )
    likelihood, targets = fsp.likelihoods.Gaussian(NOISE), jnp.zeros((4, 3))
    seen = kronecker_factors(fsp.as_model(eqx.nn.Sequential([convolution])), likelihood, jnp.asarray(images), targets)
    flat = jnp.asarray(images.reshape(4, 4))
    wanted = kronecker_factors(fsp.as_model(eqx.nn.Sequential([as_linear])), likelihood, flat, targets)
    np.testing.assert_allclose(seen[0].input_factor, wanted[0].input_factor, atol=1e-12)
    np.testing.assert_allclose(seen[0].output_factor, wanted[0].output_factor, atol=1e-12)


@pytest.mark.parametrize("structure", ["full", "kfac", "diagonal"])
def test_samples_have_the_predicted_variance(data, structure):
    posterior = fits(data, structure)
    samples = posterior.sample(data[2], key=KEY, num_samples=4000)
    np.testing.assert_allclose(jnp.var(samples, axis=0), posterior.predict(data[2]).variance, rtol=0.12)


@pytest.mark.parametrize("structure", ["full", "kfac", "diagonal"])
def test_precision_by_evidence_is_the_best_on_a_grid(data, structure):
    tuned = fits(data, structure, precision="evidence")
    grid = np.logspace(-3, 3, 61)
    values = [float(fits(data, structure, precision=float(delta)).log_evidence) for delta in grid[::4]]
    assert float(tuned.log_evidence) >= max(values)
    best = grid[::4][int(np.argmax(values))]
    assert abs(np.log10(float(tuned.prior_precision[0]) / best)) < 0.4


def test_layerwise_evidence_has_no_slope_left_and_is_above_the_global(data):
    one, each = fits(data, "full", precision="evidence"), fits(data, "full", precision="layerwise")
    assert each.prior_precision.shape == (2,)
    assert float(each.log_evidence) >= float(one.log_evidence)
    groups = layer_groups(each.model)
    rows, _ = dense_covariance(each.model, data[0])
    precision = np.asarray(each.prior_precision)

    def evidence(delta):
        weights = np.asarray(each.model.weights)
        ratio = np.eye(30) + (rows / delta[groups]) @ rows.T / NOISE**2
        return -0.5 * np.sum(delta[groups] * weights**2) - 0.5 * np.linalg.slogdet(ratio)[1]

    for layer in range(2):
        for factor in (0.9, 1.1):
            moved = precision.copy()
            moved[layer] *= factor
            assert evidence(moved) < evidence(precision)


def test_learnable_noise_is_tuned_with_the_evidence(data):
    X, y, _ = data
    model = fsp.as_model((lambda params, x: x @ params, jnp.linalg.lstsq(jnp.asarray(X), jnp.asarray(y[:, :1]))[0]))
    fixed = lambda scale: fsp.likelihoods.Gaussian(scale)  # noqa: E731
    tuned = fits(data, "full", model, fsp.likelihoods.Gaussian(0.1, learnable=True), "evidence", y[:, :1])
    best = float(tuned.likelihood.scale)
    values = [
        float(fits(data, "full", model, fixed(best * factor), "evidence", y[:, :1]).log_evidence)
        for factor in (0.9, 1.0, 1.1)
    ]
    assert values[1] == max(values)
    np.testing.assert_allclose(tuned.log_evidence, values[1], rtol=1e-6)


@pytest.mark.slow
def test_classification_probabilities_average_the_softmax(data):
    model = fsp.as_model(make_network([2, 4, 3]))
    posterior = fits(data, "full", model, fsp.likelihoods.Categorical(3), y=np.arange(15) % 3)
    samples = posterior.sample(data[2], key=KEY, num_samples=5000)
    wanted = jnp.mean(jax.nn.softmax(samples, axis=-1), axis=0)
    np.testing.assert_allclose(posterior.predict_proba(data[2], num_samples=5000), wanted, atol=0.03)


def test_float32_agrees_with_float64(data):
    double = fits(data, "full").predict(data[2]).std
    network = cast(make_network([2, 5, 2]), jnp.float32)
    with jax.enable_x64(False):
        single = fits(data, "full", fsp.as_model(network)).predict(data[2]).std
    np.testing.assert_allclose(single, double, rtol=1e-4)


def test_map_finds_the_ridge_solution_of_a_linear_model(data):
    X, y, _ = data
    model = fsp.as_model((lambda params, x: x @ params, jnp.zeros((2, 2))))
    posterior = MAP(PRECISION, steps=1500).fit(model, X, y, fsp.likelihoods.Gaussian(NOISE), key=KEY, progress=False)
    wanted = np.linalg.solve(X.T @ X / NOISE**2 + PRECISION * np.eye(2), X.T @ y / NOISE**2)
    np.testing.assert_allclose(posterior.model.params, wanted, atol=1e-4)
    assert float(jnp.max(posterior.predict(X).variance)) == 0.0


def test_unsupported_layers_are_refused_by_name_before_training(data):
    network = eqx.nn.Sequential([eqx.nn.Linear(2, 3, key=KEY), eqx.nn.LayerNorm(3), eqx.nn.Linear(3, 2, key=KEY)])
    method = WeightLaplace("kfac", train=MAP(steps=10**9))
    with pytest.raises(ValueError, match=r"K-FAC: Sequential has weights at \.layers\[1\].* \(LayerNorm\).*diagonal"):
        method.fit(fsp.as_model(network), data[0], data[1], fsp.likelihoods.Gaussian(), key=KEY)


def test_kfac_of_a_network_from_elsewhere_is_refused(data):
    model = fsp.as_model((lambda params, x: x @ params, jnp.zeros((2, 2))))
    with pytest.raises(ValueError, match=r"K-FAC: .* is not an Equinox network.*structure='diagonal'"):
        fits(data, "kfac", model)


def test_a_curvature_above_the_budget_is_refused_before_training(data):
    method = WeightLaplace("full", train=MAP(steps=10**9), memory_budget=1000.0)
    with pytest.raises(
        MemoryError, match=r"structure='full' needs .* use structure='kfac', 'diagonal' or 'last_layer'"
    ):
        method.fit(fsp.as_model(make_network([2, 5, 2])), data[0], data[1], fsp.likelihoods.Gaussian(), key=KEY)


@pytest.mark.parametrize("structure", ["kfac", "diagonal"])
def test_an_approximate_curvature_does_not_move_the_noise(data, structure):
    likelihood = fsp.likelihoods.Gaussian(NOISE, learnable=True)
    tuned = fits(data, structure, likelihood=likelihood, precision="evidence")
    np.testing.assert_allclose(tuned.likelihood.scale, NOISE, rtol=1e-12)
