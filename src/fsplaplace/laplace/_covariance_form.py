"""The covariance form: pull the prior's covariance back to the weights, then condition on the data."""

import functools

import equinox as eqx
import numpy as np
from jaxtyping import Float

from fsplaplace.host import itemsize, to_device
from fsplaplace.laplace import _mode as _glm
from fsplaplace.laplace._data import Rows
from fsplaplace.laplace._diagnostics import (
    MOST_POINTS,
    Diagnostics,
    Stages,
    missed_variance,
    stack,
    subset,
    variance_ratios,
)
from fsplaplace.laplace._features import data_blocks, join
from fsplaplace.laplace._noise import NoiseEvidence
from fsplaplace.laplace._plan import choose_solver
from fsplaplace.laplace._posterior import Posterior
from fsplaplace.laplace._pull_back import PullBack, candidate_deltas, solve
from fsplaplace.laplace._reference import MEAN_JITTER, judges_at, score_means
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.networks import Model
from fsplaplace.prior import Prior, PriorFactor
from fsplaplace.prior import moments as _prior_moments

# Guard points times outputs that the ridge is chosen on: enough to rank ridges, small enough to be free.
_MOST_GUARD_ROWS = 400
# Context points times outputs at which the two means are compared as well.
_MOST_WITNESS_ROWS = 200
# Directions of the prior below this relative size are dropped, or smaller ones where the noise would show them:
# together they hold at most this share of the noise variance at a point.
_RTOL = 1e-6
_SMALLEST_RTOL = 1e-12
_DROPPED = 0.01
# Bytes up to which BLAS on the host has combined directions before XLA would have compiled the product.
_LARGEST_ON_HOST = 2**24
# A factor of many points is complete with all but this share of the prior variance, or less if that shows in the noise.
_MISSED = 1e-3


