"""Cells are run once, kept across interruptions, and summed up with standard errors."""

import math

import pytest
from matplotlib.figure import Figure

from fsplaplace.experiments import Cell, Experiment, Outcome, ResultFormatError, Row, read_record, reproduce
from fsplaplace.experiments._experiment import Summary
from fsplaplace.experiments._runner import RESULT


class Counting(Experiment):
    """Scores equal to the seed; may be interrupted before a cell."""

    name, title, place = "counting", "Counting", "nowhere"
    presets = {"quick": {"seeds": 3, "factor": 2.0, "methods": ["a"]}}  # noqa: RUF012
    scores = {"value": ("value", "{:.2f}", "lower")}  # noqa: RUF012

    def __init__(self, interrupt_at: int | None = None):
        self.interrupt_at, self.ran = interrupt_at, []

    def cells(self, settings, seeds):
        return [Cell("task", method, seed) for method in settings["methods"] for seed in range(seeds)]

    def run(self, cell, settings):
        if cell.seed == self.interrupt_at:
            raise KeyboardInterrupt
        self.ran.append(cell)
        return Outcome((Row(cell.method, {"value": settings["factor"] * cell.seed}),))

    def figures(self, outcomes, settings):
        figure = Figure()
        figure.add_subplot().plot([row.scores["value"] for outcome in outcomes.values() for row in outcome.rows])
        return {"line": figure}

    def verdict(self, summary):
        return f"mean {summary.mean('task', 'a', 'value')}"


def test_an_interrupted_run_continues_with_the_missing_cells_only(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        reproduce(Counting(interrupt_at=2), preset="quick", out=tmp_path, quiet=True)
    assert not list(tmp_path.glob("*.json"))  # no result before all cells are there
    second = Counting()
    result = reproduce(second, preset="quick", out=tmp_path, quiet=True)
    assert [cell.seed for cell in second.ran] == [2]
    assert result["verdict"] == "mean 2.0"
    assert {file.suffix for file in tmp_path.glob("counting-quick*")} == {".json", ".png", ".pdf"}


def test_a_result_of_finished_cells_runs_nothing_and_names_those_that_are_missing(tmp_path):
    experiment = Counting()
    with pytest.raises(FileNotFoundError, match=r"none of .* cells .* is finished"):
        reproduce(experiment, preset="quick", out=tmp_path, finished=True, quiet=True)
    reproduce(experiment, preset="quick", out=tmp_path, seeds=1, quiet=True)
    ran = list(experiment.ran)
    result = reproduce(experiment, preset="quick", out=tmp_path, seeds=2, finished=True, quiet=True)
    assert experiment.ran == ran
    assert {row["seed"] for row in result["rows"]} == {0}
    assert result["missing"]
    assert all(name.endswith("seed1") for name in result["missing"])


def test_a_damaged_cell_is_run_again(tmp_path):
    reproduce(Counting(), preset="quick", out=tmp_path, quiet=True)
    cell = next((tmp_path / "cells").rglob("*seed1.json"))
    cell.write_text(cell.read_text()[:40])
    again = Counting()
    reproduce(again, preset="quick", out=tmp_path, quiet=True)
    assert [cell.seed for cell in again.ran] == [1]


def test_other_settings_do_not_read_old_cells(tmp_path):
    reproduce(Counting(), preset="quick", out=tmp_path, quiet=True)
    other = Counting()
    other.presets = {"quick": {"seeds": 3, "factor": 5.0, "methods": ["a"]}}
    assert reproduce(other, preset="quick", out=tmp_path, quiet=True)["verdict"] == "mean 5.0"


def test_more_methods_or_seeds_keep_the_cells_that_are_done(tmp_path):
    reproduce(Counting(), preset="quick", out=tmp_path, quiet=True)
    more = Counting()
    more.presets = {"quick": {"seeds": 3, "factor": 2.0, "methods": ["a", "b"]}}
    reproduce(more, preset="quick", seeds=4, out=tmp_path, quiet=True)
    assert [(cell.method, cell.seed) for cell in more.ran] == [("a", 3), *(("b", seed) for seed in range(4))]


def test_a_half_written_result_is_never_a_result(tmp_path):
    reproduce(Counting(), preset="quick", out=tmp_path, quiet=True)
    path = tmp_path / "counting-quick.json"
    path.write_text(path.read_text()[:-200])
    with pytest.raises(ResultFormatError):
        read_record(path, RESULT)


def test_a_file_in_place_of_the_directory_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    experiment = Counting()
    with pytest.raises(OSError):
        reproduce(experiment, preset="quick", out=tmp_path / "file", quiet=True)
    assert not experiment.ran


def test_summary_has_the_standard_error_of_the_mean():
    rows = [{"task": "t", "method": "m", "scores": {"s": value, "absent": None}} for value in (1.0, 2.0, 6.0)]
    summary = Summary(rows)
    mean, error, count = summary.entries["t", "m"]["s"]
    assert (mean, count) == (3.0, 3)
    assert error == pytest.approx(math.sqrt(7.0) / math.sqrt(3.0))  # sample variance (4 + 1 + 9) / 2 = 7
    assert math.isnan(summary.mean("t", "m", "absent"))
    assert math.isnan(summary.mean("t", "other", "s"))
