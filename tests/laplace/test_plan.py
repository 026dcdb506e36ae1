"""The plan: what laplace then does, and what fits a budget."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp

rng = np.random.default_rng(0)
X, POINTS = rng.uniform(-1, 1, (30, 2)), rng.uniform(-1, 1, (60, 2))
PRIOR = fsp.Prior(RBF(lengthscale=0.5))


@pytest.fixture(scope="module")
def model():
    params = {"first": jnp.asarray(rng.normal(size=(2, 40)), jnp.float32), "last": jnp.ones((40, 1), jnp.float32)}
    return fsp.as_model((lambda w, x: jnp.tanh(x @ w["first"]) @ w["last"], params))


@pytest.mark.parametrize("options", [{}, {"solver": "golub-kahan", "rank": 8}])
def test_laplace_does_what_the_plan_says(model, options):
    plan = fsp.plan(model, PRIOR, X, POINTS, **options)
    posterior = fsp.laplace(model, PRIOR, fsp.likelihoods.Gaussian(0.1), X, X[:, 0], context_points=POINTS, **options)
    done = posterior.diagnostics
    assert (plan.solver, plan.factorisation) == (done.solver, done.factorisation)
    assert done.rank <= plan.rank == options.get("rank", 90)
    assert [stage.name for stage in plan.stages][:3] == list(done.stages)[:3]


def test_floating_point_operations_of_a_pass_are_counted(model):
    """A pass in each direction through 120 weights: 2 x 2 x 120 operations a row, for the basis and its image."""
    plan = fsp.plan(model, PRIOR, X, POINTS, solver="golub-kahan", rank=7, passes=1, include_training=False)
    assert plan.passes == 1
    passes = 2 * 60 * 8 * 4 * 120
    assert passes <= plan.stages[1].flops <= 10 * passes


def test_a_budget_that_cannot_be_met_is_refused_with_the_rank_that_fits(model):
    options = {"solver": "golub-kahan", "passes": 2, "memory_budget": 200_000}
    with pytest.raises(MemoryError, match=r"plan: rank 29 with 2 passes needs .* memory_budget is 195.3 KiB") as error:
        fsp.plan(model, PRIOR, X, POINTS, rank=29, **options)
    found = re.search(r"pass rank=(\d+)", str(error.value))
    assert found
    fits = int(found.group(1))
    assert fsp.plan(model, PRIOR, X, POINTS, rank=fits, **options).rank == fits
    with pytest.raises(MemoryError):
        fsp.plan(model, PRIOR, X, POINTS, rank=fits + 1, **options)


def test_rank_below_the_number_of_outputs_is_refused(model):
    with pytest.raises(ValueError, match="plan: rank is 0; pass 1 or more"):
        fsp.plan(model, PRIOR, X, POINTS, rank=0)


def test_the_plan_prints_stages_and_peak(model):
    text = str(fsp.plan(model, PRIOR, X, POINTS))
    assert "pull-back (dense)" in text
    assert "peak (budget" in text


def test_laplace_refuses_what_the_plan_refuses_before_it_starts(model):
    options = {"solver": "golub-kahan", "passes": 2, "memory_budget": 200_000, "context_points": POINTS}
    problem = (model, PRIOR, fsp.likelihoods.Gaussian(0.1), X, X[:, 0])
    with pytest.raises(MemoryError, match=r"laplace: rank 29 with 2 passes needs .* pass rank=\d+"):
        fsp.laplace(*problem, rank=29, **options)
    assert fsp.laplace(*problem, rank=8, **options).rank == 8


def test_many_points_stop_at_the_wanted_share_of_the_prior_variance(model):
    """A smooth prior at more points than an eigenproblem is solved for: far fewer directions than the limit of 500."""
    points = rng.uniform(-1, 1, (2100, 2))
    likelihood = fsp.likelihoods.Categorical(2)
    prior = fsp.Prior(RBF(lengthscale=0.5), num_outputs=2)
    wide = fsp.as_model((lambda w, x: jnp.tanh(x @ w["first"]) @ w["last"], model.params | {"last": jnp.ones((40, 2))}))
    done = fsp.laplace(
        wide, prior, likelihood, X, np.zeros(30, int), context_points=points, include_training=False
    ).diagnostics
    assert (done.factorisation, done.solver) == ("pivoted Cholesky", "normal-equations")
    assert done.rank < 100
    assert 0.999 <= float(done.captured) < 0.9999
