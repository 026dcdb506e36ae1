"""Tuning kernel and noise after training, by the evidence of the Laplace approximation."""

import math
import time
import warnings
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, checked
from fsplaplace.context import Sampler
from fsplaplace.host import one_blas_thread, resolve_budget, to_double
from fsplaplace.laplace import Posterior, fit_posterior, laplace
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.networks import Model
from fsplaplace.observations import Observation
from fsplaplace.operators import value as identity
from fsplaplace.prior import Prior
from fsplaplace.training import check_problem, observed_rows
from fsplaplace.tuning._fit_prior import with_log_scale
from fsplaplace.tuning._linearised import Kind, LinearisedModel, linearise, log_evidence_and_misfit
from fsplaplace.tuning._optimize import Box, maximize
from fsplaplace.tuning._parameters import ParameterSpace
from fsplaplace.tuning._report import FitReport, bound_notes, parameter_rows
from fsplaplace.tuning._starts import redundant_parameters

# How far from its value before a parameter may move, as a factor.
_REACH = 30.0
# The misfit to the noise may grow by a tenth before it costs evidence: the start is not at the edge.
_SLACK = 1.1
# Context points of a round of `tune_and_train`: as `laplace` takes by default, since each round compares its evidence only.
_NUM_CONTEXT = 500
# The name of the scale of the noise of values.
_OF_VALUES = "likelihood.scale"


class Tuned(eqx.Module):
    """The outcome of tuning.

    Attributes:
        posterior: under the tuned prior and likelihoods.
        prior: the tuned prior.
        likelihood: of values, tuned.
        report: prints as a table.
        also: the tuned likelihoods of further observations, in their order.
    """

    posterior: Posterior
    prior: Prior
    likelihood: Likelihood
    report: FitReport
    also: tuple[Likelihood, ...] = ()

    def __str__(self) -> str:
        return str(self.report)


