r"""The pull-back of the prior to the weights, $S_0 = J_C^\top (J_C J_C^\top + \delta \lVert J_C \rVert^2 I)^{-1} B$: three solvers."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from fsplaplace.host import to_device
from fsplaplace.laplace._diagnostics import MOST_POINTS, stack
from fsplaplace.laplace._features import View, join, view
from fsplaplace.laplace._plan import RANK_MULTIPLE, golub_kahan_bytes, golub_kahan_passes
from fsplaplace.laplace._reference import Judges
from fsplaplace.linalg import Probe, block_golub_kahan, minimum_norm_solve, normal_equations
from fsplaplace.networks import Model, jacobian_blocks, outputs_and_jacobian, pull_back, push_forward

# Divergences this many times the lowest are as good: a spike of the covariance between guard points does not show in them.
_AS_GOOD = 1.2


class PullBack(NamedTuple):
    """What to pull back: the prior's factor and mean at the context points; the judges of the ridge, and the places where
    the solution is looked at; ridges to choose from, and whether missed variance is noise, if that is known; blocks of
    the matrix-free basis; and the memory there is."""

    model: Model
    points: Float[Array, "m ..."]
    prior_mean: Float[np.ndarray, "m q"]
    columns: Float[np.ndarray, "m q r"]
    judges: Judges
    places: dict[str, Float[Array, "k ..."]]
    deltas: tuple[float, ...]
    missed_as_noise: bool | None
    passes: int
    budget: float

    @property
    def rank(self) -> int:
        return self.columns.shape[2]

    def targets(self, outputs: Float[np.ndarray, "m q"], *, padding: int = 0) -> Float[np.ndarray, "mq r+1"]:
        """The prior's factor, columns of zeros, and the way from the network's outputs to the prior mean."""
        columns = self.columns.reshape(-1, self.rank)
        return np.column_stack([columns, np.zeros((len(columns), padding)), (self.prior_mean - outputs).ravel()])

    def misfit(self, reached: Float[np.ndarray, "mq r"]) -> float:
        columns = self.columns.reshape(-1, self.rank)
        return float(np.linalg.norm(reached[:, : self.rank] - columns) / np.linalg.norm(columns))

    def covariance_error(self, features: Float[np.ndarray, "k r+1"]) -> float:
        return self.judges.covariance_error(features[:, : self.rank])


class PulledBack(NamedTuple):
    """Rows of S_0 (their number rounded up with zeros), last the shift that moves the network to the prior mean at the
    context points; what the network sees along them in all places; how far its features miss the prior factor; the ridge; and
    whether that is taken as noise."""

    directions: Float[Array, "r+1 p"]
    seen: View
    misfit: float
    delta: float
    missed_as_noise: bool


def solve(task: PullBack, solver: str) -> PulledBack:
    """S_0 and the shift, by the solver of this name."""
    solvers = {"dense": _dense, "normal-equations": _normal_equations, "golub-kahan": _golub_kahan}
    return solvers[solver](task)


def _dense(task: PullBack) -> PulledBack:
    """One Jacobian for everything that is looked at."""
    (m, q, rank), judged_inputs = task.columns.shape, task.judges.inputs
    inputs, at = _joined(
        np.asarray(task.points), np.concatenate([judged_inputs, *map(np.asarray, task.places.values())])
    )
    judged, placed = np.split(at, [judged_inputs.shape[0]])
    outputs, jacobian = outputs_and_jacobian(task.model, inputs)
    outputs = np.asarray(outputs, dtype=np.float64)
    choice = _Choice(task.judges, outputs[judged].ravel(), rank, task.missed_as_noise)
    solution = minimum_norm_solve(
        jacobian, task.targets(outputs[:m], padding=-rank % RANK_MULTIPLE),
        deltas=task.deltas, choose=choice.of, probes=_rows_of(judged, q),
    )  # fmt: skip
    rows, directions = _rows_of(placed, q), np.asarray(solution.rows).T
    features = [np.asarray(jacobian)[part] @ directions for part in np.array_split(rows, -(-rows.size // MOST_POINTS))]
    seen = View(outputs[placed], np.concatenate(features).astype(np.float64).reshape(placed.size, q, -1))
    return PulledBack(solution.rows, seen, task.misfit(solution.reached), solution.delta, choice.missed_as_noise)


def _normal_equations(task: PullBack) -> PulledBack:
    """For many context points and a network small enough for a p x p matrix: one pass over the points."""
    model, q, budget = task.model, task.columns.shape[1], task.budget
    targets = task.targets(np.asarray(model(task.points), dtype=np.float64))
    guards = np.concatenate([block for _, block in jacobian_blocks(model, task.judges.points, budget=budget)])
    solution = normal_equations(
        (
            (block, targets[rows.start * q : rows.stop * q])
            for rows, block in jacobian_blocks(model, task.points, budget=budget)
        ),
        deltas=task.deltas,
        probe=Probe(guards, task.covariance_error),
    )
    sizes = np.linalg.norm(targets[:, : task.rank], axis=0)
    misfit = float(np.linalg.norm(solution.misfit[: task.rank] * sizes) / np.linalg.norm(sizes))
    directions = to_device(solution.rows, model.dtype)
    seen = view(model, stack(task.places), directions, budget=budget)
    return PulledBack(directions, seen, misfit, solution.delta, _unless_known(task.missed_as_noise))


def _golub_kahan(task: PullBack) -> PulledBack:
    """Matrix-free: products with the Jacobian and its transpose only."""
    (m, q, rank), model, budget = task.columns.shape, task.model, task.budget
    outputs = np.asarray(model(task.points), dtype=np.float64)
    passes = golub_kahan_passes(task.passes, rank, model.num_params, m * q)
    golub_kahan_bytes(model, task.points, m * q, rank, passes, budget, caller="laplace")

    def forward(x):
        return lambda rows: push_forward(model, x, rows, budget=budget).reshape(x.shape[0] * q, -1)

    solution = block_golub_kahan(
        forward(task.points),
        lambda cotangents: pull_back(model, task.points, cotangents.reshape(m, q, -1), budget=budget),
        to_device(task.targets(outputs), model.dtype),
        passes=passes,
        deltas=task.deltas,
        probe=(forward(task.judges.points), task.covariance_error) if len(task.deltas) > 1 else None,
    )
    # What was reached at the context points is not computed again.
    known = View(outputs, solution.reached.reshape(m, q, -1)).rows(slice(None, None, -(-m // MOST_POINTS)))
    others = stack({name: x for name, x in task.places.items() if name != "context"})
    seen = join([known, view(model, others, solution.rows, budget=budget)])
    missed_as_noise = _unless_known(task.missed_as_noise)
    return PulledBack(solution.rows, seen, task.misfit(solution.reached), solution.delta, missed_as_noise)


def _unless_known(missed_as_noise: bool | None) -> bool:
    """Few directions stand for many: what they miss is unrelated between data, as noise is."""
    return True if missed_as_noise is None else missed_as_noise


def _rows_of(points: Int[np.ndarray, " k"], num_outputs: int) -> Int[np.ndarray, " kq"]:
    return (points[:, None] * num_outputs + np.arange(num_outputs)).ravel()


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
    """The points and those of the others that are not among them, once each, and where in that all of the others are."""
    place = {row.tobytes(): index for index, row in enumerate(points)}
    new = {row.tobytes(): row for row in others if row.tobytes() not in place}
    place.update((name, points.shape[0] + index) for index, name in enumerate(new))
    at = np.array([place[row.tobytes()] for row in others])
    return np.concatenate([points, *([np.stack([*new.values()])] if new else [])]), at


def candidate_deltas(dtype) -> tuple[float, ...]:
    """Relative ridges to choose from; below the smallest the weights' rounding shows in the predictions."""
    smallest = -10 if dtype == np.float32 else -13
    return tuple(10.0**exponent for exponent in range(smallest, -3))
