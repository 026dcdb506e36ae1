"""The posterior by the method of a name."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from fsplaplace.context import Sampler, throughout
from fsplaplace.estimators._rows import WeightedRows
from fsplaplace.estimators._weighted import weighted
from fsplaplace.laplace import HeldOut, Posterior
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.methods import MAP, FSPLaplace, FunctionPosterior, by_name
from fsplaplace.networks import Model
from fsplaplace.prior import Prior

# Context points of one training step; more of them make the step slow before they make it better.
MOST_STEP_CONTEXT = 100
# Beyond this many rows training takes minibatches.
_MOST_FULL_BATCH = 1024
_BATCH = 512
# Context points times outputs up to which the rank follows the prior; beyond, the directions that all outputs share: ten classes
# of 1,000 points would ask for 9,400 of them, which 6,000 weights cannot hold.
_MOST_FULL_RANK, _MOST_SHARED_RANK = 5000, 500


class Approximated(NamedTuple):
    """A posterior, and rows held out of the training of its network, if there were any."""

    posterior: Posterior | FunctionPosterior
    held: HeldOut | None = None


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
    noise_fitted: bool = False,
    relative: Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, "n q"]] | None = None,
) -> Approximated:
    """Fit, and return a posterior whose likelihood is that of one new observation.

    With `noise_fitted` the noise was fitted to all rows, and only grows. With `relative` the scale of Gaussian noise is multiplied
    by that function of the inputs, and the likelihood that comes back has the scale without it.
    """
    options = _options(method, steps, num_context, rows, prior.num_outputs)
    if method == "fsp-laplace" and noise_fitted and relative is None:
        options["fit_noise"] = "upwards"
    chosen = by_name(method, **options)
    observed = likelihood
    if method == "fsp-laplace":
        # Rows of weight zero make the number of rows a round one.
        rows = rows.padded()
    if method == "fsp-laplace" or rows.weighted:
        observed = weighted(likelihood, rows.weights, None if relative is None else relative(rows.X))
    known = {"key": key, "prior": prior, "context": context, "progress": progress}
    if isinstance(chosen, FSPLaplace):
        found = chosen.fitted(model, rows.X, rows.targets, observed, **known)
        posterior, held = found.posterior, found.held
    else:
        posterior, held = chosen.fit(model, rows.X, rows.targets, observed, **known), None
    fitted = posterior.likelihood
    if method == "fsp-laplace" and isinstance(likelihood, Gaussian) and isinstance(fitted, Gaussian):
        # The noise may have changed.
        likelihood = eqx.tree_at(lambda tree: tree.log_scale, likelihood, fitted.log_scale)
    return Approximated(dataclasses.replace(posterior, likelihood=likelihood), held)


def _options(method: str, steps: int, num_context: int, rows: WeightedRows, num_outputs: int) -> dict:
    training = _training(steps, rows)
    match method:
        case "fsp-laplace":
            return {
                **training,
                "num_context": min(num_context, MOST_STEP_CONTEXT),
                "num_posterior_context": num_context,
                "cover": throughout(np.unique(rows.X, axis=0)),
                "rank": _MOST_SHARED_RANK if num_outputs * num_context > _MOST_FULL_RANK else None,
            }
        case "fvi" | "gfsvi":
            return {**training, "num_context": min(num_context, MOST_STEP_CONTEXT)}
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
    return {"steps": steps, "batch_size": batch_size(rows.X.shape[0])}


def batch_size(num_rows: int) -> int | None:
    """Rows of a training step; None for all."""
    return _BATCH if num_rows > _MOST_FULL_BATCH else None
