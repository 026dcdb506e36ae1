"""What each stage of the covariance form costs: one model for `plan`, for the measured stages and for refusals."""

import math
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from fsplaplace.host import format_bytes, itemsize, rows_of_data
from fsplaplace.laplace import _choices
from fsplaplace.networks import Model, block_bytes, jacobian_rows, route
from fsplaplace.prior import FactorPlan

# Points at which ridges, means and variances are compared: those of three places.
_COMPARED = 3 * _choices.MOST_POINTS


class Cost(NamedTuple):
    """The sizes that everything follows from. Bytes are held at a stage's peak beyond the network and the data.

    Attributes:
        model: the network.
        inputs: some inputs, for their shape.
        num_rows: n.
        num_outputs: q.
        context_rows: N = m q.
        rank: r, directions kept (for a plan, at most).
        factor: how the prior's covariance is factored.
        solver: of the pull-back.
        passes: blocks of the matrix-free basis.
        num_ridges: how many ridges are compared.
        budget: bytes that any single stage may take.
    """

    model: Model
    inputs: Float[np.ndarray, "k ..."]
    num_rows: int
    num_outputs: int
    context_rows: int
    rank: int
    factor: FactorPlan
    solver: str
    passes: int
    num_ridges: int
    budget: float

    def bytes(self) -> dict[str, float]:
        """Bytes of each stage, by its name."""
        number, columns = itemsize(self.model.dtype), 8.0 * self.context_rows * self.rank
        directions = float(self.rank * self.model.num_params * number)
        block = block_bytes(self.model, self.inputs, self.rank, self.budget)
        kept = rows_of_data(16 * self.num_outputs * self.rank, self.budget, num_rows=self.num_rows) + _COMPARED
        # Features as they are computed, put together and in float64, and those weighted by the noise.
        features = kept * self.num_outputs * self.rank * (2 * number + 3 * 8)
        # The exact process at targets, guard points and context: its covariance, parts of it and its gain.
        exact = _choices.num_targets(self.num_rows, self.num_outputs) + _choices.MOST_JUDGED_ROWS
        row = math.prod(self.inputs.shape[1:]) * number
        return {
            "prior factor": self.factor.bytes + columns,
            f"pull-back ({self.solver})": columns + self._pull_back_bytes(number, directions),
            "data": columns + directions + block + features,
            "diagnostics": columns + directions + 8.0 * _COMPARED * self.num_outputs * self.rank,
            "posterior": columns + 2.0 * directions,
            "judges (Gaussian likelihood)": 4 * 8.0 * exact**2,
            # A part of the data as given, checked and copied, and a tree over some of its rows for the guard points.
            "reading": 6.0 * min(self.num_rows * row, _choices.HELD),
        }

    def flops(self) -> dict[str, float]:
        """Floating-point operations of each stage, by its name."""
        rank, p = self.rank, self.model.num_params
        a_pass = 2.0 * _forward_flops(self.model, self.inputs)
        q, r = self.num_outputs, float(rank)
        # A tangent pass for each direction, or reverse passes for each output's row and a matrix product.
        by_rows = route(self.model, self.inputs, rank) == "rows"
        products = q * (a_pass + 2.0 * p * r) if by_rows else r * a_pass
        factor = self.factor
        each = 9.0 * factor.size**3 if factor.method == "eigh" else 2.0 * factor.size * factor.limit**2
        exact = _choices.num_targets(self.num_rows, self.num_outputs) + _choices.MOST_JUDGED_ROWS
        return {
            "prior factor": factor.num_blocks * each,
            f"pull-back ({self.solver})": self._pull_back_flops(a_pass, products),
            "data": (self.num_rows + _COMPARED) * (products + 2.0 * q * r**2),
            "diagnostics": 2.0 * _COMPARED * self.num_outputs * rank,
            "posterior": 2.0 * rank**2 * p + 9.0 * rank**3,
            "judges (Gaussian likelihood)": 2.0 * exact**3,
            "reading": 0.0,
        }

    def _pull_back_bytes(self, number: int, directions: float) -> float:
        rows, p = self.context_rows, self.model.num_params
        if self.solver == "dense":
            together = rows + _choices.MOST_JUDGED_ROWS
            return together * p * (8 + number) + 3 * 8.0 * together**2 + 2 * directions
        if self.solver == "normal-equations":
            block = jacobian_rows(self.model, self.inputs, self.budget) * self.num_outputs
            return 2 * 8.0 * p**2 + 3 * 8.0 * p * self.rank + 2 * directions + block * p * (8 + 2 * number)
        basis = golub_kahan_bytes(self.model, self.inputs, rows, self.rank, self.passes, self.budget)
        # Beside the solver: what is to be reached at the context points, what was, and their difference.
        return basis + 3 * 8.0 * rows * self.rank

    def _pull_back_flops(self, a_pass: float, products: float) -> float:
        rows, p, rank = self.context_rows, self.model.num_params, self.rank
        if self.solver == "dense":
            return (
                (rows + _choices.MOST_JUDGED_ROWS) * (a_pass + 2.0 * rows * p) + 9.0 * rows**3 + 2.0 * rows * rank * p
            )
        if self.solver == "normal-equations":
            return rows * (a_pass + p * (p + 2.0 * rank)) + self.num_ridges * (
                p**3 / 3 + 4.0 * p**2 * _choices.MOST_JUDGED_ROWS
            )
        basis = self.passes * rank
        # Each block of the basis goes through the network and back.
        pushed = (2 * rows / self.num_outputs + _choices.MOST_JUDGED_ROWS) * self.passes * products
        return pushed + 8.0 * p * rank * basis * (self.passes + 1) + 2.0 * rows * basis**2


