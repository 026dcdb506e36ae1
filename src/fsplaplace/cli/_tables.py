"""`fsplaplace fit` and `predict`: a table in, predictions with uncertainty out."""

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from fsplaplace import metrics
from fsplaplace.arguments import check_finite
from fsplaplace.cli._columns import Column, encode, learn_column, missing, target_numbers
from fsplaplace.cli._figure import Fit, write_figure
from fsplaplace.cli._kernel import kernel_text
from fsplaplace.cli._reading import TextTable, read_text_table
from fsplaplace.cli._saved import (
    WRITTEN,
    model_folder,
    prepare_folder,
    read_description,
    save_model,
    saved_network,
    sha256_of,
)
from fsplaplace.estimators import FSPRegressor, candidates
from fsplaplace.host import check_target, write_atomically
from fsplaplace.laplace import VerdictWarning

# Fewer rows leave nothing to fit and score.
_FEWEST_ROWS = 5
_FEWEST_FITTED = 2


class Wanted(NamedTuple):
    """What `fsplaplace fit` was asked for.

    Attributes:
        target: the column to predict.
        features: inputs; all other columns if there are none.
        drop: columns to leave out.
        categorical: columns of codes that are names, not numbers.
        drop_missing: leave out rows that lack a value in a column that is used.
        kernel: see `kernel_text`; the estimator's if None.
        period: see `kernel_text`.
        test: which rows are held out, the last or random ones.
        test_fraction: share of the rows held out.
        effort: of the fit; the estimator's if None.
        steps: of training; the estimator's if None.
        seed: of the split and the fit.
        quiet: no progress.
    """

    target: str
    features: Sequence[str] = ()
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    drop_missing: bool = False
    kernel: str | None = None
    period: str | None = None
    test: Literal["random", "last"] = "random"
    test_fraction: float = 0.2
    effort: str | None = None
    steps: int | None = None
    seed: int = 0
    quiet: bool = False


def fit_table(path: Path, out: Path, wanted: Wanted) -> None:
    """Fit, score on held-out rows, and write `predictions.csv`, `fit.png`, and the model."""
    table, left_out = _complete(read_text_table(path), wanted)
    columns = _columns(table, wanted)
    y, X = target_numbers(table, wanted.target), encode(table, columns)
    if len(table.cells) < _FEWEST_ROWS:
        raise ValueError(
            f"{path} has {len(table.cells)} row(s){' without gaps' if left_out else ''}; pass at least {_FEWEST_ROWS} to fit and "
            "score"
        )
    model = estimator(wanted, columns)
    prepare_folder(out, path)
    held_out, how = _held_out(X, columns, wanted)
    for note in [*table.notes, *left_out, *_said(columns), how, f"kernel: {model.kernel}"]:
        print(note)
    _fit(model, columns, X[~held_out], y[~held_out])

    def predict(x: Float[np.ndarray, "k d"]) -> tuple[np.ndarray, np.ndarray]:
        mean, std = model.predict(_named(x, columns), return_std=True)
        return np.asarray(mean, dtype=float), np.asarray(std, dtype=float)

    def noise(x: Float[np.ndarray, "k d"]) -> np.ndarray:
        return np.asarray(model.noise_std(_named(x, columns)), dtype=float)

    mean, std = predict(X)
    scores = _scores(*(part[held_out] for part in (y, mean, std, noise(X))))
    for name, value in scores.items():
        print(f"{name}: {value:.6g}")
    print(f"verdict: {model.verdict_}" if wanted.quiet else f"\n{model}\n")
    outside = _outside(model, X)
    _say_outside(outside & held_out, "held-out rows")
    added = {"mean": mean, "std": std, "held_out": held_out, "outside": outside}
    save_model(
        out, model, columns, wanted.target,
        kernel=str(model.kernel), num_rows=int(np.sum(~held_out)), seed=wanted.seed, scores=scores,
    )  # fmt: skip
    _write_predictions(out / "predictions.csv", table, added)
    label = columns[0].name + (f" ({columns[0].unit}s)" if columns[0].unit else "")
    write_figure(out / "fit.png", Fit(predict, noise, X, y, mean, std, held_out, label, wanted.target))
    print(f"wrote predictions.csv, fit.png and model.json with posterior.safetensors to {out}")


def estimator(wanted: Wanted, columns: Sequence[Column]) -> FSPRegressor:
    """The estimator with its own defaults for all that was not asked for."""
    options: dict[str, Any] = {"random_state": wanted.seed, "progress": not wanted.quiet}
    options |= {name: value for name in ("effort", "steps") if (value := getattr(wanted, name)) is not None}
    if wanted.period is not None or wanted.kernel not in (None, "auto"):
        # A period is added to the simplest of the kernels that "auto" chooses from.
        first = candidates(FSPRegressor().kernel if wanted.kernel is None else wanted.kernel)[0].kernel
        options["kernel"] = kernel_text(str(first), wanted.period, columns)
    return FSPRegressor(**options)


