"""A sample of the campaign of wrong values: whatever a public function is given, it says what to do, or does what it should."""

import json
import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# Every so many-th of the 3,500 cases; all of them are run by `python benchmarks/trust.py`.
SAMPLE = 17


def test_no_wrong_value_is_met_with_silence_or_an_obscure_error(tmp_path):
    """In a process of its own, without the type checks of the test suite, which no user has."""
    command = [sys.executable, str(BENCHMARKS / "trust.py"), "--here", "--sample", str(SAMPLE), "--out", str(tmp_path)]
    environment = os.environ | {"MPLBACKEND": "agg", "JAX_PLATFORMS": "cpu"}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    (found,) = json.loads((tmp_path / "trust.json").read_text())["rows"]
    assert found["cases"] > 150
    assert found["not_clear"] == []
    assert found["longest_seconds"] < 10
