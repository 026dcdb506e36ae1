"""Two moons: classification whose confidence falls back to the prior away from the data."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, Matern12
from jaxtyping import Float, Int
from sklearn.datasets import make_moons

import fsplaplace as fsp
from fsplaplace import metrics
from fsplaplace.experiments import _figures
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Row
from fsplaplace.experiments._methods import (
    COUNTERPARTS,
    NETWORK,
    PRECISION,
    REFINED,
    diagnostics,
    fit_baseline,
    fit_fsp,
    keys,
    rounded,
    usual_mlp,
)
from fsplaplace.tuning import fit_prior

BOUND = 3.75
_KERNELS = {"RBF": RBF, "Matern-1/2": Matern12}
_GRID = 31


def box():
    """Corners of the region where the prior is enforced."""
    return jnp.full(2, -BOUND), jnp.full(2, BOUND)


class Task(NamedTuple):
    """Training and test data with the prior fitted to the former."""

    X: Float[np.ndarray, "n 2"]
    y: Int[np.ndarray, " n"]
    X_test: Float[np.ndarray, "m 2"]
    y_test: Int[np.ndarray, " m"]
    prior: fsp.Prior


def load(kernel: str, seed: int, *, num_points: int = 100) -> Task:
    """The moons with noise 0.1, centred; the kernel by marginal likelihood of Dirichlet targets."""
    X, y = map(np.asarray, make_moons(num_points, noise=0.1, random_state=seed))
    X_test, y_test = map(np.asarray, make_moons(500, noise=0.1, random_state=10_000 + seed))
    centre = X.mean(axis=0)
    fitted = fit_prior(
        fsp.Prior(_KERNELS[kernel]()), X - centre, y, fsp.likelihoods.Bernoulli(), key=jr.key(seed),
        standard_errors=False, restarts=2,
    )  # fmt: skip
    return Task(X - centre, y, X_test - centre, y_test, fitted.prior)


class TwoMoons(Experiment):
    """The classification figures of Section 4 and Appendix C."""

    name = "two-moons"
    title = "Two moons: classification under smooth and rough priors"
    place = "Section 4 and Appendix C, synthetic classification"
    presets = {  # noqa: RUF012 - constants of the class
        "quick": {"seeds": 1, "width": 30, "steps": 200, "tasks": ["RBF"], "methods": [], "weight_prior": 1.0},
        "cpu": {
            "seeds": 1, "width": 100, "steps": 500, "fvi_steps": 1000,
            "tasks": ["RBF", "Matern-1/2", "RBF, M=3", "RBF, M=10", "RBF, M=50"],
            "methods": ["GP", "Sparse GP", "Laplace", "MAP", "FVI"], "weight_prior": 1.0,
        },
        "paper": {
            "seeds": 1, "width": 100, "steps": 20_000,
            "tasks": [
                "RBF", "Matern-1/2",
                *(f"{kernel}, M={count}" for kernel in _KERNELS for count in (3, 5, 10, 50, 100)),
            ],
            "methods": ["GP", "Sparse GP", "Laplace", "MAP", "FVI"], "weight_prior": 1.0,
        },
    }  # fmt: skip
    scores = {  # noqa: RUF012
        "accuracy": ("accuracy", "{:.3f}", "higher"),
        "log_predictive_density": ("log predictive density", "{:.3f}", "higher"),
        "expected_log_likelihood": ("expected log-likelihood", "{:.3f}", "higher"),
        "ece": ("ECE, 15 bins", "{:.3f}", "lower"),
        "confidence_far_away": ("mean |p - 1/2| on the border of the map", "{:.3f}", "lower"),
        "two_std_far_away": ("mean 2 std of p on the border", "{:.3f}", "higher"),
    }
    counterparts = COUNTERPARTS
    notes = (
        "The paper shows these as figures without numbers; accuracy and log scores here are on 500 fresh points.",
        "One Bernoulli output where the paper has a categorical likelihood with two; the prior is over the logit.",
        "Probabilities come from 100 posterior functions, as in the paper.",
        "The moons do not overlap at this noise, so that the most confident method has the best density near the data; what "
        "the prior is for shows on the border of the map.",
    )

    def cells(self, settings, seeds):
        return [
            Cell(task, method, seed)
            for seed in range(seeds)
            for task in settings["tasks"]
            for method in ("FSP-Laplace", *(settings["methods"] if task in _KERNELS else ()))
        ]

    def run(self, cell, settings):
        task = load(cell.task.partition(",")[0], cell.seed)
        few = int(cell.task.partition("M=")[2] or 0)
        likelihood = fsp.likelihoods.Bernoulli()
        region = fsp.context.Uniform(*box())
        network_key, fit_key, sample_key = keys(cell.seed, 3)
        width = int(settings["width"])
        side = np.linspace(-BOUND, BOUND, _GRID)
        grid = np.stack([axis.ravel() for axis in np.meshgrid(side, side)], axis=1)
        x = np.concatenate([grid, task.X_test])
        choices: dict[str, Any] = {
            "prior": "log marginal likelihood of Dirichlet targets (Milios et al. 2018) on the training data"
        }
        note = ""
        if cell.method == "FSP-Laplace":
            network = fsp.mlp([width, width], prior=task.prior, context=region, key=network_key)
            points = (
                np.asarray(fsp.context.Halton(*box()).sample(few, key=fit_key))
                if few
                else np.concatenate([np.asarray(fsp.context.Grid(*box()).sample(100)), task.X])
            )
            covariance, precision, note = fit_fsp(
                fsp.as_model(network), task.prior, likelihood, task.X, task.y, context=region, context_points=points,
                steps=int(settings["steps"]), num_context=few or 100, key=fit_key,
            )  # fmt: skip
            choices["covariance_form"] = diagnostics(covariance)
            draws = np.asarray(covariance.sample(x, key=sample_key, num_samples=100))[:, :, 0]
            predicted = covariance.predict(x)
            back = np.asarray(predicted.map - predicted.mean)[:, 0]
            logits = {REFINED: draws, NETWORK: draws + back}
            if precision is not None:
                logits[PRECISION] = np.asarray(precision.sample(x, key=sample_key, num_samples=100))[:, :, 0]
        else:
            network = (
                usual_mlp((width, width), 2, 1, key=network_key)
                if cell.method in ("Laplace", "MAP")
                else fsp.mlp([width, width], prior=task.prior, context=region, key=network_key)
            )
            posterior = fit_baseline(
                cell.method, settings, fsp.as_model(network), task.prior, likelihood, task.X, task.y, context=region,
                key=fit_key,
            )  # fmt: skip
            logits = {cell.method: np.asarray(posterior.sample(x, key=sample_key, num_samples=100))[:, :, 0]}
        border = np.abs(grid).max(axis=1) > BOUND - 1e-6
        rows, maps = [], {}
        for name, values in logits.items():
            probabilities = np.asarray(jax.nn.sigmoid(values[:, : grid.shape[0]]))
            mean, two_std = probabilities.mean(axis=0), 2 * probabilities.std(axis=0)
            away = {
                "confidence_far_away": float(np.abs(mean[border] - 0.5).mean()),
                "two_std_far_away": float(two_std[border].mean()),
            }
            rows.append(Row(name, _label_scores(task.y_test, values[:, grid.shape[0] :]) | away))
            maps[name] = {"mean": rounded(mean, 3), "two_std": rounded(two_std, 3)}
        if PRECISION not in logits and cell.method == "FSP-Laplace":
            rows.append(Row(PRECISION, {}, note))
        curves = {"maps": maps, "X": rounded(task.X), "y": task.y.tolist()}
        return Outcome(tuple(rows), choices, curves)

    captions = {  # noqa: RUF012
        "rbf": "Two moons, RBF prior: probability of one class, and two standard deviations of it, for every method.",
        "matern12": "Two moons, Matern-1/2 prior: probability of one class, and two standard deviations of it, for every method.",
        "context-points": "Few context points: away from them the network is as sure as it likes to be.",
    }

    def figures(self, outcomes, settings):
        groups = {
            kernel.lower().replace("-1/2", "12"): [cell for cell in outcomes if cell.task == kernel and cell.seed == 0]
            for kernel in _KERNELS
        }
        groups["context-points"] = [cell for cell in outcomes if "M=" in cell.task and cell.seed == 0]
        return {name: _draw({c: outcomes[c].curves for c in cells}) for name, cells in groups.items() if cells}

    def verdict(self, summary):
        names = {"FSP-Laplace": REFINED} | {name: name for name in ("GP", "Sparse GP", "FVI", "Laplace", "MAP")}
        sentences = []
        for task in dict.fromkeys(task for task, _ in summary.entries if task in _KERNELS):
            shown = {name: row for name, row in names.items() if (task, row) in summary.entries}
            away, density = (
                ", ".join(f"{name} {summary.mean(task, row, score):.2f}" for name, row in shown.items())
                for score in ("confidence_far_away", "log_predictive_density")
            )
            sentences.append(
                f"{task}: accuracy {summary.mean(task, REFINED, 'accuracy'):.3f}; mean |p - 1/2| on the border, 0 under the "
                f"prior: {away}; log predictive density near the data: {density}."
            )
        return " ".join(sentences)


def _label_scores(labels, logits: Float[np.ndarray, "s m"]) -> dict[str, float]:
    both = jnp.stack([jnp.zeros_like(jnp.asarray(logits)), jnp.asarray(logits)], axis=-1)
    probabilities = metrics.predictive_probabilities(both)
    labels = np.asarray(labels, dtype=np.int32)
    return {
        "accuracy": float(metrics.accuracy(labels, probabilities)),
        "log_predictive_density": float(metrics.log_predictive_density_from_logits(labels, both)),
        "expected_log_likelihood": float(metrics.expected_log_likelihood_from_logits(labels, both)),
        "ece": float(metrics.expected_calibration_error(labels, probabilities)),
    }


def _draw(curves):
    figure, axes = _figures.panels(2 * len(curves), columns=len(curves), width=2.4, height=2.2)
    extent = (-BOUND, BOUND, -BOUND, BOUND)
    for column, (cell, curve) in enumerate(curves.items()):
        name = REFINED if cell.method == "FSP-Laplace" else cell.method
        X, y = np.asarray(curve["X"]), np.asarray(curve["y"])
        for axis, score, high in ((axes[column], "mean", 1.0), (axes[len(curves) + column], "two_std", 1.0)):
            values = np.asarray(curve["maps"][name][score]).reshape(_GRID, _GRID)
            image = axis.imshow(
                values, origin="lower", extent=extent, vmin=0.0, vmax=high, aspect="equal", interpolation="bilinear",
                cmap="RdBu" if score == "mean" else "viridis",
            )  # fmt: skip
            for label, colour in ((0, "#B2182B"), (1, "#2166AC")):
                axis.plot(*X[y == label].T, ".", color=colour, mec="white", mew=0.3, ms=4)
            axis.set(
                xlabel="x1", ylabel="x2", title=f"{cell.method}, {cell.task}: {'mean' if score == 'mean' else '2 std'}"
            )
            axis.title.set_fontsize(7)
            if column == len(curves) - 1:
                figure.colorbar(image, ax=axis, label="P(class 1)" if score == "mean" else "2 std of P(class 1)")
    figure.suptitle(
        "Probability of class 1 over 100 posterior functions; training points red (class 0), blue (class 1)", fontsize=8
    )
    return figure


EXPERIMENT = TwoMoons()
