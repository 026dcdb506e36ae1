"""A prediction as text."""

from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from fsplaplace.host import table_text

if TYPE_CHECKING:
    from fsplaplace.laplace._predictive import Prediction

# Rows at the beginning and at the end, and outputs, that are shown.
_SHOWN_ROWS, _SHOWN_OUTPUTS = 5, 3


def prediction_table(prediction: "Prediction") -> str:
    """Mean, standard deviation of the function and of new targets, of the first and last rows."""
    mean, std = np.asarray(prediction.mean), np.asarray(prediction.std)
    noisy = None if prediction.noise_variance is None else np.sqrt(np.asarray(prediction.total_variance))
    outside = None if prediction.outside is None else np.asarray(prediction.outside)
    (n, q), shown = mean.shape, min(mean.shape[1], _SHOWN_OUTPUTS)
    title, table = f"prediction at {n} inputs" + (f", {q} outputs" if q > 1 else ""), Table()
    table.add_column("row", justify="right")
    for output in range(shown):
        label = f" {output}" if q > 1 else ""
        for heading in (f"mean{label}", f"std{label}", *([f"std of a target{label}"] if noisy is not None else [])):
            table.add_column(heading, justify="right")
    rows = list(range(n)) if n <= 2 * _SHOWN_ROWS else [*range(_SHOWN_ROWS), None, *range(n - _SHOWN_ROWS, n)]
    for row in rows:
        if row is None:
            table.add_row("...")
            continue
        cells = []
        for output in range(shown):
            cells += [f"{mean[row, output]:.4g}", f"{std[row, output]:.3g}"]
            if noisy is not None:
                cells.append(f"{noisy[row, min(output, noisy.shape[1] - 1)]:.3g}")
        table.add_row(str(row) + ("*" if outside is not None and outside[row] else ""), *cells)
    notes = []
    if q > shown:
        notes.append(f"and {q - shown} more outputs")
    if outside is not None and outside.any():
        notes.append(
            f"* {int(outside.sum())} inputs lie outside the box of the context points: the prior is all that is known there"
        )
    return table_text(title, table, *notes, width=80)
