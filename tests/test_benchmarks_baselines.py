"""The benchmark of the methods, in a size that fits a test."""

import importlib.util
import json
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def benchmark():
    path = Path(__file__).parents[1] / "benchmarks" / "baselines.py"
    spec = importlib.util.spec_from_file_location("benchmarks_baselines", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # One process for all: the memory of each is not what the test is about.
    module.in_own_process = module.measure
    return module


def test_rows_are_scored_properly_and_kept_when_others_are_run(benchmark, tmp_path):
    for method in ("map", "diagonal", "gp"):
        benchmark.main(["--tasks", "sine", "--methods", method, "--steps", "5", "--out", str(tmp_path)])
    rows = {row["method"]: row for row in json.loads((tmp_path / "baselines.json").read_text())}
    assert list(rows) == ["map", "diagonal", "gp"]
    assert all(row["noise_scale"] == pytest.approx(0.1, rel=1e-3) for row in rows.values())
    # Five steps teach a network nothing, while the process needs none; without epistemic variance both scores are one.
    assert rows["gp"]["log_predictive_density"] > rows["diagonal"]["log_predictive_density"]
    assert rows["map"]["log_predictive_density"] == pytest.approx(rows["map"]["expected_log_likelihood"], rel=1e-4)
    assert rows["diagonal"]["log_predictive_density"] > rows["diagonal"]["expected_log_likelihood"]
    assert (tmp_path / "baselines.md").read_text().count("| sine |") == 3
