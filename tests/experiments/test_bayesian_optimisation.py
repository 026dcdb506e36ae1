"""Bayesian optimisation: the problems are those of the paper, the surrogates are models of BoTorch, the search searches."""

import itertools

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("botorch")

from botorch.models.transforms.outcome import Standardize  # noqa: E402
from gpjax.kernels import Matern52  # noqa: E402

import fsplaplace as fsp  # noqa: E402
from fsplaplace.experiments import Cell, get, reproduce  # noqa: E402
from fsplaplace.experiments import _optimisation_problems as problems  # noqa: E402
from fsplaplace.experiments._experiment import Outcome, Summary  # noqa: E402
from fsplaplace.experiments._optimisation_names import AUTHORS, GAMMA_GP, GP, OURS, SOBOL  # noqa: E402
from fsplaplace.experiments._optimisation_search import Search, sobol_points  # noqa: E402
from fsplaplace.experiments._optimisation_surrogates import DrawnFunctions  # noqa: E402
from fsplaplace.methods import WeightLaplace  # noqa: E402

EXPERIMENT = get("bayesian-optimisation")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("Branin", [(np.pi + 5) / 15, 2.275 / 15]),
        ("Hartmann", [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]),
        ("Ackley", [0.5] * 4),
    ],
)
def test_known_functions_reach_their_optimum_where_the_literature_has_it(name, where):
    task = problems.problem(name)
    assert task.function(np.array([where]))[0] == pytest.approx(task.optimum, abs=1e-4)
    assert np.all(task.function(np.random.default_rng(0).uniform(size=(200, task.dimension))) <= task.optimum)


def test_the_polynomial_is_the_sum_of_two_products_of_four_factors():
    task, x = problems.problem("polynomial"), np.random.default_rng(1).uniform(size=8)
    centre = np.random.default_rng(0).normal(size=8)
    wanted = sum(np.prod([x[2 * row + column] - centre[2 * row + column] for row in range(4)]) for column in range(2))
    assert task.function(x[None])[0] == pytest.approx(wanted)
    grid = np.array(list(itertools.product([0.0, 0.5, 1.0], repeat=8)))
    assert task.function(grid).max() == pytest.approx(task.optimum)


def test_nothing_found_at_random_beats_the_climbs_on_the_network():
    task = problems.problem("BNN draw")
    assert task.function(np.random.default_rng(2).uniform(size=(2000, 10))).max() < task.optimum


def test_the_equation_is_stepped_as_it_is_written(monkeypatch):
    """Fifty steps against loops in NumPy that take neighbours by index, a missing one being the cell itself."""
    monkeypatch.setattr(problems, "_STEPS", 50)
    monkeypatch.setattr(problems, "_GRID", 8)
    a, b, d0, d1 = parameters = np.array([1.3, 2.1, 0.7, 3.0])
    u = np.full((8, 8), a)
    v = b / a + 0.1 * np.random.default_rng(0).normal(size=(8, 8))
    before = [np.clip(np.arange(8) + step, 0, 7) for step in (-1, 1)]

    def laplacian(field):
        return sum(field[index] + field[:, index] for index in before) - 4 * field

    for _ in range(50):
        u, v = (
            u + 1e-3 * (d0 * laplacian(u) + a - (b + 1) * u + u**2 * v),
            v + 1e-3 * (d1 * laplacian(v) + b * u - u**2 * v),
        )
    weight = np.full((8, 8), 0.1)
    weight[:2], weight[-2:], weight[:, :2], weight[:, -2:] = 1.0, 1.0, 1.0, 1.0
    with jax.enable_x64(True):
        found = problems._uniformity.__wrapped__(jax.numpy.asarray(parameters))
    assert float(found) == pytest.approx(-np.var([weight * u, weight * v]), rel=1e-10)


