"""What `laplace` will do and what it will cost, before it is done."""

import math
from collections.abc import Iterable
from typing import Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import ArrayLike, Float
from rich.console import Console
from rich.table import Table

from fsplaplace.host import format_bytes, itemsize, resolve_budget, rows_of_data
from fsplaplace.laplace._data import HELD, num_rows_and_example
from fsplaplace.laplace._reference import num_targets
from fsplaplace.networks import Model, bytes_per_row, directions_together, jacobian_rows, route, rows_per_block
from fsplaplace.prior import Prior, plan_factor

# Up to this many rows the N x N eigenproblem costs less than the passes it replaces.
LARGEST_DENSE = 2000
# Beyond it, up to this many weights, the p x p normal equations cost less than the passes and their compilation.
LARGEST_NORMAL = 4000
# Ranks are rounded up to a multiple of this with zero columns, so that fits of similar rank share compiled programs.
RANK_MULTIPLE = 16
# Rows of training inputs that join those of the context points: at least, and at most where the dense solver still does.
_FEWEST_TRAINING, _MOST_TRAINING = 500, 1500
# What the compiled programs of one posterior take (measured on the CPU).
_PROGRAMS = 80 * 2**20
# Points at which ridges, means and variances are compared: context, guard and training points, and the judges.
_COMPARED = 1500
# Ridges that are compared.
_RIDGES = 7


class PlannedStage(eqx.Module):
    """One stage: bytes it holds at its peak beyond the network and the data, and floating-point operations."""

    name: str = eqx.field(static=True)
    bytes: float = eqx.field(static=True)
    flops: float = eqx.field(static=True)


class Plan(eqx.Module):
    """What `laplace` will do; prints as a table.

    Attributes:
        solver: "dense", "normal-equations" or "golub-kahan".
        factorisation: "eigh" or "pivoted Cholesky".
        route: how products with the Jacobian are computed: "directions", "rows" or "convolutions".
        rank: the most directions; the prior may have fewer.
        passes: blocks of the matrix-free basis.
        rows_per_block: rows that go through the network together.
        stages: bytes and floating-point operations of each stage.
        budget: bytes any stage may take.
    """

    solver: str = eqx.field(static=True)
    factorisation: str = eqx.field(static=True)
    route: str = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    passes: int = eqx.field(static=True)
    rows_per_block: int = eqx.field(static=True)
    stages: tuple[PlannedStage, ...]
    budget: float = eqx.field(static=True)

    @property
    def peak_bytes(self) -> float:
        """The bytes of the largest stage and of the compiled programs, beyond the process as it is."""
        return _PROGRAMS + max(stage.bytes for stage in self.stages)

    @property
    def flops(self) -> float:
        """Floating-point operations in all."""
        return sum(stage.flops for stage in self.stages)

    def __str__(self) -> str:
        title = (
            f"Plan: rank at most {self.rank} ({self.factorisation}, {self.solver}), {self.passes} passes in blocks of "
            f"{self.rows_per_block} rows"
        )
        table = Table("stage", "memory", "GFLOP", title=title, title_justify="left")
        for stage in self.stages:
            table.add_row(stage.name, format_bytes(stage.bytes), f"{stage.flops / 1e9:,.1f}")
        table.add_row(
            f"peak (budget {format_bytes(self.budget)})", format_bytes(self.peak_bytes), f"{self.flops / 1e9:,.1f}"
        )
        console = Console(width=100, color_system=None)
        with console.capture() as capture:
            console.print(table)
        return capture.get()


