"""`FSPRegressor()` on tables of more than 2,000 rows, one split into 90 % and 10 % of the rows.

    python benchmarks/large_tables.py [--tables bike protein] [--methods normal forest] [--directory benchmarks/results]

Scores are in standard deviations of the training targets; "fast", "normal" and "thorough" are `FSPRegressor(effort=)`, without
another argument. What a fit chooses, it chooses by rows held out of its training rows; the levels of effort followed earlier test errors
on denmark and parkinsons. The arm is known: the distance of a planar arm's hand, with eight links, from a
point, and noise of .05 standard deviations; arm 100,000 is the same with more rows. The forest's density is a Gaussian with
the variance of its out-of-bag residuals, that of boosted quantiles is described in `benchmarks/table_peers.py`. Memory is the most that
the fit's own process held; "code" is the commit that a row was measured with.

Each finished fit is written at once, and a second run continues where the first one stopped.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from estimators import fit as fit_peer
from results import markdown_table, peak_memory, write_results
from scipy.stats import norm

from fsplaplace import datasets
from fsplaplace.estimators import FSPRegressor

TABLES = ("denmark", "parkinsons", "sml", "pumadyn32nm", "bike", "naval", "protein", "arm 36,000", "arm 100,000")
# Parts of the target among the features.
LEAKS = {"bike": 2}
EFFORTS = ("fast", "normal", "thorough")
PEERS = {"forest": "RandomForestRegressor", "boosted quantiles": "boosted quantiles", "MLP": "MLPRegressor"}
NOISE, LINKS = 0.05, 8


def load(table: str):
    """Training and test rows; targets in standard deviations of the training rows."""
    if table.startswith("arm"):
        X, y = arm(round(int(table.split()[1].replace(",", "")) / 0.9))
    else:
        data = datasets.load(table)
        X, y = data.X[:, : data.X.shape[1] - LEAKS.get(table, 0)], data.y.ravel()
    order = np.random.default_rng(0).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    scaled = (y - y[train].mean()) / y[train].std()
    return X[train], scaled[train], X[test], scaled[test]


def arm(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Angles of eight joints, at most a quarter turn each, and the distance of the hand from a point."""
    generator = np.random.default_rng(0)
    angles = generator.uniform(-np.pi / 4, np.pi / 4, (num_rows, LINKS))
    hand = np.exp(1j * np.cumsum(angles, axis=1)).sum(axis=1)
    distance = np.abs(hand - 6.0)
    return angles, distance + NOISE * distance.std() * generator.normal(size=num_rows)


def one_fit(table: str, method: str) -> dict:
    """Log predictive density, RMSE, coverage of the 90 % interval, CPU seconds and memory."""
    X, y, X_test, y_test = load(table)
    began, worked = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = ""
        if method in EFFORTS:
            model = FSPRegressor(random_state=0, effort=method).fit(X, y)
            spent = time.process_time() - worked, time.perf_counter() - began
            mean, std = model.predict(X_test, return_std=True)
            found = model.posterior_.diagnostics
            chosen = f"{found.mean}, {'noise' if found.missed_as_noise else 'function'}, noise {model.noise_:.3g}"
        else:
            predict = fit_peer(PEERS[method], X, y)
            spent = time.process_time() - worked, time.perf_counter() - began
            mean, std = predict(X_test)
    return {
        "table": table, "method": method, "rows": len(y), "columns": X.shape[1], "code": _commit(),
        "cpu_seconds": round(spent[0], 1), "seconds": round(spent[1], 1), "bytes": peak_memory(),
        "log_predictive_density": float(np.mean(norm.logpdf(y_test, mean, std))),
        "rmse": float(np.sqrt(np.mean((y_test - mean) ** 2))),
        "coverage": float(np.mean(np.abs(y_test - mean) <= norm.ppf(0.95) * std)), "chosen": chosen,
    }  # fmt: skip


def _commit() -> str | None:
    """Of this file's repository; None outside of one."""
    ran = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"], check=False, capture_output=True, text=True
    )  # fmt: skip
    return ran.stdout.strip() or None


def in_own_process(table: str, method: str) -> dict:
    """The same, with memory of its own."""
    command = [sys.executable, __file__, "--one", table, method]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout.splitlines()[-1])


def tables(rows: list[dict]) -> str:
    """One line for each fit."""
    body = [
        [
            row["table"], f"{row['rows']:,} x {row['columns']}", row["method"], f"{row['log_predictive_density']:.2f}", f"{row['rmse']:.3f}",
            f"{row['coverage']:.2f}", f"{row['cpu_seconds']:.0f}", f"{row['bytes'] / 2**30:.1f}", row["chosen"], row["code"],
        ]
        for row in sorted(rows, key=lambda row: (TABLES.index(row["table"]), row["method"] not in EFFORTS, row["method"]))
    ]  # fmt: skip
    head = [
        "data", "rows", "method", "log predictive density", "RMSE", "coverage of 90 %", "CPU s", "GiB", "mean, missed variance as, noise", "code",
    ]  # fmt: skip
    return (__doc__ or "").split("\n\n")[2].replace("\n", " ") + "\n\n" + markdown_table(head, body)


def main() -> None:
    parser = argparse.ArgumentParser(description="FSPRegressor on tables of more than 2,000 rows")
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument(
        "--methods", nargs="+", default=("normal", "forest", "boosted quantiles"), choices=(*EFFORTS, *PEERS)
    )
    parser.add_argument("--directory", default=Path(__file__).parent / "results", type=Path)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one_fit(*options.one)))
        return
    path = options.directory / "large_tables.json"
    before = json.loads(path.read_text()) if path.exists() else {"rows": [], "seconds": 0.0}
    rows, began = before["rows"], time.perf_counter()
    done = {(row["table"], row["method"]) for row in rows}
    for table in options.tables:
        for method in options.methods:
            if (table, method) in done:
                continue
            rows.append(in_own_process(table, method))
            print(rows[-1], flush=True)
            elapsed = before["seconds"] + time.perf_counter() - began
            write_results(options.directory, "large_tables", rows, {"share": 0.1}, seconds=elapsed, tables=tables)


if __name__ == "__main__":
    main()
