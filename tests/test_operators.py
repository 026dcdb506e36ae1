"""Operators: linearity, adjointness, closed forms, algebra; what is found out about a user's own."""

import gpjax.kernels as gpk
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import fsplaplace as fsp
from fsplaplace import operators as ops
from fsplaplace.training import settle

POINTS = np.random.default_rng(0).uniform(-1, 1, size=(9, 2))
LINEAR = {
    "value": (ops.value, 0, 2),
    "partial": (ops.partial(1), 1, 2),
    "second partial": (ops.partial(0, 1), 2, 2),
    "gradient": (ops.gradient, 1, 4),
    "divergence": (ops.divergence, 1, 1),
    "curl": (ops.curl, 1, 1),
    "laplacian": (ops.laplacian, 2, 2),
    "laplacian over one column": (ops.laplacian.over(1), 2, 2),
    "directional": (ops.directional([0.6, 0.8]), 1, 2),
    "advection": (ops.directional(lambda x: jnp.stack([-x[1], x[0]])), 1, 2),
    "integral": (ops.integral([0.0, -1.0], [1.0, 0.5]), 0, 2),
    "moving average": (ops.average(lambda x: x - 0.2, lambda x: x + 0.2, columns=(0,)), 0, 2),
    "combination": (ops.combination([[1.0, 1.0], [0.5, -2.0], [0.0, 1.0]]), 0, 3),
    "output": (ops.output(1), 0, 1),
    "sum": (ops.partial(0) - 0.3 * ops.laplacian + ops.value / 2, 2, 2),
    "times a function": ((lambda x: x[0] ** 2) * ops.partial(1), 1, 2),
    "composed": (ops.divergence @ ops.gradient @ ops.combination([1.0, -1.0]), 2, 1),
    "own": (ops.linear(lambda f: lambda x: jax.jacfwd(f)(x)[0] - f(x + 0.5)[:1]), 1, 2),
}


def waves(seed):
    frequency, phase = np.random.default_rng(seed).normal(size=(2, 2)), np.random.default_rng(seed + 1).normal(size=2)
    return lambda x: jnp.sin(jnp.asarray(frequency, x.dtype) @ x + jnp.asarray(phase, x.dtype))


def at_points(*functions):
    """Of each function, in one compiled program."""
    found = jax.jit(lambda x: [jax.vmap(function)(x) for function in functions])(jnp.asarray(POINTS))
    return [np.asarray(each) for each in found]


@pytest.fixture
def network():
    prior = fsp.Prior(gpk.RBF(lengthscale=0.7), num_outputs=2)
    context = fsp.context.Uniform([-1.0, -1.0], [1.0, 1.0])
    return prior, fsp.as_model(fsp.mlp([5], prior=prior, context=context, key=jr.key(0), num_outputs=2))


@pytest.mark.parametrize("name", LINEAR)
def test_linear_operators_are_linear_and_commute_with_the_derivative_in_the_weights(name, x64, network):
    """Rows of the seen network's Jacobian are L[J], and its transpose is the adjoint of that."""
    (operator, order, width), (_, model) = LINEAR[name], network
    f, g, seen, x = waves(0), waves(2), model.through(operator), jnp.asarray(POINTS)
    step = jax.tree.map(lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape), model.params)
    seeds = jnp.sin(jnp.arange(9.0 * width)).reshape(9, width)

    def change(x):
        return jax.jvp(lambda params: model.evaluate(params, x[None])[0], (model.params,), (step,))[1]

    @jax.jit
    def everything(x):
        applied = [jax.vmap(operator(each))(x) for each in (f, g, lambda x: 2 * f(x) - 3 * g(x), change)]
        _, moved = jax.jvp(lambda params: seen.evaluate(params, x), (model.params,), (step,))
        (pulled,) = jax.vjp(lambda params: seen.evaluate(params, x), model.params)[1](seeds)
        return applied, moved, pulled

    (first, second, together, changed), moved, pulled = everything(x)
    np.testing.assert_allclose(together, 2 * first - 3 * second, atol=1e-12)
    np.testing.assert_allclose(moved, changed, atol=1e-10)
    inner = sum(np.vdot(a, b) for a, b in zip(jax.tree.leaves(pulled), jax.tree.leaves(step), strict=True))
    np.testing.assert_allclose(inner, np.vdot(seeds, moved), rtol=1e-10)
    found = ops.settled(operator, POINTS, 2, np.ones(2))
    assert (found.linear, found.order) == (True, order)


