"""What `laplace` will do and what it will cost, before it is done."""

from collections.abc import Iterable, Sequence
from typing import Literal

import equinox as eqx
import jax.random as jr
import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table

from fsplaplace import networks
from fsplaplace.arguments import KeyLike, checked
from fsplaplace.context import Data
from fsplaplace.host import format_bytes, itemsize, resolve_budget, table_text
from fsplaplace.laplace import _choices, _cost
from fsplaplace.laplace._choices import Options
from fsplaplace.laplace._data import num_rows_and_example
from fsplaplace.networks import Held, Model, route, rows_per_block
from fsplaplace.observations import Observation
from fsplaplace.prior import Prior, plan_factor


class PlannedStage(eqx.Module):
    """One stage.

    Attributes:
        name: as in `Diagnostics.stages`.
        bytes: held at its peak beyond the network and the data.
        flops: floating-point operations.
    """

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
        held: how much of the prior the network holds; None unless asked for.
    """

    solver: str = eqx.field(static=True)
    factorisation: str = eqx.field(static=True)
    route: str = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    passes: int = eqx.field(static=True)
    rows_per_block: int = eqx.field(static=True)
    stages: tuple[PlannedStage, ...]
    budget: float = eqx.field(static=True)
    held: Held | None = None

    @property
    def peak_bytes(self) -> float:
        """The bytes of the largest stage and of the compiled programs, beyond the process as it is."""
        return _choices.PROGRAM_BYTES + max(stage.bytes for stage in self.stages)

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
        return table_text(table) if self.held is None else f"{table_text(table)}\n{self.held}"


@checked
def plan(
    model: Model,
    prior: Prior,
    X: ArrayLike | Iterable | None,
    context_points: ArrayLike,
    *,
    also: Sequence[Observation] | None = None,
    rank: int | None = None,
    solver: Literal["auto", "dense", "normal-equations", "golub-kahan"] = "auto",
    passes: int = 3,
    include_training: bool = True,
    memory_budget: float | None = None,
    holds: bool = False,
    key: KeyLike | None = None,
) -> Plan:
    """What `laplace` does with these arguments in the covariance form, from shapes alone.

    Args:
        model: as for `laplace`.
        prior: as for `laplace`.
        X: as for `laplace`; only its shape is read.
        context_points: as for `laplace`; only their shape is read, unless `holds`.
        also: as for `laplace`; only shapes are read.
        rank: as for `laplace`. If the prior turns out to have fewer directions, less is needed.
        solver: as for `laplace`.
        passes: as for `laplace`.
        include_training: as for `laplace`.
        memory_budget: as for `laplace`. `MemoryError` says what would fit if the budget cannot be met.
        holds: say how much of the prior the network holds among the context points, with `fsplaplace.holds`.
        key: for `holds`; a fixed key by default.

    Time: milliseconds, nothing is computed; up to seconds with `holds`.

    Examples:
        >>> fsp.plan(model, prior, X, context.sample(50, key=jr.key(0))).solver
        'dense'
    """
    if rank is not None and rank < prior.num_outputs:
        raise ValueError(f"plan: rank is {rank}; pass {prior.num_outputs} or more, one for each output")
    kinds = [] if X is None else [num_rows_and_example(X)]
    kinds += [num_rows_and_example(each.X) for each in tuple(also or ())]
    if not kinds:
        raise ValueError("plan: X is None and there are no observations; pass X, or also=[Observation(...)]")
    n, x, points = sum(rows for rows, _ in kinds), kinds[0][1], np.asarray(context_points)
    if points.ndim < 2 or points.shape[0] == 0 or n == 0:
        raise ValueError(
            f"plan: X has {n} rows and context_points shape {points.shape}; pass at least one row of each, as (n, d)"
        )
    if points.shape[1:] != x.shape[1:]:
        raise ValueError(
            f"plan: context_points have rows of shape {points.shape[1:]}, but X {x.shape[1:]}; pass equal ones"
        )
    budget, q = resolve_budget(memory_budget), prior.num_outputs
    num_points = points.shape[0] + (min(n, _choices.num_training(points.shape[0], q)) if include_training else 0)
    rows, p = num_points * q, model.num_params
    chosen = _choices.choose_solver(rows, p, itemsize(model.dtype), solver, budget)
    blocks = prior.blocks
    rank = _choices.default_rank(
        rank, rows, blocks.num_independent, convolutional=networks.linearisation(model, points).convolutional
    )
    most = _choices.most_directions(rank, num_points * blocks.rows_per_point, blocks.num_independent, chosen, budget)
    factor = plan_factor(prior, num_points, most, budget)
    kept = min(factor.rank, rows)
    if chosen == "golub-kahan":
        _cost.check_golub_kahan(model, points, rows, kept, passes, budget, least=q, caller="plan")
    passes = _choices.golub_kahan_passes(passes, kept, p, rows) if chosen == "golub-kahan" else 1
    derivatives = any(each.of.order > 0 for each in tuple(also or ()))
    ridges = len(Options().ridges(model.dtype, solver=chosen, of_derivatives=derivatives))
    cost = _cost.Cost(model, x, n, q, rows, kept, factor, chosen, passes, ridges, budget)
    flops = cost.flops()
    return Plan(
        chosen, factor.method, route(model, points, kept), kept, passes, rows_per_block(model, points, kept, budget),
        tuple(PlannedStage(name, size, flops[name]) for name, size in cost.bytes().items()), budget,
        networks.holds(model, prior, Data(points), key=jr.key(0) if key is None else key) if holds else None,
    )  # fmt: skip
