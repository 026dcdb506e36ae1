"""The Laplace approximation under a Gaussian-process prior: one entry for both forms."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import jax.random as jr
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, Range, as_key, checked
from fsplaplace.host import one_blas_thread, ready_to_compute, resolve_budget
from fsplaplace.laplace._choices import Options, num_training
from fsplaplace.laplace._contradictions import unmet_by, warn_if_kinds_contradict
from fsplaplace.laplace._covariance_form import covariance_form
from fsplaplace.laplace._data import Rows, check_rows, first_rows
from fsplaplace.laplace._leave_one_out import Told
from fsplaplace.laplace._observed import (
    Observed,
    all_inputs,
    hardly_noisy,
    observe,
    warn_if_contradictory,
    warn_if_outside,
)
from fsplaplace.laplace._posterior import Posterior, remember
from fsplaplace.laplace._precision_form import precision_form
from fsplaplace.laplace._problem import Problem, default_context, default_guards, distinct, with_training
from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import Model
from fsplaplace.observations import Observation
from fsplaplace.prior import Prior
from fsplaplace.training import bring_all_near, check_types


@checked(ranges={"data_share": Range("above 0 and at most 1", above=0, most=1)})
def laplace(
    model: Model,
    prior: Prior,
    likelihood: Likelihood,
    X: ArrayLike | Iterable | None,
    y: ArrayLike | None = None,
    *,
    also: Sequence[Observation] | None = None,
    context_points: ArrayLike | None = None,
    form: Literal["covariance", "precision"] = "covariance",
    mean: Literal["auto", "network", "refined"] = "auto",
    rank: int | None = None,
    rtol: float | None = None,
    delta: float | None = None,
    solver: Literal["auto", "dense", "normal-equations", "golub-kahan"] = "auto",
    passes: int = 3,
    guard_points: ArrayLike | None = None,
    include_training: bool = True,
    missed_as_noise: bool | None = None,
    data_share: float = 1.0,
    memory_budget: float | None = None,
    key: KeyLike | None = None,
) -> Posterior:
    r"""The posterior over the weights of a trained network under the prior, linearised at those weights.

    The covariance form (default) pulls the prior's covariance at the context points back to the weights,

    $$S_0 = J_C^\top (J_C J_C^\top + \delta \lVert J_C \rVert^2 I)^{-1} B, \quad B B^\top \approx \Sigma(C, C), \qquad
    A = I + \sum_i (J_i S_0)^\top H_i (J_i S_0), \qquad \mathrm{Cov}[w] = S_0 A^{-1} S_0^\top,$$

    and never exceeds the prior it starts from. The precision form is the paper's Algorithm 2.

    Args:
        model: the trained network (by `fsplaplace.train` or elsewhere). Not changed.
        prior: the Gaussian-process prior, as in `fsplaplace.train`.
        likelihood: of the targets given the outputs, as in `fsplaplace.train`.
        X: inputs, (n, ...), which may be memory-mapped; or an iterable of (X, y) batches that starts anew each time it is
            iterated over (a list, a torch DataLoader). What does not fit is read again for each pass, in blocks; memory
            does not grow with n. None if nothing but `also` was observed.
        y: targets; left out if X has batches.
        also: what was observed of the function besides its values: derivatives, integrals, residuals of a differential
            equation. Linear operators condition exactly, others by their tangent at the mode (Gauss-Newton). Their inputs
            are treated like X.
        context_points: where the prior is enforced, (m, ...): cover every place you will predict at, and include the
            training inputs. Repeated points count once. By default 500 points of `context.throughout(X)` and the
            training inputs, see `include_training`.
        form: "covariance", or "precision" for the paper's algorithm.
        mean: what `predict` returns as mean: the network's output; the mode of the linearised model ("refined"), which
            finishes what training left undone; or the better of the two at guard and context points ("auto"): the one
            closer to the exact Gaussian process given the data, or 1,000 of more than 2,000 targets (Gaussian likelihood),
            else the one with the lower training objective. The precision form has the network's only.
        rank: the most directions to keep, over all outputs together: 500 are 50 for each of ten classes. No limit by default up
            to 2,000 context points. Beyond, 500 for each output, or 2,000 in all if the noise is Gaussian and the network has up
            to 4,000 weights. For a network with convolutions 50 for each output if points times outputs are more than 2,000:
            what they miss of the prior stays unknown to the data. Fewer if they have 99.9 % of the prior
            variance at those points (more, if what is missed would show in Gaussian noise). `diagnostics.captured` says what
            was reached, and a `CapacityWarning` if that is too little. More than there are has no effect.
        rtol: relative size below which directions of the prior are dropped. By default 1e-6, or less where Gaussian noise
            is so small that a hundredth of its variance would be dropped.
        delta: relative ridge of the pull-back. By default the power of ten for which the posterior at the guard points,
            given up to 300 of the data, diverges least from the exact Gaussian process's (Gaussian likelihood, dense
            solver), or the covariance implied there is closest to the prior's: 1e-12 to 1e-10 where the features can hold
            the prior, larger where they would otherwise oscillate between context points.
        solver: "dense" (an N x p Jacobian and an N x N eigenproblem), "normal-equations" (one pass in blocks and p x p
            problems: many context points, few weights), "golub-kahan" (matrix-free), or by size.
        passes: blocks of the matrix-free basis.
        guard_points: points off the context set at which the implied prior is compared with the kernel, the two means
            are compared, and the precision form's variance is bounded (only if given here, there). By default 200
            points, two thirds between pairs of context points, the rest between neighbouring training inputs.
        include_training: add training inputs to the context points of the covariance form, up to 2,000 rows (points times
            outputs) in all, and at least 500: the prior must hold where the data are.
        missed_as_noise: add the prior variance that the features miss at a training input,
            $\max(0, k(x_i, x_i) - \lVert J_i S_0 \rVert^2)$, to the variance of Gaussian noise there and of new targets, as
            the fully independent training conditional of sparse Gaussian processes does (covariance form). Without it what the
            network cannot represent is explained as function, with false confidence where the noise is small; with it,
            functions that vary smoothly through the data follow them less closely. By default what loses less against the exact
            process given some of the data (Gaussian likelihood); without one, as function by the dense solver and as noise
            by the others.
        data_share: share of the rows, chosen at random, whose likelihood stands for that of all in the curvature (and in
            the refined mean): for so many rows that one pass over them takes too long. `diagnostics.sampling_error` estimates
            the relative error that this makes.
        memory_budget: bytes any single stage may take; a quarter of RAM by default.
        key: for the default guard and context points; a fixed key by default.

    Examples:
        >>> posterior = fsp.laplace(model, prior, likelihood, X, y)
        >>> posterior.predict(X).std.shape
        (20, 1)
    """
    ready_to_compute()
    check_types(model, prior, likelihood)
    if X is None and y is not None:
        raise ValueError("laplace: X is None, but y is not; pass both, or neither and also=[Observation(...)]")
    model, prior = bring_all_near(model, prior, None if X is None else first_rows(X), tuple(also or ()))
    values = None if X is None else check_rows(model, prior, likelihood, X, y)
    observed = observe(model, prior, likelihood, values, tuple(also or ()))
    data = all_inputs(observed)
    options = Options(mean, rank, rtol, delta, solver, passes, missed_as_noise)
    _check_options(form, options)
    key = jr.key(0) if key is None else as_key(key)
    if context_points is None:
        points = default_context(model, data, key)
    else:
        points = distinct(_checked(model, context_points, data, "context_points"))
    enforced = points
    if include_training and form == "covariance":
        points = with_training(points, data, most=num_training(points.shape[0], prior.num_outputs), key=key)
    given = guard_points is not None
    guards = _checked(model, guard_points, data, "guard_points") if given else default_guards(points, data, key)
    for kind in observed:
        warn_if_outside(kind, enforced)
    # Of values alone, only those that are stated to be exact: tables may repeat rows that a fitted noise is too small for.
    if also and not any([warn_if_contradictory(kind) for kind in observed]):
        warn_if_kinds_contradict(observed, prior)
    elif not also and hardly_noisy(observed[0]):
        warn_if_contradictory(observed[0])
    budget = resolve_budget(memory_budget)
    problem = Problem(model, prior, likelihood, observed, data, points, guards, given, budget, data_share)
    with one_blas_thread(), _saying_what_is_not_finite(problem):
        posterior = precision_form(problem, rank) if form == "precision" else covariance_form(problem, options)
    _check_finite(posterior)
    posterior = _saying_what_is_not_met(posterior, observed)
    if data_share == 1.0:
        remember(posterior, tuple(Told(kind.data.remembered(), kind.likelihood) for kind in observed if kind.of_values))
    posterior.verdict.warn()
    return posterior


def _check_options(form: str, options: Options) -> None:
    if form == "precision" and options.mean == "refined":
        raise ValueError(
            "laplace: the precision form has the network's mean only; pass form='covariance' for mean='refined'"
        )


@contextmanager
def _saying_what_is_not_finite(problem: Problem) -> Iterator[None]:
    """LAPACK only says that it failed: usually because the network or the sizes in the problem are not finite."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        problem.model.check_outputs(problem.context, argument="the context points")
        raise FloatingPointError(
            f"laplace: a matrix cannot be decomposed ({error}); check the sizes of the kernel's variance, the noise and y, or run "
            "in float64"
        ) from error