@pytest.mark.parametrize("name", ["second partial", "gradient", "integral", "composed"])
def test_the_prior_through_an_operator_is_that_of_its_features(name, x64):
    """A polynomial kernel is a finite sum of products, so that covariances through L are products of L[features]."""
    operator = ops.integral([0.0, -1.0], [1.0, 0.5], nodes=3) if name == "integral" else LINEAR[name][0]
    prior = fsp.Prior(gpk.Polynomial(degree=2, shift=1.0, variance=0.5), num_outputs=2)

    def features(x):  # of (0.5 x.y + 1)^2
        return jnp.stack([x[0] ** 2 / 2, x[1] ** 2 / 2, x[0] * x[1] / 2**0.5, x[0], x[1], jnp.ones_like(x[0])])

    outputs = jnp.eye(2)
    seen = at_points(*(operator(lambda x, i=i, q=q: features(x)[i] * outputs[q]) for i in range(6) for q in range(2)))
    through, wanted = prior.through(operator), np.einsum("fnk,fml->nkml", seen, seen)
    covariance, variance = jax.jit(lambda x: (through.covariance(x, x), through.variance(x)))(jnp.asarray(POINTS))
    np.testing.assert_allclose(covariance, wanted, atol=1e-9)
    np.testing.assert_allclose(variance, np.einsum("nknk->nk", wanted), atol=1e-9)


def test_known_values(x64):
    def field(x):
        return jnp.stack([x[0] ** 2 * x[1], x[0] * x[1] ** 3])

    def swirl(x):
        return jnp.stack([x[1] * x[2], x[0] ** 2, x[1]])

    wanted = [
        (ops.divergence, 2 * 2 * 3 + 3 * 2 * 9),
        (ops.curl, 27 - 4),
        (ops.gradient, [12, 4, 27, 54]),
        (ops.laplacian, [6, 6 * 2 * 3]),
        (ops.integral([0.0, 0.0], [1.0, 2.0]), [2 / 3, 2]),
        (ops.average([0.0, 0.0], [1.0, 2.0]), [1 / 3, 1]),
        (ops.integral(0.0, lambda x: x[1], columns=(1,)), [4 * 4.5, 2 * 81 / 4]),
    ]
    found = jax.jit(lambda x: [operator(field)(x) for operator, _ in wanted])(jnp.array([2.0, 3.0]))
    for value, (operator, known) in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, np.ravel(known), err_msg=operator.name)
    np.testing.assert_allclose(jax.jit(ops.curl(swirl))(jnp.array([1.0, 2.0, 3.0])), [1, 2, 2 - 3])


def test_products_and_maps_are_not_linear(x64):
    burgers = ops.partial(0) + ops.value * ops.partial(1) - 0.1 * ops.partial(1, 1)
    assert not burgers.linear
    assert burgers.order == 2
    assert not ops.value.map(jnp.sin).linear
    own = ops.settled(ops.as_operator(lambda f: lambda x: f(x) * jax.jacfwd(f)(x)[:, 0]), POINTS, 2, np.ones(2))
    assert (own.linear, own.order) == (False, 1)


