"""Mauna Loa: forecast monthly CO2 from 1974-2009 to 2024 with the kernel that Rasmussen and Williams made for it."""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, AbstractKernel, RationalQuadratic
from gpjax.parameters import PositiveReal
from jaxtyping import Array, Float

import fsplaplace as fsp
from fsplaplace import datasets
from fsplaplace.context import Sampler
from fsplaplace.experiments import _figures
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Published, Row
from fsplaplace.experiments._mauna_loa_kernel import mauna_loa_kernel
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
from fsplaplace.host import one_blas_thread
from fsplaplace.means import Linear

NOISE = 0.19  # ppm, Rasmussen and Williams (2006), Section 5.4.3
_ZERO, _LINEAR = "zero mean", "linear mean"
# Degree of the polynomial in time; the paper's prior has mean zero on standardised targets.
_DEGREES = {"constant": 0, "linear": 1, "quadratic": 2}


class Task(NamedTuple):
    """The standardised record: time, targets, and what brings them back to years and ppm."""

    time: Float[np.ndarray, " n"]
    y: Float[np.ndarray, "n 1"]
    num_train: int
    origin: float
    years: float
    level: float
    ppm: float

    @property
    def X(self) -> Float[np.ndarray, "n 3"]:
        """Time and its yearly sine and cosine."""
        return np.asarray(self.features(jnp.asarray(self.time)))

    @property
    def bounds(self) -> tuple[float, float]:
        """Where the prior is enforced: from the first month to 0.7 training ranges past the last training month."""
        first, last = self.time[0], self.time[self.num_train - 1]
        return float(first), float(last + 0.7 * (last - first))

    def features(self, time: Float[Array, " m"]) -> Float[Array, "m 3"]:
        """$(t, \\sin 2 \\pi t, \\cos 2 \\pi t)$, the angle in calendar years."""
        return _features(time, self.origin, self.years)


class SeasonalContext(Sampler):
    """Uniform times with their yearly features, so that context points lie where inputs can be."""

    lower: float
    upper: float
    origin: float
    years: float

    def sample(self, num_points, *, key):
        return _features(jr.uniform(key, (num_points,), minval=self.lower, maxval=self.upper), self.origin, self.years)


def load() -> Task:
    """The 608 months from May 1974 to December 2024; the first 70 % are for training, and standardise all."""
    record = datasets.load("co2")
    chosen = (record.X[:, 0] > 1974.3) & (record.X[:, 0] < 2025.0)
    years, ppm = record.X[chosen, 0], record.y[chosen]
    count = int(0.7 * years.size)
    origin, spread, level, unit = years[:count].mean(), years[:count].std(), ppm[:count].mean(), ppm[:count].std()
    return Task((years - origin) / spread, ((ppm - level) / unit)[:, None], count, origin, spread, level, unit)


def choose_mean(task: Task) -> tuple[dict[str, dict], str]:
    """Log marginal likelihood of polynomial means fitted by generalised least squares, on training months only.

    More coefficients always fit better, so each costs half the logarithm of the number of months (Schwarz 1978).
    """
    n = task.num_train
    time, y = task.time[:n], task.y[:n, 0]
    noise = NOISE / task.ppm
    gram = np.asarray(fsp.Prior(kernel(task)).gram(jnp.asarray(task.X[:n]))[0], dtype=float)
    found = {}
    with one_blas_thread():
        root = np.linalg.cholesky(gram + noise**2 * np.eye(n))
        for name, degree in _DEGREES.items():
            design = np.stack([time**power for power in range(degree + 1)], axis=1)
            white = np.linalg.solve(root, np.column_stack([design, y]))
            coefficients = np.linalg.lstsq(white[:, :-1], white[:, -1])[0]
            residual = white[:, -1] - white[:, :-1] @ coefficients
            log_density = -0.5 * residual @ residual - np.sum(np.log(np.diag(root))) - 0.5 * n * np.log(2 * np.pi)
            found[name] = {
                "coefficients": coefficients.tolist(),
                "log_marginal_likelihood": float(log_density),
                "penalised": float(log_density - 0.5 * (degree + 1) * np.log(n)),
            }
    return found, max(found, key=lambda name: found[name]["penalised"])