def plan(
    model: Model,
    prior: Prior,
    X: Float[ArrayLike, "n ..."] | Iterable[tuple[ArrayLike, ArrayLike]],
    context_points: Float[ArrayLike, "m ..."],
    *,
    rank: int | None = None,
    solver: Literal["auto", "dense", "normal-equations", "golub-kahan"] = "auto",
    passes: int = 3,
    include_training: bool = True,
    memory_budget: float | None = None,
) -> Plan:
    """What `laplace` does with these arguments in the covariance form, from shapes alone.

    Arguments as for `laplace`. Where the prior turns out to have fewer directions than `rank`, less is needed. Raises
    `MemoryError` with what would fit where the budget cannot be met. Time: milliseconds, nothing is computed.
    """
    if rank is not None and rank < prior.num_outputs:
        raise ValueError(f"plan: rank is {rank}; pass {prior.num_outputs} or more, one for each output")
    (n, x), points = num_rows_and_example(X), np.asarray(context_points)
    budget, number, q = resolve_budget(memory_budget), itemsize(model.dtype), prior.num_outputs
    num_points = points.shape[0] + (min(n, num_training(points.shape[0], q)) if include_training else 0)
    rows, p = num_points * q, model.num_params
    factor = plan_factor(prior, num_points, rank, budget)
    kept = min(factor.rank, rows)
    chosen = choose_solver(rows, p, number, solver, budget)
    columns = 8.0 * rows * kept
    stages = [PlannedStage("prior factor", factor.bytes + columns, _factor_flops(factor))]
    directions = (kept + 1 + (-kept % RANK_MULTIPLE if chosen == "dense" else 0)) * p * number
    a_pass = 2.0 * _forward_flops(model, x)
    if chosen == "dense":
        passes = 1
        together = rows + _COMPARED // 4
        size = together * p * (8 + number) + 3 * 8.0 * together**2 + 2 * directions
        flops = together * (a_pass + 2.0 * rows * p) + 9.0 * rows**3 + 2.0 * rows * kept * p
    elif chosen == "normal-equations":
        passes = 1
        block = jacobian_rows(model, points, budget) * q
        size = 2 * 8.0 * p**2 + 3 * 8.0 * p * (kept + 1) + 2 * directions + block * p * (8 + 2 * number)
        flops = rows * (a_pass + p * (p + 2.0 * kept)) + _RIDGES * (p**3 / 3 + 4.0 * p**2 * _COMPARED // 4)
    else:
        passes = golub_kahan_passes(passes, kept, p, rows)
        size = golub_kahan_bytes(model, points, rows, kept, passes, budget, caller="plan")
        # Beside the solver: what is to be reached at the context points, what was, and their difference.
        size += 3 * 8.0 * rows * (kept + 1)
        pushed = (2 * num_points + _COMPARED // 4) * passes * (kept + 1) * a_pass
        flops = pushed + 8.0 * p * (kept + 1) ** 2 * passes * (passes + 1) + 2.0 * rows * (passes * (kept + 1)) ** 2
    stages.append(PlannedStage(f"pull-back ({chosen})", columns + size, flops))
    seen = rows_of_data(16 * q * kept, budget, num_rows=n) + _COMPARED
    block = _block_bytes(model, x, kept, budget)
    stages.append(
        PlannedStage(
            "data",
            # Features as they are computed, put together and in float64, and those weighted by the noise.
            columns + directions + block + seen * q * kept * (2 * number + 3 * 8),
            (n + _COMPARED) * kept * (a_pass + 2.0 * q * kept),
        )
    )
    stages.append(PlannedStage("posterior", columns + 2.0 * directions, 2.0 * kept**2 * p + 9.0 * kept**3))
    # The exact process at targets, guard points and context: its covariance, parts of it and its gain.
    judged = num_targets(n, q) + _COMPARED // 4
    stages.append(PlannedStage("judges (Gaussian likelihood)", 4 * 8.0 * judged**2, 2.0 * judged**3))
    # A part of the data as given, checked and copied, and a tree over some of its rows for the guard points.
    stages.append(PlannedStage("reading", 6.0 * min(n * math.prod(x.shape[1:]) * number, HELD), 0.0))
    return Plan(
        chosen, factor.method, route(model, points, kept), kept, passes, rows_per_block(model, points, kept, budget),
        tuple(stages), budget,
    )  # fmt: skip


def num_training(num_points: int, num_outputs: int) -> int:
    """How many training inputs join so many context points, as far as there are that many.

    Where the prior is not enforced at a training input, the features there are the network's own, which has learnt from the
    target: with half of 1,087 rows left out, the evidence of a network that follows the prior everywhere was 24 nats too
    high, and favoured too short length scales.
    """
    rows = min(max(LARGEST_DENSE - num_points * num_outputs, _FEWEST_TRAINING), _MOST_TRAINING)
    return max(1, rows // num_outputs)


def choose_solver(rows: int, num_params: int, number: int, solver: str, budget: float) -> str:
    """ "dense" where the N x p Jacobian fits the budget and its Gram matrix is small; "normal-equations" where the p x p
    matrix is; else "golub-kahan"."""
    needed = rows * num_params * (8 + number)
    if solver == "dense" and needed > budget:
        raise MemoryError(
            f"laplace: solver='dense' needs {format_bytes(needed)} for {rows} context rows and {num_params} weights, but "
            f"memory_budget is {format_bytes(budget)}; pass solver='golub-kahan'"
        )
    if solver != "auto":
        return solver
    if rows <= LARGEST_DENSE and needed <= budget:
        return "dense"
    small = num_params <= LARGEST_NORMAL and 2 * 8 * num_params**2 <= budget / 2
    return "normal-equations" if rows > LARGEST_DENSE and small else "golub-kahan"


def golub_kahan_passes(passes: int, rank: int, num_params: int, rows: int) -> int:
    """Blocks of the basis: no more than there are weights or context rows for."""
    return max(1, min(passes, num_params // (rank + 1), rows // (rank + 1)))


def golub_kahan_bytes(model: Model, points, rows: int, rank: int, passes: int, budget: float, *, caller: str) -> float:
    """What the matrix-free solver takes; refused, with the rank that would fit, where that is more than the budget."""
    size = _golub_kahan_bytes(model, points, rows, rank, passes, budget)
    if size > budget:
        raise MemoryError(f"{caller}: {_what_fits(model, points, rows, rank, passes, size, budget)}")
    return size


def _golub_kahan_bytes(model: Model, points, rows: int, rank: int, passes: int, budget: float) -> float:
    """The basis, or the solution and the posterior made from it; images at the context rows and their normal equations."""
    basis, number = passes * (rank + 1), itemsize(model.dtype)
    held = max(passes, 2) * (rank + 1)
    arrays = held * model.num_params * number + rows * basis * (3 * number + 16) + 3 * 8 * basis**2
    return float(arrays + _block_bytes(model, points, rank, budget))


def _block_bytes(model: Model, x, rank: int, budget: float) -> float:
    together = directions_together(model, x, rank)
    return rows_per_block(model, x, together, budget) * bytes_per_row(model, x, together)


def _what_fits(model: Model, points, rows: int, rank: int, passes: int, size: float, budget: float) -> str:
    """The largest rank that the budget holds, by bisection."""

    def fits(rank: int, passes: int) -> bool:
        return _golub_kahan_bytes(model, points, rows, rank, passes, budget) <= budget

    options = []
    for fewer in dict.fromkeys((passes, min(passes, 2))):
        low, high = 0, rank
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle, fewer) else (low, middle)
        if low:
            options.append(f"rank={low}" + (f" with passes={fewer}" if fewer != passes else ""))
    return (
        f"rank {rank} with {passes} passes needs {format_bytes(size)} for {model.num_params} weights, but memory_budget is "
        f"{format_bytes(budget)}; "
        + (f"pass {' or '.join(options)}, or a larger memory_budget" if options else "no rank fits it")
    )


def _factor_flops(factor) -> float:
    each = 9.0 * factor.size**3 if factor.method == "eigh" else 2.0 * factor.size * factor.limit**2
    return factor.num_blocks * each


def _forward_flops(model: Model, x) -> float:
    """Floating-point operations of the network on one row, counted by the compiler before it optimises."""
    row = jax.ShapeDtypeStruct((1, *x.shape[1:]), model.dtype)
    cost = jax.jit(lambda params, x: model.evaluate(params, x)).lower(model.params, row).cost_analysis()
    return float((cost or {}).get("flops", 2.0 * model.num_params))
