"""Methods beside each other over the folds of several data sets: the run, which goes on where it stopped, and its tables."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from results import markdown_table, write_results


class Comparison(NamedTuple):
    """Methods that are compared fold by fold.

    Attributes:
        name: of the files of results.
        datasets: names of the data sets.
        methods: names of the methods.
        folds: how many each data set has.
        measures: titles of the tables by what a row calls them; the first is the score, the higher the better.
        one_fold: from a data set, a method and a fold to a row.
        settings: what the results depend on.
        introduction: what the tables begin with.
    """

    name: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    folds: int
    measures: dict[str, str]
    one_fold: Callable[[str, str, int], dict]
    settings: dict
    introduction: str

    def tables(self, rows: list[dict]) -> str:
        """One table per measure; in bold the best score and those within one standard error of it; "-" for what was not run."""
        parts, score = [self.introduction], next(iter(self.measures))
        run = {row["method"] for row in rows}
        methods = [method for method in self.methods if method in run]
        for measure, title in self.measures.items():
            body = []
            for dataset in [name for name in self.datasets if any(row["dataset"] == name for row in rows)]:
                found = {method: _values(rows, dataset, method, measure) for method in methods}
                found = {method: values for method, values in found.items() if len(values)}
                # Only folds that every method has finished are compared.
                folds = min(map(len, found.values()))
                cells = _cells({m: v[:folds] for m, v in found.items()}, bold=measure == score)
                body.append([f"{dataset} ({folds} folds)", *(cells.get(method, "-") for method in methods)])
            parts.append(f"## {title}\n\n" + markdown_table(["data", *methods], body))
        return "\n\n".join(parts)

    def main(self) -> None:
        """The command: each finished fold is written at once."""
        parser = argparse.ArgumentParser(description=f"{self.methods[0]}() against {', '.join(self.methods[1:])}")
        parser.add_argument("--datasets", nargs="+", default=self.datasets, choices=self.datasets)
        parser.add_argument("--methods", nargs="+", default=self.methods, choices=self.methods)
        parser.add_argument("--folds", type=int, default=self.folds, help=f"how many of the {self.folds}")
        parser.add_argument("--directory", default=Path(__file__).parent / "results", type=Path)
        options = parser.parse_args()
        path = options.directory / f"{self.name}.json"
        before = json.loads(path.read_text()) if path.exists() else {"rows": [], "seconds": 0.0}
        rows, began = before["rows"], time.perf_counter()
        done = {(row["dataset"], row["method"], row["fold"]) for row in rows}
        for dataset in options.datasets:
            for fold in range(options.folds):
                for method in options.methods:
                    if (dataset, method, fold) in done:
                        continue
                    rows.append(self.one_fold(dataset, method, fold))
                    print(rows[-1], flush=True)
                    elapsed = before["seconds"] + time.perf_counter() - began
                    write_results(
                        options.directory, self.name, rows, self.settings, seconds=elapsed, tables=self.tables
                    )


def _values(rows: list[dict], dataset: str, method: str, measure: str) -> np.ndarray:
    found = sorted((row["fold"], row[measure]) for row in rows if (row["dataset"], row["method"]) == (dataset, method))
    return np.array([value for _, value in found])


def _cells(values: dict[str, np.ndarray], *, bold: bool) -> dict[str, str]:
    best = max(values, key=lambda method: values[method].mean())
    cells = {}
    for method, found in values.items():
        error = found.std(ddof=1) / len(found) ** 0.5 if len(found) > 1 else 0.0
        text = f"{found.mean():.3f} ± {error:.3f}"
        # The standard error of the difference over folds: all methods see the same ones.
        gap = values[best] - found
        close = gap.mean() <= (gap.std(ddof=1) / len(gap) ** 0.5 if len(gap) > 1 else 0.0)
        cells[method] = f"**{text}**" if bold and close else text
    return cells
