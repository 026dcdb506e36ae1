"""The rows that every experiment shares: FSP-Laplace in both forms with both means, and the baselines."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Float

import fsplaplace as fsp
from fsplaplace import metrics
from fsplaplace.laplace import fit_posterior
from fsplaplace.methods import FVI, MAP, ExactGP, Method, SparseGP, WeightLaplace

REFINED = "FSP-Laplace, covariance form, refined mean"
NETWORK = "FSP-Laplace, covariance form, network mean"
PRECISION = "FSP-Laplace, precision form (the paper's)"
# Our rows and the column of the paper's tables that each is put beside.
COUNTERPARTS = {REFINED: "FSP-Laplace", NETWORK: "FSP-Laplace", PRECISION: "FSP-Laplace"} | {
    name: name for name in ("FVI", "Laplace", "MAP", "GP", "Sparse GP")
}


class Gaussians(NamedTuple):
    """Means and epistemic variances at n inputs, (n, q) each."""

    mean: Float[np.ndarray, "n q"]
    variance: Float[np.ndarray, "n q"]


def fit_fsp(
    model: fsp.Model, prior: fsp.Prior, likelihood, X, y, *, context, context_points, steps: int, num_context: int,
    key, rank: int | None = None, rtol: float = 1e-6, batch_size: int | None = None, learning_rate: float | None = None,
) -> tuple[fsp.Posterior, fsp.Posterior | None, str]:  # fmt: skip
    """One training run and both forms of its posterior; the covariance form with the refined mean.

    Adam with `learning_rate` throughout, or the library's own schedule if there is none.

    The precision form may have nothing left after its variance check; then None, and why.
    """
    optimizer = None if learning_rate is None else optax.adam(learning_rate)
    fitted = fit_posterior(
        model, prior, likelihood, context, X, y, key=key, context_points=context_points, fit_noise=False,
        # Keys as in the results that were published.
        training={"key": key, "steps": steps, "num_context": num_context, "batch_size": batch_size, "progress": False,
                  "optimizer": optimizer},
        approximation={"key": None, "mean": "refined", "rtol": rtol},
    )  # fmt: skip
    covariance = fitted.posterior
    try:
        precision = fsp.laplace(
            fitted.trained.model, prior, likelihood, X, y, context_points=context_points, form="precision", rank=rank
        )
    except FloatingPointError as error:
        return covariance, None, str(error)
    return covariance, precision, ""


def fsp_predictions(
    covariance: fsp.Posterior, precision: fsp.Posterior | None, x: Float[np.ndarray, "n d"]
) -> dict[str, Gaussians | None]:
    """Row name -> predictive, for both forms and both means."""
    predicted = covariance.predict(x)
    rows: dict[str, Gaussians | None] = {
        REFINED: _gaussians(predicted.mean, predicted.variance),
        NETWORK: _gaussians(predicted.map, predicted.variance),
        PRECISION: None,
    }
    if precision is not None:
        own = precision.predict(x)
        rows[PRECISION] = _gaussians(own.mean, own.variance)
    return rows


def baseline(name: str, settings: Mapping[str, Any]) -> Method:
    """A baseline by its name in the paper's tables, with the preset's number of steps."""
    steps = int(settings["steps"])
    scale = settings.get("weight_prior", "evidence")
    return {
        "FVI": FVI(steps=int(settings.get("fvi_steps", steps))),
        "GP": ExactGP(tune=False),
        "Sparse GP": SparseGP(tune=False, steps=min(steps, 1000)),
        "MAP": MAP(steps=steps),
        "Laplace": WeightLaplace(prior_precision=scale, train=MAP(steps=steps)),
    }[name]


def fit_baseline(name: str, settings: Mapping[str, Any], model, prior, likelihood, X, y, *, context, key):
    """The baseline's posterior on the same problem."""
    return baseline(name, settings).fit(model, X, y, likelihood, key=key, prior=prior, context=context, progress=False)


