"""What a fit did, parameter by parameter."""

import math
from collections.abc import Mapping

import equinox as eqx
import numpy as np
from jaxtyping import Float
from rich.table import Table

from fsplaplace.host import table_text
from fsplaplace.prior import Prior
from fsplaplace.tuning._optimize import Box
from fsplaplace.tuning._parameters import ParameterSpace

# A logarithm this close to its bound counts as being at it.
_AT_BOUND = 1e-3


class ParameterRow(eqx.Module):
    """One number: its value before and after, its standard error, and the bounds it was kept in.

    `standard_error` is NaN where the data does not determine it; `at_bound` is "lower", "upper" or "" and `fixed` says
    that it was not fitted.
    """

    name: str = eqx.field(static=True)
    before: float
    after: float
    standard_error: float
    lower: float
    upper: float
    at_bound: str = eqx.field(static=True, default="")
    fixed: bool = eqx.field(static=True, default=False)

    @property
    def is_smallest_noise(self) -> bool:
        """Whether this is noise that ended at the least that is tried, as for targets that are exact."""
        return self.name.startswith("likelihood.scale") and self.at_bound == "lower"


class FitReport(eqx.Module):
    """How parameters were fitted; prints as a table.

    Attributes:
        rows: one per number.
        objective: what `value` is.
        value: its value at the end (for minibatches the mean over the last ones).
        trace: what was maximised, along the last stage's path; empty for minibatches.
        restarts: what was maximised at the end of each restart, on `restart_rows` rows.
        restart_rows: how many rows the restarts saw.
        num_rows: how many rows the last stage saw at once.
        method: the optimiser of the last stage.
        evaluations: how often the objective was evaluated.
        seconds: on the clock.
        notes: what you should know before you use the result.
        maximised: what was maximised, if that is not `objective`.
        tied: whether length scales were kept in proportion to the spread of their columns.
    """

    rows: tuple[ParameterRow, ...]
    objective: str = eqx.field(static=True)
    value: float
    trace: tuple[float, ...]
    restarts: tuple[float, ...]
    restart_rows: int = eqx.field(static=True)
    num_rows: int = eqx.field(static=True)
    method: str = eqx.field(static=True)
    evaluations: int = eqx.field(static=True)
    seconds: float
    notes: tuple[str, ...] = eqx.field(static=True)
    maximised: str = eqx.field(static=True, default="")
    tied: bool = eqx.field(static=True, default=False)

    def __getitem__(self, name: str) -> ParameterRow:
        """The row of a parameter by its name, for instance "kernel.lengthscale"."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no parameter {name!r}; there are {', '.join(row.name for row in self.rows)}")

    def __str__(self) -> str:
        title = f"{self.objective} {self.value:.4f} ({self.num_rows} rows, {self.method}, {self.seconds:.1f} s)"
        table = Table(title=title, title_justify="left")
        for heading in ("parameter", "before", "after", "standard error", "bounds"):
            table.add_column(heading, justify="left" if heading == "parameter" else "right")
        for row in self.rows:
            error = "fixed" if row.fixed else "-" if math.isnan(row.standard_error) else f"{row.standard_error:.2g}"
            bounds = f"{row.lower:.3g} .. {row.upper:.3g}" + (f"  AT {row.at_bound.upper()}" if row.at_bound else "")
            table.add_row(row.name, f"{row.before:.4g}", f"{row.after:.4g}", error, "" if row.fixed else bounds)
        lines = [f"note: {note}" for note in self.notes]
        if self.maximised not in ("", self.objective):
            lines.insert(0, f"maximised: {self.maximised}")
        if len(self.restarts) > 1:
            values = ", ".join(f"{value:.3f}" for value in self.restarts)
            lines.insert(0, f"restarts ({self.restart_rows} rows): {values}")
        return table_text(table, *lines, width=110)


def parameter_rows(
    space: ParameterSpace,
    prior: Prior,
    vector: Float[np.ndarray, " P"],
    errors: Float[np.ndarray, " P"],
    box: Box,
    *,
    noise_scale: np.ndarray | None,
    further_scales: Mapping[str, np.ndarray] | None = None,
) -> tuple[ParameterRow, ...]:
    """Rows for the entries of the vector, in the parameters' own units; `prior` and scales of noise are those before."""
    names = [name for place in space.places for name in _entries(place.name, place.shape)]
    positive = [flag for place in space.places for flag in [place.positive] * place.size]
    before = [number for value in space.values(prior) for number in np.ravel(value)]
    scales = {} if noise_scale is None else {"likelihood.scale": noise_scale}
    for label, scale in (scales | dict(further_scales or {})).items():
        names += _entries(label, np.shape(scale))
        positive += [True] * np.size(scale)
        before += np.ravel(scale).tolist()
    rows = []
    for entry, name in enumerate(names):
        at, low, high, error = (float(part[entry]) for part in (vector, box.lower, box.upper, errors))
        near = _AT_BOUND * box.unit[entry]
        fixed = low == high
        bound = "" if fixed else "lower" if at - low < near else "upper" if high - at < near else ""
        if positive[entry]:
            at, low, high = math.exp(at), math.exp(low), math.exp(high)
            error = error * at
        rows.append(ParameterRow(name, float(before[entry]), at, error, low, high, bound, fixed))
    return tuple(rows)


def mean_rows(space: ParameterSpace, prior: Prior, beta, errors) -> tuple[ParameterRow, ...]:
    """Rows for the coefficients of the mean, which have a closed form and no bounds."""
    names = [name for place in space.mean_places for name in _entries(place.name, place.shape)]
    before = [number for value in space.mean_values(prior) for number in np.ravel(value)]
    return tuple(
        ParameterRow(name, float(old), float(new), float(error), -math.inf, math.inf)
        for name, old, new, error in zip(names, before, beta[: len(names)], errors[: len(names)], strict=True)
    )


def bound_notes(rows: tuple[ParameterRow, ...]) -> list[str]:
    """Parameters that ended at a bound, which the data did not choose."""
    notes, silent = [], [row for row in rows if row.is_smallest_noise]
    reached = [f"{row.name} = {row.after:.3g} ({row.at_bound})" for row in rows if row.at_bound and row not in silent]
    if reached:
        notes.append(
            f"these parameters ended at a bound, so the data did not choose their values: {', '.join(reached)}; use a "
            "simpler kernel, or fix them with paramax.non_trainable"
        )
    if silent:
        found = ", ".join(f"{row.name} = {row.after:.3g}" for row in silent)
        notes.append(
            f"the targets look free of noise; {found} is the smallest that is tried, and no interval of a target is narrower than that"
        )
    return notes


def _entries(name: str, shape: tuple[int, ...]) -> list[str]:
    return [name + (f"[{', '.join(map(str, index))}]" if index else "") for index in np.ndindex(*shape)]
