"""Every example runs from start to end; what it claims, it asserts itself."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_EXAMPLES = Path(__file__).parent.parent / "examples"
# What an example needs beyond the core.
_NEEDS = {
    "bo_active_learning": "botorch",
    "bo_ax": "ax",
    "bo_constrained": "botorch",
    "bo_multi_objective": "botorch",
    "conformal_and_forecasting": "mapie",
    "scikit_learn_tools": "pandas",
    "own_network_flax": "flax",
    "own_network_haiku": "haiku",
    "own_network_torch": "torch",
    "quickstart": "matplotlib",
    "every_plot": "matplotlib",
    "classification": "matplotlib",
    "physics_prior": "matplotlib",
    "slopes": "matplotlib",
    "monthly_means": "matplotlib",
    "heat_equation": "matplotlib",
    "poisson": "matplotlib",
    "pendulum": "matplotlib",
    "coast_line": "matplotlib",
    "sum_sensor": "matplotlib",
}


@pytest.mark.parametrize("path", sorted(_EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example_is_a_page(path):
    """Title and a paragraph first, nothing before the first cell, headings of cells in the text: `make docs` renders it as it is."""
    source = path.read_text(encoding="utf-8")
    assert re.match(r"# %% \[markdown\]\n# # .+\n#\n# \S", source)
    assert set(re.findall(r"^# %%.*$", source, re.M)) == {"# %%", "# %% [markdown]"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in _EXAMPLES.glob("*.py") if path.stem != "demo"))
def test_example_runs(name):
    if name in _NEEDS:
        pytest.importorskip(_NEEDS[name], reason=f"examples/{name}.py needs {_NEEDS[name]}")
    done = subprocess.run(
        [sys.executable, _EXAMPLES / f"{name}.py"],
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