def test_drawn_functions_are_joint_and_have_gradients():
    X = np.random.default_rng(0).uniform(size=(12, 2))
    with jax.enable_x64(True):
        network = fsp.as_model(fsp.mlp([5], prior=fsp.Prior(Matern52()), context=fsp.context.around(X), key=0))
        posterior = WeightLaplace(train=None, prior_precision=1.0).fit(
            network, X, X[:, 0], fsp.likelihoods.Gaussian(0.1), key=jax.random.key(0)
        )
    scale = Standardize(m=1)
    scale(torch.tensor(X[:, :1]))
    model = DrawnFunctions(posterior, scale.eval(), seed=0)
    points = torch.tensor(X[:6].reshape(2, 3, 2)).requires_grad_()
    found = model.posterior(points)
    assert found.values.shape == (2, 128, 3, 1)
    again = model.posterior(points[1, [2, 2]]).values
    assert torch.equal(again[:, 0], again[:, 1])
    assert torch.allclose(found.values[1, :, 2], again[:, 0])
    assert torch.autograd.gradcheck(lambda x: model.posterior(x).values[..., :3, :, :], points[:1], atol=1e-5)


def test_sobol_goes_on_where_the_initial_points_end():
    search = Search(Cell("Branin", SOBOL, 3), {})
    search.step(0)
    search.step(1)
    np.testing.assert_array_equal(search.X, sobol_points(2, 20, 3))
    assert search.running_best.shape == (3,)
    assert search.running_best[-1] == search.y.max()


def test_every_cell_comes_once_and_early_ones_compare_ours_with_both_processes():
    settings = EXPERIMENT.presets["cpu"]
    cells = EXPERIMENT.cells(settings, 10)
    assert len(cells) == len(set(cells)) == 6 * (4 * 10 + 5 * settings["other_seeds"])
    assert {cell.method for cell in cells[: 6 * 4 * 5]} == {SOBOL, GP, GAMMA_GP, OURS}


def test_the_verdict_counts_what_is_more_than_a_standard_error_away():
    def rows(method, values):
        return [{"task": "Branin", "method": method, "scores": {"best": value, "regret": -value}} for value in values]

    summary = Summary(
        [
            *rows(OURS, [-1.0, -1.2]),
            *rows(GP, [-0.1, -0.2]),
            *rows(GAMMA_GP, [-2.0, -2.1]),
            *rows(AUTHORS, [-9.0, -9.1]),
        ]
    )
    verdict = EXPERIMENT.verdict(summary)
    assert "ahead on none, behind on Branin of 1 problems" in verdict
    assert "behind the paper's settings on none of 1" in verdict
    assert "Branin: median regret 1.1, at most 0.01 was wanted" in verdict


def test_one_bad_seed_moves_the_mean_and_not_the_median():
    found = Summary([{"task": "Branin", "method": OURS, "scores": {"regret": value}} for value in (0.0, 0.1, 5.0)])
    assert found.median("Branin", OURS, "regret") == 0.1
    assert found.as_rows()[0]["scores"]["regret"] == pytest.approx(
        {"mean": 1.7, "error": 1.65, "median": 0.1, "seeds": 3}, abs=0.01
    )


def test_numbers_on_the_axes_are_no_powers():
    curves = {"running_best": [-2.0, -0.4, -0.03], "optimum": 0.0, "batch": 5, "seconds": [0.1, 0.1]}
    outcome = Outcome((), {}, curves)
    figure = EXPERIMENT.figures({Cell("Branin", OURS, seed): outcome for seed in range(2)}, {})["running-best"]
    figure.canvas.draw()
    axis = figure.axes[0]
    assert axis.get_xlabel() == "evaluations after the initial ones"
    assert [label.get_text() for label in axis.get_yticklabels()][1:-1] == ["0.1", "1"]


@pytest.mark.slow
def test_two_iterations_on_branin(tmp_path):
    result = reproduce(EXPERIMENT, preset="quick", out=tmp_path, quiet=True)
    found = {row["method"]: row["scores"] for row in result["summary"]}
    assert set(found) == {OURS, GP, SOBOL}
    start = problems.problem("Branin").function(sobol_points(2, 10, 0)).max()
    assert all(scores["best"]["mean"] >= start for scores in found.values())
    assert (tmp_path / result["figures"][0]).read_bytes().startswith(b"\x89PNG")
