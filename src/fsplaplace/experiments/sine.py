"""Sine: noisy values of sin(2 pi x) with a gap in the middle, under many priors, length scales, noises and context sets."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, AbstractKernel, Matern12, Matern32, Matern52, Periodic
from jaxtyping import Float

import fsplaplace as fsp
from fsplaplace.experiments import _figures
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Row
from fsplaplace.experiments._methods import (
    COUNTERPARTS,
    NETWORK,
    PRECISION,
    REFINED,
    Gaussians,
    diagnostics,
    fit_baseline,
    fit_fsp,
    fsp_predictions,
    gaussians,
    keys,
    rounded,
    usual_mlp,
)
from fsplaplace.methods import ExactGP
from fsplaplace.tuning import fit_prior

BOUND = 2.0
_KERNELS = {"RBF": RBF, "Matern-1/2": Matern12, "Matern-3/2": Matern32, "Matern-5/2": Matern52, "Periodic": Periodic}


def box():
    """Corners of the region where the prior is enforced."""
    return jnp.array([-BOUND]), jnp.array([BOUND])


class Task(NamedTuple):
    """Data, and the prior and noise that go with it."""

    X: Float[np.ndarray, "n 1"]
    y: Float[np.ndarray, " n"]
    prior: fsp.Prior
    noise: float
    chosen_by: str


def data(*, seed: int, noise: float, num_points: int = 100) -> tuple[Float[np.ndarray, "n 1"], Float[np.ndarray, " n"]]:
    """x uniform on [-1, -0.5] and [0.5, 1], y = sin(2 pi x) + noise."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(0.5, 1.0, num_points) * generator.choice([-1.0, 1.0], num_points)
    return x[:, None], np.sin(2 * np.pi * x) + noise * generator.normal(size=num_points)


def load(cell: Cell) -> Task:
    """What the cell's task says: `prior=RBF`, `length scale=0.3`, `label noise=0.5`, or `RBF, M=5`."""
    kind, _, value = cell.task.partition("=")
    noise = float(value) if kind == "label noise" else 0.1
    X, y = data(seed=cell.seed, noise=noise)
    if kind == "length scale":
        return Task(X, y, fsp.Prior(_kernel("RBF", lengthscale=float(value))), noise, "stated by the task")
    kernel = _kernel(value if kind == "prior" else kind.partition(",")[0] if kind.endswith("M") else "RBF")
    fitted = fit_prior(
        fsp.Prior(kernel), X, y, fsp.likelihoods.Gaussian(noise), key=jr.key(cell.seed), fit_noise=False,
        standard_errors=False, restarts=2,
    )  # fmt: skip
    return Task(
        X, y, fitted.prior, noise, "log marginal likelihood of the training data; the noise is the one it was made with"
    )


