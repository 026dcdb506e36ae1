"""Ocean currents: velocities in the Gulf of Mexico from 20 drifter readings, with the Helmholtz decomposition."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gpjax.kernels import RBF
from jaxtyping import Array, Float
from scipy.optimize import fminbound

import fsplaplace as fsp
from fsplaplace import datasets
from fsplaplace.experiments import _figures
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Published, Row
from fsplaplace.experiments._methods import (
    COUNTERPARTS,
    PRECISION,
    REFINED,
    REGRESSION_SCORES,
    diagnostics,
    fit_baseline,
    fit_fsp,
    fsp_predictions,
    gaussians,
    keys,
    num_seeds,
    regression_scores,
    rounded,
    usual_mlp,
)
from fsplaplace.kernels import Helmholtz
from fsplaplace.tuning import log_marginal_likelihood

_TASK = "GulfDrifters"


def potential_and_stream() -> tuple[RBF, RBF]:
    """Kernels of potential and stream function with the published parameters, in degrees and the files' velocities."""
    return _rbf(7.91, 0.250), _rbf(1.136, 0.0281)


class HelmholtzNetwork(eqx.Module):
    r"""$\nabla \Phi + \mathrm{rot}\, \Psi$ of two scalar networks: any weights give a decomposed field."""

    potential: Callable[[Array], Array]
    stream: Callable[[Array], Array]

    def __call__(self, x: Float[Array, " 2"]) -> Float[Array, " 2"]:
        gradient = jax.grad(lambda z: self.potential(z)[0])(x)
        rotated = jax.grad(lambda z: self.stream(z)[0])(x)
        return gradient + jnp.stack([rotated[1], -rotated[0]])


class Task(NamedTuple):
    """Readings and test grid; positions in degrees from the grid's centre, which moves no stationary kernel."""

    X: Float[np.ndarray, "20 2"]
    y: Float[np.ndarray, "20 2"]
    X_test: Float[np.ndarray, "544 2"]
    y_test: Float[np.ndarray, "544 2"]
    centre: Float[np.ndarray, " 2"]

    def grid(self, columns: int, rows: int) -> Float[np.ndarray, "m 2"]:
        """A regular grid over the test region."""
        low, high = self.X_test.min(axis=0), self.X_test.max(axis=0)
        east, north = np.meshgrid(np.linspace(low[0], high[0], columns), np.linspace(low[1], high[1], rows))
        return np.stack([east.ravel(), north.ravel()], axis=1)


def load() -> Task:
    """The 20 training vectors and the 544 of the test grid."""
    data = datasets.load("gulfdrifters")
    if data.X_test is None or data.y_test is None:
        raise ValueError("gulfdrifters has no test grid")
    centre = data.X_test.mean(axis=0)
    return Task(data.X - centre, data.y, data.X_test - centre, data.y_test, centre)


def choose_noise(task: Task, prior: fsp.Prior) -> tuple[float, float]:
    """The noise scale that maximises the log marginal likelihood of the 20 training vectors, and that maximum."""

    @jax.jit
    def log_density(log_scale):
        return log_marginal_likelihood(prior, jnp.exp(2 * log_scale), jnp.asarray(task.X), jnp.asarray(task.y))

    best, lowest, *_ = fminbound(lambda s: -float(log_density(s)), np.log(1e-3), 0.0, full_output=True)
    return float(np.exp(best)), -float(lowest)


