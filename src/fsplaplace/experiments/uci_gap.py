"""Gap and tail splits of the UCI tables: predict where one feature was never seen, between or beyond what was."""

import math
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from fsplaplace.experiments import _figures
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Row, Summary
from fsplaplace.experiments._regression_table import METHODS, OURS, SCORES, Split, fit, load, scores, split

TABLES = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power")
# Best mean log predictive density published for networks, in original units (gap: Foong et al. 2019 and later work on the
# same splits; tail: an ensemble).
PUBLISHED = {
    "gap": {"boston": -2.51, "concrete": -3.31, "energy": -7.6, "kin8nm": 1.24, "power": -2.87, "wine": -0.96, "yacht": -1.58},
    "tail": {"boston": -4.33, "concrete": -3.69, "energy": -34.0, "kin8nm": 1.05, "power": -3.05, "wine": -1.38, "yacht": -2.59},
}  # fmt: skip
# Features of each table, so that the cells are known without the data.
_FEATURES = {"yacht": 6, "boston": 13, "energy": 8, "concrete": 8, "wine": 11, "kin8nm": 8, "power": 4}
_MOST_FEATURES = max(_FEATURES.values())
# More than 2,000 rows, where an exact Gaussian process would take minutes for each feature.
_WITHOUT_GP = ("kin8nm", "power")
_SCORES = {name: described for name, described in SCORES.items() if name != "ood_accuracy"}


def thirds(
    values: Float[np.ndarray, " n"], kind: Literal["gap", "tail"]
) -> tuple[Int[np.ndarray, " t"], Int[np.ndarray, " m"]]:
    """Training and test rows: sorted by these values, the middle third is the test set ("gap"), or the outer two are ("tail").

    Equal values keep the order of the table, so that a feature with few values is cut at the same rows every time.
    """
    order = np.argsort(values, kind="stable")
    low, high = round(len(order) / 3), round(2 * len(order) / 3)
    middle, outer = order[low:high], np.concatenate([order[:low], order[high:]])
    return (outer, middle) if kind == "gap" else (middle, outer)


def split_by_feature(table: str, kind: Literal["gap", "tail"], feature: int) -> Split:
    """A table without the middle, or without the outer thirds, of one feature."""
    return split(table, *thirds(load(table)[0][:, feature], kind))


