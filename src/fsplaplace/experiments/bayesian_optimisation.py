"""Bayesian optimisation: six functions, maximised with one acquisition function and many surrogates."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from fsplaplace.experiments import _figures
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Row, Summary
from fsplaplace.experiments._methods import rounded
from fsplaplace.experiments._optimisation_names import AUTHORS, GAMMA_GP, GP, OURS, PROBLEMS, SOBOL, SURROGATES

# These run first on every problem, so that an interrupted run can be read.
_FIRST = (SOBOL, GP, GAMMA_GP, OURS)
_COLOURS = {OURS: _figures.RED, AUTHORS: "#E69F00", GP: _figures.BLUE, GAMMA_GP: "#56B4E9", SOBOL: _figures.GREY}
# The colours of the other surrogates, in their order.
_OTHER_COLOURS = ("#009E73", "#8C564B", "#CC79A7", "black")
# Below this share of a problem's largest regret no difference is drawn: the optimum is found.
_FOUND = 1e-4
# An axis of at most this ratio has numbers between powers of ten, too.
_SHORT = 30.0
# The median regret that is wanted of ours on Branin.
_WANTED_ON_BRANIN = 0.01


class BayesianOptimisation(Experiment):
    """Figure of Section 4: running best of q-EI on six problems."""

    name = "bayesian-optimisation"
    title = "Bayesian optimisation: six functions and the surrogates that find their maximum"
    place = "Section 4, Bayesian optimisation"
    presets = {  # noqa: RUF012 - constants of the class
        "quick": {
            "seeds": 1, "steps": 50, "fvi_steps": 20, "vbll_epochs": 20, "train_context": 20, "posterior_context": 100, "rank": 20,
            "iterations": 2, "tasks": ["Branin"], "methods": [OURS, GP, SOBOL],
        },
        "cpu": {
            "seeds": 10, "steps": 300, "fvi_steps": 150, "vbll_epochs": 300, "train_context": 100, "posterior_context": 1000,
            "rank": 500, "other_seeds": 2, "tasks": list(PROBLEMS), "methods": list(SURROGATES),
        },
        "paper": {
            "seeds": 5, "steps": 10_000, "fvi_steps": 10_000, "vbll_epochs": 10_000, "train_context": 400,
            "posterior_context": 10_000, "rank": 500, "tasks": list(PROBLEMS), "methods": list(SURROGATES),
        },
    }  # fmt: skip
    scores = {  # noqa: RUF012
        "regret": ("simple regret", "{:.3g}", "lower"),
        "best": ("best value", "{:.4g}", "higher"),
        "median_seconds": ("CPU seconds per iteration (median)", "{:.2f}", "lower"),
        "seconds": ("CPU seconds per iteration (mean, with compilation)", "{:.2f}", "lower"),
    }
    medians = ("regret", "best")
    untrained = _FIRST
    counterparts = {name: name for name in SURROGATES}  # noqa: RUF012
    notes = (
        "The paper prints no table: its figure shows the running best over 5 seeds, in favour of FSP-Laplace on PDE and the BNN draw.",
        "q-EI with 128 samples, 2 restarts, 16 raw samples and at most 10 iterations of L-BFGS-B for every surrogate. The authors "
        "optimised without gradients; with them the logarithm is climbed (BoTorch's qLogExpectedImprovement), because q-EI is flat where "
        "no sample improves. Initial points are those of one scrambled Sobol sequence for each seed.",
        "Simple regret is the known optimum less the best value; of the BNN draw the optimum is the best of 20 climbs by gradients; of "
        "the PDE it is unknown. The draws of polynomial, network and initial state are the same for all seeds.",
        "Laplace, FVI, the deep ensemble and the paper's form have the noise (and prior) that the marginal likelihood of a "
        "Matern-5/2 process chooses; posteriors without a Gaussian for BoTorch are 128 functions drawn from them.",
        "In the cpu preset training is shorter and the paper's posterior has fewer context points than the paper's.",
    )

    def cells(self, settings, seeds):
        others = min(seeds, int(settings.get("other_seeds", seeds)))
        methods = [method for method in _FIRST if method in settings["methods"]]
        first = [Cell(task, method, seed) for seed in range(seeds) for task in settings["tasks"] for method in methods]
        rest = [
            Cell(task, method, seed)
            for seed in range(others)
            for task in settings["tasks"]
            for method in settings["methods"]
            if method not in _FIRST
        ]
        # Five seeds of the first, then the others, then what is left.
        early = [cell for cell in first if cell.seed < 5]
        return [*early, *rest, *(cell for cell in first if cell.seed >= 5)]

    def run(self, cell, settings):
        import fsplaplace.botorch  # noqa: F401 - names the extra that is missing
        from fsplaplace.experiments._optimisation_search import Search

        search = Search(cell, settings)
        for number in range(int(settings.get("iterations", search.task.iterations))):
            search.step(number)
        best = search.running_best
        regret = search.task.optimum - best[-1]
        scores = {
            "regret": float(regret) if math.isfinite(regret) else None,
            "best": float(best[-1]),
            "median_seconds": float(np.median(search.seconds)),
            "seconds": float(np.mean(search.seconds)),
        }
        curves = {
            "running_best": rounded(best, 8), "optimum": search.task.optimum, "batch": search.task.batch,
            "seconds": rounded(search.seconds, 3),
        }  # fmt: skip
        return Outcome((Row(cell.method, scores),), {}, curves)

    difference = (
        "PDE: the paper's surrogate is ahead of the Gaussian process there, ours is level with it. Two or three of ten seeds of either "
        "process and of ours end at one local maximum (-0.052), which decides the mean. BNN draw: ours is ahead of both processes; VBLL, "
        "a network of several layers as the function is one, finds more on its two seeds (regret 2.9, ours on the same two 5.3). "
        "Seconds: 2 to 5 times those of the Gaussian process, at most 3 were wanted: half of an iteration is linear algebra of at "
        "least 512 context points, and the process has at most 210 rows. These seconds are of two to five searches at a time on two "
        "cores."
    )

    captions = {  # noqa: RUF012
        "running-best": "Distance of the running best from the optimum (PDE: the running best itself) against the number of "
        "evaluations after the initial ones, mean and standard error over seeds (their number is in brackets). A regret "
        "below 1/10,000 of the largest leaves the panel: the optimum is found. Where a band reaches the bottom, the mean is not "
        "larger than its standard error: all seeds but one have found the optimum. Curves of fewer seeds start elsewhere, at the mean "
        "over their own initial points.",
    }

    def figures(self, outcomes, settings):
        tasks = list(dict.fromkeys(cell.task for cell in outcomes))
        figure, axes = _figures.panels(len(tasks), columns=3, width=3.2, height=2.4)
        for axis, task in zip(axes, tasks, strict=True):
            _draw(axis, task, {cell: outcome for cell, outcome in outcomes.items() if cell.task == task})
        figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=7, frameon=False
        )
        return {"running-best": figure}

    def verdict(self, summary):
        tasks = [task for task in PROBLEMS if (task, OURS) in summary.entries]
        behind = [task for task in tasks if _compared(summary, task, (GP, GAMMA_GP)) < -1]
        ahead = [task for task in tasks if _compared(summary, task, (GP, GAMMA_GP)) > 1]
        paper = [task for task in tasks if (task, AUTHORS) in summary.entries]
        worse = [task for task in paper if _compared(summary, task, (AUTHORS,)) < -1]
        listed = "; ".join(f"{task} {_values(summary, task)}" for task in tasks)
        branin = summary.median("Branin", OURS, "regret")
        median = (
            ""
            if math.isnan(branin)
            else f" Branin: median regret {branin:.2g}, at most {_WANTED_ON_BRANIN:g} was wanted."
        )
        return (
            f"FSP-Laplace against the better of two Gaussian processes, by more than one standard error: ahead on {_names(ahead)}, "
            f"behind on {_names(behind)} of {len(tasks)} problems; behind the paper's settings on {_names(worse)} of {len(paper)} "
            f"({listed}).{median}"
        )


def _names(tasks: list[str]) -> str:
    return ", ".join(tasks) if tasks else "none"


def _values(summary: Summary, task: str) -> str:
    score = "best" if task == "PDE" else "regret"
    shown = [f"{summary.mean(task, method, score):.3g}" for method in (OURS, GP, GAMMA_GP)]
    return f"{score} {shown[0]} against {shown[1]} and {shown[2]}"


def _compared(summary: Summary, task: str, others: tuple[str, ...]) -> float:
    """How far ours is ahead of the best of the others, in standard errors of the difference."""
    found = [summary.entries[task, method]["best"] for method in others if (task, method) in summary.entries]
    if not found:
        return 0.0
    mean, error, _ = summary.entries[task, OURS]["best"]
    other_mean, other_error, _ = max(found)
    both = math.hypot(*(0.0 if math.isnan(each) else each for each in (error, other_error)))
    return (mean - other_mean) / max(both, 1e-12)


def _draw(axis: Axes, task: str, outcomes: Mapping[Cell, Outcome]) -> None:
    """One panel: a line with a band for each surrogate."""
    others = (method for method in SURROGATES if method not in _COLOURS)
    colours = _COLOURS | dict(zip(others, _OTHER_COLOURS, strict=True))
    largest = 0.0
    for method in SURROGATES:
        found = [outcome.curves for cell, outcome in outcomes.items() if cell.method == method]
        if not found:
            continue
        optimum, runs = found[0]["optimum"], np.array([curves["running_best"] for curves in found])
        values = runs if optimum is None else optimum - runs
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=min(1, len(runs) - 1)) / len(runs) ** 0.5
        count = found[0]["batch"] * np.arange(values.shape[1])
        colour = colours[method]
        largest = max(largest, mean.max())
        axis.plot(
            count, mean, color=colour, lw=1.6 if method == OURS else 0.9, label=f"{method} ({len(runs)})", zorder=3
        )
        axis.fill_between(count, mean - error, mean + error, color=colour, alpha=0.15, lw=0)
        axis.set(ylabel="best value") if optimum is None else axis.set(ylabel="simple regret", yscale="log")
    if axis.get_yscale() == "log":
        axis.set_ylim(bottom=max(_FOUND * largest, axis.get_ylim()[0]))
        _plain_numbers(axis)
    axis.set_title(task, fontsize=9)
    axis.set_xlabel("evaluations after the initial ones")


def _plain_numbers(axis: Axes) -> None:
    """Numbers as they are read, 0.01 and not a power; 2 and 5 between powers of ten if there are few of those."""
    bottom, top = axis.get_ylim()
    numbers = StrMethodFormatter("{x:g}")
    axis.yaxis.set_major_formatter(numbers)
    axis.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axis.yaxis.set_minor_formatter(numbers if top < _SHORT * bottom else NullFormatter())


EXPERIMENT = BayesianOptimisation()
