"""Networks whose first layer matches the prior."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Periodic

import fsplaplace as fsp

BOX = fsp.context.Uniform([-2.0, 10.0], [2.0, 11.0])


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