def _fit(
    model: FSPRegressor, columns: Sequence[Column], X: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"]
) -> None:
    """Fit the estimator; warnings become lines."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # The verdict is printed with the scores.
        warnings.simplefilter("ignore", VerdictWarning)
        model.fit(_named(X, columns), y)
    for text in dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, UserWarning)):
        print(f"warning: {text}")


def _named(X: Float[np.ndarray, "n d"], columns: Sequence[Column]) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[name for column in columns for name in column.encoded])


def predict_table(model: Path, path: Path, out: Path) -> None:
    """Write mean and standard deviation of each row."""
    from fsplaplace import io as files

    folder = model_folder(model)
    check_target(out, reads=[path, *(folder / name for name in WRITTEN)])
    described = read_description(folder)
    stored = folder / "posterior.safetensors"
    if described.get("posterior_sha256") not in (None, sha256_of(stored)):
        raise ValueError(f"{stored} and model.json are of different fits: one was interrupted; fit again")
    posterior = files.load(stored, saved_network(described["network"]))
    table, columns = read_text_table(path), described["columns"]
    if missing := [name for name in described["features"] if name not in table.names]:
        raise ValueError(f"{path} lacks {', '.join(map(repr, missing))}, which the model was fitted with")
    for note in table.notes:
        print(note)
    X = encode(table, columns)
    scale = {name: np.asarray(value) for name, value in described["scales"].items()}
    with np.errstate(over="ignore"):  # looked at in the next line
        inputs = (X - scale["input_mean"]) / scale["input_std"]
    check_finite(inputs, f"{path}, in the units of {folder / 'model.json'},")
    with jax.enable_x64(True):
        predicted = posterior.predict(inputs)
        mean = np.asarray(predicted.mean, dtype=float)[:, 0] * scale["target_std"][0] + scale["target_mean"][0]
        noise, epistemic = (np.asarray(v, dtype=float) for v in (predicted.noise_variance, predicted.variance))
    if (profile := described.get("noise")) is not None:
        noise = noise * profile.relative(inputs) ** 2
    std = np.sqrt(epistemic + noise)[:, 0] * scale["target_std"][0]
    outside = np.zeros(len(X), bool) if predicted.outside is None else np.asarray(predicted.outside)
    for column in columns:
        if (unknown := column.unknown(table)).any():
            first = table.column(column.name)[int(np.argmax(unknown))]
            print(
                f"{int(unknown.sum())} rows have a {column.name!r} that the model never saw, such as {first!r}: marked as outside"
            )
            outside = outside | unknown
    _write_predictions(out, table, {"mean": mean, "std": std, "outside": outside})
    _say_outside(outside, "rows")
    print(f"wrote {len(mean)} predictions of {described['target']!r} to {out}")


def _complete(table: TextTable, wanted: Wanted) -> tuple[TextTable, list[str]]:
    """The rows that have a value in each column that is used, and in words how many have not; an error unless they may be dropped."""
    inputs, categorical = _inputs(table, wanted)
    gaps = {name: missing(table, name, categorical=name in categorical) for name in [*inputs, wanted.target]}
    incomplete = np.any(list(gaps.values()), axis=0)
    if not incomplete.any():
        return table, []
    first = int(np.argmax(incomplete))
    column = next(name for name, rows in gaps.items() if rows[first])
    if not wanted.drop_missing:
        raise ValueError(
            f"{table.path}: row {table.lines[first]} has no value in column {column!r} ({int(incomplete.sum())} of "
            f"{len(table.cells)} rows have gaps); fill them, or pass --drop-missing"
        )
    kept = np.flatnonzero(~incomplete)
    counts = ", ".join(f"{name!r} {int(rows.sum())}" for name, rows in gaps.items() if rows.any())
    whole = table._replace(cells=[table.cells[row] for row in kept], lines=[table.lines[row] for row in kept])
    return whole, [f"{int(incomplete.sum())} rows left out for lack of a value ({counts})"]


def _columns(table: TextTable, wanted: Wanted) -> tuple[Column, ...]:
    """What the inputs become."""
    inputs, categorical = _inputs(table, wanted)
    return tuple(learn_column(table, name, categorical=name in categorical) for name in inputs)


def _inputs(table: TextTable, wanted: Wanted) -> tuple[list[str], list[str]]:
    """The inputs, in the order of the table or of --features, and those that hold codes."""
    features, drop, categorical = (
        _listed(table, names, option)
        for names, option in (
            (wanted.features, "--features"), (wanted.drop, "--drop"), (wanted.categorical, "--categorical")
        )
    )  # fmt: skip
    if wanted.target not in table.names:
        raise ValueError(f"{table.path} has no column {wanted.target!r}; its columns are {', '.join(table.names)}")
    if wanted.target in (*features, *drop):
        raise ValueError(f"--target is {wanted.target!r}, which --features or --drop names, too; name it once")
    chosen = [name for name in features or table.names if name != wanted.target and name not in drop]
    if not chosen:
        raise ValueError(f"{table.path} has the target {wanted.target!r} and no other column to predict it from")
    if unused := [name for name in categorical if name not in chosen]:
        raise ValueError(f"--categorical names {unused[0]!r}, which is no input; the inputs are {', '.join(chosen)}")
    return chosen, categorical


def _listed(table: TextTable, names: Sequence[str], option: str) -> list[str]:
    """Columns of an option that may be repeated, or hold several names with commas between them."""
    found = []
    for name in names:
        for part in [name] if name in table.names else [piece.strip() for piece in name.split(",")]:
            if part not in table.names:
                raise ValueError(
                    f"{option} names {part!r}, which {table.path} does not have; its columns are {', '.join(table.names)}"
                )
            found.append(part)
    return list(dict.fromkeys(found))


def _said(columns: Sequence[Column]) -> list[str]:
    """What is not plain numbers."""
    said = [f"{column.name}: ISO dates, as years" for column in columns if column.kind == "date"]
    said += [
        f"{column.name}: {len(column.categories)} categories ({', '.join(column.categories[:5])}"
        f"{', ...' if len(column.categories) > 5 else ''}), as columns of zeros and ones"
        for column in columns
        if column.kind == "category"
    ]
    return said


def _held_out(
    X: Float[np.ndarray, "n k"], columns: Sequence[Column], wanted: Wanted
) -> tuple[Bool[np.ndarray, " n"], str]:
    """Which rows are not fitted, and that in words."""
    count, chosen = round(wanted.test_fraction * len(X)), np.zeros(len(X), bool)
    if len(X) - count < _FEWEST_FITTED:
        raise ValueError(
            f"--test-fraction {wanted.test_fraction:g} of {len(X)} rows leaves {len(X) - count} to fit; hold out fewer, or pass "
            "more rows"
        )
    if wanted.test == "random":
        chosen[np.random.default_rng(wanted.seed).permutation(len(X))[:count]] = True
        return chosen, f"{len(X) - count} rows to fit, {count} random rows held out"
    dated = [column for column in columns if column.kind == "date"]
    by = columns[0] if len(columns) == 1 and columns[0].kind != "category" else dated[0] if len(dated) == 1 else None
    order = np.arange(len(X))
    if by is not None:
        names = [name for column in columns for name in column.encoded]
        order = np.argsort(X[:, names.index(by.name)], kind="stable")
    chosen[order[len(X) - count :]] = True
    last = "of the table" if by is None else f"by {by.name!r}"
    return chosen, f"{len(X) - count} rows to fit, the last {count} {last} held out"


def _outside(model: FSPRegressor, X: Float[np.ndarray, "n k"]) -> Bool[np.ndarray, " n"]:
    """Rows outside the box of the context points."""
    points = getattr(model.posterior_, "context_points", None)
    if points is None:
        return np.zeros(len(X), bool)
    scaled, box = model.input_scale_.apply(X), np.asarray(points, np.float64)
    return np.any((scaled < box.min(axis=0)) | (scaled > box.max(axis=0)), axis=1)


def _say_outside(outside: Bool[np.ndarray, " n"], rows: str) -> None:
    if outside.any():
        print(
            f"{int(outside.sum())} {rows} lie outside the region of the training data (column outside): the prior is all "
            "that is known there"
        )


def _scores(y, mean, std, noise) -> dict[str, float]:
    """Of rows that were held out: targets, means, standard deviations of new targets and of the noise."""
    if not y.size:
        return {}
    # In units of the largest standard deviation: squares of targets as large as 1e30 are beyond float32.
    unit = float(np.max(std))
    y, mean, std, noise = y / unit, mean / unit, std / unit, noise / unit
    variance, noise_variance = np.maximum(std**2 - noise**2, 0.0), noise**2
    density = metrics.log_predictive_density(y, mean, variance, noise_variance=noise_variance)
    expected = metrics.expected_log_likelihood(y, mean, variance, noise_variance=noise_variance)
    return {
        "held-out rows": float(y.size),
        "RMSE": float(metrics.rmse(y, mean)) * unit,
        "log predictive density": float(density) - float(np.log(unit)),
        "expected log-likelihood": float(expected) - float(np.log(unit)),
        "coverage of 90 % intervals": float(metrics.interval_coverage(y, mean, std, level=0.9)),
    }


def _write_predictions(path: Path, table: TextTable, added: dict[str, np.ndarray]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # A table that has a column "mean" keeps it.
    writer.writerow([*table.names, *(name if name not in table.names else f"predicted_{name}" for name in added)])
    for index, row in enumerate(table.cells):
        new = [int(v[index]) if v.dtype == bool else f"{v[index]:.8g}" for v in added.values()]
        writer.writerow([*row, *new])
    write_atomically(path, text.getvalue().encode())
