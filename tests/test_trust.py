"""Samples of the campaign of `python benchmarks/trust.py`: wrong values, damaged files, killed writers, wrong commands."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# Every so many-th of the 4,700 calls; all of them are run by the command.
SAMPLE = 17


@pytest.fixture
def part(tmp_path):
    """Runs a part in a process of its own, without the type checks of the test suite, which no user has."""

    def run(*arguments: str):
        command = [sys.executable, str(BENCHMARKS / "trust.py"), *arguments]
        environment = os.environ | {"MPLBACKEND": "agg", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        return done.stdout.splitlines()[-1]

    return run


def test_no_wrong_value_is_met_with_silence_or_an_obscure_error(part, tmp_path):
    part("--here", "--sample", str(SAMPLE), "--out", str(tmp_path))
    (found,) = json.loads((tmp_path / "trust.json").read_text())["rows"]
    assert found["cases"] > 200
    assert found["not_clear"] == []
    assert found["longest_seconds"] < 10


@pytest.mark.slow
def test_no_damaged_file_is_read_as_something_else(part):
    found = json.loads(part("--part", "files", "--sample", "60"))
    assert sum(sum(kind["outcomes"].values()) for kind in found["kinds"].values()) > 300
    assert [fault for kind in found["kinds"].values() for fault in kind["faults"]] == []


@pytest.mark.slow
def test_no_command_ends_in_a_traceback_or_in_silence(part):
    found = json.loads(part("--part", "commands", "--sample", "6"))
    assert found["cases"] > 20
    assert found["not_clear"] == []


def test_no_file_is_lost_by_a_kill(part):
    """Those that compute are left to the command: each takes seconds to start."""
    found = json.loads(part("--part", "kills", "--sample", "12", "--kinds", "save", "reproduce"))
    assert sum(kind["kills"] for kind in found["kinds"].values()) >= 30
    assert [name for name, kind in found["kinds"].items() if kind["lost"] or kind["left in the end"]] == []


def test_every_finding_has_its_test(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    assert importlib.import_module("trust_findings").missing() == []