class Sine(Experiment):
    """The synthetic regression figures of Section 4 and Appendix C."""

    name = "sine"
    title = "Sine: what the prior says is what the posterior does"
    place = "Section 4 and Appendix C, synthetic regression"
    presets = {  # noqa: RUF012 - constants of the class
        "quick": {
            "seeds": 1, "steps": 300, "context": 100, "tasks": ["length scale=0.3"], "methods": [], "weight_prior": 1.0,
        },
        "cpu": {
            "seeds": 1, "steps": 1000, "fvi_steps": 3000, "context": 1000,
            "tasks": [
                "prior=RBF", "prior=Matern-1/2", "prior=Matern-5/2", "prior=Periodic",
                "length scale=0.1", "length scale=0.3", "length scale=1", "label noise=0.5", "label noise=1",
                *(f"{kernel}, M={count}" for kernel in ("RBF", "Matern-1/2") for count in (3, 5, 10, 50, 100)),
            ],
            "methods": ["GP", "Sparse GP", "Laplace", "MAP", "FVI"], "weight_prior": 1.0,
        },
        "paper": {
            "seeds": 1, "steps": 20_000, "context": 1000,
            "tasks": [
                *(f"prior={kernel}" for kernel in _KERNELS), "length scale=0.1", "length scale=0.3", "length scale=1",
                "label noise=0.1", "label noise=0.5", "label noise=1",
                *(f"{kernel}, M={count}" for kernel in ("RBF", "Matern-1/2") for count in (3, 5, 10, 50, 100)),
            ],
            "methods": ["GP", "Sparse GP", "Laplace", "MAP", "FVI"], "weight_prior": 1.0,
        },
    }  # fmt: skip
    scores = {  # noqa: RUF012
        "mean_to_gp": ("RMSE of the mean to the exact GP's", "{:.4f}", "lower"),
        "std_to_gp": ("RMSE of the std to the exact GP's", "{:.4f}", "lower"),
        "largest_std_over_prior": ("largest std over the prior's", "{:.3f}", ""),
        "std_at_zero": ("std at x = 0, between the data", "{:.3f}", ""),
    }
    counterparts = COUNTERPARTS
    notes = (
        "The paper shows these as figures without numbers. Here each posterior is scored by its distance to the exact Gaussian "
        "process with the same prior and noise at 201 points of [-2, 2].",
        "M is the number of context points, uniform in training and Halton for the posterior; the other tasks take a grid of "
        "[-2, 2] and the training inputs.",
        "Laplace and MAP use the usual initialisation and a unit Gaussian prior on the weights, as in the paper; FVI starts from "
        "the same prior-matched network as FSP-Laplace, which suits it better.",
        "Dashed lines in the figures: the exact Gaussian process, mean and two standard deviations either side.",
    )

    captions = {  # noqa: RUF012
        "priors": "One network and one data set under several priors: the posterior takes the shape of its prior between the data "
        "and beyond them.",
        "length-scales": "The same under an RBF prior with three length scales: the shorter, the sooner the band opens.",
        "label-noise": "Noisier targets, with the noise known: the band around the data widens with it.",
        "context-points": "Few context points: the prior acts only where it is enforced, first row RBF, second Matern-1/2.",
        "methods-rbf": "All methods under the RBF prior (those that have one).",
        "methods-matern12": "All methods under the Matern-1/2 prior (those that have one).",
    }

    def cells(self, settings, seeds):
        compared = ("prior=RBF", "prior=Matern-1/2")
        return [
            Cell(task, method, seed)
            for seed in range(seeds)
            for task in settings["tasks"]
            for method in ("FSP-Laplace", *(settings["methods"] if task in compared else ()))
        ]

    def run(self, cell, settings):
        task = load(cell)
        x = np.linspace(-BOUND, BOUND, 201)[:, None]
        likelihood = fsp.likelihoods.Gaussian(task.noise)
        region = fsp.context.Uniform(*box())
        network_key, fit_key = keys(cell.seed, 2)
        network = fsp.mlp([50, 50], prior=task.prior, context=region, key=network_key)
        model = fsp.as_model(network)
        exact = gaussians(ExactGP(tune=False).fit(model, task.X, task.y, likelihood, key=fit_key, prior=task.prior), x)
        choices = {"prior": task.chosen_by, "noise": task.noise}
        note = ""
        if cell.method == "FSP-Laplace":
            few = int(cell.task.partition("M=")[2] or 0)
            grid = np.linspace(-BOUND, BOUND, int(settings["context"]))[:, None]
            points = (
                np.asarray(fsp.context.Halton(*box()).sample(few, key=fit_key))
                if few
                else np.concatenate([grid, task.X])
            )
            covariance, precision, note = fit_fsp(
                model, task.prior, likelihood, task.X, task.y, context=region, context_points=points,
                steps=int(settings["steps"]), num_context=few or 100, key=fit_key,
            )  # fmt: skip
            predictions = fsp_predictions(covariance, precision, x)
            choices["covariance_form"] = diagnostics(covariance)
            samples = np.asarray(covariance.sample(x, key=fit_key, num_samples=5))[:, :, 0]
        else:
            if cell.method in ("Laplace", "MAP"):
                model = fsp.as_model(usual_mlp((50, 50), 1, 1, key=network_key))
            posterior = fit_baseline(
                cell.method, settings, model, task.prior, likelihood, task.X, task.y, context=region, key=fit_key
            )
            predictions = {cell.method: gaussians(posterior, x)}
            samples = np.asarray(posterior.sample(x, key=fit_key, num_samples=5))[:, :, 0]
        stated = np.sqrt(np.asarray(task.prior.variance(jnp.asarray(x))))
        rows = tuple(
            Row(name, {}, note) if found is None else Row(name, _scores(found, exact, stated))
            for name, found in predictions.items()
        )
        curves: dict[str, Any] = {
            "X": rounded(task.X[:, 0]),
            "y": rounded(task.y),
            "x": rounded(x[:, 0]),
            "samples": rounded(samples),
            "exact": {"mean": rounded(exact.mean[:, 0]), "std": rounded(np.sqrt(exact.variance[:, 0]))},
        }
        curves["panels"] = {
            name: {"mean": rounded(found.mean[:, 0]), "std": rounded(np.sqrt(found.variance[:, 0]))}
            for name, found in predictions.items()
            if found is not None
        }
        return Outcome(rows, choices, curves)

    def figures(self, outcomes, settings):
        groups = {
            "priors": [cell for cell in outcomes if cell.task.startswith("prior") and cell.method == "FSP-Laplace"],
            "length-scales": [cell for cell in outcomes if cell.task.startswith("length")],
            "label-noise": [cell for cell in outcomes if cell.task.startswith("label")],
            "context-points": [cell for cell in outcomes if "M=" in cell.task],
            "methods-rbf": [cell for cell in outcomes if cell.task == "prior=RBF"],
            "methods-matern12": [cell for cell in outcomes if cell.task == "prior=Matern-1/2"],
        }
        return {
            name: _draw({cell: outcomes[cell] for cell in cells if cell.seed == 0}, name)
            for name, cells in groups.items()
            if len(cells) > (1 if name.startswith("methods") else 0)
        }

    def verdict(self, summary):
        methods = (REFINED, NETWORK, PRECISION)
        tasks = sorted({task for task, _ in summary.entries if "M=" not in task})
        few = sorted({task for task, _ in summary.entries if "M=" in task})
        worst = {
            method: max((np.nan_to_num(summary.mean(task, method, "std_to_gp")), task) for task in tasks)
            for method in methods
        }
        means = {
            method: max(np.nan_to_num(summary.mean(task, method, "mean_to_gp")) for task in tasks) for method in methods
        }
        widest = max(
            (np.nan_to_num(summary.mean(task, REFINED, "largest_std_over_prior")), task) for task in tasks + few
        )
        beside = "; ".join(
            f"{task}: "
            + ", ".join(f"{name} {summary.mean(task, name, 'std_to_gp'):.3f}" for name in (REFINED, *others))
            for task in ("prior=RBF", "prior=Matern-1/2")
            if (others := [name for name in ("Sparse GP", "FVI", "Laplace", "MAP") if (task, name) in summary.entries])
        )
        return (
            f"Over {len(tasks)} tasks the covariance form's std is at most {worst[REFINED][0]:.4f} RMSE from the exact GP's "
            f"({worst[REFINED][1]}), the precision form's {worst[PRECISION][0]:.3f} ({worst[PRECISION][1]}); the refined mean at "
            f"most {means[REFINED]:.3f}, the network's {means[NETWORK]:.3f}. Its std is at most {widest[0]:.4f} times the prior's "
            f"({widest[1]})."
            + (f" Std beside the baselines', RMSE from the GP's: {beside}." if beside else "")
            + (
                f" With only 3 to 100 context points ({len(few)} tasks) the covariance form's std is at most "
                f"{max(np.nan_to_num(summary.mean(task, REFINED, 'std_to_gp')) for task in few):.2f} from it, the precision form's "
                f"{max(np.nan_to_num(summary.mean(task, PRECISION, 'std_to_gp')) for task in few):.2f}."
                if few
                else ""
            )
        )


