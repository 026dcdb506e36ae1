"""Every benchmark in a size that fits a test: what it measures must make sense, not only be written."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fsplaplace import datasets

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run a benchmark's command in this process and give back its rows."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def run(name: str, *arguments: str, out: str = "--out"):
        module = importlib.import_module(name)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments, out, str(tmp_path)])
        try:
            module.main()
        except datasets.DatasetUnavailableError as error:
            # UCI tables are not in the repository: without mirror and network there is nothing to measure.
            pytest.skip(str(error))
        assert (tmp_path / f"{name}.md").read_text().count("|---|") >= 1
        return json.loads((tmp_path / f"{name}.json").read_text())["rows"]

    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_default_dtype()
    yield run
    # A command may set it for its own process.
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_default_dtype(before or torch.float32)


@pytest.mark.slow
def test_methods_are_scored_properly_and_rows_kept_when_others_are_run(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    benchmark = importlib.import_module("baselines")
    # One process for all: the memory of each is not what the test is about.
    monkeypatch.setattr(benchmark, "in_own_process", benchmark.measure)
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


@pytest.mark.slow
def test_kernel_engines_agree_to_rounding(run):
    rows = run("kernels", "--quick")
    engines = [row for row in rows if row["kind"] == "engine"]
    assert len(engines) == 11
    assert max(row["ours_error"] for row in engines) < 1e-5
    assert max(row["error"] for row in rows if row["kind"] == "gram") < 1e-5


@pytest.mark.slow
def test_covariance_form_is_closer_to_the_exact_process_than_the_paper_s(run):
    rows = run("fidelity", "--quick")
    worst = {
        form: max(row["std"] for row in rows if row["form"] == form and row["initialisation"] == "matched")
        for form in ("covariance", "precision")
    }
    assert worst["covariance"] < 0.1 * worst["precision"]


@pytest.mark.slow
def test_what_is_known_before_training_ranks_networks_as_training_does(run):
    rows = run("width", "--quick")
    narrow, wide = (row for row in rows if row["part"] == "grid")
    assert narrow["loss"] > 2 * wide["loss"]
    assert narrow["trained"] > 2 * wide["trained"]
    (chosen,) = (row for row in rows if row["part"] == "auto")
    assert chosen["width"] >= 50
    assert chosen["loss"] < wide["loss"]


@pytest.mark.slow
def test_fitted_prior_is_scored_beside_the_exact_process(run):
    (row,) = run("priors", "--quick")
    assert row["2 x 50, float32"]["score"] - row["gp"] > -0.5
    assert row["tune"]["evidence"] >= row["1 x 400, float64"]["evidence"] - 0.1
    assert np.all(np.diff(row["tune"]["trace"]) >= -1e-6)


@pytest.mark.slow
def test_estimators_beat_a_straight_line_on_a_curved_table(run):
    rows = run(
        "estimators",
        "--datasets",
        "yacht",
        "--methods",
        "FSPRegressor",
        "BayesianRidge",
        "--folds",
        "1",
        out="--directory",
    )
    scores = {row["method"]: row["log_predictive_density"] for row in rows}
    assert scores["FSPRegressor"] > scores["BayesianRidge"] + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "peer", ["NGBoost", "CatBoost", "boosted quantiles", "deep ensemble", "GPyTorch exact", "GPyTorch SVGP"]
)
def test_peers_predict_noise_that_is_known(monkeypatch, peer):
    if peer in ("NGBoost", "CatBoost"):
        pytest.importorskip(peer.lower())
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    peers = importlib.import_module("table_peers")
    monkeypatch.setattr(peers, "TREES", (100, 200))
    generator, noise = np.random.default_rng(0), 0.3
    X = generator.uniform(-2, 2, (400, 1))
    truth = np.sin(2 * X[:, 0])
    mean, std = peers.PEERS[peer](X[:200], truth[:200] + noise * generator.standard_normal(200))(X[200:])
    assert mean.shape == std.shape == (200,)
    assert np.sqrt(np.mean((mean - truth[200:]) ** 2)) < 0.5 * noise
    assert 0.7 * noise < np.median(std) < 1.4 * noise


@pytest.mark.slow
def test_small_tables_are_scored_beside_a_straight_line(run):
    rows = run("small_tables", "--quick")
    assert {row["method"] for row in rows} == {"network", "process", "BayesianRidge"}
    assert all(row["log_predictive_density"] > -3 for row in rows if row["method"] == "process")


@pytest.mark.slow
def test_sine_task_is_timed_and_memory_measured(run):
    times, memory = run("core", "--quick")
    assert times["seconds"]["posterior, warm"] < times["seconds"]["posterior, cold"]
    assert times["seconds"]["posterior, default context points, cold"] > times["seconds"]["posterior, warm"]
    assert 0 < memory["bytes"] < 1e9


@pytest.mark.slow
def test_growth_is_measured_beside_the_plan(run):
    rows = run("scale", "--quick", "--only", "growth")
    assert {row["axis"] for row in rows} == {"n", "p", "m"}
    assert all(0.5 < row["planned"] / row["bytes"] < 2 for row in rows)


@pytest.mark.slow
def test_structure_of_this_tree_is_measured(run):
    (row,) = run("structure", "--quick")
    values = row["values"]
    assert row["tree"] == "after"
    assert values["files at the root"] == len(list((BENCHMARKS.parent / "src" / "fsplaplace").glob("*.py")))
    assert values["import cycles of modules, at import"] == "0 in 0 modules"
    cold, warm = (int(values[f"`laplace`, {state}: switches between files"].split()[0]) for state in ("cold", "warm"))
    assert 0 < values["`laplace`, warm: different switches"] < warm <= cold
    assert values["programs of a cold posterior"] > 0


@pytest.mark.slow
def test_a_case_that_was_wrong_is_right_in_this_tree(run):
    rows = run("cases", "--quick")
    assert rows
    assert all(row["after"] == row["wanted"] for row in rows)


def test_every_case_names_tests_that_exist(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    cases = importlib.import_module("cases")
    assert list(cases.TESTS) == list(cases.CASES)
    for path, name in (test.split("::") for tests in cases.TESTS.values() for test in tests):
        assert f"def {name}(" in (BENCHMARKS.parent / path).read_text(), f"{path} has no {name}"


@pytest.mark.slow
def test_the_verdict_is_compared_with_the_exact_process(run):
    rows = run("verdict", "--quick")
    assert len(rows) == 4
    assert all(abs(row["estimate"] - row["loss"]) < max(0.03, 0.7 * abs(row["loss"])) for row in rows)


@pytest.mark.slow
def test_missed_variance_is_scored_as_function_and_as_noise(run):
    rows = run("missed_variance", "--quick")
    for row in rows:
        assert row["chosen"] == pytest.approx(min(row["function"], row["noise"]), abs=max(0.05, 0.5 * row["chosen"]))


@pytest.mark.slow
def test_operators_are_measured_beside_the_exact_process_and_cells_are_kept(run, tmp_path):
    rows = {row["part"]: row for row in run("operators", "--quick", "--only", "linear")}
    assert list(rows) == ["linear"]
    again = {row["part"]: row for row in run("operators", "--quick")}
    assert list(again) == ["linear", "conditioning", "equations", "time"]
    assert again["linear"] == rows["linear"]
    assert rows["linear"]["values, mean"] < 0.005
    assert rows["linear"]["values, std"] < 0.002
    assert rows["linear"]["evidence"] < 0.1
    assert again["conditioning"]["equality"] < 1e-9
    assert again["conditioning"]["leave one out"] < 1e-8
    assert again["equations"]["mean"] < 0.1 * again["equations"]["exact error"]
    assert again["time"]["network, warm"] < again["time"]["network, cold"]
    assert "time, 10000, float64: not measured" in (tmp_path / "operators.md").read_text()


@pytest.mark.slow
def test_a_first_fit_compiles_and_the_next_of_its_bucket_does_not(run):
    rows = run("first_fit", "--quick")
    fits = {(row["kind"], row["what"]): row for row in rows if row["kind"] in ("fits", "cached")}
    assert fits["fits", "first"]["programs"] > 0
    assert fits["fits", "again"]["programs"] == fits["fits", "another n of the bucket"]["programs"] == 0
    assert all(row["seconds"] > 0 for row in rows)


@pytest.mark.slow
def test_the_surrogate_is_timed_and_scored_beside_botorch_s(run):
    pytest.importorskip("botorch")
    rows = {row["kind"]: row for row in run("bo", "--quick")}
    assert rows["time"]["ratio"] == pytest.approx(rows["time"]["seconds"] / rows["time"]["gp_seconds"])
    assert rows["moments"]["corners_mean_error"] < 0.01
    assert rows["density"]["ours"] > rows["density"]["constant"] - 0.5


@pytest.mark.slow
def test_the_authors_recipe_learns_its_noise(run, monkeypatch):
    benchmark = importlib.import_module("paper_settings")
    monkeypatch.setattr(benchmark, "CHANGES", (benchmark.AUTHORS,))
    (row,) = run("paper_settings", "--tasks", "Mauna Loa", "--steps", "30", "--seeds", "1")
    # Thirty steps of 2e-4 in the logarithm.
    assert 0 < abs(np.log(row["found_noise"] / benchmark.mauna_loa.NOISE)) < 0.01
    assert np.isfinite(row["mse"])


def test_the_arm_of_the_large_tables_is_a_known_function(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    benchmark = importlib.import_module("large_tables")
    angles, y = benchmark.arm(4000)
    turned = np.cumsum(angles, axis=1)
    distance = np.hypot(np.cos(turned).sum(axis=1) - 6.0, np.sin(turned).sum(axis=1))
    assert angles.shape == (4000, 8)
    assert np.std(y - distance) == pytest.approx(benchmark.NOISE * np.std(distance), rel=0.05)