@checked
def tune(
    posterior: Posterior,
    X: ArrayLike | None,
    y: ArrayLike | None = None,
    *,
    also: Sequence[Observation] | None = None,
    fit_noise: bool = True,
    max_steps: int = 50,
    memory_budget: float | None = None,
    **laplace_options,
) -> Tuned:
    r"""Kernel, mean and noise parameters that maximise the log evidence of a posterior in covariance form.

    $$\log p(y \mid \theta) \approx \log p(y \mid f^\star) - \tfrac12 \lVert z^\star \rVert^2 - \tfrac12 \log\det A,$$

    the network staying as it is. The evidence depends on the kernel only through the r x r prior covariance of the
    directions that the data sees, so no step passes through the network. It never ends below where it began, and
    gains nothing from a prior that the network holds clearly worse than the present one, relative to the noise: the evidence of
    features that cannot follow the prior rewards small noise and short length scales where the exact one does not.

    Args:
        posterior: made by `fsplaplace.laplace` with form="covariance".
        X: inputs of the data it was made from; None if nothing but `also` was observed.
        y: their targets.
        also: the observations it was made from: the weights of residuals, slopes and sums follow from the evidence. Operators
            that are not linear are linearised at the posterior's mean.
        fit_noise: also tune the scale of Gaussian likelihoods (one, or one per output; scales per row are kept).
        max_steps: of L-BFGS.
        memory_budget: bytes; a quarter of RAM by default.
        laplace_options: passed on to `fsplaplace.laplace` for the posterior that is returned, such as `mean`.

    Parameters stay within a factor of 30 of their values; a warning names those that reach it. Parameters wrapped in
    `paramax.non_trainable` are kept.

    Time: two Jacobians and one N x N eigenproblem for N context rows, then $O(m^2 q r + r^3)$ per step.

    Examples:
        >>> tuned = fsp.tune(posterior, X, y, max_steps=3)
        >>> bool(tuned.posterior.log_evidence >= posterior.log_evidence)
        True
    """
    began = time.perf_counter()
    if posterior.diagnostics.form != "covariance":
        raise ValueError(
            f"tune: the posterior is in {posterior.diagnostics.form} form, which has no evidence to tune; pass "
            "form='covariance' to laplace"
        )
    prior, likelihood = posterior.prior, posterior.likelihood
    observations = tuple(also or ())
    kinds, likelihoods = _kinds(posterior, X, y, observations)
    scales = {
        name: np.asarray(each.scale, dtype=float)
        for name, each in likelihoods.items()
        if fit_noise and isinstance(each, Gaussian) and not each.per_row
    }
    with one_blas_thread():
        linearised = linearise(
            posterior.model, posterior.context_points, kinds,
            delta=float(posterior.diagnostics.delta), missed_as_noise=posterior.diagnostics.missed_as_noise,
            budget=resolve_budget(memory_budget),
        )  # fmt: skip
        with jax.enable_x64(True):
            double = to_double(prior)
            space = ParameterSpace(double, skip=redundant_parameters(double), profile_mean=False)
            start, box = _around(space, scales)
            evidence = _Evidence(
                space, linearised, to_double(tuple(likelihoods.values())), _fitted(likelihoods, scales), jnp.inf
            )
            at_start = float(_parts(jnp.asarray(start), evidence)[1])
            evidence = eqx.tree_at(lambda tree: tree.allowed, evidence, _SLACK * at_start)
            best = maximize(evidence, start, box, max_steps=max_steps)
            value = float(_parts(jnp.asarray(best.vector), evidence)[0])
    if not np.isfinite(best.value):
        raise FloatingPointError(
            "tune: the evidence is not finite at the posterior's own prior; check X, y and the prior"
        )
    tuned = space.fitted(best.vector[: space.size], np.zeros(0), prior)
    place = space.size
    for name, scale in scales.items():
        likelihoods[name] = with_log_scale(likelihoods[name], best.vector[place : place + scale.size])
        place += scale.size
    rows = parameter_rows(
        space, prior, best.vector, np.full(start.size, np.nan), box, noise_scale=None, further_scales=scales
    )
    notes = bound_notes(rows)
    for note in notes:
        warnings.warn(f"tune: {note}", UserWarning, stacklevel=2)
    num_rows = sum(kind.inputs.shape[0] for kind in kinds)
    report = FitReport(
        rows=rows, objective="log evidence", value=value, trace=best.trace, restarts=(value,),
        restart_rows=num_rows, num_rows=num_rows, method=best.method, evaluations=best.evaluations,
        seconds=time.perf_counter() - began, notes=tuple(notes),
    )  # fmt: skip
    likelihood = likelihoods.pop(_OF_VALUES, likelihood)
    further = tuple(likelihoods.values())
    observations = [
        eqx.tree_at(lambda one: one.likelihood, each, fitted)
        for each, fitted in zip(observations, further, strict=True)
    ]
    used = posterior.diagnostics
    options = {
        "context_points": posterior.context_points, "delta": used.delta, "missed_as_noise": used.missed_as_noise,
        **laplace_options,
    }  # fmt: skip
    fresh = laplace(posterior.model, tuned, likelihood, X, y, also=observations, memory_budget=memory_budget, **options)
    return Tuned(fresh, tuned, likelihood, report, further)


def _kinds(
    posterior: Posterior, X, y, observations: tuple[Observation, ...]
) -> tuple[list[Kind], dict[str, Likelihood]]:
    """The data, kind by kind, and their likelihoods by name."""
    model, prior, likelihood = posterior.model, posterior.prior, posterior.likelihood
    kinds, likelihoods = [], {}
    if X is not None:
        kinds.append(Kind(identity, *check_problem(model, prior, likelihood, X, y)))
        likelihoods[_OF_VALUES] = likelihood
    for number, each in enumerate(observations):
        rows = observed_rows(model, prior, each, f"also[{number}]")
        operator = rows.operator if rows.operator.linear else posterior.tangent(rows.operator)
        kinds.append(Kind(operator, rows.X, rows.targets))
        likelihoods[f"also[{number}].scale"] = each.likelihood
    if not kinds:
        raise ValueError(
            "tune: X is None and there are no observations; pass the data that the posterior was made from"
        )
    return kinds, likelihoods


def _fitted(likelihoods: dict[str, Likelihood], scales: dict[str, np.ndarray]) -> tuple[bool, ...]:
    return tuple(name in scales for name in likelihoods)


