"""Processes killed while they write: afterwards there is the old file or the new one, and the work goes on.

Every process is a fork of one that has imported what the library needs and computed nothing, so that 500 of them take minutes. Each
is ended by SIGKILL at a random moment after it has said that it is at work.
"""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import io
import json
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

# Kills of each kind, together 500, and the longest wait before the kill in seconds: about one round of the work.
# Those that compute come first: GPJax starts JAX when it is imported, and a fork of a process that has done so cannot compute.
KILLS = {"checkpoint": (40, 0.6), "fit": (10, 0.5), "save": (275, 0.02), "reproduce": (175, 0.15)}
_NEEDED = (
    "equinox",
    "optax",
    "scipy.stats",
    "scipy.linalg",
    "sklearn.base",
    "matplotlib.figure",
    "safetensors.numpy",
    "typer",
)
# On the clock, which other programs share.
_LIMIT_SECONDS = 900


def campaign(folder: Path, *, scale: float = 1.0, kinds: Iterable[str] = KILLS) -> dict[str, Any]:
    """Kill, look, go on; for each kind of work the number of kills, of files found old, new or broken, and of works lost."""
    for name in _NEEDED:
        importlib.import_module(name)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MPLBACKEND", "agg")
    return {name: _KINDS[name](folder / name, max(2, int(KILLS[name][0] * scale)), KILLS[name][1]) for name in kinds}


