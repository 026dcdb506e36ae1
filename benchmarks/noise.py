"""`FSPRegressor(noise="auto")` against constant noise, where the noise varies and where it does not.

    python benchmarks/noise.py [--tables energy bike] [--directory benchmarks/results]

Two tables are made: a function of two of five columns with noise whose scale grows by a factor of 20 along one of them, and the same with
constant noise. Of the others one fold of five is the test set; of more than 1,500 training rows 1,500 are used, at random. Log predictive
densities are of targets in standard deviations of the training rows. "gain" is what varying noise adds to the evidence of the leave-one-out
residuals, in nats; it is taken from 3 nats on.

Each finished fit is written at once, and a second run continues where the first one stopped.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from results import markdown_table, write_results
from scipy.stats import norm
from sklearn.model_selection import KFold

from fsplaplace import datasets
from fsplaplace.estimators import FSPRegressor

TABLES = ("made, varying", "made, constant", "energy", "bike", "yacht", "boston", "concrete")
KINDS = ("constant", "auto")
MOST_ROWS = 1500
# Parts of the target among the features.
LEAKS = {"bike": 2}


def load(table: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets."""
    if table.startswith("made"):
        generator = np.random.default_rng(0)
        X = generator.uniform(-1, 1, (600, 5))
        scale = np.exp(-2 + 1.5 * X[:, 0]) if table == "made, varying" else np.full(600, 0.2)
        return X, np.sin(3 * X[:, 0]) + X[:, 1] + scale * generator.normal(size=600)
    data = datasets.load(table)
    return data.X[:, : data.X.shape[1] - LEAKS.get(table, 0)], data.y.ravel()


def one_fit(table: str, kind: str) -> dict:
    """Log predictive density, RMSE, coverage of the 90 % interval, gain and CPU seconds."""
    X, y = load(table)
    train, test = next(iter(KFold(5, shuffle=True, random_state=0).split(X)))
    train = np.random.default_rng(0).permutation(train)[:MOST_ROWS]
    spread, began = y[train].std(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FSPRegressor(noise=kind, random_state=0).fit(X[train], y[train])
        mean, std = model.predict(X[test], return_std=True)
    profile = model.noise_profile_
    return {
        "table": table, "noise": kind, "rows": len(train), "cpu_seconds": round(time.process_time() - began, 1),
        "log_predictive_density": float(np.mean(norm.logpdf(y[test], mean, std)) + np.log(spread)),
        "rmse": float(np.sqrt(np.mean((y[test] - mean) ** 2)) / spread),
        "coverage": float(np.mean(np.abs(y[test] - mean) <= norm.ppf(0.95) * std)),
        "gain": None if profile is None else round(profile.gain, 1),
    }  # fmt: skip


def tables(rows: list[dict]) -> str:
    """One line for each fit."""
    body = [
        [
            row["table"], row["rows"], row["noise"], f"{row['log_predictive_density']:.3f}", f"{row['rmse']:.3f}",
            f"{row['coverage']:.2f}", "" if row["gain"] is None else row["gain"], row["cpu_seconds"],
        ]
        for row in sorted(rows, key=lambda row: (TABLES.index(row["table"]), KINDS.index(row["noise"])))
    ]  # fmt: skip
    head = [
        "data",
        "rows",
        "noise",
        "log predictive density",
        "RMSE",
        "coverage of 90 %",
        "gain, if it varies",
        "CPU s",
    ]
    return " ".join((__doc__ or "").split("\n\n")[2].split()) + "\n\n" + markdown_table(head, body)


def main() -> None:
    parser = argparse.ArgumentParser(description="Noise that varies, chosen by evidence")
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--directory", default=Path(__file__).parent / "results", type=Path)
    options = parser.parse_args()
    path = options.directory / "noise.json"
    before = json.loads(path.read_text()) if path.exists() else {"rows": [], "seconds": 0.0}
    rows, began = before["rows"], time.perf_counter()
    done = {(row["table"], row["noise"]) for row in rows}
    for table in options.tables:
        for kind in KINDS:
            if (table, kind) in done:
                continue
            rows.append(one_fit(table, kind))
            print(rows[-1], flush=True)
            elapsed = before["seconds"] + time.perf_counter() - began
            write_results(options.directory, "noise", rows, {"most_rows": MOST_ROWS}, seconds=elapsed, tables=tables)


if __name__ == "__main__":
    main()