@checked
def tune_and_train(
    model: Model,
    prior: Prior,
    likelihood: Likelihood,
    context: Sampler,
    X: ArrayLike,
    y: ArrayLike,
    *,
    key: KeyLike,
    rounds: int = 3,
    steps: int = 2000,
    **train_options,
) -> Tuned:
    """Alternate between training the weights under the current prior and tuning the prior under the current weights.

    Args:
        model: as in `fsplaplace.train`.
        prior: as in `fsplaplace.train`.
        likelihood: as in `fsplaplace.train`.
        context: as in `fsplaplace.train`.
        X: as in `fsplaplace.train`.
        y: as in `fsplaplace.train`.
        train_options: further options of `fsplaplace.train`.
        rounds: how often; each round trains for `steps` steps from the weights of the last, then calls `tune`.

    Returns what the last `tune` gave; `posterior.model` is the trained network.
    """
    if rounds < 1:
        raise ValueError(f"tune_and_train: rounds is {rounds}; pass 1 or more")
    result = None
    for round_key in jr.split(key, rounds):
        fitted = fit_posterior(
            model, prior, likelihood, context, X, y,
            key=round_key, num_points=_NUM_CONTEXT, fit_noise=False, hold_out=False, training={"steps": steps, **train_options},
        )  # fmt: skip
        result = tune(fitted.posterior, X, y)
        model, prior, likelihood = fitted.trained.model, result.prior, result.likelihood
    assert result is not None
    return result


class _Evidence(eqx.Module):
    """The log evidence as a function of one vector: the prior's parameters, then logarithms of the scales of noise that are fitted.

    Less half of what the misfit to the noise (`log_evidence_and_misfit`) exceeds `allowed` by, per datum, as in the
    variational bound of sparse Gaussian processes: a prior that the network cannot hold has no evidence to gain here.
    """

    space: ParameterSpace
    linearised: LinearisedModel
    likelihoods: tuple[Likelihood, ...]
    fit_noise: tuple[bool, ...] = eqx.field(static=True)
    allowed: float

    def __call__(self, vector):
        value, gradient = _value_and_gradient(jnp.asarray(vector), self)
        return float(value), np.asarray(gradient)


@eqx.filter_jit
def _value_and_gradient(vector, evidence: _Evidence):
    def value(vector):
        log_evidence, misfit = _parts(vector, evidence)
        excess = jnp.maximum(misfit - evidence.allowed, 0.0)
        targets = sum(math.prod(kind.features.shape[:2]) for kind in evidence.linearised.kinds)
        return log_evidence - 0.5 * targets * excess

    return eqx.filter_value_and_grad(value)(vector)


@eqx.filter_jit
def _parts(vector, evidence: _Evidence):
    """Log evidence and misfit to the noise; the latter is zero where no likelihood has noise."""
    prior, place, likelihoods = evidence.space.to_prior(vector[: evidence.space.size]), evidence.space.size, []
    for likelihood, fitted in zip(evidence.likelihoods, evidence.fit_noise, strict=True):
        if fitted:
            # In place of the wrapper, too: that of a scale which is not learnable stops gradients.
            (leaf,) = jax.tree.leaves(likelihood)
            scale = vector[place : place + leaf.size].reshape(leaf.shape)
            place += leaf.size
            likelihood = eqx.tree_at(lambda tree: tree.log_scale, likelihood, scale)
        likelihoods.append(likelihood)
    return log_evidence_and_misfit(evidence.linearised, prior, likelihoods)


def _around(space: ParameterSpace, scales: dict[str, np.ndarray]) -> tuple[np.ndarray, Box]:
    """The present values, and a box around them."""
    start = space.to_vector(space.values(space.prior))
    positive = np.array([place.positive for place in space.places for _ in range(place.size)], dtype=bool)
    reach = np.where(positive, math.log(_REACH), 10.0 * (1.0 + np.abs(start)))
    for noise_scale in scales.values():
        start = np.append(start, np.log(noise_scale).ravel())
        reach = np.append(reach, np.full(np.size(noise_scale), math.log(_REACH)))
        positive = np.append(positive, np.full(np.size(noise_scale), True))
    return start, Box(start - reach, start + reach, np.where(positive, 1.0, 0.1 * reach))
