"""Running an experiment: cell by cell, each written when done, then the result and its figures."""

import dataclasses
import io
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fsplaplace._version import __version__
from fsplaplace.arguments import checked
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Row, Summary
from fsplaplace.experiments._records import (
    ResultFormatError,
    environment,
    fingerprint,
    read_record,
    write_record,
)
from fsplaplace.host import write_atomically

RESULT = "fsplaplace experiment result"
_CELL = "fsplaplace experiment cell"
# Settings that say which cells to run, not how.
_SELECTION = ("tasks", "methods", "fvi_seeds", "other_seeds", "large_seeds")


@checked(computes=False)
def reproduce(
    experiment: Experiment,
    *,
    preset: str = "cpu",
    seeds: int | None = None,
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    out: str | Path = "results",
    finished: bool = False,
    quiet: bool = False,
    console: Console | None = None,
) -> dict[str, Any]:
    """Run what is missing of an experiment and write `NAME-PRESET.json`, its figures and a verdict to `out`.

    Args:
        experiment: from `fsplaplace.experiments.get`.
        preset: "quick", "cpu" or "paper".
        seeds: how many seeds; the preset's by default.
        tasks: some of the preset's tasks, where it has several; the result then holds these alone.
        methods: some of the preset's methods, where it lists them; the result then holds these alone.
        out: a directory, made if need be. Finished cells are kept in `out/cells` and are used again.
        finished: run nothing: the result has the cells that are finished, and names those that are missing.
        quiet: draw no progress bar.

    Returns the content of the result file.
    """
    for name, wanted in (("tasks", tasks), ("methods", methods)):
        if wanted is not None and not wanted:
            raise ValueError(f"reproduce: {name} is empty; pass at least one, or None for all")
    if preset not in experiment.presets:
        raise ValueError(f"{experiment.name} has no preset {preset!r}; pass one of {', '.join(experiment.presets)}")
    settings = dict(experiment.presets[preset])
    seeds = int(settings.pop("seeds")) if seeds is None else seeds
    settings.pop("seeds", None)
    settings |= {} if tasks is None else {"tasks": _chosen(experiment, tasks, settings.get("tasks", ()))}
    if methods is not None:
        settings["methods"] = _chosen(experiment, methods, settings.get("methods", ()), what="methods")
    out = Path(out)
    _check_writable(out)
    cells, directory = experiment.cells(settings, seeds), out / "cells" / f"{experiment.name}-{preset}"
    if finished:
        outcomes, seconds = _read_cells(experiment, cells, settings, directory)
    else:
        outcomes, seconds = _run_cells(experiment, cells, settings, directory, quiet, console)
    rows = [
        {"task": cell.task, "method": row.method, "seed": cell.seed, "scores": row.scores, "note": row.note}
        for cell, outcome in outcomes.items()
        for row in outcome.rows
    ]
    summary = Summary(rows)
    stem = f"{experiment.name}-{preset}"
    figures = experiment.figures(outcomes, settings)
    content = {
        "name": experiment.name,
        "title": experiment.title,
        "place": experiment.place,
        "preset": preset,
        "settings": settings,
        "seeds": seeds,
        **environment(),
        "seconds": round(sum(seconds.values()), 1),
        "seconds_per_cell": {cell.file_name[:-5]: round(value, 1) for cell, value in seconds.items()},
        "verdict": experiment.verdict(summary),
        "scores": experiment.scores,
        "counterparts": experiment.counterparts,
        "summary": summary.as_rows(),
        "published": [number.as_dict() for number in experiment.published],
        "notes": experiment.notes,
        "missing": [cell.file_name[:-5] for cell in cells if cell not in outcomes],
        "choices": {cell.file_name[:-5]: outcome.choices for cell, outcome in outcomes.items() if outcome.choices},
        "rows": rows,
        "figures": [f"{stem}-{name}.png" for name in figures],
    }
    for name, figure in figures.items():
        _save(figure, out / f"{stem}-{name}")
    write_record(out / f"{stem}.json", RESULT, content)
    return read_record(out / f"{stem}.json", RESULT)


