r"""The pull-back of the prior to the weights, $S_0 = J_C^\top (J_C J_C^\top + \delta \lVert J_C \rVert^2 I)^{-1} B$: three solvers."""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from fsplaplace.host import pad_rows, padded_size, to_device
from fsplaplace.laplace import _choices, _cost
from fsplaplace.laplace._choices import Options, Treatment
from fsplaplace.laplace._enforced import enforced
from fsplaplace.laplace._features import View, view
from fsplaplace.laplace._problem import Name, Places, Problem, evenly
from fsplaplace.laplace._reference import Reference
from fsplaplace.linalg import Probe, block_golub_kahan, minimum_norm_solve, normal_equations
from fsplaplace.networks import jacobian_blocks, jacobian_matrix, outputs_and_jacobian, pull_back, push_forward


class Task(NamedTuple):
    """What to pull back, and what the solution is judged by.

    Attributes:
        problem: the network and the context points.
        columns: B, the prior's factor at the context points, (m, q, r).
        places: where the solution is looked at.
        reference: what a ridge is judged by.
        options: what the caller decided.
        solver: which of the three.
    """

    problem: Problem
    columns: Float[np.ndarray, "m q r"]
    places: Places
    reference: Reference
    options: Options
    solver: str

    @property
    def matrix(self) -> Float[np.ndarray, "mq r"]:
        """B, points first."""
        return self.columns.reshape(-1, self.columns.shape[2])

    @property
    def ridges(self) -> tuple[float, ...]:
        """Relative ridges to choose from."""
        problem = self.problem
        return self.options.ridges(problem.model.dtype, solver=self.solver, of_derivatives=problem.of_derivatives)

    @property
    def num_small_ridges(self) -> int:
        """How many of them are for networks that hold the prior, or gain much."""
        problem = self.problem
        return self.options.num_small_ridges(
            problem.model.dtype, solver=self.solver, of_derivatives=problem.of_derivatives
        )

    def misfit(self, reached: Float[np.ndarray, "mq r"]) -> float:
        """How far what is reached at the context points is from B, relative to B."""
        return float(np.linalg.norm(reached - self.matrix) / np.linalg.norm(self.matrix))


class PulledBack(NamedTuple):
    """The pull-back.

    Attributes:
        directions: rows of S_0, (r, p).
        seen: outputs and features along the directions, in all places.
        misfit: relative distance of the features at the context points from the prior's factor.
        delta: the relative ridge.
        missed: how prior variance that the features miss is treated.
    """

    directions: Float[Array, "r p"]
    seen: View
    misfit: float
    delta: float
    missed: Treatment


def solve(task: Task) -> PulledBack:
    """S_0 by the solver of the task."""
    solvers = {"dense": _dense, "normal-equations": _normal_equations, "golub-kahan": _golub_kahan}
    return solvers[task.solver](task)


