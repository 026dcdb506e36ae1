"""Whether the parts of a loaded object fit together, found out by shapes, without computing."""

import equinox as eqx
import jax
import jax.numpy as jnp

from fsplaplace.laplace import Diagnostics, Later, Posterior
from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import Model
from fsplaplace.prior import Prior
from fsplaplace.training import History, Trained


def check_posterior(posterior: Posterior) -> None:
    """Every part has its type, and prior, network, likelihood and directions have shapes that go together."""
    _check_types(posterior, model=Model, prior=Prior, likelihood=Likelihood, diagnostics=Diagnostics)
    _check_types(posterior, scale=jax.Array, shift=jax.Array, context_points=jax.Array, log_evidence=jax.Array)
    num_params, points = posterior.model.num_params, posterior.context_points
    if posterior.scale.shape[1:] != (num_params,) or posterior.shift.shape != (num_params,):
        raise ValueError(
            f"scale has shape {posterior.scale.shape} and shift {posterior.shift.shape}, but {posterior.model.name} "
            f"has {num_params} weights"
        )
    if not posterior.scale.dtype == posterior.shift.dtype == posterior.model.dtype:
        raise ValueError(
            f"scale has dtype {posterior.scale.dtype} and shift {posterior.shift.dtype}, but the weights {posterior.model.dtype}"
        )
    information = posterior.information
    if information is not None and getattr(information, "shape", None) != posterior.scale.shape[:1]:
        raise ValueError(
            f"information has shape {getattr(information, 'shape', None)}, but scale has {posterior.scale.shape[0]} directions"
        )
    if posterior.later is not None:
        _check_types(posterior, later=Later)
        rank, later = posterior.scale.shape[0], posterior.later
        if (later.step.shape, later.turn.shape, later.num_rows.shape) != ((rank,), (rank, rank), ()):
            raise ValueError(
                f"later has shapes {later.step.shape} and {later.turn.shape}, but scale has {rank} directions"
            )
    for name in ("scale", "shift", "context_points", "log_evidence"):
        if not jnp.issubdtype(getattr(posterior, name).dtype, jnp.floating):
            raise ValueError(f"{name} has dtype {getattr(posterior, name).dtype}")
    if points.ndim < 2 or points.shape[0] == 0 or posterior.log_evidence.shape != ():
        raise ValueError(f"context_points have shape {points.shape}, log_evidence {posterior.log_evidence.shape}")
    str(posterior.diagnostics)
    few = points[:2]
    outputs = eqx.filter_eval_shape(posterior.model, few)
    if outputs.shape[1] != posterior.prior.num_outputs:
        raise ValueError(f"the network has {outputs.shape[1]} outputs, the prior {posterior.prior.num_outputs}")
    eqx.filter_eval_shape(lambda prior, x: (prior.mean_at(x), prior.variance(x), prior.gram(x)), posterior.prior, few)
    zeros = jnp.zeros(outputs.shape, outputs.dtype)
    eqx.filter_eval_shape(lambda likelihood, f: likelihood.noise_variance(f), posterior.likelihood, zeros)


def check_trained(trained: Trained) -> None:
    """Every part has its type, and the history is as long in each of its columns."""
    _check_types(trained, model=Model, likelihood=Likelihood, history=History, jitter=float)
    if trained.history.negative_log_likelihood.shape != trained.history.half_squared_norm.shape:
        raise ValueError("the history's columns have different lengths")


def _check_types(holder: object, **wanted: type) -> None:
    for name, kind in wanted.items():
        if not isinstance(getattr(holder, name), kind):
            seen = type(getattr(holder, name)).__name__
            raise ValueError(f"{name} is a {seen} instead of a {kind.__name__}")
