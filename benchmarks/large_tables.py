"""`FSPRegressor()` on tables of more than 2,000 rows, one split into 90 % and 10 % of the rows.

    python benchmarks/large_tables.py [--tables denmark parkinsons] [--effort fast normal] [--directory benchmarks/results]

Scores are in standard deviations of the training targets. Each finished fit is written at once, and a second run continues
where the first one stopped. Nothing in the library was chosen on these test rows.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from results import markdown_table, write_results
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor

from fsplaplace import datasets
from fsplaplace.estimators import FSPRegressor

TABLES = ("denmark", "parkinsons", "sml", "pumadyn32nm", "bike", "naval", "protein")
# Parts of the target among the features.
LEAKS = {"bike": 2}
FOREST = "forest"


def load(table: str):
    """Training and test rows; targets in standard deviations of the training rows."""
    data = datasets.load(table)
    X, y = data.X[:, : data.X.shape[1] - LEAKS.get(table, 0)], data.y.ravel()
    order = np.random.default_rng(0).permutation(len(y))
    test, train = np.split(order, [len(y) // 10])
    scaled = (y - y[train].mean()) / y[train].std()
    return X[train], scaled[train], X[test], scaled[test]


def one_fit(table: str, method: str) -> dict:
    """Log predictive density, RMSE, coverage of the 90 % interval and CPU seconds."""
    X, y, X_test, y_test = load(table)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = ""
        if method == FOREST:
            model = RandomForestRegressor(200, oob_score=True, random_state=0).fit(X, y)
            mean, std = model.predict(X_test), np.full(len(y_test), np.std(y - model.oob_prediction_))
        else:
            options = {} if method == "default" else {"effort": method}
            model = FSPRegressor(random_state=0, **options).fit(X, y)
            mean, std = model.predict(X_test, return_std=True)
            found = model.posterior_.diagnostics
            chosen = f"{found.mean}, {'noise' if found.missed_as_noise else 'function'}, noise {model.noise_:.3g}"
    return {
        "table": table, "method": method, "rows": len(y), "cpu_seconds": round(time.process_time() - began, 1),
        "log_predictive_density": float(np.mean(norm.logpdf(y_test, mean, std))),
        "rmse": float(np.sqrt(np.mean((y_test - mean) ** 2))),
        "coverage": float(np.mean(np.abs(y_test - mean) <= norm.ppf(0.95) * std)), "chosen": chosen,
    }  # fmt: skip


def tables(rows: list[dict]) -> str:
    """One line for each fit."""
    body = [
        [
            row["table"], row["rows"], row["method"], f"{row['log_predictive_density']:.2f}", f"{row['rmse']:.3f}",
            f"{row['coverage']:.2f}", row["cpu_seconds"], row["chosen"],
        ]
        for row in sorted(rows, key=lambda row: (TABLES.index(row["table"]), row["method"]))
    ]  # fmt: skip
    head = [
        "data",
        "rows",
        "effort",
        "log predictive density",
        "RMSE",
        "coverage of 90 %",
        "CPU s",
        "mean, missed variance as, noise",
    ]
    return __doc__.split("\n\n")[2].replace("\n", " ") + "\n\n" + markdown_table(head, body)


def main() -> None:
    parser = argparse.ArgumentParser(description="FSPRegressor on tables of more than 2,000 rows")
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--effort", nargs="+", default=("fast", "normal", FOREST))
    parser.add_argument("--directory", default=Path(__file__).parent / "results", type=Path)
    options = parser.parse_args()
    path = options.directory / "large_tables.json"
    before = json.loads(path.read_text()) if path.exists() else {"rows": [], "seconds": 0.0}
    rows, began = before["rows"], time.perf_counter()
    done = {(row["table"], row["method"]) for row in rows}
    for table in options.tables:
        for method in options.effort:
            if (table, method) in done:
                continue
            rows.append(one_fit(table, method))
            print(rows[-1], flush=True)
            elapsed = before["seconds"] + time.perf_counter() - began
            write_results(options.directory, "large_tables", rows, {"share": 0.1}, seconds=elapsed, tables=tables)


if __name__ == "__main__":
    main()
