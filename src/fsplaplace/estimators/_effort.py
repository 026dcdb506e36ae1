"""How much work a fit is: network, steps and context points for a number of rows, and what that will cost."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from rich.table import Table

from fsplaplace.context import Uniform
from fsplaplace.host import format_bytes, table_text
from fsplaplace.laplace import plan
from fsplaplace.networks import as_model, mlp
from fsplaplace.prior import Prior

Effort = Literal["fast", "normal", "thorough"]
# Up to this many rows the exact process sees them all, and a small network with the refined mean is as good as it.
FEW_ROWS = 2000


class _Level(NamedTuple):
    """What an effort means.

    Attributes:
        width: of the two hidden layers, up to `FEW_ROWS` rows and beyond.
        steps: the least and the most; one step for each row between them.
        num_context: up to `FEW_ROWS` rows, and the most beyond: as many as there are rows.
    """

    width: tuple[int, int]
    steps: tuple[int, int]
    num_context: tuple[int, int]


# Denmark and parkinsons (5,000 rows) gain most from steps and then from width; both cost in proportion. All training inputs in
# the context want a network that can hold them.
_LEVELS: dict[str, _Level] = {
    "fast": _Level((50, 50), (2000, 2000), (1000, 1000)),
    "normal": _Level((50, 100), (2000, 10_000), (1000, 1000)),
    "thorough": _Level((100, 200), (5000, 20_000), (1500, 10_000)),
}
# A layer with fewer units than columns sees only the space that they span. Two units for each column, in steps that share programs,
# as far as the Jacobian's entries for a row allow: on 50 rows of 100 columns the posterior loses nats to the
# exact process's with 50 units (benchmarks/small_tables.py).
_UNITS_PER_COLUMN, _UNITS = 2, 50
# The most weights of a network chosen here: 2x200 in up to 40 dimensions. 2x400 would train and solve ten times as long.
MOST_WEIGHTS = 50_000
# Rates on one CPU core, in operations per second, and seconds that do not depend on size: starting, compiling, choosing. Of the order
# of what `benchmarks/first_fit.py` (331 x 10) and `benchmarks/large_tables.py` (5,288 x 20, 15,642 x 15) measure.
_TRAINING_RATE, _LINEAR_ALGEBRA_RATE, _SECONDS_AT_LEAST = 1.5e10, 3e10, 6.0
# Posteriors that are judged by rows held out, at most, and the rows that each is made of.
_JUDGED, _JUDGED_ROWS = 4, 10_000
# Evaluations of the marginal likelihood, and the rows from which each is of a subset.
_EVALUATIONS, MOST_EXACT_ROWS, _SUBSET = 50, 1500, 500


class FitPlan(NamedTuple):
    """What a fit will do and cost; prints as a table.

    Attributes:
        network: widths of the hidden layers.
        steps: of the optimiser.
        num_context: context points asked for.
        seconds: CPU time of a first fit, by rates of one machine: an order of magnitude.
        bytes: at the peak beyond the data, of the largest stage.
    """

    network: tuple[int, ...]
    steps: int
    num_context: int
    seconds: float
    bytes: float

    def __str__(self) -> str:
        table = Table("what", "value", title="Plan of a fit", title_justify="left")
        table.add_row("network", " x ".join(map(str, self.network)))
        table.add_row("steps", f"{self.steps:,}")
        table.add_row("context points", f"{self.num_context:,}")
        table.add_row("CPU seconds, a rough guess", f"{self.seconds:.0f}")
        table.add_row("memory, about", format_bytes(self.bytes))
        return table_text(table)


class Choices(NamedTuple):
    """Network, steps and context points, chosen by the effort where the caller left them open."""

    network: object
    steps: int
    num_context: int


def choices(
    effort: str, num_rows: int, num_columns: int, num_outputs: int, *,
    network, steps: int | None, num_context: int | None,
) -> Choices:  # fmt: skip
    """What a fit takes: the caller's where given, else by the table of this file.

    Args:
        effort: "fast", "normal" or "thorough".
        num_rows: distinct training rows.
        num_columns: of the inputs; many of them ask for wider layers.
        num_outputs: of the network.
        network: widths, "auto", a network, or None.
        steps: or None.
        num_context: or None.
    """
    if effort not in _LEVELS:
        raise ValueError(f"effort is {effort!r}; pass one of {', '.join(map(repr, _LEVELS))}")
    level, many = _LEVELS[effort], num_rows > FEW_ROWS
    width = max(level.width[many], _width_for(num_columns, num_outputs))
    least, most = level.num_context
    return Choices(
        (width, width) if network is None else network,
        int(np.clip(num_rows, *level.steps)) if steps is None else steps,
        int(np.clip(num_rows, least, most)) if num_context is None else num_context,
    )


def _width_for(num_columns: int, num_outputs: int) -> int:
    """Two units for each column, or as many as two such layers may have."""
    widths = range(_UNITS, _UNITS_PER_COLUMN * num_columns + _UNITS, _UNITS)
    most = MOST_WEIGHTS // num_outputs
    return max((width for width in widths if width * (num_columns + width) <= most), default=_UNITS)


def cost(found: Choices, prior: Prior, num_rows: int, num_features: int, batch: int, step_context: int) -> FitPlan:
    """Seconds and bytes of a fit with these choices, from shapes alone.

    Args:
        found: network widths, steps and context points.
        prior: with its kernel, fitted or not.
        num_rows: distinct training rows.
        num_features: columns.
        batch: rows of a training step.
        step_context: context points of a training step.
    """
    widths = [int(width) for width in found.network]  # pyright: ignore[reportGeneralTypeIssues] - checked by the caller
    box = Uniform(-jnp.ones(num_features), jnp.ones(num_features))
    model = as_model(mlp(widths, prior=prior, context=box, key=jr.key(0)))
    points = found.num_context + min(num_rows, found.num_context // 2)
    X, C = np.zeros((num_rows, num_features), np.float32), np.zeros((points, num_features), np.float32)
    posterior = plan(model, prior, X, C, include_training=False)
    step = 6.0 * model.num_params * (batch + step_context) + 4.0 * step_context**3
    exact = num_rows if num_rows <= MOST_EXACT_ROWS else _SUBSET
    evaluations = _EVALUATIONS if num_rows <= MOST_EXACT_ROWS else 300
    judged = 2 * posterior.flops
    if num_rows > FEW_ROWS:
        each = plan(model, prior, X[:_JUDGED_ROWS], C, include_training=False).flops
        judged = posterior.flops + _JUDGED * each
    algebra = judged + evaluations * 3.0 * exact**3
    seconds = _SECONDS_AT_LEAST + found.steps * step / _TRAINING_RATE + algebra / _LINEAR_ALGEBRA_RATE
    return FitPlan(tuple(widths), found.steps, found.num_context, seconds, posterior.peak_bytes)