def golub_kahan_bytes(model: Model, points, rows: int, rank: int, passes: int, budget: float) -> float:
    """The basis, or the solution and the posterior made from it; images at the context rows and their normal equations."""
    basis, number = passes * rank, itemsize(model.dtype)
    held = max(passes, 2) * rank
    arrays = held * model.num_params * number + rows * basis * (3 * number + 16) + 3 * 8 * basis**2
    return float(arrays + block_bytes(model, points, rank, budget))


def check_golub_kahan(
    model: Model, points, rows: int, rank: int, passes: int, budget: float, *, least: int, caller: str
) -> None:
    """Refuse what the budget cannot hold, with the rank that would fit, if that is at least `least`: one for each output.

    Args:
        model: the network.
        points: some inputs, for their shape.
        rows: context points times outputs.
        rank: directions.
        passes: that the caller asked for; of so many directions that fewer span everything, fewer are made.
        budget: bytes.
        least: the smallest rank there can be.
        caller: whose error it is.
    """

    def size(rank: int, passes: int) -> float:
        made = _choices.golub_kahan_passes(passes, rank, model.num_params, rows)
        return golub_kahan_bytes(model, points, rows, rank, made, budget)

    if size(rank, passes) <= budget:
        return
    options = []
    for fewer in dict.fromkeys((passes, min(passes, 2))):
        low, high = 0, rank
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if size(middle, fewer) <= budget else (low, middle)
        if low >= least:
            options.append(f"rank={low}" + (f" with passes={fewer}" if fewer != passes else ""))
    made = _choices.golub_kahan_passes(passes, rank, model.num_params, rows)
    raise MemoryError(
        f"{caller}: rank {rank} with {made} passes needs {format_bytes(size(rank, passes))} for {model.num_params} weights, but "
        f"memory_budget is {format_bytes(budget)}; "
        + (
            f"pass {' or '.join(options)}, or a larger memory_budget"
            if options
            else f"no rank of {least} or more, one for each output, fits it: pass fewer context points, fewer weights "
            "(fsplaplace.methods.last_layer(model, X)), or a larger memory_budget"
        )
    )


def _forward_flops(model: Model, x) -> float:
    """Floating-point operations of the network on one row, counted by the compiler before it optimises."""
    row = jax.ShapeDtypeStruct((1, *x.shape[1:]), model.dtype)
    cost = jax.jit(lambda params, x: model.evaluate(params, x)).lower(model.params, row).cost_analysis()
    return float((cost or {}).get("flops", 2.0 * model.num_params))