def num_seeds(method: str, settings: Mapping[str, Any], seeds: int) -> int:
    """One for the Gaussian process, which has no seed; `fvi_seeds` for FVI, the slowest, where the preset limits it."""
    return 1 if method == "GP" else min(seeds, int(settings.get("fvi_seeds", seeds))) if method == "FVI" else seeds


def usual_mlp(
    widths: tuple[int, ...], num_inputs: int, num_outputs: int, *, key, activation: Callable = jnp.tanh
) -> eqx.nn.MLP:
    """The same architecture with the usual initialisation, for methods whose prior is on the weights."""
    if len(set(widths)) != 1:
        raise ValueError(f"usual_mlp: widths {widths} differ; pass equal ones")
    return eqx.nn.MLP(num_inputs, num_outputs, widths[0], len(widths), activation, key=key)


def regression_scores(
    y: Float[np.ndarray, "n q"], predicted: Gaussians, *, noise_scale: float, unit: float = 1.0
) -> dict[str, float]:
    """MSE and both log scores, in original units and standardised.

    Args:
        y, predicted, noise_scale: standardised by dividing by `unit`.
        unit: original units per standardised one.
    """
    noise = noise_scale**2
    error = float(metrics.mse(y, predicted.mean))
    shift = y.shape[1] * float(np.log(unit))
    expected = float(metrics.expected_log_likelihood(y, predicted.mean, predicted.variance, noise_variance=noise))
    density = float(metrics.log_predictive_density(y, predicted.mean, predicted.variance, noise_variance=noise))
    total = np.sqrt(predicted.variance + noise)
    return {
        "mse": error * unit**2,
        "log_predictive_density": density - shift,
        "expected_log_likelihood": expected - shift,
        "coverage_90": float(metrics.interval_coverage(y, predicted.mean, total, level=0.9)),
        "mse_standardised": error,
        "log_predictive_density_standardised": density,
        "expected_log_likelihood_standardised": expected,
    }


REGRESSION_SCORES = {
    "mse": ("MSE", "{:.4g}", "lower"),
    "log_predictive_density": ("log predictive density", "{:.4g}", "higher"),
    "expected_log_likelihood": ("expected log-likelihood", "{:.4g}", "higher"),
    "coverage_90": ("coverage of 90 % intervals", "{:.2f}", ""),
    "mse_standardised": ("MSE, standardised", "{:.3g}", "lower"),
    "log_predictive_density_standardised": ("log predictive density, standardised", "{:.4g}", "higher"),
    "expected_log_likelihood_standardised": ("expected log-likelihood, standardised", "{:.4g}", "higher"),
}


def gaussians(posterior, x: Float[np.ndarray, "n d"]) -> Gaussians:
    """Mean and variance of any method's posterior."""
    predicted = posterior.predict(x)
    return _gaussians(predicted.mean, predicted.variance)


def diagnostics(posterior: fsp.Posterior) -> dict[str, Any]:
    """What the posterior says of itself, for the result file."""
    found = posterior.diagnostics
    guard = found.ratios["guard"]
    return {
        "rank": found.rank,
        "log_evidence": float(posterior.log_evidence),
        "implied_over_stated_prior_variance_at_guard_points": [
            float(value) for value in (guard.smallest, guard.median, guard.largest)
        ],
        "objective_of_each_mean": {name: float(value) for name, value in found.objectives.items()},
        "mean_that_auto_would_take": min(found.objectives, key=lambda name: found.objectives[name])
        if found.objectives
        else "network",
    }


def keys(seed: int, count: int):
    """Independent keys of one seed."""
    return jr.split(jr.key(seed), count)


def rounded(values, digits: int = 5) -> list:
    """Numbers for the figures, short."""
    values = np.asarray(values, dtype=float)
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.maximum(np.abs(values), 1e-300))))
    return np.where(values == 0, 0.0, np.round(values * scale) / scale).tolist()


def _gaussians(mean, variance) -> Gaussians:
    return Gaussians(np.asarray(mean, dtype=float), np.asarray(variance, dtype=float))
