"""Networks whose first layer matches the prior."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Constant, Linear, Periodic, Polynomial, White

import fsplaplace as fsp

BOX = fsp.context.Uniform([-2.0, 10.0], [2.0, 11.0])


@pytest.mark.slow
def test_units_are_centred_in_the_context_region_and_vary_on_the_length_scale():
    """Unit u is w_u . (x - c_u): its weights scatter like 2 / length scale, and its zero passes through the box."""
    weight, bias = map(
        np.asarray, fsp.matched_first_layer(4000, prior=fsp.Prior(RBF(lengthscale=0.5)), context=BOX, key=jr.key(0))
    )
    assert weight.shape == (4000, 2)
    assert bias.shape == (4000,)
    assert 2.0 < np.median(np.linalg.norm(weight, axis=1)) < 8.0
    corners = np.array([[a, b] for a in (-2.0, 2.0) for b in (10.0, 11.0)])
    values = corners @ weight.T + bias
    assert np.mean((values.min(axis=0) <= 0) & (values.max(axis=0) >= 0)) > 0.95


def test_shorter_length_scales_give_larger_weights():
    sizes = [
        float(
            jnp.median(
                jnp.abs(
                    fsp.matched_first_layer(500, prior=fsp.Prior(RBF(lengthscale=l)), context=BOX, key=jr.key(0))[0]
                )
            )
        )
        for l in (0.1, 1.0)
    ]
    assert sizes[0] == pytest.approx(10 * sizes[1], rel=0.3)


def test_mlp_has_the_shape_asked_for_and_is_decided_by_its_key(dtype):
    prior = fsp.Prior(RBF(lengthscale=0.5), num_outputs=3)
    net = fsp.mlp([5, 6], prior=prior, context=BOX, key=jr.key(0))
    assert [layer.weight.shape for layer in net.layers] == [(5, 2), (6, 5), (3, 6)]
    model = fsp.as_model(net)
    assert model.dtype == dtype
    assert model(jnp.zeros((4, 2), dtype)).shape == (4, 3)
    again, other = (fsp.mlp([5, 6], prior=prior, context=BOX, key=jr.key(seed)) for seed in (0, 1))
    np.testing.assert_array_equal(fsp.as_model(again).weights, model.weights)
    assert not np.array_equal(fsp.as_model(other).weights, model.weights)


def test_match_first_layer_changes_the_first_layer_only():
    net = eqx.nn.MLP(2, 1, 7, 2, key=jr.key(0))
    matched = fsp.match_first_layer(net, prior=fsp.Prior(Periodic(period=1.0)), context=BOX, key=jr.key(1))
    assert not np.array_equal(matched.layers[0].weight, net.layers[0].weight)
    for old, new in zip(net.layers[1:], matched.layers[1:], strict=True):
        np.testing.assert_array_equal(old.weight, new.weight)
        np.testing.assert_array_equal(old.bias, new.bias)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda prior: fsp.mlp([], prior=prior, context=BOX, key=jr.key(0)),
            r"mlp: hidden is \[\]; pass at least one width",
        ),
        (lambda prior: fsp.mlp([5, 0], prior=prior, context=BOX, key=jr.key(0)), r"mlp: hidden is \[5, 0\]; pass"),
        (
            lambda prior: fsp.match_first_layer(
                eqx.nn.MLP(3, 1, 5, 1, key=jr.key(0)), prior=prior, context=BOX, key=jr.key(0)
            ),
            r"match_first_layer: context points have 2 columns, but the first layer takes 3",
        ),
        (
            lambda prior: fsp.match_first_layer(
                eqx.nn.MLP(2, 1, 5, 1, use_bias=False, key=jr.key(0)), prior=prior, context=BOX, key=jr.key(0)
            ),
            r"match_first_layer: the first Linear layer has no bias",
        ),
        (
            lambda prior: fsp.match_first_layer(eqx.nn.Identity(), prior=prior, context=BOX, key=jr.key(0)),
            r"match_first_layer: Identity has no equinox.nn.Linear layer",
        ),
    ],
)
def test_impossible_networks_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(fsp.Prior(RBF(lengthscale=0.5)))


SCALE_FREE = {
    "linear": Linear(),
    "polynomial": Polynomial(degree=2, variance=0.5),
    "constant": Constant(constant=jnp.array(1.0)),
    "white": White(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCALE_FREE)
def test_without_a_length_scale_units_vary_over_the_range_of_the_context_region(name):
    """The box is 4 x 1, so weights scatter like 2 / (range sqrt 2) = 0.35 and 1.41."""
    prior = fsp.Prior(SCALE_FREE[name])
    weight, bias = fsp.matched_first_layer(4000, prior=prior, context=BOX, key=jr.key(0))
    np.testing.assert_allclose(np.std(weight, axis=0), [0.5 / 2**0.5, 2 / 2**0.5], rtol=0.05)
    assert np.all(np.isfinite(bias))


def test_without_a_length_scale_a_column_that_never_changes_is_ignored():
    flat = fsp.context.Data(np.stack([np.linspace(0, 1, 20), np.ones(20)], axis=1))
    weight, _ = fsp.matched_first_layer(50, prior=fsp.Prior(Linear()), context=flat, key=jr.key(0))
    np.testing.assert_array_equal(weight[:, 1], 0.0)
    assert np.all(weight[:, 0] != 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "polynomial"])
def test_the_posterior_of_a_scale_free_prior_is_that_of_the_exact_process(name):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(40, 2)), rng.normal(size=(30, 2))
    y = X @ [1.0, -2.0] + 0.1 * rng.normal(size=40)
    prior, context = fsp.Prior(SCALE_FREE[name]), fsp.context.around(X)
    model = fsp.as_model(fsp.mlp([30, 30], prior=prior, context=context, key=jr.key(0)))
    points = context.sample(200, key=jr.key(1))
    posterior = fsp.laplace(
        model, prior, fsp.likelihoods.Gaussian(scale=0.1), X, y, context_points=points, key=jr.key(2)
    )
    prediction = posterior.predict(new)
    whole = fsp.prior.moments.gram(prior, np.concatenate([X, new]))[0]
    gain = np.linalg.solve(whole[:40, :40] + 0.01 * np.eye(40), whole[:40, 40:]).T
    std = np.sqrt(np.diag(whole[40:, 40:] - gain @ whole[:40, 40:]))
    np.testing.assert_allclose(prediction.mean[:, 0], gain @ y, atol=0.2 * np.mean(std))
    np.testing.assert_allclose(prediction.std[:, 0], std, atol=0.05 * np.mean(std))


def test_the_network_works_in_units_of_the_context_region_and_of_the_prior():
    """f(x) = mu(x) + s g((x - c) / l), with c and l of the region, mu and s of the prior, none of them a weight."""
    prior = fsp.Prior([RBF(variance=1600.0), RBF(variance=1e-4), RBF(variance=4.0)], mean=lambda x: x[:, :1])
    net = fsp.mlp([50], prior=prior, context=BOX, key=jr.key(0))
    units = net.units.tree
    np.testing.assert_allclose(units.centre, [0.0, 10.5], atol=0.2)
    np.testing.assert_allclose(units.scale, np.array([4.0, 1.0]) / 12**0.5, rtol=0.1)
    np.testing.assert_allclose(units.output_scale, [40.0, 0.01, 2.0], rtol=1e-5)
    model, bare = fsp.as_model(net), fsp.as_model(fsp.MLP(net.layers, net.activation))
    assert model.num_params == bare.num_params
    x = BOX.sample(20, key=jr.key(1))
    expected = x[:, :1] + bare((x - units.centre) / units.scale) * units.output_scale
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("hidden", [[5], "auto"])
def test_outputs_in_units_of_ones_own(hidden):
    prior = fsp.Prior(RBF(lengthscale=2.0, variance=4.0), num_outputs=2)
    made = [
        fsp.mlp(hidden, prior=prior, context=BOX, key=jr.key(0), output_scale=scale)
        for scale in (None, 0.5, [0.5, 3.0])
    ]
    for network, wanted in zip(made, ([2.0, 2.0], [0.5, 0.5], [0.5, 3.0]), strict=True):
        np.testing.assert_allclose(network.units.tree.output_scale, wanted)
    with pytest.raises(ValueError, match=r"mlp: output_scale is .*; pass positive numbers"):
        fsp.mlp(hidden, prior=prior, context=BOX, key=jr.key(0), output_scale=[0.5, 0.0])


def test_a_layer_for_centred_inputs_is_the_same_layer():
    prior, centre, scale = fsp.Prior(RBF(lengthscale=0.5)), np.array([1.0, 10.0]), np.array([2.0, 0.5])
    plain = fsp.matched_first_layer(30, prior=prior, context=BOX, key=jr.key(0))
    centred = fsp.matched_first_layer(30, prior=prior, context=BOX, key=jr.key(0), centre=centre, scale=scale)
    x = np.asarray(BOX.sample(20, key=jr.key(1)))
    np.testing.assert_allclose(
        (x - centre) / scale @ np.asarray(centred[0]).T + centred[1], x @ np.asarray(plain[0]).T + plain[1], atol=1e-4
    )


def test_a_network_with_units_takes_no_second_ones():
    net = fsp.mlp([5], prior=fsp.Prior(RBF()), context=BOX, key=jr.key(0))
    with pytest.raises(
        ValueError, match=r"as_model: fsplaplace.mlp built this network with a mean and scales of its own"
    ):
        fsp.as_model(net, mean=1.0)


@pytest.mark.parametrize("key", [jr.key(0), jr.PRNGKey(0)])
def test_keys_of_either_kind_are_keys(key):
    fsp.mlp([5], prior=fsp.Prior(RBF()), context=BOX, key=key)