def _saying_what_is_not_met(posterior: Posterior, observed: Sequence[Observed]) -> Posterior:
    """The posterior with a caution if its mean is far from an observation of an operator that is not linear."""
    unmet = [unmet_by(kind, posterior.mean_model) for kind in observed if kind.tangent]
    worst = max((each for each in unmet if each is not None), key=lambda each: each.apart / each.noise, default=None)
    if worst is None:
        return posterior
    verdict = posterior.verdict.with_caution(
        f"its mean is {worst.apart:.3g} from {worst.name}, whose noise has standard deviation {worst.noise:.2g}: other observations "
        "contradict it, or the tangents did not lead to a function that meets them all",
        "correct or remove that observation, state the noise that it has, or train longer before you call laplace",
    )
    return dataclasses.replace(posterior, diagnostics=dataclasses.replace(posterior.diagnostics, verdict=verdict))


def _check_finite(posterior: Posterior) -> None:
    """A posterior that is not finite is an error, not a result."""
    for name in ("scale", "shift", "log_evidence"):
        if not np.all(np.isfinite(np.asarray(getattr(posterior, name)))):
            raise FloatingPointError(
                f"laplace: {name} of the posterior is NaN or infinite; check the sizes of the kernel's variance, the noise and y, the "
                "sign of your own log density, or run in float64"
            )


def _checked(model: Model, points, data: Rows, argument: str) -> Float[np.ndarray, "m ..."]:
    points = np.asarray(model.check_inputs(points, argument=argument))
    if points.shape[1:] != data.row_shape:
        raise ValueError(
            f"{argument} has rows of shape {points.shape[1:]}, but X has {data.row_shape}; pass points of the same width"
        )
    return points
