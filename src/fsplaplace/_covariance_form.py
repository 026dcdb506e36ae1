"""The covariance form: pull the prior's covariance back to the weights, then condition on the data."""

import functools
from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from fsplaplace import _glm
from fsplaplace._data import View, data_blocks, join, mean_of, view
from fsplaplace._diagnostics import (
    MOST_POINTS,
    Diagnostics,
    Stages,
    missed_variance,
    stack,
    stated_variance,
    subset,
    variance_ratios,
)
from fsplaplace._jacobian import jacobian_blocks, jacobian_matrix, pull_back, push_forward
from fsplaplace._judges import MEAN_JITTER, Judges, judges_at, score_means
from fsplaplace._memory import itemsize
from fsplaplace._model import Model
from fsplaplace._noise import NoiseEvidence
from fsplaplace._plan import RANK_MULTIPLE, choose_solver, golub_kahan_bytes, golub_kahan_passes
from fsplaplace._posterior import Posterior
from fsplaplace._precision import to_device
from fsplaplace._prior import Prior, PriorFactor
from fsplaplace._rows import Rows
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.linalg import Probe, block_golub_kahan, minimum_norm_solve, normal_equations

# Guard points times outputs that the ridge is chosen on: enough to rank ridges, small enough to be free.
_MOST_GUARD_ROWS = 400
# Divergences this many times the lowest are as good: a spike of the covariance between guard points does not show in them.
_AS_GOOD = 1.2
# Context points times outputs at which the two means are compared as well.
_MOST_WITNESS_ROWS = 200
# Directions of the prior below this relative size are dropped, or smaller ones where the noise would show them:
# together they hold at most this share of the noise variance at a point.
_RTOL = 1e-6
_SMALLEST_RTOL = 1e-12
_DROPPED = 0.01
# A factor of many points is complete with all but this share of the prior variance, or less if that shows in the noise.
_MISSED = 1e-3


