"""Tuning kernel and noise after training, by the evidence of the Laplace approximation."""

import math
import time
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import ArrayLike

from fsplaplace.context import Sampler
from fsplaplace.host import one_blas_thread, resolve_budget, to_double
from fsplaplace.laplace import Posterior, fit_posterior, laplace
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.networks import Model
from fsplaplace.prior import Prior
from fsplaplace.training import check_problem
from fsplaplace.tuning._fit_prior import with_log_scale
from fsplaplace.tuning._linearised import LinearisedModel, linearise, log_evidence, log_evidence_and_misfit
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


class Tuned(eqx.Module):
    """The `posterior` under the tuned `prior` and `likelihood`, and a `report` that prints as a table."""

    posterior: Posterior
    prior: Prior
    likelihood: Likelihood
    report: FitReport

    def __str__(self) -> str:
        return str(self.report)


def tune(
    posterior: Posterior,
    X: ArrayLike,
    y: ArrayLike,
    *,
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
        X: the inputs it was made from.
        y: the targets it was made from.
        fit_noise: also tune the scale of a Gaussian likelihood (one, or one per output; scales per row are kept).
        max_steps: of L-BFGS.
        memory_budget: bytes; a quarter of RAM by default.
        laplace_options: passed on to `fsplaplace.laplace` for the posterior that is returned, such as `mean`.

    Parameters stay within a factor of 30 of their values; a warning names those that reach it. Parameters wrapped in
    `paramax.non_trainable` are kept.

    Time: two Jacobians and one N x N eigenproblem for N context rows, then $O(m^2 q r + r^3)$ per step.
    """
    began = time.perf_counter()
    if not isinstance(posterior, Posterior):
        raise TypeError(f"tune: posterior must be a Posterior, but got {type(posterior).__name__}; call laplace first")
    if posterior.diagnostics.form != "covariance":
        raise ValueError(
            f"tune: the posterior is in {posterior.diagnostics.form} form, which has no evidence to tune; pass "
            "form='covariance' to laplace"
        )
    if max_steps < 1:
        raise ValueError(f"tune: max_steps is {max_steps}; pass 1 or more")
    prior, likelihood = posterior.prior, posterior.likelihood
    inputs, targets = check_problem(posterior.model, prior, likelihood, X, y)
    noise_scale = None
    if isinstance(likelihood, Gaussian) and fit_noise and not likelihood.per_row:
        noise_scale = np.asarray(likelihood.scale, dtype=float)
    with one_blas_thread():
        linearised = linearise(
            posterior.model, posterior.context_points, inputs, targets,
            delta=posterior.diagnostics.delta, missed_as_noise=posterior.diagnostics.missed_as_noise,
            budget=resolve_budget(memory_budget),
        )  # fmt: skip
        with jax.enable_x64(True):
            double = to_double(prior)
            space = ParameterSpace(double, skip=redundant_parameters(double), profile_mean=False)
            start, box = _around(space, noise_scale, np.asarray(linearised.targets))
            evidence = _Evidence(space, linearised, to_double(likelihood), noise_scale is not None, jnp.inf)
            at_start = float(_parts(jnp.asarray(start), evidence)[1])
            evidence = eqx.tree_at(lambda tree: tree.allowed, evidence, _SLACK * at_start)
            best = maximize(evidence, start, box, max_steps=max_steps)
            value = float(_parts(jnp.asarray(best.vector), evidence)[0])
    if not np.isfinite(best.value):
        raise FloatingPointError(
            "tune: the evidence is not finite at the posterior's own prior; check X, y and the prior"
        )
    tuned = space.fitted(best.vector[: space.size], np.zeros(0), prior)
    if noise_scale is not None:
        likelihood = with_log_scale(likelihood, best.vector[space.size :])
    rows = parameter_rows(space, prior, best.vector, np.full(start.size, np.nan), box, noise_scale=noise_scale)
    notes = bound_notes(rows)
    for note in notes:
        warnings.warn(f"tune: {note}", UserWarning, stacklevel=2)
    report = FitReport(
        rows=rows, objective="log evidence", value=value, trace=best.trace, restarts=(value,),
        restart_rows=inputs.shape[0], num_rows=inputs.shape[0], method=best.method, evaluations=best.evaluations,
        seconds=time.perf_counter() - began, notes=tuple(notes),
    )  # fmt: skip
    used = posterior.diagnostics
    options = {
        "context_points": posterior.context_points, "delta": used.delta, "missed_as_noise": used.missed_as_noise,
        **laplace_options,
    }  # fmt: skip
    fresh = laplace(posterior.model, tuned, likelihood, X, y, memory_budget=memory_budget, **options)
    return Tuned(fresh, tuned, likelihood, report)


def tune_and_train(
    model: Model,
    prior: Prior,
    likelihood: Likelihood,
    context: Sampler,
    X: ArrayLike,
    y: ArrayLike,
    *,
    key: PRNGKeyArray,
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
            key=round_key, num_points=_NUM_CONTEXT, grow_noise=False, training={"steps": steps, **train_options},
        )  # fmt: skip
        result = tune(fitted.posterior, X, y)
        model, prior, likelihood = fitted.trained.model, result.prior, result.likelihood
    assert result is not None
    return result


class _Evidence(eqx.Module):
    """The log evidence as a function of one vector: the prior's parameters, then logarithms of the noise scale.

    Less half of what the misfit to the noise (`log_evidence_and_misfit`) exceeds `allowed` by, per datum, as in the
    variational bound of sparse Gaussian processes: a prior that the network cannot hold has no evidence to gain here.
    """

    space: ParameterSpace
    linearised: LinearisedModel
    likelihood: Likelihood
    fit_noise: bool = eqx.field(static=True)
    allowed: float

    def __call__(self, vector):
        value, gradient = _value_and_gradient(jnp.asarray(vector), self)
        return float(value), np.asarray(gradient)


@eqx.filter_jit
def _value_and_gradient(vector, evidence: _Evidence):
    def value(vector):
        log_evidence, misfit = _parts(vector, evidence)
        excess = jnp.maximum(misfit - evidence.allowed, 0.0)
        return log_evidence - 0.5 * math.prod(evidence.linearised.features.shape[:2]) * excess

    return eqx.filter_value_and_grad(value)(vector)


@eqx.filter_jit
def _parts(vector, evidence: _Evidence):
    """Log evidence and misfit to the noise; the latter is zero where the likelihood has no noise."""
    prior, likelihood = evidence.space.to_prior(vector[: evidence.space.size]), evidence.likelihood
    if not isinstance(likelihood, Gaussian):
        return log_evidence(evidence.linearised, prior, likelihood), jnp.zeros(())
    if evidence.fit_noise:
        # In place of the wrapper, too: that of a scale which is not learnable stops gradients.
        (leaf,) = jax.tree.leaves(likelihood)
        scale = vector[evidence.space.size :].reshape(leaf.shape)
        likelihood = eqx.tree_at(lambda tree: tree.log_scale, likelihood, scale)
    return log_evidence_and_misfit(evidence.linearised, prior, likelihood)


def _around(space: ParameterSpace, noise_scale, targets) -> tuple[np.ndarray, Box]:
    """The present values, and a box around them."""
    start = space.to_vector(space.values(space.prior))
    positive = np.array([place.positive for place in space.places for _ in range(place.size)], dtype=bool)
    reach = np.where(positive, math.log(_REACH), 10.0 * (1.0 + np.abs(start)))
    if noise_scale is not None:
        start = np.append(start, np.log(noise_scale).ravel())
        reach = np.append(reach, np.full(np.size(noise_scale), math.log(_REACH)))
        positive = np.append(positive, np.full(np.size(noise_scale), True))
    return start, Box(start - reach, start + reach, np.where(positive, 1.0, 0.1 * reach))
