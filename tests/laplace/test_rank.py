"""How many directions of the prior are kept where there are many context points and little noise."""

import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import Matern32

import fsplaplace as fsp

PRIOR = fsp.Prior(Matern32(lengthscale=0.5))
SQUARE = fsp.context.Uniform([-1.0, -1.0], [1.0, 1.0])
NOISE = 0.01


@pytest.fixture(scope="module")
def problem():
    """2,100 points of a rough function of two variables, forty of them seen with a hundredth of its size as noise."""
    points = np.asarray(SQUARE.sample(2100, key=jr.key(3)))
    X = points[:40]
    y = np.sin(3 * X[:, 0]) * X[:, 1] + NOISE * np.random.default_rng(0).normal(size=40)
    model = fsp.as_model(fsp.mlp([10, 10], prior=PRIOR, context=SQUARE, key=jr.key(0)))
    arguments = (model, PRIOR, fsp.likelihoods.Gaussian(NOISE), X, y)
    return arguments, {"context_points": points, "include_training": False}


@pytest.mark.slow
def test_what_is_dropped_is_hidden_by_the_noise(problem):
    """99.9 % of the prior variance would leave out ten times the noise variance; a hundredth of it is left out."""
    arguments, options = problem
    posterior = fsp.laplace(*arguments, **options)
    planned = fsp.plan(arguments[0], PRIOR, arguments[3], options["context_points"], include_training=False)
    assert posterior.diagnostics.solver == "normal-equations"
    assert 500 < posterior.rank <= planned.rank == 2000
    assert 1 - float(posterior.diagnostics.captured) < 0.02 * NOISE**2


def test_a_limit_that_leaves_out_more_than_the_noise_is_said(problem):
    arguments, options = problem
    with pytest.warns(fsp.CapacityWarning, match=r"laplace: 500 directions hold 99\.\d+ % .* times the noise variance"):
        posterior = fsp.laplace(*arguments, solver="golub-kahan", passes=1, **options)
    assert posterior.rank <= 500


def test_a_rank_that_was_asked_for_is_kept(problem):
    arguments, options = problem
    posterior = fsp.laplace(*arguments, rank=40, **options)
    assert posterior.rank == 40