class UCIGap(Experiment):
    """A split for each feature of each table; the mean is over features."""

    name = "uci-gap"
    title = "UCI tables with a gap in one feature, or without its tails"
    place = "not in the paper: splits of Foong et al. (2019)"
    presets = {  # noqa: RUF012 - constants of the class
        "quick": {
            "seeds": 1, "steps": 100, "estimator_steps": 100, "tasks": ["yacht, gap"], "methods": [OURS, "GP"],
        },
        "cpu": {
            "seeds": _MOST_FEATURES, "steps": 2000, "fvi_steps": 1000, "posterior_context": 1000, "rank": 500,
            "most_step_context": 100, "tasks": [f"{table}, {kind}" for table in TABLES for kind in ("gap", "tail")],
            "methods": [OURS, "Laplace", "MAP", "GP", "Sparse GP"],
        },
        "paper": {
            "seeds": _MOST_FEATURES, "steps": 30_000, "fvi_steps": 30_000, "posterior_context": 50_000, "rank": 500,
            "most_step_context": 10_000, "authors_learning_rates": True,
            "tasks": [f"{table}, {kind}" for table in TABLES for kind in ("gap", "tail")], "methods": list(METHODS),
        },
    }  # fmt: skip
    scores = _SCORES
    counterparts = {name: name for name in METHODS}  # noqa: RUF012
    notes = (
        "One split for each feature, called seed in the files: the test set is the middle third (gap) or the outer two thirds (tail) "
        "of the table sorted by that feature; equal values keep the table's order. Standard errors are over features.",
        "Best mean log predictive densities that others published for networks on such splits, original units, not measured here: "
        + "; ".join(
            f"{kind}: " + ", ".join(f"{table} {value}" for table, value in sorted(found.items()))
            for kind, found in PUBLISHED.items()
        )
        + ".",
        "The exact Gaussian process has the prior that `FSPRegressor` fits, on tables of up to 2,000 rows. Other settings as in the "
        "experiment uci; the paper's settings and FVI are left out of the cpu preset.",
    )

    def cells(self, settings, seeds):
        return [
            Cell(task, method, feature)
            for task in settings["tasks"]
            for feature in range(min(seeds, _FEATURES[_table(task)]))
            for method in settings["methods"]
            if not (method == "GP" and _table(task) in _WITHOUT_GP)
        ]

    def run(self, cell, settings):
        data = split_by_feature(_table(cell.task), _kind(cell.task), cell.seed)
        try:
            fitted = fit(cell.method, data, settings, cell.seed)
        except FloatingPointError as error:
            return Outcome((Row(cell.method, {}, str(error)),))
        return Outcome((Row(cell.method, scores(data, fitted.predict(data.X_test))),), fitted.choices)

    captions = {  # noqa: RUF012
        "log-predictive-density": "Log predictive density of each feature's split, less the exact Gaussian process's or, on larger "
        "tables, the sparse one's; above zero is better than it.",
    }

    def figures(self, outcomes, settings):
        found: dict[str, dict[str, dict[int, float]]] = {}
        for cell, outcome in outcomes.items():
            for row in outcome.rows:
                value = row.scores.get("log_predictive_density")
                if value is not None:
                    found.setdefault(cell.task, {}).setdefault(row.method, {})[cell.seed] = value
        figure, axes = _figures.panels(len(found), columns=4, width=3.0, height=2.0)
        for axis, (task, methods) in zip(axes, found.items(), strict=True):
            reference = methods.get("GP") or methods.get("Sparse GP") or {}
            axis.axhline(0.0, color=_figures.GREY, lw=0.6)
            for number, (method, values) in enumerate(methods.items()):
                gaps = [
                    (feature, value - reference[feature]) for feature, value in values.items() if feature in reference
                ]
                colour = _figures.RED if method == OURS else f"C{2 * number}"
                axis.plot(*zip(*gaps, strict=True), ".", color=colour, label=method)
            axis.set_yscale("symlog", linthresh=0.1)
            axis.set(title=task, xlabel="feature", ylabel="nats")
        axes[0].legend(fontsize=6, frameon=False)
        return {"log-predictive-density": figure}

    def verdict(self, summary):
        parts = []
        for kind, published in PUBLISHED.items():
            tables = [table for table in TABLES if (f"{table}, {kind}", OURS) in summary.entries]
            best = [table for table in tables if _leads(summary, f"{table}, {kind}")]
            # Published means are over all features.
            whole = [table for table in tables if _features_run(summary, f"{table}, {kind}") == _FEATURES[table]]
            reached = [table for table in whole if _density(summary, f"{table}, {kind}", OURS) >= published[table]]
            listed = ", ".join(f"{table} {_density(summary, f'{table}, {kind}', OURS):.2f}" for table in tables)
            if tables:
                parts.append(
                    f"{kind}: FSP-Laplace best or within one standard error of the best on {len(best)} of {len(tables)} tables, at "
                    f"or above the best network published by others on {len(reached)} of {len(whole)} with all features ({listed})"
                )
        return "; ".join(parts) + "."


def _leads(summary: Summary, task: str) -> bool:
    error = summary.entries[task, OURS]["log_predictive_density"][1]
    others = [_density(summary, task, method) for method in METHODS if method != OURS]
    return _density(summary, task, OURS) + error >= max(
        (value for value in others if math.isfinite(value)), default=-math.inf
    )


def _density(summary: Summary, task: str, method: str) -> float:
    return summary.mean(task, method, "log_predictive_density")


def _features_run(summary: Summary, task: str) -> int:
    return summary.entries[task, OURS]["log_predictive_density"][2]


def _table(task: str) -> str:
    return task.partition(", ")[0]


def _kind(task: str) -> Literal["gap", "tail"]:
    return "gap" if task.endswith(", gap") else "tail"


EXPERIMENT = UCIGap()
