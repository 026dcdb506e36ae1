"""The posterior by the method of a name."""

import dataclasses

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from fsplaplace._model import Model
from fsplaplace._posterior import Posterior
from fsplaplace._prior import Prior
from fsplaplace.baselines import FunctionPosterior
from fsplaplace.baselines._registry import by_name
from fsplaplace.baselines.map import MAP
from fsplaplace.context import Sampler
from fsplaplace.estimators._rows import Rows
from fsplaplace.estimators._weighted import Weighted
from fsplaplace.likelihoods import Likelihood

# Context points of one training step; more of them make the step slow before they make it better.
_MOST_STEP_CONTEXT = 100
# Beyond this many rows training takes minibatches.
_MOST_FULL_BATCH = 1024
_BATCH = 512


def approximate(
    method: str,
    model: Model,
    prior: Prior,
    likelihood: Likelihood,
    context: Sampler,
    rows: Rows,
    *,
    steps: int,
    num_context: int,
    key: PRNGKeyArray,
    progress: bool,
) -> Posterior | FunctionPosterior:
    """Fit, and return a posterior whose likelihood is that of one new observation."""
    key, points_key = jr.split(key)
    chosen = by_name(method, **_options(method, steps, num_context, rows))
    if method == "fsp-laplace":
        points = context_points(context, rows.X, num_context, points_key)
        chosen = dataclasses.replace(chosen, context_points=points)
        rows = rows.padded()
        weighted = Weighted(likelihood, rows.weights)
    else:
        weighted = Weighted(likelihood, rows.weights) if rows.weighted else likelihood
    targets = rows.y[:, 0] if rows.y.shape[1] == 1 else rows.y
    posterior = chosen.fit(model, rows.X, targets, weighted, key=key, prior=prior, context=context, progress=progress)
    fitted = posterior.likelihood
    return dataclasses.replace(posterior, likelihood=fitted.likelihood if isinstance(fitted, Weighted) else fitted)


def context_points(
    context: Sampler, X: Float[np.ndarray, "n d"], num_context: int, key: PRNGKeyArray
) -> Float[np.ndarray, "m d"]:
    """Training inputs, up to half of the points, and samples of the context: always `num_context` in all."""
    choose, draw = jr.split(key)
    generator = np.random.default_rng(np.asarray(jr.key_data(choose)).ravel())
    distinct = np.unique(X, axis=0)
    chosen = generator.permutation(distinct.shape[0])[: num_context // 2]
    sampled = np.asarray(context.sample(num_context, key=draw), np.float64)
    return np.concatenate([distinct[chosen], sampled])[:num_context]


def _options(method: str, steps: int, num_context: int, rows: Rows) -> dict:
    batch = _BATCH if rows.X.shape[0] > _MOST_FULL_BATCH else None
    training = {"steps": steps, "batch_size": batch}
    match method:
        case "fsp-laplace" | "fvi" | "gfsvi":
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