def covariance_form(
    model: Model, prior: Prior, likelihood: Likelihood, data: Rows, points, guards, *,
    mean: str, rank: int | None, rtol: float | None, delta: float | None, solver: str, passes: int,
    missed_as_noise: bool | None, budget: float,
) -> Posterior:  # fmt: skip
    """Steps 1 to 6 of the covariance form; see `fsplaplace.laplace`."""
    stages = Stages()
    known_points, training_points = subset(points), data.spread(MOST_POINTS).inputs
    places = {"context": known_points, "guard": subset(guards), "training": training_points}
    stated = _prior_moments.variance(prior, stack({"all": points, **places}))
    rtol = _below_noise(likelihood, stated[: points.shape[0]]) if rtol is None else rtol
    captured = 1 - min(_MISSED, rtol * points.shape[0] * prior.num_outputs)
    factor = prior.factor(points, rank=rank, rtol=rtol, captured=captured, memory_budget=budget)
    stages.finish("prior factor", 2 * factor.columns.nbytes)

    solver = choose_solver(points.shape[0] * prior.num_outputs, model.num_params, itemsize(model.dtype), solver, budget)
    witnesses = slice(None, None, -(-known_points.shape[0] * prior.num_outputs // _MOST_WITNESS_ROWS))
    judged = guards[: max(1, _MOST_GUARD_ROWS // prior.num_outputs)]
    judges = judges_at(prior, likelihood, data, judged, np.asarray(known_points)[witnesses])
    task = PullBack(
        model, points, _prior_moments.mean(prior, points), np.asarray(factor.columns), judges, places,
        candidate_deltas(model.dtype) if delta is None else (delta,), missed_as_noise, passes, budget,
    )  # fmt: skip
    pulled = solve(task, solver)
    directions, seen = pulled.directions, pulled.seen
    stages.finish(f"pull-back ({solver})", _pull_back_bytes(factor, directions, solver, passes))

    training = seen.rows(slice(-training_points.shape[0], None))
    blocks = data_blocks(
        model, likelihood, data, directions,
        prior=prior, budget=budget, known=training if training_points.shape[0] == data.num_rows else None,
        missed=functools.partial(missed_variance, prior) if pulled.missed_as_noise else None,
    )  # fmt: skip
    noise = NoiseEvidence() if isinstance(likelihood, Gaussian) else None
    mode = _glm.posterior_mode(noise.watch(blocks) if noise else blocks, directions.shape[0] - 1)
    log_evidence = -mode.value - 0.5 * np.linalg.slogdet(mode.precision)[1]
    stages.finish("data", data.num_rows * prior.num_outputs * directions.shape[0] * 8)

    # The shift to the mode takes the place of the shift to the prior mean, in the last row.
    to_mode = np.append(mode.z, 1.0)
    ratios = variance_ratios(stated[points.shape[0] :], places, seen.features[:, :, :-1])
    first = known_points.shape[0]
    at_judges = join([seen.rows(slice(first, first + judged.shape[0])), seen.rows(slice(first)).rows(witnesses)])
    means = {"network": at_judges.outputs, "refined": at_judges.outputs + at_judges.features @ to_mode}
    criterion, objectives = score_means(prior, judges, means, mode)
    chosen = mean if mean != "auto" else min(objectives, key=lambda name: objectives[name])
    stages.finish("diagnostics", seen.features.nbytes)

    precision = mode.precision
    if chosen == "network" and not isinstance(likelihood, Gaussian):
        # The curvature belongs where the mean is: at the network's own outputs. A Gaussian's is the same everywhere.
        precision = _glm.posterior_precision(_glm.at_network(blocks), np.zeros_like(mode.z))
    # Padded directions have no part in A.
    eigenvalues, eigenvectors = np.linalg.eigh(precision[: factor.rank, : factor.rank])
    root = eigenvectors / np.sqrt(eigenvalues)
    scale, shift = _posterior_weights(directions, root, to_mode * (chosen == "refined"))
    stages.finish("posterior", 2 * scale.nbytes)
    return Posterior(
        model=model,
        prior=prior,
        likelihood=likelihood,
        scale=scale,
        shift=shift,
        information=to_device(eigenvalues, model.dtype),
        context_points=points,
        log_evidence=to_device(log_evidence, model.dtype),
        diagnostics=Diagnostics(
            form="covariance", solver=solver, factorisation=factor.method, mean=chosen, rank=factor.rank,
            captured=factor.captured, pull_back_residual=pulled.misfit, ratios=ratios, criterion=criterion,
            objectives=objectives, jitter=MEAN_JITTER, delta=pulled.delta,
            missed_as_noise=pulled.missed_as_noise,
            noise_factor=noise.best_factor(eigenvalues, eigenvectors) if noise else None, stages=stages.records,
        ),
    )  # fmt: skip


def _below_noise(likelihood: Likelihood, stated: Float[np.ndarray, "m q"]) -> float:
    """Relative size of the directions that may be dropped: together less than a hundredth of the noise at any point.

    The largest eigenvalue is at most the trace.
    """
    if not isinstance(likelihood, Gaussian):
        return _RTOL
    noise = float(np.min(np.asarray(likelihood.scale))) ** 2
    trace = float(np.sum(stated))
    return float(np.clip(_DROPPED * noise / trace, _SMALLEST_RTOL, _RTOL)) if trace > 0 else _RTOL


def _pull_back_bytes(factor: PriorFactor, directions, solver: str, passes: int) -> int:
    if solver == "golub-kahan":
        return (passes + 2) * directions.nbytes
    if solver == "normal-equations":
        return 2 * 8 * directions.shape[1] ** 2 + 4 * directions.nbytes
    rows, number = factor.columns.shape[0] * factor.columns.shape[1], directions.dtype.itemsize
    return rows * directions.shape[1] * (8 + number) + 2 * directions.nbytes


def _posterior_weights(directions, root: Float[np.ndarray, "r r"], to_mean: Float[np.ndarray, " k+1"]):
    """S^T, rows s_j with S S^T = S_0 A^{-1} S_0^T, and the shift, from a root of A^{-1}."""
    # Over all directions, those without a part as zeros: a slice of them would be one more copy.
    rotation = np.pad(root.T, ((0, 0), (0, directions.shape[0] - root.shape[0]))).astype(directions.dtype)
    to_mean = to_mean.astype(directions.dtype)
    if directions.nbytes > _LARGEST_ON_HOST:
        return _combine(directions, to_device(rotation), to_device(to_mean))
    return tuple(to_device(part @ np.asarray(directions)) for part in (rotation, to_mean))


@eqx.filter_jit
def _combine(directions, rotation, to_mean):
    return rotation @ directions, to_mean @ directions
