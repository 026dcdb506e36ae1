"""The checks that training, the Laplace approximation and the baselines share."""

import math

import equinox as eqx
import jax
import numpy as np
from gpjax.mean_functions import Zero
from jax.core import Tracer
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import check_squares
from fsplaplace.host import cast, to_device
from fsplaplace.likelihoods import FromLogDensity, Likelihood
from fsplaplace.networks import Model, warn_if_coarse, warn_if_coarse_targets
from fsplaplace.prior import Prior

_IMAGE_ADVICE = "; if these are images, check their size, and whether the network wants channels first or last"
# Rows at which functions of the user's are looked at before anything is computed.
_PROBED = 3


def check_problem(
    model: Model, prior: Prior | None, likelihood: Likelihood, X: ArrayLike, y: ArrayLike
) -> tuple[Float[Array, "n ..."], Array]:
    """Inputs and targets ready for computation, or an error that names the object, what was seen and what to change."""
    check_types(model, prior, likelihood)
    inputs = model.check_inputs(X)
    if not isinstance(X, Tracer):
        warn_if_coarse(np.asarray(X), model.dtype, origin=model.origin)
    targets = likelihood.check_targets(y, num_rows=inputs.shape[0])
    if targets.dtype.kind == "f":
        if not isinstance(targets, Tracer):
            warn_if_coarse_targets(targets, model.dtype)
        check_squares(targets, f"{type(likelihood).__name__}: y", model.dtype)
    targets = cast(to_device(targets), model.dtype)
    check_widths(model, prior, likelihood, inputs, targets)
    return inputs, targets


def check_types(model, prior, likelihood) -> None:
    """Refuse what is not a model, a prior and a likelihood, by the argument's name."""
    for value, kind, argument in (
        (model, Model, "model"),
        (prior, Prior, "prior"),
        (likelihood, Likelihood, "likelihood"),
    ):
        if value is not None and not isinstance(value, kind):
            hint = "; wrap the network with fsplaplace.as_model" if kind is Model else ""
            raise TypeError(f"{argument} must be a {kind.__name__}, but got {type(value).__name__}{hint}")


def check_widths(model: Model, prior: Prior | None, likelihood: Likelihood, X, targets) -> None:
    """Refuse a network whose number of outputs is not what prior and likelihood call for."""
    try:
        width = model.num_outputs(X)
    except (TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        raise ValueError(
            f"{model.name} cannot take X with rows of shape {X.shape[1:]}: {str(error).splitlines()[0]}"
            + _IMAGE_ADVICE * (X.ndim > 2)
        ) from error
    model.check_weights()
    model.check_rows_independent(X)
    if prior is not None and width != prior.num_outputs:
        raise ValueError(
            f"{model.name} has {width} outputs, but the prior has {prior.num_outputs}; change the network's last layer, or "
            f"pass num_outputs={width} to Prior"
        )
    wanted = likelihood.num_outputs(targets)
    if wanted is not None and wanted != width:
        operator = model.operator_name
        seen, change = (model.name, "the network's last layer") if operator is None else (operator, "the operator")
        raise ValueError(
            f"{seen} has {width} outputs, but {type(likelihood).__name__} needs {wanted} for this y; change {change} or the shape of y"
        )
    if isinstance(X, Tracer) or isinstance(targets, Tracer):
        return
    if prior is not None:
        _check_prior(prior, X)
    if isinstance(likelihood, FromLogDensity) or not type(likelihood).__module__.startswith("fsplaplace."):
        rows = np.arange(min(_PROBED, X.shape[0]))
        likelihood.rows(rows).check_density(model(X[rows]), targets[rows])


def _check_prior(prior: Prior, X) -> None:
    """Refuse a kernel for other columns, one of a size that cannot be computed with, and a mean that is not finite."""
    prior.check_columns(math.prod(X.shape[1:]))
    prior.check_parameters()
    if isinstance(prior.mean, Zero):
        return
    try:
        eqx.filter_eval_shape(prior.mean_at, X[:_PROBED])
    except jax.errors.JAXTypeError as error:
        reason = str(error).splitlines()[0]
        raise TypeError(f"Prior: mean cannot be compiled by JAX ({reason}); write it with jax.numpy") from error
    if not np.all(np.isfinite(np.asarray(prior.mean_at(X[:_PROBED])))):
        raise ValueError("Prior: mean is NaN or infinite at the first rows of X; check the function or the number")