def _kernel(name: str, **parameters) -> AbstractKernel:
    return _KERNELS[name](**parameters, **({"period": 1.0} if name == "Periodic" else {}))


def _scores(found: Gaussians, exact: Gaussians, stated: Float[np.ndarray, "n 1"]) -> dict[str, float]:
    std = np.sqrt(found.variance)
    return {
        "mean_to_gp": float(np.sqrt(np.mean((found.mean - exact.mean) ** 2))),
        "std_to_gp": float(np.sqrt(np.mean((std - np.sqrt(exact.variance)) ** 2))),
        "largest_std_over_prior": float(np.max(std / stated)),
        "std_at_zero": float(std[std.shape[0] // 2, 0]),
    }


def _reach(outcome: Outcome) -> float:
    """How far data and bands of the exact process lie from zero."""
    exact = outcome.curves["exact"]
    band = np.abs(exact["mean"]) + 2 * np.asarray(exact["std"])
    return float(max(np.max(band), np.max(np.abs(outcome.curves["y"]))))


def _draw(outcomes: Mapping[Cell, Outcome], group: str):
    compared = group.startswith("methods")
    # As many columns as fill every row: a figure with empty panels looks like one with missing results.
    columns = 5 if group == "context-points" else next(c for c in (4, 3, 5, 2) if len(outcomes) % c == 0 or c == 2)
    figure, axes = _figures.panels(len(outcomes), columns=min(len(outcomes), columns), width=3.0, height=2.2)
    reach = 1.05 * max(_reach(outcome) for outcome in outcomes.values())
    for axis, (cell, outcome) in zip(axes, outcomes.items(), strict=True):
        name = REFINED if cell.method == "FSP-Laplace" else cell.method
        curve, panel, exact = outcome.curves, outcome.curves["panels"][name], outcome.curves["exact"]
        error = next(row.scores["std_to_gp"] for row in outcome.rows if row.method == name)
        x, mean, std = np.asarray(curve["x"]), np.asarray(panel["mean"]), np.asarray(panel["std"])
        axis.fill_between(x, mean - 2 * std, mean + 2 * std, color=_figures.GREEN, alpha=0.2, lw=0, label="2 std")
        draws = axis.plot(x, np.asarray(curve["samples"]).T, color=_figures.GREEN, lw=0.5, alpha=0.8)
        draws[0].set_label("posterior functions")
        axis.plot(x, mean, color=_figures.RED, lw=1.2, label="mean")
        for side in (-2, 0, 2):
            line = np.asarray(exact["mean"]) + side * np.asarray(exact["std"])
            axis.plot(x, line, "--", color="black", lw=0.6, label="exact GP" if side == 0 else None)
        axis.plot(curve["X"], curve["y"], "o", color=_figures.GREY, ms=1.8, alpha=0.6, label="data")
        title = cell.method if compared else cell.task
        axis.set(
            title=f"{title}\nstd {error:.2g} RMSE from the GP's",
            xlabel="x",
            ylabel="y",
            ylim=(-reach, reach),
            xlim=(-2, 2),
        )
        axis.title.set_fontsize(7)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=7, frameon=False)
    kind = f"{next(iter(outcomes)).task}" if compared else "FSP-Laplace, covariance form, refined mean"
    figure.suptitle(kind, fontsize=8)
    return figure


EXPERIMENT = Sine()