def covariance_form(
    model: Model, prior: Prior, likelihood: Likelihood, data: Rows, points, guards, *,
    mean: str, rank: int | None, rtol: float | None, delta: float | None, solver: str, passes: int,
    missed_as_noise: bool | None, budget: float,
) -> Posterior:  # fmt: skip
    """Steps 1 to 6 of the covariance form; see `fsplaplace.laplace`."""
    stages = Stages()
    rtol = _below_noise(prior, likelihood, points) if rtol is None else rtol
    captured = 1 - min(_MISSED, rtol * points.shape[0] * prior.num_outputs)
    factor = prior.factor(points, rank=rank, rtol=rtol, captured=captured, memory_budget=budget)
    stages.finish("prior factor", 2 * factor.columns.nbytes)

    solver = choose_solver(points.shape[0] * prior.num_outputs, model.num_params, itemsize(model.dtype), solver, budget)
    known_points = subset(points)
    witnesses = slice(None, None, -(-known_points.shape[0] * prior.num_outputs // _MOST_WITNESS_ROWS))
    judged = guards[: max(1, _MOST_GUARD_ROWS // prior.num_outputs)]
    judges = judges_at(prior, likelihood, data, judged, np.asarray(known_points)[witnesses])
    pulled = _pull_back_prior(model, prior, points, judges, factor, solver, delta, missed_as_noise, passes, budget)
    directions = pulled.directions
    stages.finish(f"pull-back ({solver})", _pull_back_bytes(factor, directions, solver, passes))

    training_points = data.spread(MOST_POINTS).inputs
    places = {"context": known_points, "guard": subset(guards), "training": training_points}
    # What the matrix-free solver has reached at the context points is not computed again.
    reached = pulled.reached
    seen = view(
        model, stack({k: x for k, x in places.items() if k != "context" or reached is None}), directions, budget=budget
    )
    if reached is not None:
        seen = join([reached, seen])
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
    ratios = variance_ratios(prior, places, seen.features[:, :, :-1])
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


def _below_noise(prior: Prior, likelihood: Likelihood, points) -> float:
    """Relative size of the directions that may be dropped: together less than a hundredth of the noise at any point.

    The largest eigenvalue is at most the trace.
    """
    if not isinstance(likelihood, Gaussian):
        return _RTOL
    noise = float(np.min(np.asarray(likelihood.scale))) ** 2
    trace = float(np.sum(np.asarray(stated_variance(prior, points), dtype=np.float64)))
    return float(np.clip(_DROPPED * noise / trace, _SMALLEST_RTOL, _RTOL)) if trace > 0 else _RTOL


class _PulledBack(NamedTuple):
    """Rows of S_0 (their number rounded up with zeros), last the shift that moves the network to the prior mean at the
    context points; how far the network's features miss the prior factor; the ridge; whether that is taken as noise; and what
    was reached at `subset(points)`, where the solver knows it."""

    directions: Float[Array, "r+1 p"]
    misfit: float
    delta: float
    missed_as_noise: bool
    reached: View | None = None


def _pull_back_prior(
    model: Model, prior: Prior, points, judges: Judges, factor: PriorFactor, solver: str, delta: float | None,
    missed_as_noise: bool | None, passes: int, budget: float,
) -> _PulledBack:  # fmt: skip
    m, q, rank = factor.columns.shape
    columns = np.asarray(factor.columns).reshape(m * q, rank)
    deltas = candidate_deltas(model.dtype) if delta is None else (delta,)
    prior_mean = np.asarray(mean_of(prior, points), dtype=np.float64)
    if solver == "dense":
        inputs, judged = _joined(np.asarray(points), judges.inputs)
        outputs, jacobian = _outputs_and_jacobian(model, inputs)
        outputs = np.asarray(outputs, dtype=np.float64)
        residual = prior_mean - outputs[:m]
        targets = np.column_stack([columns, np.zeros((m * q, -rank % RANK_MULTIPLE)), residual.ravel()])
        choice = _Choice(judges, outputs[judged].ravel(), rank, missed_as_noise)
        probes = (judged[:, None] * q + np.arange(q)).ravel()
        solution = minimum_norm_solve(jacobian, targets, deltas=deltas, choose=choice.of, probes=probes)
        directions, missed_as_noise = solution.rows, choice.missed_as_noise
    elif solver == "normal-equations":
        return _by_normal_equations(model, prior, points, judges, columns, prior_mean, deltas, missed_as_noise, budget)
    else:
        residual = prior_mean - np.asarray(model(points), dtype=np.float64)
        passes = golub_kahan_passes(passes, rank, model.num_params, m * q)
        golub_kahan_bytes(model, points, m * q, rank, passes, budget, caller="laplace")

        def forward(x):
            return lambda rows: push_forward(model, x, rows, budget=budget).reshape(x.shape[0] * q, -1)

        solution = block_golub_kahan(
            forward(points),
            lambda cotangents: pull_back(model, points, cotangents.reshape(m, q, -1), budget=budget),
            to_device(np.column_stack([columns, residual.ravel()]), model.dtype),
            passes=passes,
            deltas=deltas,
            probe=(forward(judges.points), lambda features: judges.covariance_error(features[:, :rank]))
            if delta is None
            else None,
        )
        directions = solution.rows
    misfit = np.linalg.norm(solution.reached[:, :rank] - columns) / np.linalg.norm(columns)
    # Few directions stand for many: what they miss is unrelated between data, as noise is.
    missed_as_noise = True if missed_as_noise is None else missed_as_noise
    reached = None
    if solver == "golub-kahan":
        known = View(prior_mean - residual, solution.reached.reshape(m, q, -1))
        reached = known.rows(slice(None, None, -(-m // MOST_POINTS)))
    return _PulledBack(directions, float(misfit), solution.delta, missed_as_noise, reached)


def _by_normal_equations(
    model: Model, prior: Prior, points, judges: Judges, columns, prior_mean, deltas, missed_as_noise: bool | None, budget: float
) -> _PulledBack:  # fmt: skip
    """For many context points and a network small enough for a p x p matrix: one pass over the points."""
    q, rank = prior.num_outputs, columns.shape[1]
    residual = prior_mean - np.asarray(model(points), dtype=np.float64)
    targets = np.column_stack([columns, residual.ravel()])
    guards = np.concatenate([block for _, block in jacobian_blocks(model, judges.points, budget=budget)])
    solution = normal_equations(
        (
            (block, targets[rows.start * q : rows.stop * q])
            for rows, block in jacobian_blocks(model, points, budget=budget)
        ),
        deltas=deltas,
        probe=Probe(guards, lambda features: judges.covariance_error(features[:, :rank])),
    )
    sizes = np.linalg.norm(columns, axis=0)
    misfit = np.linalg.norm(solution.misfit[:rank] * sizes) / np.linalg.norm(sizes)
    missed_as_noise = True if missed_as_noise is None else missed_as_noise
    return _PulledBack(to_device(solution.rows, model.dtype), float(misfit), solution.delta, missed_as_noise)


class _Choice:
    """Which ridge is best at the judges, and what it does with missed variance."""

    def __init__(self, judges: Judges, outputs: Float[np.ndarray, " k"], rank: int, missed_as_noise: bool | None):
        self.judges, self.outputs, self.rank = judges, outputs, rank
        self.options = (False, True) if missed_as_noise is None else (missed_as_noise,)
        self.missed_as_noise = self.options[0]

    def of(self, candidates: Iterable[Float[np.ndarray, "k r+1"]]) -> int:
        """The position of the candidate whose covariance is closest to the prior's, of those which diverge about as little
        as any from the exact process, where there is one."""
        options, divergences, errors = [], [], []
        for reached in candidates:
            features = reached[:, : self.rank]
            errors.append(self.judges.covariance_error(features[: self.judges.covariance.shape[0]]))
            if self.judges.sample is not None:
                offsets = self.outputs + reached[:, -1]
                found = {each: self.judges.divergence(offsets, features, missed_as_noise=each) for each in self.options}
                options.append(min(found, key=lambda each: found[each].forward))
                divergences.append(found[options[-1]].symmetric)
        if not divergences:
            return int(np.argmin(errors))
        as_good = np.array(divergences) <= _AS_GOOD * min(divergences)
        best = int(np.argmin(np.where(as_good, errors, np.inf)))
        self.missed_as_noise = options[best]
        return best


def _joined(points: Float[np.ndarray, "m ..."], others: Float[np.ndarray, "g ..."]):
    """The points and those of the others that are not among them, and where in that all of the others are."""
    place = {row.tobytes(): index for index, row in enumerate(points)}
    new = [row for row in others if row.tobytes() not in place]
    place.update((row.tobytes(), points.shape[0] + index) for index, row in enumerate(new))
    return np.concatenate([points, *([np.stack(new)] if new else [])]), np.array(
        [place[row.tobytes()] for row in others]
    )


@eqx.filter_jit
def _outputs_and_jacobian(model: Model, x):
    return model(x), jacobian_matrix(model, x)


def candidate_deltas(dtype) -> tuple[float, ...]:
    """Relative ridges to choose from; below the smallest the weights' rounding shows in the predictions."""
    smallest = -10 if dtype == np.float32 else -13
    return tuple(10.0**exponent for exponent in range(smallest, -3))


def _pull_back_bytes(factor: PriorFactor, directions, solver: str, passes: int) -> int:
    if solver == "golub-kahan":
        return (passes + 2) * directions.nbytes
    if solver == "normal-equations":
        return 2 * 8 * directions.shape[1] ** 2 + 4 * directions.nbytes
    return factor.matrix.shape[0] * directions.shape[1] * (8 + directions.dtype.itemsize) + 2 * directions.nbytes


def _posterior_weights(directions, root: Float[np.ndarray, "r r"], to_mean: Float[np.ndarray, " k+1"]):
    """S^T, rows s_j with S S^T = S_0 A^{-1} S_0^T, and the shift, from a root of A^{-1}."""
    # Over all directions, those without a part as zeros: a slice of them would be one more copy.
    rotation = np.pad(root.T, ((0, 0), (0, directions.shape[0] - root.shape[0])))
    return _combine(directions, to_device(rotation, directions.dtype), to_device(to_mean, directions.dtype))


@eqx.filter_jit
def _combine(directions, rotation, to_mean):
    return rotation @ directions, to_mean @ directions
