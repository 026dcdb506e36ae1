"""A process that fits many sizes does not run out of memory maps, and a fork says what would otherwise never return."""

import os
import subprocess
import sys

from fsplaplace.host import _process, ready_to_compute


def test_programs_are_dropped_before_the_maps_run_out(monkeypatch, tmp_path):
    dropped = []
    monkeypatch.setattr(_process.jax, "clear_caches", lambda: dropped.append(True))
    (tmp_path / "limit").write_text("100")
    monkeypatch.setattr(_process, "_MOST_MAPS", tmp_path / "limit")
    monkeypatch.setattr(_process, "_MAPS", tmp_path / "maps")
    for lines, expected in ((14, []), (16, [True])):
        (tmp_path / "maps").write_text("one\n" * lines)
        ready_to_compute(may_drop=False)
        assert dropped == []
        ready_to_compute()
        assert dropped == expected


def test_a_fit_in_a_forked_process_is_refused_instead_of_waiting_forever():
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
from fsplaplace.host import ready_to_compute
pid = os.fork()
if pid == 0:
    ready_to_compute()  # nothing was computed before: fine
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
ready_to_compute()
pid = os.fork()
if pid == 0:
    try:
        ready_to_compute()
    except RuntimeError as error:
        os._exit(7 if "loky" in str(error) else 8)
    os._exit(9)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=300, check=False, env=dict(os.environ))
    assert done.returncode == 7