def _in_fork(work: Callable[[Callable[[], None]], None], *, kill_within: float | None, generator=None) -> bool:
    """Run `work(ready)` in a fork; kill it that long after it is ready, or wait for it. Whether it ended by itself, well."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                work(lambda: os.write(writer, b"r"))
            code = 0
        except BaseException as error:  # the parent only sees the code
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    os.close(writer)
    try:
        if kill_within is not None and os.read(reader, 1):
            time.sleep(float(generator.uniform(0, kill_within)))
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(_wait(child)) == 0
    finally:
        os.close(reader)


def _wait(child: int) -> int:
    began = time.monotonic()
    while time.monotonic() < began + _LIMIT_SECONDS:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError(f"a process did not end within {_LIMIT_SECONDS} seconds")


def _leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.part")]


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _save(folder: Path, count: int, wait: float) -> dict[str, Any]:
    """`fsplaplace.save` of two trained networks in turn over one file."""
    folder.mkdir()
    path, generator = folder / "trained.safetensors", np.random.default_rng(0)
    import trust_files

    import fsplaplace as fsp

    _, trained = trust_files._trained()
    # Saving them computes nothing, so that a fork of a process that has computed can do it.
    both = [trained, dataclasses.replace(trained, jitter=2 * trained.jitter)]
    wholes = []
    for each in both:
        fsp.save(path, each)
        wholes.append(path.read_bytes())
    assert wholes[0] != wholes[1]

    def write(ready):
        ready()
        for turn in range(10_000):
            fsp.save(path, both[turn % 2])

    found: collections.Counter = collections.Counter()
    for _ in range(count):
        _in_fork(write, kill_within=wait, generator=generator)
        found["whole" if path.exists() and path.read_bytes() in wholes else "broken"] += 1
    return {
        "kills": count,
        "files": dict(found),
        "lost": found["broken"],
        **_cleaned(folder, lambda: write_once(path, wholes[0])),
    }


def write_once(path: Path, data: bytes) -> None:
    """Write a file as the library does."""
    from fsplaplace.host._files import write_into

    write_into(path, data)


def _cleaned(folder: Path, write_again: Callable[[], None]) -> dict[str, int]:
    """What killed writers left, and what of it is there after the next writer, once it is old enough."""
    left = _leftovers(folder)
    for path in left:
        os.utime(path, (0, 0))
    assert _in_fork(lambda _: write_again(), kill_within=None)
    return {"left by killed writers": len(left), "left in the end": len(_leftovers(folder))}


def _checkpoint(folder: Path, count: int, wait: float) -> dict[str, Any]:
    """`fsplaplace.train` with a checkpoint, killed again and again, against a run that was left alone."""
    folder.mkdir()
    generator, steps = np.random.default_rng(1), 2000

    def train(name: str, ready: Callable[[], None]):
        import jax
        import jax.random as jr
        import trust_files

        import fsplaplace as fsp

        fsp.cache_programs(folder / "programs")
        model, prior, likelihood, X, y = trust_files._problem()
        context = fsp.context.Uniform([-1.0], [1.0])
        options: dict[str, Any] = {"key": jr.key(0), "steps": steps, "num_context": 10, "progress": False}
        ready()
        found = fsp.train(model, prior, likelihood, context, X, y, checkpoint=folder / name, **options)
        np.save(
            folder / f"{name}.npy", np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found.model.params)])
        )

    assert _in_fork(lambda ready: train("alone", ready), kill_within=None)
    kills, resumed, different = 0, 0, 0
    while kills < count:
        (folder / "killed").unlink(missing_ok=True)
        for _ in range(4):  # the same run, killed several times
            ended = _in_fork(lambda ready: train("killed", ready), kill_within=4 * wait, generator=generator)
            kills += not ended
            if ended or kills >= count:
                break
        if not _in_fork(lambda ready: train("killed", ready), kill_within=None):
            different += 1
            continue
        resumed += 1
        different += not np.array_equal(np.load(folder / "alone.npy"), np.load(folder / "killed.npy"))
    data = (folder / "killed").read_bytes()
    return {"kills": kills, "files": {"resumed to the same weights": resumed - different}, "lost": different,
            **_cleaned(folder, lambda: write_once(folder / "killed", data))}  # fmt: skip


def _fit(folder: Path, count: int, wait: float) -> dict[str, Any]:
    """`fsplaplace fit` over a model that is there: its writing, with the fit itself done once."""
    folder.mkdir()
    generator = np.random.default_rng(2)
    table, out = folder / "table.csv", folder / "out"
    X = np.random.default_rng(0).uniform(-1, 1, (12, 2))
    table.write_text("a,b,c\n" + "".join(f"{a},{b},{a * b}\n" for a, b in X))

    def fit(seed: int, ready: Callable[[], None], *, rounds: int = 1):
        from fsplaplace import cache_programs, estimators
        from fsplaplace.cli import _tables

        def wanted(seed: int) -> _tables.Wanted:
            return _tables.Wanted("c", kernel="rbf", steps=1, seed=seed, quiet=True)

        cache_programs(folder / "programs")
        kept, real = folder / f"model-{seed}.pickle", estimators.FSPRegressor.fit

        def fit_once(self, X, y):
            if not kept.exists():
                kept.write_bytes(pickle.dumps(real(self, X, y)))
            self.__dict__.update(pickle.loads(kept.read_bytes()).__dict__)
            return self

        estimators.FSPRegressor.fit = fit_once
        if rounds > 1:
            _tables.fit_table(table, folder / "elsewhere", wanted(seed))
        ready()
        for turn in range(rounds):
            _tables.fit_table(table, out, wanted((seed + turn) % 2))

    for seed in (1, 0):
        assert _in_fork(lambda ready, seed=seed: fit(seed, ready), kill_within=None)
    found: collections.Counter = collections.Counter()
    for turn in range(count):
        _in_fork(lambda ready, turn=turn: fit(turn % 2, ready, rounds=50), kill_within=wait, generator=generator)
        found[_model_state(out)] += 1
    assert _in_fork(lambda ready: fit(0, ready), kill_within=None)
    last = _model_state(out)
    for path in _leftovers(folder):
        os.utime(path, (0, 0))
    left = len(_leftovers(folder))
    assert _in_fork(lambda ready: fit(0, ready), kill_within=None)
    return {"kills": count, "files": dict(found), "lost": found["broken"] + (last != "whole"), "left by killed writers": left,
            "left in the end": len(_leftovers(folder))}  # fmt: skip


def _model_state(out: Path) -> str:
    """Both files whole and of one fit, whole and of two (which `predict` refuses by name), or broken; without the library."""
    try:
        record = json.loads((out / "model.json").read_text())
        sealed = hashlib.sha256(json.dumps(record["content"], sort_keys=True, allow_nan=False).encode()).hexdigest()
        with safe_open(out / "posterior.safetensors", framework="numpy") as file:
            arrays = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118 (not a dict)
    except (ValueError, OSError, KeyError, SafetensorError):
        return "broken"
    if sealed != record["sha256"] or not arrays:
        return "broken"
    same = record["content"]["posterior_sha256"] == _digest(out / "posterior.safetensors")
    return "whole" if same else "of two fits, refused"


def _reproduce(folder: Path, count: int, wait: float) -> dict[str, Any]:
    """`fsplaplace reproduce` of an experiment of quick cells, killed, against one that was left alone."""
    folder.mkdir()
    generator = np.random.default_rng(3)
    # Its cells compute nothing: what they need is imported once, and each fork begins at once.
    importlib.import_module("fsplaplace.experiments")

    def run(name: str, ready: Callable[[], None]):
        from fsplaplace.experiments import reproduce

        ready()
        reproduce(_quick_experiment(), preset="quick", out=folder / name, quiet=True)

    assert _in_fork(lambda ready: run("alone", ready), kill_within=None)
    wanted = json.loads((folder / "alone" / "cells-quick.json").read_text())["content"]["rows"]
    kills, finished, different = 0, 0, 0
    while kills < count:
        name = f"killed-{finished}"
        work = functools.partial(run, name)
        ended = _in_fork(work, kill_within=wait, generator=generator)
        kills += not ended
        if ended or kills % 6 == 5:
            assert ended or _in_fork(work, kill_within=None)
            rows = json.loads((folder / name / "cells-quick.json").read_text())["content"]["rows"]
            different += rows != wanted
            finished += 1

    def run_anew():
        for result in folder.rglob("*.json"):
            result.unlink()
        for each in range(finished + 1):  # the last one was killed, too
            run(f"killed-{each}", lambda: None)

    return {"kills": kills, "files": {"finished with the same rows": finished - different}, "lost": different,
            **_cleaned(folder, run_anew)}  # fmt: skip


def _quick_experiment():
    from matplotlib.figure import Figure

    from fsplaplace.experiments import Cell, Experiment, Outcome, Row

    class Cells(Experiment):
        """Twelve cells that take no time."""

        name, title, place = "cells", "Cells", "nowhere"
        presets = {"quick": {"seeds": 12}}  # noqa: RUF012
        scores = {"score": ("score", "{:.2f}", "lower")}  # noqa: RUF012

        def cells(self, settings, seeds):
            return [Cell("task", "method", seed) for seed in range(seeds)]

        def run(self, cell, settings):
            time.sleep(0.002)
            return Outcome((Row("method", {"score": float(cell.seed)}),), {}, {"curve": list(range(200))})

        def figures(self, outcomes, settings):
            return {"figure": Figure(figsize=(1, 1))}

        def verdict(self, summary):
            return "done"

    return Cells()


_KINDS = {"save": _save, "checkpoint": _checkpoint, "fit": _fit, "reproduce": _reproduce}