def test_nodes_follow_the_length_scale():
    wide = ops.integral([0.0], [10.0])
    few, many = (wide.resolve(np.array([scale]), np.zeros((1, 1))).nodes for scale in (5.0, 0.2))
    assert few < many
    assert ops.integral([0.0], [10.0], nodes=7).resolve(np.array([0.2]), np.zeros((1, 1))).nodes == 7
    # Of length scale 0.2 there is nothing beyond a frequency of 5 / 0.2.
    total = jax.jit(ops.integral([0.0], [10.0], nodes=many)(lambda x: jnp.sin(25 * x)))(jnp.zeros(1))[0]
    np.testing.assert_allclose(total, (1 - np.cos(250)) / 25, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.partial(), "pass one or more column numbers"),
        (lambda: ops.partial(-1), "pass one or more column numbers"),
        (lambda: ops.integral(1.0, 0.0), "lower bounds below the upper"),
        (lambda: ops.integral(0.0, np.inf), "finite"),
        (lambda: ops.average(0.0, 1.0, nodes=0), "nodes is 0"),
        (lambda: ops.combination([np.nan]), "finite"),
        (lambda: ops.output(), "one or more"),
        (lambda: ops.value * np.nan, "the factor of value is nan; pass finite numbers"),
        (lambda: ops.value * None, "the factor of value is None; pass numbers, a function of x or an operator"),
        (lambda: ops.value / 0, "the divisor of value is zero"),
        (
            lambda: ops.value / ops.partial(0),
            r"the divisor of value is the operator partial\(0\); multiply by divisor.map",
        ),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_an_array_times_an_operator_is_one_operator():
    weights = np.array([2.0, -1.0])
    left, right = at_points((weights * ops.value)(waves(0)), (ops.value * weights)(waves(0)))
    np.testing.assert_array_equal(left, right)
    np.testing.assert_allclose(left, at_points(waves(0))[0] * weights, rtol=1e-6)


def broken(f):
    return lambda x: jnp.log(-jnp.abs(f(x)) - 1.0)


def rounded(f):
    return lambda x: jnp.round(f(x))


def on_batches(f):
    return lambda x: f(jnp.stack([x, x]))


def drawn(f):
    return lambda x: f(x) + np.random.default_rng().normal()


def by_numpy(f):
    return lambda x: np.asarray(f(x)) * 2


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (broken, "broken.*NaN"),
        (ops.nonlinear(rounded, order=0), "rounded.*does not depend on the weights"),
        (on_batches, "on_batches"),
        (by_numpy, "by_numpy"),
        (drawn, "drawn gives other values for the same function each time"),
        (lambda f: lambda x: f(x) > 0, "lambda> gives 2 values of dtype bool at each input; make it return one array"),
        (lambda f: lambda x: f(x)[:0], "lambda> gives 0 values"),
        (lambda f: f(0.0), "lambda"),
        (ops.linear(lambda f: lambda x: f(x) ** 2, name="square"), "square is said to be linear"),
        (ops.partial(2), "column 2 of an input with 2"),
        (ops.combination([1.0, 2.0, 3.0]), "3 weights, but the function has 2 outputs"),
        (ops.divergence @ ops.output(0), "1 outputs, but 2 columns"),
        (ops.output(5), "output 5 of a function with 2"),
    ],
)
def test_an_operator_that_cannot_work_is_refused_by_name(of, message, network):
    prior, model = network
    with pytest.raises(ValueError, match=message):
        settle(ops.as_operator(of), model, prior, POINTS.astype(np.float32))


@pytest.mark.slow
def test_derivatives_that_network_or_prior_lack_are_refused(network):
    _, smooth = network
    relu = fsp.as_model(fsp.mlp([5], prior=fsp.Prior(gpk.RBF()), context=fsp.context.Uniform([-1.0, -1.0], [1.0, 1.0]),
                                key=jr.key(0), activation=jax.nn.relu))  # fmt: skip
    points = POINTS.astype(np.float32)
    with pytest.raises(ValueError, match=r"laplacian takes 2 derivatives.*ReLU"):
        settle(ops.laplacian, relu, None, points)
    settle(ops.gradient, relu, None, points)
    for kernel, operator, allowed in (
        (gpk.Matern12(), ops.partial(0), False),
        (gpk.Matern32(), ops.partial(0), True),
        (gpk.Matern32(), ops.laplacian, False),
        (gpk.Matern52(), ops.laplacian, True),
        (gpk.Matern12(), ops.integral([0.0, 0.0], [1.0, 1.0], nodes=3), True),
        # Rough in time only: derivatives in space have finite variance.
        (gpk.Matern12(active_dims=[0]) * gpk.RBF(active_dims=[1]), ops.partial(1), True),
        (gpk.Matern12(active_dims=[0]) * gpk.RBF(active_dims=[1]), ops.partial(0), False),
    ):
        prior = fsp.Prior(kernel, num_outputs=2)
        if allowed:
            settle(operator, smooth, prior, points)
        else:
            with pytest.raises(ValueError, match="infinite variance; use a kernel of smoothness above"):
                settle(operator, smooth, prior, points)
