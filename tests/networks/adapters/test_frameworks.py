"""One network in every library: the same function, the same posterior, and refusals by name."""

import itertools

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flax import linen, nnx
from gpjax.kernels import RBF

import fsplaplace as fsp

SIZES = (1, 12, 12, 1)


def weights():
    """Kernels (in, out) and biases of a 2 x 12 tanh network, matched to a length scale of 0.5."""
    generator = np.random.default_rng(0)
    layers = []
    for i, (size_in, size_out) in enumerate(itertools.pairwise(SIZES)):
        scale = 3.0 if i == 0 else size_in**-0.5
        layers.append((scale * generator.normal(size=(size_in, size_out)), generator.normal(size=size_out)))
    return layers


class LinenNetwork(linen.Module):
    @linen.compact
    def __call__(self, x):
        for width in SIZES[1:-1]:
            x = jnp.tanh(linen.Dense(width)(x))
        return linen.Dense(SIZES[-1])(x)


class NNXNetwork(nnx.Module):
    def __init__(self, rngs):
        for i, sizes in enumerate(itertools.pairwise(SIZES)):
            setattr(self, f"layer{i}", nnx.Linear(*sizes, rngs=rngs, param_dtype=float))

    def __call__(self, x):
        return self.layer2(jnp.tanh(self.layer1(jnp.tanh(self.layer0(x)))))


def equinox_model(layers):
    network = eqx.nn.MLP(1, 1, 12, 2, activation=jnp.tanh, key=jr.key(0))
    values = [value for kernel, bias in layers for value in (jnp.asarray(kernel.T), jnp.asarray(bias))]
    return fsp.as_model(
        eqx.tree_at(lambda net: [v for layer in net.layers for v in (layer.weight, layer.bias)], network, values)
    )


def nnx_model(layers):
    network = NNXNetwork(nnx.Rngs(0))
    for i, (kernel, bias) in enumerate(layers):
        layer = getattr(network, f"layer{i}")
        layer.kernel[...], layer.bias[...] = jnp.asarray(kernel), jnp.asarray(bias)
    return fsp.as_model(network)


def linen_model(layers):
    params = {f"Dense_{i}": {"kernel": kernel, "bias": bias} for i, (kernel, bias) in enumerate(layers)}
    return fsp.as_model((LinenNetwork(), {"params": params}))


def haiku_model(layers):
    transformed = hk.transform(lambda x: hk.nets.MLP(SIZES[1:], activation=jnp.tanh)(x))
    params = {f"mlp/~/linear_{i}": {"w": kernel, "b": bias} for i, (kernel, bias) in enumerate(layers)}
    return fsp.as_model((transformed, params))


def torch_model(layers):
    torch = pytest.importorskip("torch")
    linears = [torch.nn.Linear(*kernel.shape) for kernel, _ in layers]
    for linear, (kernel, bias) in zip(linears, layers, strict=True):
        linear.weight.data, linear.bias.data = torch.from_numpy(kernel.T.copy()), torch.from_numpy(bias)
    tanh = torch.nn.Tanh()
    return fsp.as_model(torch.nn.Sequential(linears[0], tanh, linears[1], tanh, linears[2]))


@pytest.fixture(scope="module")
def problem():
    generator = np.random.default_rng(1)
    X = generator.uniform(-1, 1, (20, 1))
    return X, np.sin(3 * X[:, 0]) + 0.1 * generator.normal(size=20)


def posterior_moments(model, problem):
    prior, likelihood = fsp.Prior(RBF(lengthscale=0.5)), fsp.likelihoods.Gaussian(0.1)
    points = np.linspace(-2, 2, 40)[:, None]
    # The pull-back amplifies the libraries' different rounding (1e-15) by up to 1 / delta.
    posterior = fsp.laplace(model, prior, likelihood, *problem, context_points=points, mean="refined", delta=1e-8)
    prediction = posterior.predict(np.linspace(-1.9, 1.9, 31)[:, None])
    return np.asarray(prediction.mean), np.asarray(prediction.variance)


@pytest.fixture(scope="module")
def equinox_moments(problem):
    with jax.enable_x64(True):
        return posterior_moments(equinox_model(weights()), problem)


@pytest.mark.slow
@pytest.mark.parametrize("make", [nnx_model, linen_model, haiku_model, torch_model])
def test_the_same_network_has_the_same_posterior_in_every_library(x64, make, problem, equinox_moments):
    reference = equinox_moments
    moments = posterior_moments(make(weights()), problem)
    np.testing.assert_allclose(moments[0], reference[0], atol=1e-5)
    np.testing.assert_allclose(moments[1], reference[1], atol=1e-5)


class LinenNormalised(linen.Module):
    train: bool = False

    @linen.compact
    def __call__(self, x):
        x = linen.BatchNorm(use_running_average=not self.train)(linen.Dense(3)(x))
        return linen.Dense(1)(linen.Dropout(0.5, deterministic=True)(x))


def test_linen_statistics_are_held_fixed_in_inference():
    x = jr.normal(jr.key(1), (4, 2))
    variables = LinenNormalised().init(jr.key(0), x)
    variables = {**variables, "batch_stats": jax.tree.map(lambda v: v + 0.5, variables["batch_stats"])}
    model = fsp.as_model((LinenNormalised(), variables))
    np.testing.assert_allclose(model(x), LinenNormalised().apply(variables, x), rtol=1e-6)
    assert model.num_params == sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))
    model.check_rows_independent(x)


