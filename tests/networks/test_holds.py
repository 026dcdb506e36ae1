"""Whether a network is large enough for a prior is known before training."""

import warnings

import equinox as eqx
import gpjax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Linear, Matern32

import fsplaplace as fsp
from fsplaplace.networks._region import Region

KEY = jr.key(1)
LINE = fsp.context.Uniform([-1.0], [1.0])
PLANE = fsp.context.Uniform([-1.0, -1.0], [1.0, 1.0])


def held(width, prior, context, key=KEY, **options):
    network = fsp.mlp([width, width], prior=prior, context=context, key=key)
    return fsp.holds(network, prior, context, key=key, compare=False, **options)


def auto(prior, context, **options):
    """The width that is chosen, and what is said about it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", fsp.CapacityWarning)
        network = fsp.mlp("auto", prior=prior, context=context, key=KEY, **options)
    return network.layers[0].weight.shape[0], [str(each.message) for each in said]


def dense_loss_and_share(model, region: Region, exponents):
    """Both numbers from the Jacobian itself, written down as in the docstrings, without any shortcut."""
    x, told, noise = region.points, region.num_told * region.outputs.size, region.noise**2
    jacobian = np.asarray(fsp.networks.jacobian_matrix(model, x), np.float64) / region.units[:, None]
    K, J, B = (
        region.covariance,
        jacobian[:told],
        np.linalg.cholesky(region.covariance[:told, :told] + 1e-12 * np.eye(told)),
    )
    psi = K[told:, :told] @ np.linalg.inv(B).T
    best = None
    for exponent in exponents:
        ridge = 10.0**exponent * np.linalg.norm(J, 2) ** 2
        phi = jacobian @ J.T @ np.linalg.inv(J @ J.T + ridge * np.eye(told)) @ B
        implied, stated = np.sum(phi**2, axis=1), np.diag(K)
        phi = phi * np.minimum(1.0, np.sqrt(stated / implied))[:, None]
        share = 1 - np.sum((phi[told:] - psi) ** 2) / np.sum(stated[told:])
        P, b = phi @ phi.T, np.maximum(stated - implied, 0)
        some, new = np.arange(100 * region.outputs.size), np.arange(told, len(stated))
        A = K[np.ix_(new, some)] @ np.linalg.inv(K[np.ix_(some, some)] + noise * np.eye(len(some)))
        wanted = np.diag(K[np.ix_(new, new)] - A @ K[np.ix_(some, new)]) + noise
        for extra in (0.0, 1.0):
            W = P[np.ix_(new, some)] @ np.linalg.inv(P[np.ix_(some, some)] + np.diag(noise + extra * b[some]))
            left = np.diag(P[np.ix_(new, new)] - W @ P[np.ix_(some, new)])
            given = left + (b[new] if extra else b[new] * left / np.diag(P)[new]) + noise
            error = np.diag((A - W) @ (K[np.ix_(some, some)] + noise * np.eye(len(some))) @ (A - W).T)
            loss = 0.5 * np.mean((error + wanted) / given - 1 + np.log(given / wanted))
            best = (loss, share) if best is None or loss < best[0] else best
    return best


def test_loss_and_share_are_those_of_a_dense_computation():
    """Under a rough kernel, whose covariance has a Cholesky factor; of a network too small to hold it."""
    with jax.enable_x64(True):
        prior = fsp.Prior(Matern32(lengthscale=0.2))
        network = fsp.mlp([12, 12], prior=prior, context=LINE, key=KEY)
        found = fsp.holds(network, prior, LINE, key=KEY, compare=False, num_points=210)
        region = Region.of(prior, LINE, 210, key=jr.fold_in(KEY, 1), noise=0.1, caller="test")
        loss, share = dense_loss_and_share(fsp.as_model(network), region, range(-13, -3))
    assert 0.02 < found.loss < 1
    assert found.loss == pytest.approx(loss, rel=1e-3)
    assert found.share == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_layer_by_layer_is_the_jacobian(dtype, num_outputs):
    """The same network as a function of its parameters takes the other way, through its Jacobian."""
    prior = fsp.Prior(RBF(lengthscale=0.5, variance=1e4), num_outputs=num_outputs, mean=3.0)
    network = fsp.mlp([20, 15], prior=prior, context=PLANE, key=KEY)
    params, rest = eqx.partition(network.layers, eqx.is_array)

    def apply(params, x):
        layers = eqx.combine(params, rest)
        return jax.vmap(eqx.tree_at(lambda tree: tree.layers, network, layers))(x)

    one = fsp.holds(network, prior, PLANE, key=KEY, compare=False, num_points=140)
    other = fsp.holds((apply, params), prior, PLANE, key=KEY, compare=False, num_points=140)
    assert one.hidden == (20, 15)
    assert other.hidden is None
    assert one.num_params == other.num_params
    assert one.loss == pytest.approx(other.loss, rel=0.05 if dtype == jnp.float32 else 1e-5)
    assert one.share == pytest.approx(other.share, rel=0.01 if dtype == jnp.float32 else 1e-6)


def test_a_softmax_is_no_activation_of_single_numbers():
    """Its units depend on each other: the Jacobian is taken, and the answer is the Jacobian's."""
    prior = fsp.Prior(RBF(lengthscale=0.5))
    network = fsp.mlp([10], prior=prior, context=LINE, key=KEY, activation=jax.nn.softmax)
    params, rest = eqx.partition(network.layers, eqx.is_array)

    def apply(params, x):
        return jax.vmap(eqx.tree_at(lambda tree: tree.layers, network, eqx.combine(params, rest)))(x)

    one, other = (
        fsp.holds(each, prior, LINE, key=KEY, compare=False, num_points=70) for each in (network, (apply, params))
    )
    assert one.loss == pytest.approx(other.loss, rel=1e-3)