class Ocean(Experiment):
    """Table 1, second row, and Figure 3."""

    name = "ocean"
    title = "Ocean currents in the Gulf of Mexico"
    place = "Section 4.1, Table 1 and the ocean-current figure"
    presets = {  # noqa: RUF012 - constants of the class
        "quick": {
            "seeds": 1, "width": 40, "steps": 100, "grid": [17, 8], "methods": ["FSP-Laplace", "GP"], "weight_prior": 1.0,
        },
        "cpu": {
            "seeds": 5, "width": 100, "steps": 500, "fvi_steps": 300, "fvi_seeds": 1, "grid": [34, 16],
            "methods": ["FSP-Laplace", "GP", "Laplace", "FVI"], "weight_prior": 1.0,
        },
        "paper": {
            "seeds": 5, "width": 100, "steps": 100_000, "learning_rate": 5e-5, "grid": [34, 16],
            "methods": ["FSP-Laplace", "GP", "Laplace", "FVI"], "weight_prior": 1.0,
        },
    }  # fmt: skip
    scores = {
        name: described for name, described in REGRESSION_SCORES.items() if not name.endswith("_standardised")
    } | {"mse": ("MSE", "{:.4f}", "lower"), "unexplained": ("unexplained share of the variance", "{:.3f}", "lower")}
    counterparts = COUNTERPARTS
    published = tuple(
        Published(_TASK, method, score, mean, error)
        for method, likelihood, mse in (
            ("FSP-Laplace", (0.2823, 0.0009), (0.0169, 0.0001)),
            ("FVI", (-35.2741, 1.0278), (0.0184, 0.0003)),
            ("Laplace", (-126845.4063, 14470.5270), (0.0320, 0.0016)),
            ("GP", (-0.5069, 0.0), (0.0131, 0.0)),
        )
        for score, (mean, error) in (("expected_log_likelihood", likelihood), ("mse", mse))
    )
    notes = (
        "In the cpu preset networks take 500 steps and FVI 300 with one seed, far fewer than the authors': the rows with the "
        "network's own mean, the precision form, Laplace and FVI show that budget, not what those methods can do.",
        "The paper preset has the authors' 100,000 steps and step size 5e-5, on a network whose first layers are matched to the "
        "prior (theirs have the usual initialisation). A first run of it with the library's own schedule (step size 1e-2, falling) "
        "ended at MSE 0.028 for the refined mean and 0.30 for the network's: long training at 80 fixed points leaves the network "
        "free between them. The authors' step size was put in after that, not searched for.",
        "Velocities are in the unit of the files, which they do not state; log scores are sums over the two components.",
        "Expected log-likelihoods depend on the noise. Here it is the maximiser of the marginal likelihood of the 20 training "
        "vectors, the same for every method; the authors learned theirs with the weights and did not print it, so that column "
        "shows their noise as much as their method. The log predictive density is the proper score.",
        "The posterior's context points are the 34 x 16 grid of the authors' configuration and the 20 training inputs.",
    )

    def cells(self, settings, seeds):
        return [
            Cell(_TASK, method, seed)
            for method in settings["methods"]
            for seed in range(num_seeds(method, settings, seeds))
        ]

    def run(self, cell, settings):
        task = load()
        potential, stream = potential_and_stream()
        prior = fsp.Prior(Helmholtz(potential, stream))
        noise, log_evidence = choose_noise(task, prior)
        likelihood = fsp.likelihoods.Gaussian(noise)
        low, high = task.X_test.min(axis=0), task.X_test.max(axis=0)
        training_grid = fsp.context.Data(task.grid(10, 8))
        potential_key, stream_key, fit_key = keys(cell.seed, 3)
        widths = (int(settings["width"]),) * 2
        choices = {
            "kernel": "published parameters",
            "noise": noise,
            "noise_chosen_by": "log marginal likelihood of the 20 training vectors under the prior",
            "log_marginal_likelihood": log_evidence,
        }
        note = ""
        if cell.method == "FSP-Laplace":
            region = fsp.context.Uniform(low, high)
            network = HelmholtzNetwork(
                fsp.mlp(widths, prior=fsp.Prior(potential), context=region, key=potential_key),
                fsp.mlp(widths, prior=fsp.Prior(stream), context=region, key=stream_key),
            )
            covariance, precision, note = fit_fsp(
                fsp.as_model(network), prior, likelihood, task.X, task.y, context=training_grid,
                context_points=np.concatenate([task.grid(*settings["grid"]), task.X]), steps=int(settings["steps"]),
                num_context=80, key=fit_key, learning_rate=settings.get("learning_rate"),
            )  # fmt: skip
            predictions = fsp_predictions(covariance, precision, task.X_test)
            choices["covariance_form"] = diagnostics(covariance)
        else:
            network = HelmholtzNetwork(
                usual_mlp(widths, 2, 1, key=potential_key), usual_mlp(widths, 2, 1, key=stream_key)
            )
            posterior = fit_baseline(
                cell.method, settings, fsp.as_model(network), prior, likelihood, task.X, task.y,
                context=training_grid, key=fit_key,
            )  # fmt: skip
            predictions = {cell.method: gaussians(posterior, task.X_test)}
        rows = tuple(
            Row(name, {}, note)
            if found is None
            else Row(name, regression_scores(task.y_test, found, noise_scale=noise, unit=1.0) | _fraction(task, found))
            for name, found in predictions.items()
        )
        curves = {}
        shown = predictions.get(REFINED) or predictions.get(cell.method)
        if cell.seed == 0 and shown is not None:
            curves = {
                "position": rounded(task.X_test + task.centre, 7),
                "observed": rounded(task.y_test),
                "mean": rounded(shown.mean),
                "std": rounded(np.sqrt(shown.variance.sum(axis=1))),
                "squared_error": rounded(np.sum((shown.mean - task.y_test) ** 2, axis=1)),
                "readings": rounded(np.column_stack([task.X + task.centre, task.y]), 7),
            }
        return Outcome(rows, choices, curves)

    difference = (
        "The exact process scores what the paper's does, so data and kernel are the paper's (its noise was not printed), and the refined "
        "mean is that process's. The network's own mean, which is that of the paper's form, is close to it after few steps (preset cpu) "
        "and drifts away in 100,000: the prior is enforced at 80 fixed points, and between them long training leaves the network free. "
        "The authors' recipe (usual first layer, jitter of 1e-10, learned noise) holds it back and ends below the paper's number "
        "(benchmarks/results/paper_settings.md, seed 0); which of the three does it was not separated."
    )
    captions = {  # noqa: RUF012
        "fields": "Velocities on the test grid (every second arrow) and the mean from 20 readings (red), the norm of its standard "
        "deviation and the squared error, one colour scale for each column. Velocities are in the unit of the files.",
    }

    def figures(self, outcomes, settings):
        drawn = {cell: outcome.curves for cell, outcome in outcomes.items() if outcome.curves}
        figure, axes = _figures.panels(3 * len(drawn), columns=3, width=3.3, height=2.2)
        levels = {
            name: np.linspace(0.0, max(np.max(curve[name]) for curve in drawn.values()), 13)
            for name in ("std", "squared_error")
        }
        for row, (cell, curve) in enumerate(drawn.items()):
            position, readings = np.asarray(curve["position"]), np.asarray(curve["readings"])
            # Every second arrow of every second row of the grid.
            longitudes, latitudes = (np.unique(position[:, axis], return_inverse=True)[1] for axis in (0, 1))
            shown = (longitudes % 2 == 0) & (latitudes % 2 == 0)
            arrows, spread, error = axes[3 * row : 3 * row + 3]
            for name, colour, width in (("observed", _figures.BLUE, 0.006), ("mean", "black", 0.004)):
                arrows.quiver(*position[shown].T, *np.asarray(curve[name])[shown].T, color=colour, scale=9, width=width)
            arrows.quiver(*readings.T, color=_figures.RED, scale=9, width=0.008)
            arrows.set_title(f"{cell.method}: test blue, mean black", fontsize=8)
            for axis, name, title in ((spread, "std", "norm of the std"), (error, "squared_error", "squared error")):
                east, north = position.T
                image = axis.tricontourf(east, north, np.asarray(curve[name]), levels=levels[name], cmap="viridis")
                figure.colorbar(image, ax=axis, format="%.2f", ticks=levels[name][::4]).ax.tick_params(labelsize=7)
                axis.plot(*readings[:, :2].T, ".", color=_figures.RED, ms=3)
                axis.set_title(f"{cell.method}: {title}", fontsize=8)
            for axis in (arrows, spread, error):
                axis.set(xlabel="longitude, degrees", ylabel="latitude, degrees")
        return {"fields": figure}

    def verdict(self, summary):
        ours, gp = (summary.mean(_TASK, name, "mse") for name in (REFINED, "GP"))
        density, reference = (summary.mean(_TASK, name, "log_predictive_density") for name in (REFINED, "GP"))
        precision = summary.mean(_TASK, PRECISION, "mse")
        return (
            f"MSE {ours:.4f} (paper 0.0169), exact GP with the same prior and noise {gp:.4f} (paper 0.0131), precision form "
            f"{precision:.4f}; log predictive density {density - reference:+.3f} from that GP's {reference:.3f}."
        )


def _rbf(lengthscale, variance) -> RBF:
    return RBF(lengthscale=lengthscale, variance=variance)


def _fraction(task: Task, found) -> dict[str, float]:
    """Share of the test field's variance that the mean does not explain."""
    residual = np.sum((task.y_test - found.mean) ** 2)
    return {"unexplained": float(residual / np.sum((task.y_test - task.y_test.mean(axis=0)) ** 2))}


EXPERIMENT = Ocean()
