"""`fsplaplace fit` and `predict`: a CSV in, predictions with uncertainty out."""

import csv
import hashlib
import io
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from paramax import NonTrainable

from fsplaplace import metrics
from fsplaplace._version import __version__
from fsplaplace.arguments import check_finite
from fsplaplace.experiments import read_record, write_record
from fsplaplace.host import check_target, write_atomically
from fsplaplace.networks import MLP, Units

_KIND = "fsplaplace table model"


class Columns(NamedTuple):
    """A table of numbers with its header."""

    names: tuple[str, ...]
    values: Float[np.ndarray, "n k"]


def read_table(path: Path) -> Columns:
    """A CSV of numbers with one header line, or an error that names the line and column at fault."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; pass a CSV file")
    raw = path.read_bytes()
    if not raw.strip():
        raise ValueError(f"{path} is empty; pass a CSV file with a header and rows of numbers")
    (_, first), *rows = _lines(path, _decode(path, raw))
    names = tuple(name.strip() for name in first)
    if len(names) == 1 and (mark := next((mark for mark in (";", "\t") if mark in names[0]), None)):
        raise ValueError(f"{path}: its columns are separated by {mark!r}; save it as CSV with commas")
    if "" in names:
        raise ValueError(f"{path}: column {names.index('') + 1} has no name in the header; give each column a name")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{path}: the header has {', '.join(map(repr, repeated))} more than once; give each column its own name"
        )
    if all(_number(name) is not None for name in names):
        raise ValueError(f"{path}: the first line holds numbers only; add a header with the names of the columns")
    if not rows:
        raise ValueError(f"{path} has a header but no rows")
    values = np.empty((len(rows), len(names)))
    for index, (line, row) in enumerate(rows):
        if len(row) != len(names):
            raise ValueError(f"{path}: row {line} has {len(row)} cells, but the header has {len(names)}")
        for column, cell in enumerate(row):
            values[index, column] = _value(path, line, names[column], cell)
    return Columns(names, values)


def _lines(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """Number and cells of each line, without empty lines and without comments, which begin with `#`."""
    reader = csv.reader(io.StringIO(text))
    try:
        lines = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num} cannot be read as CSV ({error})") from error
    lines = [(line, row) for line, row in lines if any(map(str.strip, row)) and not row[0].lstrip().startswith("#")]
    if not lines:
        raise ValueError(f"{path} has comments only; pass a CSV file with a header and rows of numbers")
    return lines


def fit_table(
    path: Path, target: str, kernel: str, out: Path, test_fraction: float, steps: int, seed: int, quiet: bool
) -> None:
    """Fit, score on held-out rows, and write `predictions.csv`, `fit.png`, and the model."""
    from fsplaplace.estimators import KERNELS, FSPRegressor

    if kernel not in KERNELS:
        raise ValueError(f"--kernel is {kernel!r}; pass one of {', '.join(KERNELS)}")
    table = read_table(path)
    if target not in table.names:
        raise ValueError(f"{path} has no column {target!r}; its columns are {', '.join(table.names)}")
    if len(table.names) < 2:
        raise ValueError(f"{path} has the target {target!r} and no other column to predict it from")
    if len(table.values) < 5:
        raise ValueError(f"{path} has {len(table.values)} row(s); pass at least 5 to fit and score")
    features = tuple(name for name in table.names if name != target)
    X = table.values[:, [table.names.index(name) for name in features]]
    y = table.values[:, table.names.index(target)]
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out is {out}, which is a file; pass a directory")
    out.mkdir(parents=True, exist_ok=True)
    check_target(out / "model.json")
    order = np.random.default_rng(seed).permutation(len(y))
    held_out, kept = np.split(order, [round(test_fraction * len(y))])
    model = FSPRegressor(kernel=kernel, steps=steps, random_state=seed, progress=not quiet).fit(X[kept], y[kept])
    mean, std = _predict(model, X)
    scores = (
        _scores(y[held_out], mean[held_out], std[held_out], float(np.ravel(model.noise_)[0])) if held_out.size else {}
    )
    for name, value in scores.items():
        print(f"{name}: {value:.6g}")
    print(f"verdict: {model.verdict_}")
    _write_predictions(
        out / "predictions.csv", table, {"mean": mean, "std": std, "held_out": np.isin(np.arange(len(y)), held_out)}
    )
    _write_figure(out / "fit.png", target, y, mean, std, held_out)
    _save(out, model, features, target, kernel, X[kept], y[kept], steps, seed, scores)
    print(f"wrote predictions.csv, fit.png and model.json with posterior.safetensors to {out}")


def predict_table(model: Path, path: Path, out: Path) -> None:
    """Write mean and standard deviation of each row."""
    from fsplaplace import io as files

    folder = _model_folder(model)
    check_target(out)
    described = read_description(folder)
    stored = folder / "posterior.safetensors"
    if described.get("posterior_sha256") not in (None, _sha256(stored)):
        raise ValueError(f"{stored} and model.json are of different fits: one was interrupted; fit again")
    posterior = files.load(stored, _network(described["network"]))
    table = read_table(path)
    if missing := [name for name in described["features"] if name not in table.names]:
        raise ValueError(f"{path} lacks {', '.join(map(repr, missing))}, which the model was fitted with")
    X = table.values[:, [table.names.index(name) for name in described["features"]]]
    scale = {name: np.asarray(value) for name, value in described["scales"].items()}
    with np.errstate(over="ignore"):  # looked at in the next line
        inputs = (X - scale["input_mean"]) / scale["input_std"]
    check_finite(inputs, f"{path}, in the units of {folder / 'model.json'},")
    with jax.enable_x64(True):
        predicted = posterior.predict(inputs)
        mean = np.asarray(predicted.mean, dtype=float)[:, 0] * scale["target_std"][0] + scale["target_mean"][0]
        std = np.sqrt(np.asarray(predicted.total_variance, dtype=float))[:, 0] * scale["target_std"][0]
    added = {"mean": mean, "std": std}
    if predicted.outside is not None:
        added["outside"] = np.asarray(predicted.outside)
    _write_predictions(out, table, added)
    if added.get("outside", np.zeros(1)).any():
        print(
            f"{int(added['outside'].sum())} rows lie outside the region of the training data (column outside): the "
            "prior is all that is known there"
        )
    print(f"wrote {len(mean)} predictions of {described['target']!r} to {out}")


def _model_folder(model: Path) -> Path:
    """The directory of a saved model, named by itself or by one of its two files; never another one."""
    if model.is_dir():
        return model
    if model.is_file() and model.name in ("model.json", "posterior.safetensors"):
        return model.parent
    raise FileNotFoundError(f"{model} is no saved model; pass the directory that `fsplaplace fit` wrote")


def read_description(folder: Path) -> dict[str, Any]:
    """What `model.json` says, every value of its type and in its range before anything is built of it."""
    path = folder / "model.json"
    described = read_record(path, _KIND)
    names: Any = described.get("features")
    network: Any = described.get("network")
    scales: Any = described.get("scales")
    fits = (
        isinstance(names, list) and all(isinstance(name, str) for name in names) and 0 < len(set(names)) == len(names)
        and isinstance(described.get("target"), str)
        and isinstance(network, dict) and isinstance(scales, dict)
    )  # fmt: skip
    if not fits:
        raise ValueError(f"{path} lacks features, target, network or scales as `fsplaplace fit` writes them; fit again")
    widths = network.get("widths")
    if not (
        isinstance(widths, list) and len(widths) >= 2 and all(type(width) is int and width >= 1 for width in widths)
        and widths[0] == len(names) and network.get("dtype") in ("float32", "float64")
        and network.get("units") in (None, False, True)
    ):  # fmt: skip
        raise ValueError(f"{path} describes no network for {len(names)} features; fit again")
    # The file next to it holds every weight: a network that is larger than that file is not the saved one.
    weights, stored = sum(a * b for a, b in itertools.pairwise(widths)), folder / "posterior.safetensors"
    if not stored.is_file():
        raise FileNotFoundError(f"{stored} does not exist; pass the directory that `fsplaplace fit` wrote")
    if weights * np.dtype(network["dtype"]).itemsize > stored.stat().st_size:
        raise ValueError(f"{path} describes a network of {weights} weights, which {stored.name} is too small to hold")
    for name, width in (("input_mean", len(names)), ("input_std", len(names)), ("target_mean", 1), ("target_std", 1)):
        values = scales.get(name)
        if not (
            isinstance(values, list) and len(values) == width and all(type(value) in (int, float) for value in values)
            and (name.endswith("mean") or min(values) > 0)
        ):  # fmt: skip
            raise ValueError(f"{path}: {name} is not {width} number(s); fit again")
    return described


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _decode(path: Path, raw: bytes) -> str:
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8") from error
    if "\x00" in text:
        raise ValueError(f"{path} holds zero bytes and is not a text file; pass a CSV file")
    return text


def _number(cell: str) -> float | None:
    if "_" in cell:  # Python's own way to write numbers, nobody else's
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def _value(path: Path, line: int, column: str, cell: str) -> float:
    value = _number(cell)
    if not cell.strip() or (value is not None and np.isnan(value)):
        raise ValueError(f"{path}: row {line} has no value in column {column!r}; fill or remove that row")
    if value is None:
        raise ValueError(
            f"{path}: row {line} has {cell!r} in column {column!r}, which is not a number; encode or drop the column"
        )
    if not np.isfinite(value):
        raise ValueError(f"{path}: row {line} has an infinite value in column {column!r}; remove that row")
    return value


def _predict(model, X) -> tuple[np.ndarray, np.ndarray]:
    mean, std = model.predict(X, return_std=True)
    return np.asarray(mean, dtype=float), np.asarray(std, dtype=float)


def _scores(y, mean, std, noise: float) -> dict[str, float]:
    variance = np.maximum(std**2 - noise**2, 0.0)
    return {
        "held-out rows": float(y.size),
        "RMSE": float(metrics.rmse(y, mean)),
        "log predictive density": float(metrics.log_predictive_density(y, mean, variance, noise_variance=noise**2)),
        "expected log-likelihood": float(metrics.expected_log_likelihood(y, mean, variance, noise_variance=noise**2)),
        "coverage of 90 % intervals": float(metrics.interval_coverage(y, mean, std, level=0.9)),
    }


def _network(described: dict[str, Any]) -> MLP:
    """A network of the saved shape, whose weights the file then replaces."""
    widths, dtype = described["widths"], described["dtype"]
    with jax.enable_x64(True):
        layers = tuple(
            eqx.nn.Linear(size_in, size_out, dtype=dtype, key=jax.random.key(0))
            for size_in, size_out in itertools.pairwise(widths)
        )
        # Older files have networks that take inputs as they are.
        units = (jnp.zeros(widths[0], dtype), jnp.ones(widths[0], dtype), jnp.ones(widths[-1], dtype))
    return MLP(layers, jnp.tanh, NonTrainable(Units(*units)) if described.get("units") else None)


def _write_predictions(path: Path, table: Columns, added: dict[str, np.ndarray]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # A table that has a column "mean" keeps it.
    writer.writerow([*table.names, *(name if name not in table.names else f"predicted_{name}" for name in added)])
    for index, row in enumerate(table.values):
        new = [int(v[index]) if v.dtype == bool else f"{v[index]:.8g}" for v in added.values()]
        writer.writerow([*(f"{value:.10g}" for value in row), *new])
    write_atomically(path, text.getvalue().encode())


def _write_figure(path: Path, target: str, y, mean, std, held_out) -> None:
    figure = Figure(figsize=(4.5, 4.2), layout="constrained")
    axis = figure.add_subplot()
    kept = np.setdiff1d(np.arange(len(y)), held_out)
    for rows, colour, label in ((kept, "#808080", "fitted"), (held_out, "#D55E00", "held out")):
        axis.errorbar(y[rows], mean[rows], 2 * std[rows], fmt=".", color=colour, lw=0.5, ms=4, alpha=0.7, label=label)
    limits = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    axis.plot(limits, limits, color="black", lw=0.8)
    axis.set(xlabel=f"{target}, observed", ylabel=f"{target}, predicted (bars: 2 std)")
    axis.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())


def _save(out: Path, model, features, target: str, kernel: str, X, y, steps: int, seed: int, scores: dict) -> None:
    from fsplaplace import io as files

    files.save(out / "posterior.safetensors", model.posterior_)
    inputs, targets = model.input_scale_, model.target_scale_
    described: dict[str, Any] = {
        "version": __version__,
        "posterior_sha256": _sha256(out / "posterior.safetensors"),
        "features": features,
        "target": target,
        "kernel": kernel,
        "rows": len(y),
        "steps": steps,
        "seed": seed,
        "scores": scores,
        "network": {
            "widths": [X.shape[1], *(layer.weight.shape[0] for layer in model.posterior_.model.params.layers)],
            "dtype": str(model.posterior_.model.dtype),
            "units": True,
        },
        "scales": {
            "input_mean": np.ravel(inputs.mean), "input_std": np.ravel(inputs.std),
            "target_mean": np.ravel(targets.mean), "target_std": np.ravel(targets.std),
        },
    }  # fmt: skip
    write_record(out / "model.json", _KIND, described)
