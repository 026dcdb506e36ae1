"""Observations with hardly any noise that cannot all be true are said, with their names; others are not."""

import warnings

import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp
import fsplaplace.operators as ops
from fsplaplace.likelihoods import Gaussian

EXACT = Gaussian(1e-4)
X = np.linspace(-1.8, 1.8, 12)[:, None]
AVERAGE = ops.average(lambda x: x - 0.25, lambda x: x + 0.25, nodes=8)


@pytest.fixture(scope="module")
def fit():
    """`laplace` of an untrained network on values and on what else is observed; only what is said matters."""
    prior, box = fsp.Prior(RBF(lengthscale=0.5)), fsp.context.Halton([-2.0], [2.0])
    model = fsp.as_model(fsp.mlp([30, 30], prior=prior, context=box, key=jr.key(0)))
    points = box.sample(60, key=jr.key(1))

    def call(X, y, *also, likelihood=EXACT):
        return fsp.laplace(model, prior, likelihood, X, y, also=also, context_points=points)

    return call


def contradictions(call, *args, **kwargs):
    """What is said about contradictions."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call(*args, **kwargs)
    return [str(each.message) for each in said if "contradict" in str(each.message)]


@pytest.mark.parametrize(
    ("values", "also", "named"),
    [
        ((X[[3, 8]], [0.0, 1.0]), fsp.Observation(X, np.zeros(12), EXACT, of=ops.partial(0)), "partial(0)"),
        ((X, np.zeros(12)), fsp.Observation([[0.1]], [1.0], EXACT, of=AVERAGE), "average"),
        ((X, np.zeros(12)), fsp.Observation([[0.1]], [3.0], EXACT, of=ops.partial(0)), "partial(0)"),
        ((X[:3], np.zeros(3)), fsp.Observation(X[2:4], [0.5, 0.0], EXACT), "also[0]"),
    ],
    ids=["slopes", "average", "one slope", "values of two kinds"],
)  # fmt: skip
def test_kinds_that_contradict_each_other_are_named(fit, values, also, named):
    (message,) = contradictions(fit, *values, also)
    assert named in message
    assert "row" in message
    assert " y" in message


def test_draws_of_the_prior_do_not_contradict_each_other_at_any_noise(fit):
    generator = np.random.default_rng(0)
    centres, weights = generator.uniform(-2, 2, 40), generator.normal(size=40)

    def smooth(x, order=0):
        bell = np.exp(-0.5 * ((x - centres) / 0.6) ** 2)
        return (bell if order == 0 else -(x - centres) / 0.36 * bell) @ weights

    for noise in (1e-6, 1e-2):
        slopes = fsp.Observation(X[::2], smooth(X[::2], 1), Gaussian(noise), of=ops.partial(0))
        assert not contradictions(fit, X, smooth(X), slopes, likelihood=Gaussian(noise))
    # Another unit of the targets than the prior's is its business, not a contradiction; nor is a kink.
    assert not contradictions(
        fit, X, 50 * smooth(X), fsp.Observation(X[::2], 50 * smooth(X[::2], 1), EXACT, of=ops.partial(0))
    )
    assert not contradictions(fit, X, np.abs(X), fsp.Observation(X[[0, -1]], [-1.0, 1.0], EXACT, of=ops.partial(0)))
    # With noise that explains the difference nothing contradicts anything.
    assert not contradictions(fit, X, np.zeros(12), fsp.Observation([[0.1]], [0.3], Gaussian(0.3), of=AVERAGE))


def test_targets_that_are_stated_exact_and_differ_at_one_input_are_said_without_other_kinds(fit):
    assert "rows 0 and 2" in contradictions(fit, X[[0, 1, 0]], [0.0, 0.0, 0.5])[0]
    assert not contradictions(fit, X[[0, 1, 0]], [0.0, 0.0, 0.5], likelihood=Gaussian(0.3))


def test_new_data_that_contradict_what_a_posterior_knows_are_said(fit):
    posterior = fit(X, np.sin(X))
    assert not contradictions(posterior.condition, X[1:4] + 0.1, np.sin(X[1:4] + 0.1))
    assert "row 1" in contradictions(posterior.condition, X[:2] + 0.1, np.sin(X[:2] + 0.1) + X[:2] - X[:1])[0]
    assert contradictions(posterior.condition, [[0.1]], [0.0], EXACT, of=ops.partial(0))
    assert not contradictions(posterior.condition, [[0.1]], [np.cos(0.1)], EXACT, of=ops.partial(0))
    rows = Gaussian(np.array([[1.0], [1e-4]]))
    assert "row 1" in contradictions(posterior.condition, X[:2] + 0.1, [3.0, 3.0], rows)[0]
    assert not contradictions(posterior.condition, X[:2] + 0.1, [3.0, 3.0], Gaussian(1.0))


SQUARE = ops.nonlinear(lambda f: lambda x: f(x) ** 2)
AROUND_ONE = (X[[3, 8]], [1.0, 1.0])


@pytest.mark.parametrize(
    ("values", "also"),
    [
        (AROUND_ONE, [fsp.Observation([[0.1]], [target], Gaussian(0.01), of=SQUARE) for target in (1.0, 0.3)]),
        ((X[[3, 8]], [1.0, 0.5]), [fsp.Observation(X[[8]], [1.0], Gaussian(0.01), of=SQUARE)]),
        (AROUND_ONE, [fsp.Observation([[0.1]], [-1.0], Gaussian(0.01), of=SQUARE)]),
    ],
    ids=["each other", "a value", "the operator's range"],
)  # fmt: skip
def test_what_is_not_linear_is_compared_with_the_mean_that_was_found(fit, values, also):
    with pytest.warns(
        fsp.VerdictWarning, match=r"its mean is .* from row 0 of also\[\d\] .*: other observations contradict it"
    ):
        posterior = fit(*values, *also, likelihood=Gaussian(0.01))
    assert posterior.verdict.level != "good"
    # Gauss-Newton steps that would lead anywhere are not taken: the mean stays of the size of the data.
    assert float(np.max(np.abs(posterior.predict(X).mean))) < 3.0


def test_squares_of_one_function_are_met(fit):
    """The same kinds, all true: of sin(2 x) + 1.2, from an untrained network."""
    function = np.sin(2 * X) + 1.2
    also = fsp.Observation(X[1::2], function[1::2] ** 2, Gaussian(0.01), of=SQUARE)
    posterior = fit(X[::2], function[::2], also, likelihood=Gaussian(0.01))
    assert posterior.verdict.level == "good", str(posterior.verdict)
    np.testing.assert_allclose(posterior.predict(X).mean, function, atol=0.05)