def _dense(task: Task) -> PulledBack:
    """One Jacobian for everything that is looked at."""
    problem, reference, treatments = task.problem, task.reference, task.options.treatments()
    q = task.columns.shape[1]
    parts = reference.sample_parts
    values = [part.inputs for part in parts if part.kind.of_values]
    joined = _Joined.of(
        problem.context,
        {"judged": np.concatenate([reference.points, *values]), "places": task.places.stacked},
    )
    # In a round number, so that the next set of points shares the program.
    count = joined.points.shape[0]
    padded = pad_rows(joined.points, padded_size(count))
    outputs, jacobian = map(np.asarray, outputs_and_jacobian(problem.model, padded))
    outputs, jacobian = outputs[:count], jacobian[: count * q]
    judged, size = _rows_of(joined.at["judged"], q), task.matrix.shape[0]
    units = _row_units(jacobian, size, q)
    also = enforced(problem, task.columns, beside=_beside_dense(task))
    # Values are the first kind, so that rows of what operators see follow those of all values.
    seen = [np.asarray(jacobian_matrix(part.kind.model, part.inputs)) for part in parts if not part.kind.of_values]
    rows = _Rows.of(jacobian, units, judged, size=size, solved=[] if also is None else [also.jacobian], seen=seen)
    targets = task.matrix / units[:size]
    if also is not None:
        targets = np.concatenate([targets, also.columns])
    solution = minimum_norm_solve(
        rows.in_units(), targets, deltas=task.ridges, probes=rows.judged,
        choose=lambda candidates: reference.best_ridge(
            candidates * rows.units[rows.judged], treatments, small=task.num_small_ridges
        ),
    )  # fmt: skip
    columns = np.asarray(solution.rows).T
    treatment = treatments[0]
    if len(treatments) > 1:
        features = rows.jacobian[rows.judged].astype(np.float64) @ columns.astype(np.float64)
        treatment = reference.best_treatment(features, treatments)
    placed = joined.at["places"]
    where = _rows_of(placed, q)
    # A product of all rows at once would copy as much of the Jacobian again.
    products = [jacobian[part] @ columns for part in np.array_split(where, -(-where.size // _choices.MOST_POINTS))]
    features = np.concatenate(products).astype(np.float64).reshape(placed.size, q, -1)
    seen = View(outputs[placed].astype(np.float64), features)
    return PulledBack(
        solution.rows, seen, task.misfit(solution.reached[:size] * units[:size]), solution.delta, treatment
    )


class _Rows(NamedTuple):
    """Rows of Jacobians: those that are solved for, and those at which solutions are judged.

    Attributes:
        jacobian: all of them, solved ones first.
        units: what each is divided by.
        judged: which are judged at.
    """

    jacobian: Float[np.ndarray, "N p"]
    units: Float[np.ndarray, "N 1"]
    judged: Int[np.ndarray, " k"]

    @classmethod
    def of(
        cls,
        jacobian: Float[np.ndarray, "N p"],
        units: Float[np.ndarray, "N 1"],
        judged: Int[np.ndarray, " k"],
        *,
        size: int,
        solved: list[Float[np.ndarray, "_ p"]],
        seen: list[Float[np.ndarray, "_ p"]],
    ) -> "_Rows":
        """Rows of values, the first `size` of them solved for; further ones to solve for after these; and others to judge at.

        One copy of everything, and none if there are values alone: the Jacobian is the largest array of a fit.
        """
        if not solved and not seen:
            return cls(jacobian, units, judged)
        whole = np.concatenate([jacobian[:size], *solved, jacobian[size:], *seen])
        further, last = sum(map(len, solved)), sum(map(len, seen))
        judged = np.where(judged < size, judged, judged + further)
        return cls(
            whole,
            np.concatenate([units[:size], np.ones((further, 1)), units[size:], np.ones((last, 1))]),
            np.concatenate([judged, len(whole) - last + np.arange(last)]),
        )

    def in_units(self) -> Float[np.ndarray, "N p"]:
        """Each row divided by its unit."""
        return self.jacobian if np.all(self.units == 1) else self.jacobian / self.units.astype(self.jacobian.dtype)


def _row_units(jacobian: Float[np.ndarray, "N p"], num_context: int, num_outputs: int) -> Float[np.ndarray, "N 1"]:
    """For each row the size of its output's rows at the context, so that a ridge means the same to outputs of any scale."""
    if num_outputs == 1:
        return np.ones((jacobian.shape[0], 1))
    sizes = np.linalg.norm(
        jacobian[:num_context].astype(np.float64).reshape(-1, num_outputs, jacobian.shape[1]), axis=2
    )
    each = np.sqrt(np.mean(sizes**2, axis=0))
    return np.tile(np.where(each > 0, each, 1.0), jacobian.shape[0] // num_outputs)[:, None]


def _normal_equations(task: Task) -> PulledBack:
    """For many context points and a network small enough for a p x p matrix: one pass over the points."""
    problem, q = task.problem, task.columns.shape[1]
    model, budget, targets = problem.model, problem.budget, task.matrix
    judged = np.concatenate([block for _, block in jacobian_blocks(model, task.reference.points, budget=budget)])
    blocks = jacobian_blocks(model, problem.context, budget=budget)
    also = enforced(problem, task.columns, beside=_beside_dense(task))
    solution = normal_equations(
        itertools.chain(
            ((block, targets[rows.start * q : rows.stop * q]) for rows, block in blocks),
            [] if also is None else [(also.jacobian, also.columns)],
        ),
        deltas=task.ridges,
        probe=Probe(judged, task.reference.covariance_error),
    )
    sizes = np.linalg.norm(targets, axis=0)
    misfit = float(np.linalg.norm(solution.misfit * sizes) / np.linalg.norm(sizes))
    directions = to_device(solution.rows, model.dtype)
    seen = view(model, task.places.stacked, directions, budget=budget)
    return PulledBack(directions, seen, misfit, solution.delta, _treatment(task, directions))


def _golub_kahan(task: Task) -> PulledBack:
    """Matrix-free: products with the Jacobian and its transpose only."""
    (m, q, rank), problem, places = task.columns.shape, task.problem, task.places
    model, budget, context = problem.model, problem.budget, problem.context
    asked = task.options.passes
    _cost.check_golub_kahan(model, context, m * q, rank, asked, budget, least=q, caller="laplace")
    passes = _choices.golub_kahan_passes(asked, rank, model.num_params, m * q)

    # The basis holds that many vectors of weights.
    also = enforced(problem, task.columns, beside=(passes + 1) * rank)

    def forward(x):
        return lambda rows: push_forward(model, x, rows, budget=budget).reshape(x.shape[0] * q, -1)

    def solved_for(rows):
        values = forward(context)(rows)
        if also is None:
            return values
        return to_device(np.concatenate([np.asarray(values), also.jacobian @ np.asarray(rows).T]))

    def transpose(cotangents):
        of_values = pull_back(model, context, cotangents[: m * q].reshape(m, q, -1), budget=budget)
        if also is None:
            return of_values
        return to_device(np.asarray(of_values) + np.asarray(cotangents)[m * q :].T @ also.jacobian)

    targets = task.matrix if also is None else np.concatenate([task.matrix, also.columns])
    solution = block_golub_kahan(
        solved_for,
        transpose,
        to_device(targets, model.dtype),
        passes=passes,
        deltas=task.ridges,
        probe=(forward(task.reference.points), task.reference.covariance_error) if len(task.ridges) > 1 else None,
    )
    # What was reached at the context points is not computed again.
    reached = View(
        np.asarray(model(to_device(places.context)), dtype=np.float64),
        solution.reached[: m * q].reshape(m, q, -1)[evenly(np.arange(m), _choices.MOST_POINTS)],
    )
    others: dict[Name, View] = {
        "guard": view(model, places.guard, solution.rows, budget=budget),
        "training": view(model, places.training, solution.rows, budget=budget),
        "new": view(model, places.new, solution.rows, budget=budget),
    }
    seen = _assembled(places, {"context": reached, **others})
    treatment = _treatment(task, solution.rows)
    return PulledBack(solution.rows, seen, task.misfit(solution.reached[: m * q]), solution.delta, treatment)


def _beside_dense(task: Task) -> int:
    """Rows of the Jacobian at the context points and at what is judged."""
    return task.matrix.shape[0] + 3 * _choices.MOST_POINTS * task.columns.shape[1]


def _treatment(task: Task, directions: Float[Array, "r p"]) -> Treatment:
    """Of missed variance: what loses less against the exact process. Where there is none, what few directions for many
    points miss is as unrelated between data as noise is."""
    reference, treatments = task.reference, task.options.treatments()
    if len(treatments) == 1 or reference.sample is None:
        return treatments[-1]
    model, parts = task.problem.model, reference.sample_parts
    values = [reference.points, *(part.inputs for part in parts if part.kind.of_values)]
    # Values are the first kind, so that what operators see follows all values.
    seen = [
        (model, np.concatenate(values)),
        *((each.kind.model, each.inputs) for each in parts if not each.kind.of_values),
    ]
    features = [view(where, inputs, directions, budget=task.problem.budget).features for where, inputs in seen]
    return reference.best_treatment(np.concatenate([each.reshape(-1, each.shape[2]) for each in features]), treatments)


def _assembled(places: Places, views: Mapping[Name, View]) -> View:
    """One view of all places from a view of each."""
    any_view, count = next(iter(views.values())), places.stacked.shape[0]
    seen = View(*(np.empty((count, *part.shape[1:])) for part in any_view))
    for name, part in views.items():
        seen.outputs[places.slice(name)], seen.features[places.slice(name)] = part
    return seen


def _rows_of(points: Int[np.ndarray, " k"], num_outputs: int) -> Int[np.ndarray, " kq"]:
    """The rows of a Jacobian that belong to points, outputs of one point together."""
    return (points[:, None] * num_outputs + np.arange(num_outputs)).ravel()


class _Joined(NamedTuple):
    """Several sets of points, each point once.

    Attributes:
        points: the first set, then points of the others that are new.
        at: where the points of each further set are among them.
    """

    points: Float[np.ndarray, "k ..."]
    at: dict[str, Int[np.ndarray, " s"]]

    @classmethod
    def of(cls, first: Float[np.ndarray, "m ..."], others: dict[str, Float[np.ndarray, "s ..."]]) -> "_Joined":
        place = {row.tobytes(): index for index, row in enumerate(first)}
        new, at = [], {}
        for name, points in others.items():
            found = []
            for row in points:
                known = place.setdefault(row.tobytes(), len(place))
                if known == len(first) + len(new):
                    new.append(row)
                found.append(known)
            at[name] = np.array(found, dtype=int)
        return cls(np.concatenate([first, np.stack(new)]) if new else first, at)
