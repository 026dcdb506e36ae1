"""The posterior by the method of a name."""

import dataclasses

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from fsplaplace.context import Sampler, throughout
from fsplaplace.estimators._rows import WeightedRows
from fsplaplace.estimators._weighted import weighted
from fsplaplace.host import host_generator
from fsplaplace.laplace import Posterior, laplace
from fsplaplace.likelihoods import Likelihood
from fsplaplace.methods import MAP, FunctionPosterior, by_name
from fsplaplace.networks import Model
from fsplaplace.prior import Prior
from fsplaplace.training import train

# Context points of one training step; more of them make the step slow before they make it better.
_MOST_STEP_CONTEXT = 100
# Context points come in quarters of the number asked for, so that data sets of similar size share programs.
_UNITS = 4
# Beyond this many rows training takes minibatches.
_MOST_FULL_BATCH = 1024
_BATCH = 512
# Factor of the noise from which the evidence of the network's features is preferred to the kernel's.
_MORE_NOISE = 1.1


def approximate(
    method: str,
    model: Model,
    prior: Prior,
    likelihood: Likelihood,
    context: Sampler,
    rows: WeightedRows,
    *,
    steps: int,
    num_context: int,
    key: PRNGKeyArray,
    progress: bool,
) -> Posterior | FunctionPosterior:
    """Fit, and return a posterior whose likelihood is that of one new observation."""
    options = {"steps": steps, "num_context": num_context, "key": key, "progress": progress}
    if method == "fsp-laplace":
        return _fsp_laplace(model, prior, likelihood, context, rows, **options)
    posterior = _baseline(method, model, prior, likelihood, context, rows, **options)
    return dataclasses.replace(posterior, likelihood=likelihood)


def _fsp_laplace(
    model, prior, likelihood, context, rows: WeightedRows, *, steps, num_context, key, progress
) -> Posterior:
    train_key, points_key, laplace_key = jr.split(key, 3)
    points = context_points(rows.X, num_context, points_key)
    rows = rows.padded()
    targets = rows.targets
    trained = train(
        model, prior, weighted(likelihood, rows.weights), context, rows.X, targets,
        key=train_key, progress=progress, **_training(steps, rows), num_context=min(num_context, _MOST_STEP_CONTEXT),
    )  # fmt: skip

    def posterior_with(likelihood: Likelihood, missed_as_noise: bool | None = None) -> Posterior:
        return laplace(
            trained.model, prior, weighted(likelihood, rows.weights), rows.X, targets,
            context_points=points, include_training=False, missed_as_noise=missed_as_noise, key=laplace_key,
        )  # fmt: skip

    posterior = posterior_with(likelihood)
    factor = posterior.diagnostics.noise_factor
    if factor is not None and factor > _MORE_NOISE:
        # Rows off the context set, which the kernel's own evidence fits better than the network's features can.
        likelihood = likelihood.scaled(factor)
        posterior = posterior_with(likelihood, posterior.diagnostics.missed_as_noise)
    return dataclasses.replace(posterior, likelihood=likelihood)


def _baseline(
    method, model, prior, likelihood, context, rows: WeightedRows, *, steps, num_context, key, progress
) -> FunctionPosterior | Posterior:
    chosen = by_name(method, **_options(method, steps, num_context, rows))
    if rows.weighted:
        likelihood = weighted(likelihood, rows.weights)
    return chosen.fit(model, rows.X, rows.targets, likelihood, key=key, prior=prior, context=context, progress=progress)


def context_points(X: Float[np.ndarray, "n d"], num_context: int, key: PRNGKeyArray) -> Float[np.ndarray, "m d"]:
    """Training inputs, up to one and a half times `num_context`, and points throughout the data: `num_context` in all, or more
    where half of it would not be left for the latter. Always a round number."""
    distinct = np.unique(X, axis=0)
    chosen = host_generator(key).permutation(distinct.shape[0])[: 3 * num_context // 2]
    unit = max(1, num_context // _UNITS)
    total = max(num_context, -(-(chosen.size + num_context // 2) // unit) * unit)
    sampled = np.asarray(throughout(distinct).sample(total, key=key), np.float64)
    # Every share of the mixture, whatever the number of training inputs.
    kept = np.linspace(0, total - 1, total - chosen.size).astype(int)
    return np.concatenate([distinct[chosen], sampled[kept]])


def _options(method: str, steps: int, num_context: int, rows: WeightedRows) -> dict:
    training = _training(steps, rows)
    match method:
        case "fvi" | "gfsvi":
            return {**training, "num_context": min(num_context, _MOST_STEP_CONTEXT)}
        case "map":
            return training
        case "ensemble":
            return {"member": MAP(**training)}
        case "laplace" | "kfac" | "diagonal" | "last-layer":
            return {"train": MAP(**training)}
        case "gp":
            return {"tune": False}
        case "sparse-gp":
            return {"tune": False, "steps": steps}
    return {}


def _training(steps: int, rows: WeightedRows) -> dict:
    return {"steps": steps, "batch_size": _BATCH if rows.X.shape[0] > _MOST_FULL_BATCH else None}