def test_wider_networks_hold_more():
    """Of three draws each, under a short length scale: the loss falls and the share rises with the width."""
    prior = fsp.Prior(RBF(lengthscale=0.05))
    found = [[held(width, prior, LINE, key=jr.key(seed)) for seed in range(3)] for width in (10, 30, 100)]
    losses = [np.mean([np.log(each.loss) for each in row]) for row in found]
    shares = [np.mean([each.share for each in row]) for row in found]
    assert losses[0] > losses[1] + 0.5 > losses[2] + 1
    assert shares[0] < shares[1] < shares[2]


def test_a_line_is_held_by_any_network_that_has_one():
    """A linear network under a linear prior: its features are the prior's."""
    prior = fsp.Prior(Linear())
    found = fsp.holds(eqx.nn.Linear(2, 1, key=KEY), prior, PLANE, key=KEY)
    assert found.loss < 1e-6
    assert found.share > 1 - 1e-6
    assert found.wider is None
    assert "holds all of this prior" in str(found)


def test_shorter_length_scales_get_wider_networks():
    widths = [auto(fsp.Prior(RBF(lengthscale=length)), LINE)[0] for length in (0.3, 0.02, 0.01)]
    assert widths[0] == 50
    assert widths[0] < widths[1] <= widths[2]


def test_the_sine_task_keeps_its_fifty_units_and_a_long_region_gets_more():
    prior = fsp.Prior(RBF(lengthscale=0.3))
    assert auto(prior, fsp.context.Uniform([-2.0], [2.0])) == (50, [])
    width, said = auto(prior, fsp.context.Uniform([0.0], [20.0]))
    assert width > 50
    assert not said


def test_auto_is_the_network_of_these_widths_and_says_if_it_is_too_small():
    """Matern-3/2 in three dimensions: 2x50 is not enough; what is taken loses less, or a warning says what is lost."""
    cube = fsp.context.Uniform([-2.0] * 3, [2.0] * 3)
    prior = fsp.Prior(Matern32(lengthscale=1.0))
    with pytest.warns(fsp.CapacityWarning, match=r"mlp: .*(too small for this prior|points determine)"):
        network = fsp.mlp("auto", prior=prior, context=cube, key=KEY)
    width = network.layers[0].weight.shape[0]
    same = fsp.mlp([width, width], prior=prior, context=cube, key=KEY)
    np.testing.assert_array_equal(fsp.as_model(network).weights, fsp.as_model(same).weights)
    narrow = fsp.holds(fsp.mlp([50, 50], prior=prior, context=cube, key=KEY), prior, cube, key=KEY)
    assert width > 50
    assert narrow.wider is not None
    assert narrow.wider.hidden == (width, width)
    assert narrow.wider.loss < 0.75 * narrow.loss
    assert f"2x{width} would hold" in str(narrow)
    assert "more context points are needed" in str(narrow)


@pytest.mark.parametrize(("shift", "scale", "variance"), [(300.0, 1.0, 1.0), (0.0, 1e3, 1.0), (0.0, 1.0, 1e6)])
def test_units_of_inputs_and_of_the_prior_change_nothing(shift, scale, variance):
    """In float64: rounding of the points would move the units' centres, which is another draw of the network."""
    with jax.enable_x64(True):
        plain, moved = (
            held(
                20, fsp.Prior(RBF(lengthscale=0.05 * unit, variance=size)),
                fsp.context.Uniform([offset - unit], [offset + unit]), num_points=210,
            )
            for offset, unit, size in ((0.0, 1.0, 1.0), (shift, scale, variance))
        )  # fmt: skip
    assert 0.01 < plain.loss < 1
    assert moved.loss == pytest.approx(plain.loss, rel=1e-3)
    assert moved.share == pytest.approx(plain.share, rel=1e-3)


