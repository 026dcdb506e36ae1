"""`FSPRegressor()` on tables of 10 to 100 rows in 5 to 300 columns, against `BayesianRidge`.

    python benchmarks/small_tables.py [--quick] [--out benchmarks/results]

Targets are drawn from Gaussian processes that are known (the first columns matter, or all of them alike), made by
scikit-learn's generators, or are rows of its diabetes table. "network" is the estimator as it comes, "process" the exact Gaussian
process with the same fitted prior (`method="gp"`): what they share is the prior's, what differs the network's. Scores are
means over tables of one kind: log predictive density in units of the training targets' standard deviation, coverage of the 90 %
interval.

Writes `small_tables.json` and `.md` after every table; a run that was cut goes on where it stopped.
"""

import argparse
import itertools
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from results import markdown_table, read_rows, write_results
from scipy.stats import norm
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3, make_regression
from sklearn.linear_model import BayesianRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fsplaplace.estimators import FSPRegressor

TEST_ROWS = 300
SEEDS = 3
METHODS = ("network", "process", "BayesianRidge")
# Kind of table, rows, columns.
TABLES = (
    ("GP, all columns", 10, 10),
    ("GP, all columns", 20, 5),
    ("GP, all columns", 50, 300),
    ("GP, all columns", 100, 20),
    ("GP, three columns", 20, 10),
    ("GP, three columns", 50, 10),
    ("GP, three columns", 100, 50),
    ("friedman1", 30, 10),
    ("friedman1", 100, 10),
    ("friedman2", 30, 4),
    ("friedman3", 30, 4),
    ("linear", 20, 10),
    ("linear", 50, 100),
    ("linear", 50, 300),
    ("diabetes", 20, 10),
    ("diabetes", 100, 10),
)
QUICK = (("GP, three columns", 20, 5), ("linear", 12, 10))


