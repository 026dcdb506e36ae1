"""Layers in the order in which they act: in every library, whatever the names are."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flax import linen, nnx

import fsplaplace as fsp
from fsplaplace.methods import last_layer
from fsplaplace.methods.weight_laplace import layer_groups
from fsplaplace.networks import layer_order

# Widths that tell every array apart by its size, and names whose alphabetical order is not that of the layers.
SIZES = ((2, 5), (5, 3), (3, 4))
WEIGHTS = [(i * o, o) for i, o in SIZES]


class EquinoxNetwork(eqx.Module):
    zeta: eqx.nn.Linear
    beta: eqx.nn.Linear
    alpha: eqx.nn.Linear

    def __init__(self):
        # Declared in another order than they act in.
        self.beta, self.alpha, self.zeta = (
            eqx.nn.Linear(*size, key=jr.key(0)) for size in (SIZES[1], SIZES[2], SIZES[0])
        )

    def __call__(self, x):
        return self.alpha(jnp.tanh(self.beta(jnp.tanh(self.zeta(x)))))


class NNXNetwork(nnx.Module):
    def __init__(self, rngs):
        self.zeta, self.beta, self.alpha = (nnx.Linear(*size, rngs=rngs) for size in SIZES)

    def __call__(self, x):
        return self.alpha(jnp.tanh(self.beta(jnp.tanh(self.zeta(x)))))


class LinenNetwork(linen.Module):
    @linen.compact
    def __call__(self, x):
        for name, (_, width) in zip(("zeta", "beta"), SIZES, strict=False):
            x = jnp.tanh(linen.Dense(width, name=name)(x))
        return linen.Dense(SIZES[-1][1], name="alpha")(x)


def haiku_function(x):
    for name, (_, width) in zip(("zeta", "beta"), SIZES, strict=False):
        x = jnp.tanh(hk.Linear(width, name=name)(x))
    return hk.Linear(SIZES[-1][1], name="alpha")(x)


def torch_network():
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.alpha, self.zeta, self.beta = (torch.nn.Linear(*SIZES[i]) for i in (2, 0, 1))

        def forward(self, x):
            return self.alpha(torch.tanh(self.beta(torch.tanh(self.zeta(x)))))

    return Network().eval()


def arrays():
    generator = np.random.default_rng(0)
    return [(generator.normal(size=size), generator.normal(size=size[1])) for size in SIZES]


def nested_dict():
    def apply(params, x):
        for name in ("zeta", "beta"):
            x = jnp.tanh(x @ params["body"][name]["w"] + params["body"][name]["b"])
        return x @ params["alpha"]["w"] + params["alpha"]["b"]

    zeta, beta, alpha = ({"w": w, "b": b} for w, b in arrays())
    return apply, {"alpha": alpha, "body": {"zeta": zeta, "beta": beta}}


def flat_dict():
    def apply(params, x):
        for name in ("z", "m"):
            x = jax.nn.relu(x @ params["w" + name] + params["b" + name])
        return x @ params["wa"] + params["ba"]

    return apply, {
        kind + name: value
        for name, pair in zip("zma", arrays(), strict=True)
        for kind, value in zip("wb", pair, strict=True)
    }


def flat_list():
    def apply(params, x):
        (w0, b0, w1, b1, w2, b2) = params
        return jax.jit(lambda h: jnp.tanh(h @ w1 + b1))(jnp.tanh(x @ w0 + b0)) @ w2 + b2

    return apply, [value for pair in arrays() for value in pair]


NETWORKS = {
    "equinox": EquinoxNetwork,
    "equinox.nn.MLP": lambda: eqx.nn.Sequential(
        [layer for size in SIZES for layer in (eqx.nn.Linear(*size, key=jr.key(0)), eqx.nn.Lambda(jnp.tanh))]
    ),
    "nnx": lambda: NNXNetwork(nnx.Rngs(0)),
    "linen": lambda: (LinenNetwork(), LinenNetwork().init(jr.key(0), jnp.zeros((1, 2)))),
    "haiku": lambda: (hk.transform(haiku_function), hk.transform(haiku_function).init(jr.key(0), jnp.zeros((1, 2)))),
    "torch": torch_network,
    "torch.nn.Sequential of more than ten": lambda: torch_sequential(),
    "nested dict": nested_dict,
    "flat dict": flat_dict,
    "flat list": flat_list,
}


def torch_sequential():
    """Names "0", "1", ... "12", whose order as words is another one than as numbers."""
    torch = pytest.importorskip("torch")
    layers = [torch.nn.Linear(*SIZES[0]), *[torch.nn.Tanh()] * 8, torch.nn.Linear(*SIZES[1]), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(*SIZES[2])).eval()


@pytest.mark.parametrize("given", [True, False], ids=["with inputs", "without"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_last_layer_is_the_one_that_acts_last(name, given):
    model = fsp.as_model(NETWORKS[name]())
    x = jnp.asarray(np.random.default_rng(1).normal(size=(6, 2)), model.dtype)
    part = last_layer(model, x) if given else last_layer(model)
    assert sorted(leaf.size for leaf in jax.tree.leaves(part.params)) == sorted(WEIGHTS[-1])
    np.testing.assert_allclose(part(x), model(x), rtol=1e-6)
    # The last layer is linear here, so that doubling its weights doubles the output; no other layer does that.
    if "MLP" not in name:
        doubled = part.with_params(jax.tree.map(lambda leaf: 2 * leaf, part.params))
        np.testing.assert_allclose(doubled(x), 2 * model(x), rtol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_are_numbered_as_they_act(name):
    model = fsp.as_model(NETWORKS[name]())
    sizes = np.array([leaf.size for leaf in jax.tree.leaves(model.params)])
    layer_of_size = {size: layer for layer, pair in enumerate(WEIGHTS) for size in pair}
    # 5 weights are the bias of the first layer only, and so on: each size belongs to one layer.
    wanted = np.repeat([layer_of_size[size] for size in sizes], sizes)
    np.testing.assert_array_equal(layer_groups(model), wanted)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_fan_in_is_that_of_the_widest_layer(name):
    model = fsp.as_model(NETWORKS[name]())
    assert layer_order(model, jnp.zeros((1, 2), model.dtype)).fan_in == 5


def test_fan_in_counts_inputs_and_layers_inside_a_loop():
    for columns, wanted in ((2, 3), (9, 9)):
        model = fsp.as_model((in_a_loop, {"first": np.ones((columns, 3)), "stack": np.ones((4, 3, 3))}))
        assert layer_order(model, jnp.zeros((1, columns))).fan_in == wanted
    model = fsp.as_model((without_products, {"w": np.ones((2, 3)), "v": np.ones((2, 3))}))
    assert layer_order(model, jnp.zeros((1, 2))).fan_in == 0


def test_a_normalisation_belongs_to_the_stage_before_and_is_a_layer_of_its_own():
    network = eqx.nn.Sequential(
        [eqx.nn.Linear(2, 3, key=jr.key(0)), eqx.nn.LayerNorm(3), eqx.nn.Linear(3, 4, key=jr.key(0))]
    )
    model = fsp.as_model(network)
    np.testing.assert_array_equal(layer_groups(model), np.repeat([0, 1, 2], [9, 6, 16]))
    assert last_layer(model).num_params == 16


def test_two_heads_are_the_last_layer_together():
    class Heads(eqx.Module):
        body: eqx.nn.Linear
        location: eqx.nn.Linear
        scale: eqx.nn.Linear

        def __call__(self, x):
            hidden = jnp.tanh(self.body(x))
            return jnp.concatenate([self.location(hidden), self.scale(hidden)])

    network = Heads(*(eqx.nn.Linear(*size, key=jr.key(0)) for size in ((2, 5), (5, 1), (5, 1))))
    assert last_layer(fsp.as_model(network)).num_params == 12


def test_a_skip_connection_and_concatenated_features_do_not_hide_the_last_layer():
    def apply(params, x):
        hidden = jnp.concatenate([x, jnp.tanh(x @ params["b"])], axis=1)
        return x + hidden @ params["a"]

    model = fsp.as_model((apply, {"a": np.ones((5, 2)), "b": np.ones((2, 3))}))
    assert list(last_layer(model).params) == ["a", "b"]
    assert last_layer(model).params["b"] is None


def test_a_frozen_last_layer_leaves_the_last_of_the_others():
    model = fsp.as_model(nested_dict(), mask=lambda path: "alpha" not in path)
    assert last_layer(model).num_params == sum(WEIGHTS[1])


def test_images_need_inputs():
    class Network(eqx.Module):
        last: eqx.nn.Conv2d
        first: eqx.nn.Conv2d

        def __call__(self, x):
            return self.last(jnp.tanh(self.first(x)))

    network = Network(eqx.nn.Conv2d(2, 1, 3, key=jr.key(0)), eqx.nn.Conv2d(1, 2, 2, key=jr.key(0)))
    model = fsp.as_model(network)
    assert last_layer(model, jnp.zeros((1, 1, 4, 4))).num_params == 19
    with pytest.raises(ValueError, match=r"Network: the order of its layers cannot be seen without inputs .* pass X"):
        last_layer(model)


def in_a_loop(params, x):
    hidden = jnp.tanh(x @ params["first"])
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), hidden, params["stack"])[0]


def heads_of_different_depth(params, x):
    hidden = jnp.tanh(x @ params["a"])
    return jnp.concatenate([hidden @ params["b"], jnp.tanh(hidden @ params["b"]) @ params["c"]], axis=1)


def without_products(params, x):
    return jnp.sum(jnp.sin(x[:, :, None] * params["w"]) * params["v"], axis=1)


@pytest.mark.parametrize(
    ("apply", "shapes", "message"),
    [
        (in_a_loop, {"first": (2, 3), "stack": (4, 3, 3)}, r"applies its last weights inside `scan`.* `mask`"),
        (
            heads_of_different_depth,
            {"a": (2, 3), "b": (3, 1), "c": (1, 1)},
            r"some outputs of .* do not depend on its last",
        ),
        (without_products, {"w": (2, 3), "v": (2, 3)}, r"has no matrix product of data and weights"),
    ],
)
def test_a_last_layer_that_cannot_be_known_is_refused(apply, shapes, message):
    model = fsp.as_model((apply, {name: np.ones(shape) for name, shape in shapes.items()}))
    with pytest.raises(ValueError, match=r"last_layer: .*" + message):
        last_layer(model)