class MaunaLoa(Experiment):
    """Table 1, first row, and the forecast figure."""

    name = "mauna-loa"
    title = "Mauna Loa CO2, forecast from 2009 to 2024"
    place = "Section 4.1, Table 1 and Appendix C"
    presets = {  # noqa: RUF012 - constants of the class
        "quick": {"seeds": 1, "steps": 200, "context": 200, "rtol": 1e-8, "methods": ["FSP-Laplace", "GP"]},
        "cpu": {
            "seeds": 5, "steps": 1000, "fvi_steps": 500, "fvi_seeds": 1, "context": 400, "rtol": 1e-8,
            "methods": ["FSP-Laplace", "GP", "Laplace", "FVI"],
        },
        "paper": {
            "seeds": 5, "steps": 100_000, "learning_rate": 2e-4, "context": 1000, "rtol": 1e-8,
            "methods": ["FSP-Laplace", "GP", "Laplace", "FVI"],
        },
    }  # fmt: skip
    scores = {**REGRESSION_SCORES, "mse": ("MSE, ppm²", "{:.2f}", "lower")}  # noqa: RUF012
    counterparts = COUNTERPARTS
    published = tuple(
        Published(task, method, score, mean, error)
        for task in (_ZERO, _LINEAR)
        for method, likelihood, mse in (
            ("FSP-Laplace", (-6015.39, 443.13), (8.90, 1.15)),
            ("FVI", (-13594.57, 1303.26), (38.38, 2.10)),
            ("Laplace", (-16139.85, 2433.70), (28.26, 6.87)),
            ("GP", (-2123.90, 0.0), (35.66, 0.0)),
        )
        for score, (mean, error) in (("expected_log_likelihood_standardised", likelihood), ("mse", mse))
    )
    notes = (
        "In the cpu preset networks take 1,000 steps and FVI 500 with one seed, far fewer than the authors': the rows with the "
        "network's own mean, the precision form, Laplace and FVI show that budget, not what those methods can do. The refined "
        "mean hardly depends on it.",
        "The paper preset has the authors' 100,000 steps and step size 2e-4; the first layer is matched to the prior (theirs has the "
        "usual initialisation), and the noise is the published one (theirs is learned). A first run of it with the library's own "
        "schedule (step size 1e-2, falling) ended at MSE 23.35 ppm² for the refined mean with mean zero and 2.87 with the linear one; "
        "the authors' step size was put in after that, not searched for.",
        "The matched first layer and the prior's cut (rtol) were settled while writing, on seeds 0 and 1, by the log evidence "
        "of the training months (rtol 1e-8: 1058, 1e-6: 766); test errors were on the screen then. Seeds are not selected.",
        "The paper's prior has mean zero on standardised targets. The linear mean is fitted by generalised least squares and "
        "preferred by the marginal likelihood of the training months; the paper's numbers stand beside both.",
        "Expected log-likelihoods depend on the noise: here 0.19 ppm, the published value, for every method but Laplace, which "
        "tunes its own; the authors learned it with the weights. The log predictive density is the proper score.",
        "The paper's split has 2005 as end of training in its text and 2009 as start of testing; here the first 70 % of the "
        "608 months end in September 2009.",
        "The first layer of the network is matched to the same kernel written as a function of the three features.",
    )

    def cells(self, settings, seeds):
        means = {"FSP-Laplace": (_ZERO, _LINEAR), "GP": (_ZERO, _LINEAR), "FVI": (_ZERO,), "Laplace": (_ZERO,)}
        return [
            Cell(task, method, seed)
            for method in settings["methods"]
            for seed in range(num_seeds(method, settings, seeds))
            for task in means[method]
        ]

    def run(self, cell, settings):
        task = load()
        n, X = task.num_train, task.X
        candidates, preferred = choose_mean(task)
        slope = jnp.asarray(candidates["linear"]["coefficients"])
        mean = Linear(jnp.asarray([slope[1], 0.0, 0.0]), slope[0]) if cell.task == _LINEAR else None
        prior = fsp.Prior(kernel(task), mean=mean)
        likelihood = fsp.likelihoods.Gaussian(NOISE / task.ppm)
        lower, upper = task.bounds
        context = SeasonalContext(lower, upper, task.origin, task.years)
        network_key, fit_key = keys(cell.seed, 2)
        choices = {
            "kernel": "published parameters, Rasmussen and Williams (2006)",
            "noise": "0.19 ppm, published",
            "mean": "polynomial in time by log marginal likelihood of the training months, less log(n) / 2 per coefficient",
            "mean_candidates": candidates,
            "mean_preferred": preferred,
        }
        if cell.method == "FSP-Laplace":
            network = fsp.mlp([50, 50], prior=fsp.Prior(feature_kernel(task)), context=context, key=network_key)
            grid = np.asarray(task.features(jnp.linspace(lower, upper, int(settings["context"]))))
            covariance, precision, note = fit_fsp(
                fsp.as_model(network), prior, likelihood, X[:n], task.y[:n], context=context,
                context_points=np.concatenate([grid, X[:n]]), steps=int(settings["steps"]), num_context=100,
                rtol=float(settings["rtol"]), key=fit_key, learning_rate=settings.get("learning_rate"),
            )  # fmt: skip
            predictions = fsp_predictions(covariance, precision, X)
            choices["covariance_form"] = diagnostics(covariance)
            noise = NOISE / task.ppm
        else:
            note = ""
            network = usual_mlp((50, 50), 3, 1, key=network_key)
            posterior = fit_baseline(
                cell.method, settings, fsp.as_model(network), prior,
                fsp.likelihoods.Gaussian(NOISE / task.ppm, learnable=cell.method == "Laplace"), X[:n], task.y[:n],
                context=context, key=fit_key,
            )  # fmt: skip
            predictions = {cell.method: gaussians(posterior, X)}
            fitted = posterior.likelihood
            noise = float(fitted.scale) if isinstance(fitted, fsp.likelihoods.Gaussian) else NOISE / task.ppm
            if cell.method == "Laplace":
                choices["weight prior and noise"] = "evidence of the Laplace approximation"
                choices["noise_ppm"] = noise * task.ppm
        rows = tuple(
            Row(name, {}, note)
            if found is None
            else Row(
                name,
                regression_scores(
                    task.y[n:], type(found)(found.mean[n:], found.variance[n:]), noise_scale=noise, unit=task.ppm
                ),
            )
            for name, found in predictions.items()
        )
        shown = predictions.get(REFINED) or predictions.get(cell.method)
        curves = {}
        if cell.seed == 0 and shown is not None:
            curves = {
                "years": rounded(task.time * task.years + task.origin, 8),
                "observed": rounded(task.y[:, 0] * task.ppm + task.level, 6),
                "mean": rounded(shown.mean[:, 0] * task.ppm + task.level, 6),
                "std": rounded(np.sqrt(shown.variance[:, 0] + noise**2) * task.ppm),
                "first_test_year": float(task.time[n] * task.years + task.origin),
            }
        return Outcome(rows, choices, curves)

    difference = (
        "The paper's 8.90 ppm² is not reached with its prior of mean zero. Undoing our choices one by one (first layer, jitter, noise "
        "that is learned: benchmarks/results/paper_settings.md) brings the network's own mean closer, but not there. The rest is not the "
        "network's: the exact process, which has none, scores otherwise here than the paper's with the kernel that both state, so "
        "months, units or noise of the paper's run differ in a way that it does not print. A linear mean, preferred by the evidence, is "
        "what the forecast wants."
    )
    captions = {  # noqa: RUF012
        "forecast": "Left: monthly CO2, trained up to the dotted line and forecast beyond it. Right: observed less predicted, with "
        "the band of two standard deviations of a new month around zero; points outside it are surprises.",
    }

    def figures(self, outcomes, settings):
        drawn = {cell: outcome.curves for cell, outcome in outcomes.items() if outcome.curves}
        figure, axes = _figures.panels(2 * len(drawn), columns=2, width=4.6, height=2.0)
        for row, (cell, curve) in enumerate(drawn.items()):
            forecast, residual = axes[2 * row : 2 * row + 2]
            years, observed, mean, std = (np.asarray(curve[name]) for name in ("years", "observed", "mean", "std"))
            for axis, centre, values in ((forecast, mean, observed), (residual, np.zeros_like(mean), observed - mean)):
                band = (centre - 2 * std, centre + 2 * std)
                axis.fill_between(years, *band, color=_figures.GREEN, alpha=0.3, lw=0, label="2 std")
                axis.plot(years, values, ".", color=_figures.GREY, ms=1.5, label="observed")
                axis.plot(years, centre, color=_figures.RED, lw=0.7, label="mean")
                axis.axvline(curve["first_test_year"], color="black", lw=0.6, ls=":")
            forecast.set_title(f"{cell.method}, {cell.task}", fontsize=8)
            residual.set_title("observed less predicted", fontsize=8)
            forecast.set(xlabel="year", ylabel="CO2, ppm", ylim=(320, 440))
            reach = 1.1 * max(np.max(np.abs(observed - mean)), 2 * np.max(std))
            residual.set(xlabel="year", ylabel="ppm", ylim=(-reach, reach))
        axes[0].legend(loc="upper left", fontsize=7, frameon=False)
        return {"forecast": figure}

    def verdict(self, summary):
        ours, paper = summary.mean(_LINEAR, REFINED, "mse"), summary.mean(_LINEAR, PRECISION, "mse")
        zero, gp = summary.mean(_ZERO, REFINED, "mse"), summary.mean(_LINEAR, "GP", "mse")
        density = summary.mean(_LINEAR, REFINED, "log_predictive_density")
        reference = summary.mean(_ZERO, "GP", "log_predictive_density")
        paper_zero = summary.mean(_ZERO, PRECISION, "mse")
        return (
            f"MSE {ours:.2f} ppm² with the mean that the evidence prefers and {zero:.1f} with the paper's zero mean (paper 8.90); "
            f"exact GP with the same prior {gp:.2f}; precision form on the same networks {paper:.1f} and {paper_zero:.1f}; "
            f"log predictive density {density:.2f} against {reference:.2f} of the paper's GP on this split."
        )


def _features(time, origin, years):
    angle = 2 * jnp.pi * (time * years + origin)
    return jnp.stack([time, jnp.sin(angle), jnp.cos(angle)], axis=1)


def kernel(task: Task) -> AbstractKernel:
    return mauna_loa_kernel(scale=task.ppm, time_scale=task.years)


def feature_kernel(task: Task) -> AbstractKernel:
    """The same kernel as a function of the three features, where its periodic factor is an RBF on the circle."""

    def smooth(amplitude, length, columns):
        return RBF(active_dims=columns, lengthscale=length, variance=amplitude**2)

    trend = smooth(66.0 / task.ppm, 67.0 / task.years, [0])
    season = smooth(2.4 / task.ppm, 90.0 / task.years, [0]) * smooth(1.0, 1.3, [1, 2])
    irregular = RationalQuadratic(
        active_dims=[0], lengthscale=1.2 / task.years, variance=(0.66 / task.ppm) ** 2, alpha=PositiveReal(0.78)
    )
    return trend + season + irregular + smooth(0.18 / task.ppm, 0.134 / task.years, [0])


EXPERIMENT = MaunaLoa()