PRIORS = {
    "two kernels": (fsp.Prior([RBF(lengthscale=0.5), RBF(lengthscale=0.2, variance=1e-4)]), 1),
    "Helmholtz": (
        fsp.Prior(fsp.kernels.Helmholtz(RBF(lengthscale=0.8), RBF(lengthscale=0.8))),
        2,
    ),
    "twelve outputs": (fsp.Prior(RBF(lengthscale=0.5), num_outputs=12), 1),
    "eight inputs": (fsp.Prior(RBF(lengthscale=2.0)), 8),
    "sum with a line": (fsp.Prior(RBF(lengthscale=0.5) + Linear()), 1),
    "mean": (fsp.Prior(RBF(lengthscale=0.5), mean=gpjax.mean_functions.Constant(5.0)), 1),
}


@pytest.mark.parametrize("name", PRIORS)
def test_every_kind_of_prior_is_measured(name):
    prior, dimension = PRIORS[name]
    box = fsp.context.Uniform([-1.0] * dimension, [1.0] * dimension)
    narrow, wide = (held(width, prior, box, num_points=70) for width in (3, 60))
    assert 0 <= narrow.share < wide.share <= 1
    assert 0 <= wide.loss < narrow.loss
    assert 0 < wide.determined <= 1


def test_points_that_are_too_few_are_said():
    """Ten points of a region of fifty length scales determine nothing between them."""
    prior = fsp.Prior(RBF(lengthscale=0.04))
    found = held(50, prior, LINE, num_points=14)
    assert found.determined < 0.7
    assert "10 points determine" in str(found)


def test_images_are_measured_but_get_no_width():
    prior = fsp.Prior(RBF(lengthscale=3.0))
    images = fsp.context.Data(np.random.default_rng(0).normal(size=(60, 4, 4)))
    weights = np.random.default_rng(1).normal(size=(16, 1))
    found = fsp.holds(
        (lambda params, x: jnp.sin(x.reshape(x.shape[0], -1) @ params), jnp.asarray(weights, jnp.float32)),
        prior, images, key=KEY,
    )  # fmt: skip
    assert found.num_params == 16
    assert found.wider is None
    with pytest.raises(
        ValueError, match=r"mlp: hidden is 'auto', but context points have shape \(4, 4\); pass a sampler"
    ):
        fsp.mlp("auto", prior=prior, context=images, key=KEY)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_weights": 100}, r"mlp: max_weights is 100, but the narrowest .*, 2x50, has 2701; pass that or more"),
        ({"max_weights": 0}, r"mlp: max_weights is 0; pass 1 or more"),
        ({"noise": 0.0}, r"mlp: noise is 0.0; pass a positive number"),
        ({"noise": float("nan")}, r"mlp: noise is nan; pass a"),
        ({"num_outputs": 2}, r"mlp: hidden is 'auto' and num_outputs is 2, but the prior has 1"),
        ({"context": fsp.context.Data(np.zeros((5, 1)))}, r"mlp: context has 1 different points; pass a sampler"),
    ],
)
def test_impossible_choices_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fsp.mlp("auto", **{"prior": fsp.Prior(RBF()), "context": LINE, "key": KEY, **options})


def test_a_word_that_is_no_width_is_refused():
    with pytest.raises(ValueError, match=r"mlp: hidden is 'wide'; pass a list, each a whole number or one of 'auto'"):
        fsp.mlp("wide", prior=fsp.Prior(RBF()), context=LINE, key=KEY)


def test_a_network_of_other_outputs_or_too_many_weights_is_refused():
    prior = fsp.Prior(RBF())
    with pytest.raises(ValueError, match=r"holds: the network has 3 outputs, but the prior has 1"):
        fsp.holds(eqx.nn.Linear(1, 3, key=KEY), prior, LINE, key=KEY)
    with pytest.raises(TypeError, match=r"holds: context is an array of shape \(5, 1\); pass a sampler"):
        fsp.holds(eqx.nn.Linear(1, 1, key=KEY), prior, np.zeros((5, 1)), key=KEY)
    with pytest.raises(MemoryError, match=r"holds: the Jacobian of 2 weights at 700 rows needs .*; pass num_points="):
        fsp.holds(eqx.nn.Linear(1, 1, key=KEY), prior, LINE, key=KEY, memory_budget=5e3)


def test_the_budget_bounds_the_width():
    prior = fsp.Prior(RBF(lengthscale=0.02))
    width, said = auto(prior, LINE, max_weights=3000)
    assert width == 50
    assert any("too small for this prior" in each for each in said)


def test_describe_and_plan_say_it():
    prior = fsp.Prior(RBF(lengthscale=0.05))
    network = fsp.mlp([20, 20], prior=prior, context=LINE, key=KEY)
    found = fsp.holds(network, prior, LINE, key=KEY)
    said = str(fsp.describe(prior, remarks=found.remarks))
    assert "this network (2x20) holds" in said
    assert "WARNING: this network is too small for this prior" in said
    points = np.asarray(LINE.sample(300, key=KEY))
    model = fsp.as_model(network)
    assert fsp.plan(model, prior, points[:10], points).held is None
    planned = fsp.plan(model, prior, points[:10], points, holds=True)
    assert planned.held is not None
    assert "This network (2x20) holds" in str(planned)
