"""A first fit, and the next ones: CPU seconds and compiled programs of `FSPRegressor().fit`, beside scikit-learn's process.

    python benchmarks/first_fit.py                # benchmarks/results/first_fit.json and .md
    python benchmarks/first_fit.py --quick        # small tables and few steps, for the test suite
    python benchmarks/first_fit.py --kinds fits   # one part anew; the others stay as they were measured

Every row is measured in a process of its own: `import jax` and `import fsplaplace`; a fit of 331 x 10 rows, again, with other
numbers of rows of the same bucket, and of another one; the same with the programs of an earlier process on disk. scikit-learn's
Gaussian process has the same kernel and 3 restarts; ours is compared warm.
"""

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from results import markdown_table, write_results

# Rows of the fits one after the other: 331 and 380 are padded to 384, 400 to 448.
ROWS = {"first": 331, "again": 331, "another n of the bucket": 380, "another bucket": 400}
# With fewer rows the fitted noise is now and then so small that a smoother kernel is tried, whose programs are then compiled.
QUICK_ROWS = {"first": 100, "again": 100, "another n of the bucket": 110, "another bucket": 140}
COLUMNS = 10
PEER_ROWS, QUICK_PEER_ROWS = (300, 1000, 1500), (30,)
KINDS = ("imports", "fits", "cached", "peers")
PHASES = {
    "fit_prior": ("fsplaplace.estimators._evidence", "fit_prior"),
    "network": ("fsplaplace.estimators._base", "mlp"),
    "train": ("fsplaplace.laplace._fit", "train"),
    "laplace": ("fsplaplace.laplace._fit", "laplace"),
}


def table(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of three of ten columns, with noise."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(num_rows, COLUMNS))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * generator.normal(size=num_rows)


# What runs in a process of its own.


def imports() -> list[dict]:
    """CPU seconds of both imports."""
    found = []
    for name in ("jax", "fsplaplace"):
        began = time.process_time()
        importlib.import_module(name)
        found.append({"what": f"import {name}", "seconds": time.process_time() - began})
    return found


def fits(quick: bool, cache: str | None) -> list[dict]:
    """Fits one after the other, and a prediction after each."""
    import fsplaplace as fsp

    if cache is not None:
        fsp.cache_programs(cache)
    counter, found = _Counter(), []
    for seed, (what, num_rows) in enumerate((QUICK_ROWS if quick else ROWS).items()):
        X, y = table(num_rows, seed)
        with _phases(counter) as phases:
            before = counter.now()
            estimator = fsp.FSPRegressor(random_state=0, steps=50 if quick else 2000).fit(X, y)
            whole = counter.since(before)
            before = counter.now()
            estimator.predict(X[:50], return_std=True)
            phases["predict"] = counter.since(before)
        found.append({"what": what, "rows": num_rows, **whole, "phases": phases})
    return found


def peers(num_rows: int, quick: bool) -> list[dict]:
    """A warm fit of ours and a fit of scikit-learn's process."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    import fsplaplace as fsp

    kernel = ConstantKernel() * Matern(np.ones(COLUMNS), nu=1.5) + WhiteKernel()
    ours = fsp.FSPRegressor(random_state=0, steps=50 if quick else 2000)
    theirs = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, normalize_y=True, random_state=0)
    X, y = table(num_rows, 0)
    ours.fit(*table(num_rows, 1))
    found = []
    for what, model in (("fsplaplace, warm", ours), ("scikit-learn's process", theirs)):
        began = time.process_time()
        model.fit(X, y)
        found.append({"what": what, "rows": num_rows, "seconds": time.process_time() - began})
    return found


class _Counter:
    """CPU seconds of this process, and programs that XLA has compiled in it."""

    def __init__(self) -> None:
        import jax.monitoring

        self.programs = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, _seconds: float, **_) -> None:
        self.programs += "backend_compile" in event

    def now(self) -> tuple[float, int]:
        return time.process_time(), self.programs

    def since(self, before: tuple[float, int]) -> dict[str, float]:
        seconds, programs = self.now()
        return {"seconds": seconds - before[0], "programs": programs - before[1]}


@contextlib.contextmanager
def _phases(counter: _Counter) -> Iterator[dict[str, dict]]:
    """What each phase of the fits inside took."""
    found, kept = {}, []
    for phase, (module, name) in PHASES.items():
        place = importlib.import_module(module)
        function = getattr(place, name)
        kept.append((place, name, function))

        def timed(*args, _function=function, _phase=phase, **kwargs):
            before = counter.now()
            try:
                return _function(*args, **kwargs)
            finally:
                spent, known = counter.since(before), found.get(_phase, {"seconds": 0.0, "programs": 0})
                found[_phase] = {key: known[key] + value for key, value in spent.items()}

        setattr(place, name, timed)
    try:
        yield found
    finally:
        for place, name, function in kept:
            setattr(place, name, function)


# What runs here.


def measured(kind: str, *options: str) -> list[dict]:
    """The rows of a process of its own."""
    command = [sys.executable, __file__, "--measure", kind, *options]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    return [{"kind": kind, **row} for row in json.loads(ran.stdout.splitlines()[-1])]


def tables(rows: list[dict]) -> str:
    """Markdown from the rows."""
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    parts = [
        "CPU seconds on one core.",
        markdown_table(("", "s"), [(r["what"], r["seconds"]) for r in by_kind["imports"]]),
    ]
    for kind, title in (("fits", "Without programs on disk"), ("cached", "With the programs of an earlier process")):
        names = [*PHASES, "predict"]
        body = [
            [row["what"], row["rows"], f"{row['seconds']:.1f}", row["programs"], *_cells(row["phases"], names)]
            for row in by_kind[kind]
        ]
        header = ("fit", "rows", "s", "programs", *(f"{name}: s (programs)" for name in names))
        parts += [f"## {title}", markdown_table(header, body)]
    body = [(row["rows"], row["what"], f"{row['seconds']:.1f}") for row in by_kind["peers"]]
    parts += ["## Beside scikit-learn's Gaussian process", markdown_table(("rows", "", "s"), body)]
    return "\n\n".join(["# A first fit, and the next ones", *parts])


def _cells(phases: dict[str, dict], names: list[str]) -> list[str]:
    parts = (phases.get(name) for name in names)
    return ["-" if part is None else f"{part['seconds']:.1f} ({part['programs']})" for part in parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        warnings.simplefilter("ignore")
        run = {
            "imports": imports,
            "fits": lambda: fits(arguments.quick, None),
            "cached": lambda: fits(arguments.quick, arguments.cache),
            "peers": lambda: peers(arguments.rows, arguments.quick),
        }
        print(json.dumps(run[arguments.measure]()))
        return
    began = time.perf_counter()
    quick = ("--quick",) if arguments.quick else ()
    path = arguments.out / "first_fit.json"
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = [row for row in before if row["kind"] not in arguments.kinds]
    if "imports" in arguments.kinds:
        rows += measured("imports")
    if "fits" in arguments.kinds:
        rows += measured("fits", *quick)
    if "cached" in arguments.kinds:
        with tempfile.TemporaryDirectory() as folder:
            measured("cached", *quick, "--cache", folder)
            rows += measured("cached", *quick, "--cache", folder)
    if "peers" in arguments.kinds:
        for count in QUICK_PEER_ROWS if arguments.quick else PEER_ROWS:
            rows += measured("peers", *quick, "--rows", str(count))
    settings = {"rows": ROWS, "columns": COLUMNS, "quick": arguments.quick}
    write_results(arguments.out, "first_fit", rows, settings, seconds=time.perf_counter() - began, tables=tables)


if __name__ == "__main__":
    main()