def _chosen(experiment: Experiment, wanted: Sequence[str], known: Sequence[str], *, what: str = "tasks") -> list[str]:
    """These tasks or methods in the preset's order."""
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        listed = f"pass some of {'; '.join(known) if what == 'methods' else ', '.join(known)}"
        none = "it has one task, leave tasks out" if what == "tasks" else "it lists no methods, leave methods out"
        raise ValueError(f"{experiment.name}: {what} is {list(wanted)}; {listed if known else none}")
    return [name for name in known if name in wanted]


def _read_cells(
    experiment: Experiment, cells: Sequence[Cell], settings: Mapping, directory: Path
) -> tuple[dict[Cell, Outcome], dict[Cell, float]]:
    """Outcomes and seconds of the cells that are finished."""
    found = {cell: _finished(directory / cell.file_name, cell_identity(experiment, cell, settings)) for cell in cells}
    records = {cell: record for cell, record in found.items() if record is not None}
    if not records:
        raise FileNotFoundError(
            f"{experiment.name}: none of {len(cells)} cells in {directory} is finished under these settings; leave finished out to run them"
        )
    return (
        {cell: _outcome(record["outcome"]) for cell, record in records.items()},
        {cell: record["seconds"] for cell, record in records.items()},
    )


def _run_cells(
    experiment: Experiment,
    cells: Sequence[Cell],
    settings: Mapping,
    directory: Path,
    quiet: bool,
    console: Console | None,
) -> tuple[dict[Cell, Outcome], dict[Cell, float]]:
    outcomes: dict[Cell, Outcome] = {}
    seconds: dict[Cell, float] = {}
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(experiment.name, total=len(cells))
        for cell in cells:
            bar.update(task, description=f"{cell.task}, {cell.method}, seed {cell.seed}")
            identity = cell_identity(experiment, cell, settings)
            path = directory / cell.file_name
            done = _finished(path, identity)
            if done is None:
                began = time.perf_counter()
                with jax.enable_x64(True):
                    # Where a cell may keep what it would otherwise have to do again; no part of what it depends on.
                    outcome = experiment.run(cell, {**settings, "directory": directory})
                took = time.perf_counter() - began
                record = {"identity": identity, "seconds": took, "outcome": dataclasses.asdict(outcome)}
                write_record(path, _CELL, record)
                done = read_record(path, _CELL)
            outcomes[cell], seconds[cell] = _outcome(done["outcome"]), done["seconds"]
            bar.advance(task)
    return outcomes, seconds


def cell_identity(experiment: Experiment, cell: Cell, settings: Mapping) -> str:
    """A hash of all that a cell's outcome depends on; which other cells there are is not part of it."""
    relevant = {name: value for name, value in settings.items() if name not in _SELECTION}
    return fingerprint(experiment.name, relevant, dataclasses.asdict(cell), __version__)


def _finished(path: Path, identity: str) -> dict[str, Any] | None:
    """The cell's record if it was finished under the same settings."""
    if not path.is_file():
        return None
    try:
        record = read_record(path, _CELL)
    except ResultFormatError:
        return None
    return record if record.get("identity") == identity else None


def _outcome(record: Mapping[str, Any]) -> Outcome:
    rows = tuple(Row(**row) for row in record["rows"])
    return Outcome(rows, record["choices"], record["curves"])


def _check_writable(out: Path) -> None:
    """Say before an hour of work, not after, that its result cannot be written."""
    out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK):
        raise PermissionError(f"{out} cannot be written to; pass another directory as --out")
    probe = out / ".writable"
    probe.touch()
    probe.unlink()


def _save(figure: Figure, stem: Path) -> None:
    for suffix in ("png", "pdf"):
        buffer = io.BytesIO()
        metadata = {"CreationDate": None} if suffix == "pdf" else None
        figure.savefig(buffer, format=suffix, dpi=110, bbox_inches="tight", metadata=metadata)
        write_atomically(stem.with_name(f"{stem.name}.{suffix}"), buffer.getvalue())