def test_linen_in_training_mode_is_refused_by_name():
    x = jnp.ones((3, 2))
    variables = LinenNormalised().init(jr.key(0), x)
    with pytest.raises(ValueError, match=r"LinenNormalised has a layer in training mode.*BatchNorm"):
        fsp.as_model((LinenNormalised(train=True), variables))(x)
    dropout = linen.Dropout(0.5, deterministic=False)
    with pytest.raises(ValueError, match="no floating-point weights"):
        fsp.as_model((dropout, {"params": {}}))
    noisy = linen.Sequential([linen.Dense(2), dropout])
    with pytest.raises(ValueError, match=r"random layer.*Dropout"):
        fsp.as_model((noisy, linen.Dense(2).init(jr.key(0), x) | {"params": {"layers_0": _dense(x)}}))(x)


def _dense(x):
    return linen.Dense(2).init(jr.key(0), x)["params"]


def test_linen_without_params_says_what_to_pass():
    with pytest.raises(ValueError, match=r"no 'params' collection.*module\.init"):
        fsp.as_model((LinenNetwork(), {"Dense_0": {}}))
    with pytest.raises(TypeError, match="LinenNetwork holds no parameters; pass the pair"):
        fsp.as_model(LinenNetwork())


def normalised(is_training):
    def network(x):
        x = hk.BatchNorm(True, True, 0.9)(hk.Linear(3)(x), is_training=is_training)
        return hk.Linear(1)(x)

    return hk.transform_with_state(network)


@pytest.mark.parametrize("wrap", [lambda t: t, hk.without_apply_rng], ids=["rng", "no_rng"])
def test_haiku_with_and_without_state_and_rng(wrap):
    x = jr.normal(jr.key(1), (4, 2))
    params, state = normalised(True).init(jr.key(0), x)
    _, state = normalised(True).apply(params, state, None, 3 * x + 1)
    expected, _ = normalised(False).apply(params, state, None, x)
    model = fsp.as_model((wrap(normalised(False)), (params, state)))
    np.testing.assert_allclose(model(x), expected, rtol=1e-6)
    model.check_rows_independent(x)
    plain = hk.transform(lambda x: hk.Linear(2)(x))
    weights = plain.init(jr.key(0), x)
    np.testing.assert_allclose(fsp.as_model((wrap(plain), weights))(x), plain.apply(weights, None, x), rtol=1e-6)


def test_haiku_in_training_mode_is_refused_by_name():
    x = jr.normal(jr.key(1), (4, 2))
    parameters = normalised(True).init(jr.key(0), x)
    with pytest.raises(ValueError, match=r"network updates its state at .*batch_norm.*is_training=True"):
        fsp.as_model((normalised(True), parameters))(x)
    with pytest.raises(ValueError, match=r"pass \(transformed, \(params, state\)\)"):
        fsp.as_model((normalised(False), parameters[0]))
    with pytest.raises(TypeError, match="TransformedWithState holds no parameters"):
        fsp.as_model(normalised(False))


class EquinoxNormalised(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key):
        self.first, self.last = eqx.nn.Linear(2, 3, key=key), eqx.nn.Linear(3, 1, key=key)
        self.norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="ema")
        self.dropout = eqx.nn.Dropout(0.5)

    def __call__(self, x, state):
        x, state = self.norm(self.first(x), state)
        return self.last(self.dropout(x)), state


def test_equinox_state_is_closed_over_in_inference():
    x = jr.normal(jr.key(1), (4, 2))
    network, state = eqx.nn.make_with_state(EquinoxNormalised)(jr.key(0))
    training = eqx.tree_at(lambda net: net.dropout.inference, network, True)
    update = jax.vmap(training, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
    _, state = update(2 * x + 1, state)
    model = fsp.as_model((eqx.nn.inference_mode(network), state))
    hidden = x @ network.first.weight.T + network.first.bias
    statistics = [jnp.asarray(value) for value in jax.tree.leaves(state) if jnp.shape(value) == (3,)]
    outputs = np.asarray(model(x))
    candidates = [
        (hidden - mean) / jnp.sqrt(variance + 1e-5) @ network.last.weight.T + network.last.bias
        for mean in statistics
        for variance in statistics
    ]
    assert min(float(np.max(np.abs(np.nan_to_num(c, nan=1e9) - outputs))) for c in candidates) < 1e-5
    model.check_rows_independent(x)
    with pytest.raises(ValueError, match=r"EquinoxNormalised has a BatchNorm at \.norm in training mode"):
        fsp.as_model((network, state))
    with pytest.raises(ValueError, match=r"BatchNorm at \.norm, which keeps state; pass the pair"):
        fsp.as_model(network)


def test_nnx_in_training_mode_is_refused_by_name():
    network = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.BatchNorm(3, rngs=nnx.Rngs(0)))
    with pytest.raises(ValueError, match=r"Sequential has a BatchNorm at .* in training mode"):
        fsp.as_model(network)
    network.eval()
    x = jr.normal(jr.key(1), (4, 2))
    np.testing.assert_allclose(fsp.as_model(network)(x), network(x), rtol=1e-6)


def test_an_unknown_network_is_refused_with_the_choices():
    with pytest.raises(TypeError, match=r"cannot read a network of type builtins\.str; pass an Equinox"):
        fsp.as_model("resnet50")
