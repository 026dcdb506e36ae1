"""A process that fits many sizes does not run out of memory maps, and a fork says what would otherwise never return."""

import os
import platform
import subprocess
import sys

import pytest

from fsplaplace.host import _process, ready_to_compute


def test_programs_are_dropped_before_the_maps_run_out(monkeypatch, tmp_path):
    dropped = []
    monkeypatch.setattr(_process.jax, "clear_caches", lambda: dropped.append("programs"))
    monkeypatch.setattr(_process, "_return_freed_memory", lambda: dropped.append("pages"))
    (tmp_path / "limit").write_text("100")
    monkeypatch.setattr(_process, "SHARE_OF_MAPS", 0.15)
    monkeypatch.setattr(_process, "_MOST_MAPS", tmp_path / "limit")
    monkeypatch.setattr(_process, "_MAPS", tmp_path / "maps")
    for lines, expected in ((14, []), (16, ["programs", "pages"])):
        (tmp_path / "maps").write_text("one\n" * lines)
        ready_to_compute(may_drop=False)
        assert dropped == []
        ready_to_compute()
        assert dropped == expected


# Frees 100 MiB in blocks between which every thousandth stays: the C library gives nothing of that back by itself.
FREES = """
from fsplaplace.host import _process

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

blocks = [bytearray(1000) for _ in range(100_000)]
kept = blocks[::1000] + [bytearray(1000)]
blocks.clear()
before = resident()
_process._return_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed pages until it is asked")
def test_what_was_freed_is_returned_to_the_system():
    done = subprocess.run([sys.executable, "-c", FREES], check=True, stdout=subprocess.PIPE, text=True)
    assert int(done.stdout) > 50 * 2**20


# A program that forks: children that compute, and one that only writes a file.
FORKS = """
import os, sys, warnings
warnings.simplefilter("ignore")
import jax.numpy as jnp, jax.random as jr, numpy as np
from gpjax.kernels import RBF
import fsplaplace as fsp

X = np.ones((3, 1))
prior, box = fsp.Prior(RBF()), fsp.context.Uniform(0.0, 1.0)
model = fsp.as_model(fsp.mlp([2], prior=prior, context=box, key=0))
works = {
    "a prediction": lambda: model(X), "a draw": lambda: prior.sample(X, key=0), "points": lambda: box.sample(3, key=0),
    "a score": lambda: fsp.metrics.mse(X, X), "a fit": lambda: fsp.FSPRegressor().fit(X, X[:, 0]),
}
for name, work in works.items():
    if os.fork() == 0:
        try:
            work()
        except RuntimeError as error:
            os._exit(7 if "loky" in str(error) else 8)
        os._exit(9)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    assert code == 7, (name, code)
if os.fork() == 0:
    fsp.save(sys.argv[1], prior)
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_fit_in_a_forked_process_is_refused_instead_of_waiting_forever(tmp_path):
    """So is everything else that computes; what computes nothing, such as `save`, works there."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path / "prior")], timeout=300, check=False, env=dict(os.environ)
    )
    assert done.returncode == 7
    assert (tmp_path / "prior").stat().st_size > 0