def draw(kind: str, rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of training and test rows."""
    generator, count = np.random.default_rng(seed), rows + TEST_ROWS
    match kind:
        case "GP, all columns":
            X = generator.normal(size=(count, columns))
            return X, _process(X, np.full(columns, columns**0.5), generator)
        case "GP, three columns":
            X = generator.normal(size=(count, columns))
            return X, _process(X, np.where(np.arange(columns) < 3, 2.0, 1e6), generator)
        case "friedman1":
            return make_friedman1(count, columns, noise=1.0, random_state=seed)
        case "friedman2":
            return make_friedman2(count, noise=50.0, random_state=seed)
        case "friedman3":
            return make_friedman3(count, noise=0.1, random_state=seed)
        case "linear":
            made = make_regression(count, columns, n_informative=min(10, columns), noise=20.0, random_state=seed)
            return np.asarray(made[0]), np.asarray(made[1])
        case "diabetes":
            X, y = map(np.asarray, load_diabetes(return_X_y=True))
            chosen = generator.permutation(len(X))[:count]
            return X[chosen], y[chosen]
    raise ValueError(f"kind is {kind!r}; pass one of {', '.join(dict.fromkeys(table[0] for table in TABLES))}")


def _process(X: np.ndarray, lengthscales: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A draw of an RBF process of variance one with noise of standard deviation 0.2."""
    scaled = X / lengthscales
    distance = np.sum(scaled**2, axis=1)[:, None] + np.sum(scaled**2, axis=1) - 2 * scaled @ scaled.T
    gram = np.exp(-0.5 * np.maximum(distance, 0.0)) + 0.04 * np.eye(len(X))
    return np.linalg.cholesky(gram) @ generator.normal(size=len(X))


def regressor(method: str, steps: int) -> Any:
    """An estimator that is not fitted yet."""
    if method == "BayesianRidge":
        return make_pipeline(StandardScaler(), BayesianRidge())
    return FSPRegressor(random_state=0, method={"network": "fsp-laplace", "process": "gp"}[method], steps=steps)


def one_table(kind: str, rows: int, columns: int, seed: int, method: str, steps: int) -> dict:
    """Fit to the first rows, score on the others."""
    X, y = draw(kind, rows, columns, seed)
    spread = y[:rows].std()
    began = time.process_time()
    with warnings.catch_warnings():
        # What a fit says about single tables is not what is measured.
        warnings.simplefilter("ignore", UserWarning)
        model = regressor(method, steps).fit(X[:rows], y[:rows])
    seconds = time.process_time() - began
    mean, std = model.predict(X[rows:], return_std=True)
    return {
        "kind": kind, "rows": rows, "columns": columns, "seed": seed, "method": method,
        "log_predictive_density": float(np.mean(norm.logpdf(y[rows:], mean, std))) + float(np.log(spread)),
        "coverage": float(np.mean(np.abs(y[rows:] - mean) <= norm.ppf(0.95) * std)),
        "rmse": float(np.sqrt(np.mean((y[rows:] - mean) ** 2)) / spread), "cpu_seconds": round(seconds, 2),
    }  # fmt: skip


def tables(rows: list[dict]) -> str:
    """One table per measure, one line per kind of table."""
    about = " ".join((__doc__ or "").split("\n\n")[2].split())
    parts = [f"{about} Tables of each kind: {len({row['seed'] for row in rows})}."]
    kinds = list(dict.fromkeys((row["kind"], row["rows"], row["columns"]) for row in rows))
    methods = [method for method in METHODS if any(row["method"] == method for row in rows)]
    for measure, title in (
        ("log_predictive_density", "Log predictive density (higher is better)"),
        ("coverage", "Coverage of the 90 % interval"),
        ("rmse", "RMSE over the targets' standard deviation"),
        ("cpu_seconds", "CPU seconds of a fit"),
    ):
        body = [
            [f"{kind[0]}, {kind[1]} x {kind[2]}", *(_mean(rows, kind, method, measure) for method in methods)]
            for kind in kinds
        ]
        parts.append(f"## {title}\n\n" + markdown_table(["table", *methods], body))
    return "\n\n".join([parts[0], _targets(rows, kinds), *parts[1:]])


def _targets(rows: list[dict], kinds: list[tuple]) -> str:
    """How many kinds of tables meet what was wanted."""
    body = []
    for method in METHODS[:2]:
        found = [
            [_mean(rows, kind, name, measure) for name, measure in (
                (method, "coverage"), (method, "log_predictive_density"), ("BayesianRidge", "log_predictive_density")
            )]
            for kind in kinds
        ]  # fmt: skip
        known = [each for each in found if None not in each]
        covered = sum(0.8 <= each[0] <= 0.97 for each in known)
        dense = sum(each[1] >= each[2] - 0.1 for each in known)
        body.append([method, len(known), covered, dense])
    header = ["", "kinds of tables", "coverage from .8 to .97", "log density at most 0.1 below BayesianRidge's"]
    return markdown_table(header, body)


def _mean(rows: list[dict], kind: tuple, method: str, measure: str) -> float | None:
    found = [
        row[measure] for row in rows if (row["kind"], row["rows"], row["columns"], row["method"]) == (*kind, method)
    ]
    return float(np.mean(found)) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description="FSPRegressor() on tables with few rows")
    parser.add_argument("--quick", action="store_true", help="two tables, one seed, few steps")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", default=Path(__file__).parent / "results", type=Path)
    options = parser.parse_args()
    chosen, seeds, steps = (QUICK, 1, 50) if options.quick else (TABLES, options.seeds, 2000)
    settings = {"tables": [list(table) for table in chosen], "seeds": seeds, "steps": steps, "test_rows": TEST_ROWS}
    began, rows = time.perf_counter(), read_rows(options.out, "small_tables", settings)
    done = {tuple(row[name] for name in ("kind", "rows", "columns", "seed", "method")) for row in rows}
    # Every table once before any twice, so that a run that was cut has all of them.
    for seed, table in itertools.product(range(seeds), chosen):
        for method in (each for each in options.methods if (*table, seed, each) not in done):
            rows.append(one_table(*table, seed, method, steps))
        write_results(options.out, "small_tables", rows, settings, seconds=time.perf_counter() - began, tables=tables)


if __name__ == "__main__":
    main()
