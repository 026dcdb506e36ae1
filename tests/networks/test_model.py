"""Networks of several libraries as one pure function, and the Jacobian products everything is made of."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import paramax
import pytest
from flax import nnx

import fsplaplace as fsp
from fsplaplace.networks._jacobian import jacobian_matrix, pull_back, push_forward
from fsplaplace.training import combine, partition

X = np.random.default_rng(0).normal(size=(7, 3))


def apply(params, x):
    return jnp.tanh(x @ params["first"]["w"] + params["first"]["b"]) @ params["last"]


def parameters(width=4, outputs=2):
    generator = np.random.default_rng(1)
    draw = lambda *shape: jnp.asarray(generator.normal(size=shape), dtype=float)  # noqa: E731
    return {"first": {"w": draw(3, width), "b": draw(width)}, "last": draw(width, outputs)}


class NNXNetwork(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(jnp.tanh(self.first(x)))


class NormalisedNNX(nnx.Module):
    def __init__(self, rngs, layer):
        self.first, self.layer = nnx.Linear(3, 4, rngs=rngs), layer(rngs)

    def __call__(self, x):
        return self.layer(self.first(x))


class WithBatchNorm(eqx.Module):
    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm

    def __init__(self, key):
        self.linear = eqx.nn.Linear(3, 4, key=key)
        self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")

    def __call__(self, x):
        return self.linear(x)


NETWORKS = {
    "function": lambda: (apply, parameters()),
    "equinox": lambda: eqx.nn.MLP(3, 2, 4, 1, activation=jnp.tanh, key=jr.key(0)),
    "flax-nnx": lambda: NNXNetwork(nnx.Rngs(0)),
}
DIRECT = {
    "function": lambda network, x: network[0](network[1], x),
    "equinox": lambda network, x: jax.vmap(network)(x),
    "flax-nnx": lambda network, x: network(x),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_model_is_its_network_and_leaves_it_alone(kind):
    network = NETWORKS[kind]()
    model = fsp.as_model(network)
    x = jnp.asarray(X, jnp.float32)
    np.testing.assert_allclose(model(x), DIRECT[kind](network, x), rtol=1e-5)
    moved = model.with_params(jax.tree.map(lambda leaf: leaf + 1.0, model.params))
    assert np.abs(moved(x) - model(x)).max() > 0.1
    np.testing.assert_allclose(model(x), DIRECT[kind](network, x), rtol=1e-5)
    assert model.num_outputs(x) == 2
    assert fsp.as_model(model) is model


@pytest.mark.parametrize("kind", NETWORKS)
def test_weights_are_one_vector_and_back(kind):
    model = fsp.as_model(NETWORKS[kind]())
    assert model.weights.shape == (model.num_params,)
    back = model.unravel(model.weights)
    assert jax.tree.structure(back) == jax.tree.structure(model.params)
    x = jnp.asarray(X, jnp.float32)
    np.testing.assert_allclose(model.evaluate(back, x), model(x), rtol=1e-6)


@pytest.mark.parametrize("kind", NETWORKS)
def test_masked_weights_are_held_fixed(kind):
    """A predicate on paths: only the last layer is Bayesian."""
    last = {"function": "last", "equinox": "layers[1]", "flax-nnx": "last"}[kind]
    model = fsp.as_model(NETWORKS[kind](), mask=lambda path: last in path)
    whole = fsp.as_model(NETWORKS[kind]())
    assert model.num_params == {"function": 8, "equinox": 10, "flax-nnx": 10}[kind]
    x = jnp.asarray(X, jnp.float32)
    np.testing.assert_allclose(model(x), whole(x), rtol=1e-6)
    # The outputs are linear in the last layer.
    doubled = model.with_params(jax.tree.map(lambda leaf: 2 * leaf, model.params))
    np.testing.assert_allclose(doubled(x), 2 * whole(x), rtol=1e-5)


def test_a_mask_may_be_a_pytree_of_booleans():
    params = parameters()
    mask = {"first": {"w": True, "b": False}, "last": False}
    model = fsp.as_model((apply, params), mask=mask)
    assert model.num_params == 12
    with pytest.raises(
        ValueError, match=r"apply: mask has structure .* but the parameters have .* a function of the path"
    ):
        fsp.as_model((apply, params), mask={"first": True})
    with pytest.raises(ValueError, match=r"apply has no floating-point weights to be Bayesian about; check `mask`"):
        fsp.as_model((apply, params), mask=lambda path: False)
    with pytest.raises(ValueError, match=r"as_model: mask has no effect on a Model"):
        fsp.as_model(model, mask=mask)


def test_outputs_of_any_trailing_shape_are_flattened():
    def grid(params, x):
        return (x @ params).reshape(-1, 2, 3)

    model = fsp.as_model((grid, jnp.ones((3, 6))))
    assert model(jnp.asarray(X, jnp.float32)).shape == (7, 6)

    def scalar(params, x):
        return x @ params

    assert fsp.as_model((scalar, jnp.ones(3)))(jnp.asarray(X, jnp.float32)).shape == (7, 1)


def test_weights_keep_their_dtype_and_inputs_follow(dtype):
    model = fsp.as_model((apply, parameters()))
    assert model.dtype == dtype
    for x in (X.astype(np.float16), X.astype(np.float64), np.arange(6).reshape(2, 3), X > 0):
        assert model.check_inputs(x).dtype == dtype


def test_mixed_dtypes_are_refused(x64):
    params = parameters()
    params["last"] = params["last"].astype(jnp.float32)
    with pytest.raises(ValueError, match=r"apply mixes weights of dtypes \['float32', 'float64'\]; cast them to one"):
        fsp.as_model((apply, params))


# --------------------------------------------------------------------------------------------- Jacobian products


@pytest.fixture(scope="module", params=[2, 5])
def model(request):
    """Few outputs take the dense path, many the tangent passes."""
    with jax.enable_x64(True):
        return fsp.as_model((apply, parameters(outputs=request.param)))


@pytest.mark.parametrize("budget", [1e9, 8000.0])
def test_push_forward_and_pull_back_are_products_with_the_jacobian(x64, model, budget):
    x = jnp.asarray(X)
    q = model.num_outputs(x)
    J = np.asarray(jax.jit(jax.jacobian(lambda w: model.evaluate(model.unravel(w), x).ravel()))(model.weights))
    np.testing.assert_allclose(jacobian_matrix(model, x), J, atol=1e-12)
    generator = np.random.default_rng(2)
    directions, cotangents = generator.normal(size=(12, model.num_params)), generator.normal(size=(7, q, 12))
    pushed = np.asarray(push_forward(model, x, jnp.asarray(directions), budget=budget))
    pulled = np.asarray(pull_back(model, x, jnp.asarray(cotangents), budget=budget))
    np.testing.assert_allclose(pushed.reshape(7 * q, 12), J @ directions.T, atol=1e-12)
    np.testing.assert_allclose(pulled, cotangents.reshape(7 * q, 12).T @ J, atol=1e-12)
    # Adjoint to each other: <U, J V> = <J^T U, V>.
    assert np.sum(cotangents * pushed) == pytest.approx(np.sum(pulled * directions), rel=1e-12)


# ------------------------------------------------------------------------------------------- networks that are refused


def batch_dependent(params, x):
    return (x - x.mean(axis=0)) @ params


def test_a_function_of_the_whole_batch_is_refused_by_name():
    model = fsp.as_model((batch_dependent, jnp.ones((3, 1))))
    with pytest.raises(
        ValueError, match=r"batch_dependent depends on the batch \(outputs move by .*\), as BatchNorm does"
    ):
        model.check_rows_independent(jnp.asarray(X, jnp.float32))
    whole = fsp.as_model((lambda params, x: jnp.sum(x @ params)[None], jnp.ones((3, 1))))
    with pytest.raises((ValueError, TypeError)):
        whole.check_rows_independent(jnp.asarray(X, jnp.float32))


def test_a_network_of_one_example_is_not_evaluated_to_see_that_rows_are_independent(monkeypatch):
    model = fsp.as_model(eqx.nn.MLP(3, 2, 4, 1, key=jr.key(0)))
    x = jnp.asarray(X, jnp.float32)
    outputs = model(x)
    np.testing.assert_allclose(model(x[::-1]), outputs[::-1], rtol=1e-6)
    monkeypatch.setattr(fsp.Model, "__call__", lambda *_: pytest.fail("evaluated"))
    model.check_rows_independent(x)


def test_equinox_batch_norm_is_refused_by_name():
    network = WithBatchNorm(jr.key(0))
    with pytest.raises(ValueError, match=r"WithBatchNorm has a BatchNorm at \.norm"):
        fsp.as_model(network)


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (lambda rngs: nnx.BatchNorm(4, rngs=rngs), "BatchNorm"),
        (lambda rngs: nnx.Dropout(0.5, rngs=rngs), "Dropout"),
    ],
)
def test_nnx_layers_in_training_mode_are_refused_by_name_and_accepted_in_inference(layer, name):
    network = NormalisedNNX(nnx.Rngs(0), layer)
    with pytest.raises(ValueError, match=rf"NormalisedNNX has a {name} at layer in training mode.*\.eval\(\) first"):
        fsp.as_model(network)
    network.eval()
    model = fsp.as_model(network)
    x = jnp.asarray(X, jnp.float32)
    model.check_rows_independent(x)
    np.testing.assert_allclose(model(x), network(x), rtol=1e-5)


def test_equinox_dropout_is_put_in_inference_mode():
    network = eqx.nn.Sequential([eqx.nn.Linear(3, 4, key=jr.key(0)), eqx.nn.Dropout(0.5)])
    model = fsp.as_model(network)
    x = jnp.asarray(X, jnp.float32)
    np.testing.assert_allclose(model(x), jax.vmap(network[0])(x), rtol=1e-5)


@pytest.mark.parametrize("network", ["a string", 3, (1, 2)])
def test_what_is_no_network_is_refused(network):
    with pytest.raises(TypeError, match=r"as_model: cannot read a network of type builtins\.\w+; pass"):
        fsp.as_model(network)


def fix_first(network, kind):
    """The network with the weights of its first layer wrapped as not trainable, where its library allows that."""
    if kind == "equinox":
        return eqx.tree_at(lambda net: net.layers[0].weight, network, replace_fn=paramax.non_trainable)
    apply, params = network
    return apply, {**params, "first": paramax.non_trainable(params["first"])}


@pytest.mark.parametrize("mask", [None, lambda path: True])
@pytest.mark.parametrize(("kind", "fixed"), [("function", 3 * 4 + 4), ("equinox", 3 * 4)])
def test_what_is_wrapped_as_not_trainable_is_held_fixed_whatever_the_mask(kind, fixed, mask):
    network = NETWORKS[kind]()
    whole, model = fsp.as_model(network), fsp.as_model(fix_first(network, kind), mask=mask)
    assert model.num_params == whole.num_params - fixed
    x = jnp.asarray(X, jnp.float32)
    np.testing.assert_array_equal(model(x), whole(x))
    assert jacobian_matrix(model, x).shape == (14, model.num_params)
    params, rest = partition(model.params)
    np.testing.assert_array_equal(model.with_params(combine(params, rest))(x), model(x))


MEANS = {
    "number": (3.0, lambda x: np.full((7, 1), 3.0)),
    "one for each output": ([1.0, -1.0], lambda x: np.array([[1.0, -1.0]])),
    "function": (lambda x: x[:, 0], lambda x: x[:, :1]),
    "GPJax": (fsp.means.Linear([[1.0, 2.0], [0.0, 1.0], [0.5, 0.0]], 3.0), None),
}


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("name", MEANS)
def test_centre_scale_and_mean_are_around_the_network_and_held_fixed(kind, name):
    network, x = NETWORKS[kind](), jnp.asarray(X, jnp.float32)
    mean, expected = MEANS[name]
    centre, scale = np.array([1.0, 2.0, 3.0], np.float32), np.array([0.5, 1.0, 2.0], np.float32)
    plain = fsp.as_model(network)
    model = fsp.as_model(network, mean=mean, centre=centre, scale=scale, output_scale=[2.0, 5.0])
    added = mean(x) if expected is None else expected(np.asarray(x))
    np.testing.assert_allclose(model(x), added + plain((x - centre) / scale) * np.array([2.0, 5.0]), atol=1e-5)
    assert model.num_params == plain.num_params
    assert jax.tree.structure(model.params) == jax.tree.structure(plain.params)
    model.check_rows_independent(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": [1.0, 0.0, 1.0]}, r"scale is \[1. 0. 1.\]; pass positive numbers"),
        ({"centre": np.nan}, "centre is nan; pass finite numbers"),
        ({"output_scale": -1.0}, "output_scale is -1.0; pass positive numbers"),
    ],
)
def test_impossible_units_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fsp.as_model(NETWORKS["equinox"](), **options)
    with pytest.raises(ValueError, match=f"{next(iter(options))} has no effect on a Model"):
        fsp.as_model(fsp.as_model(NETWORKS["equinox"]()), **options)


def test_a_mean_of_another_width_is_refused():
    with pytest.raises(ValueError, match="mean has 3 outputs, but the network has 2"):
        fsp.as_model(NETWORKS["equinox"](), mean=np.zeros(3))(jnp.asarray(X, jnp.float32))
