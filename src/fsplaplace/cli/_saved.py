"""What `fit` writes next to the posterior, and how `predict` reads it: nothing is built of a file that was not checked first."""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from paramax import NonTrainable

from fsplaplace._version import __version__
from fsplaplace.arguments import accepts, check_squares
from fsplaplace.cli._columns import Column
from fsplaplace.estimators import NoiseNetworks
from fsplaplace.experiments import read_record, write_record
from fsplaplace.host import check_target
from fsplaplace.networks import MLP, Units

_KIND = "fsplaplace table model"
# What `fit` writes into its directory.
WRITTEN = ("model.json", "posterior.safetensors", "predictions.csv", "fit.png")
# What is written and only shown; files of older versions lack some of it.
_SHOWN: dict[str, Any] = {
    "version": str, "posterior_sha256": str, "kernel": str, "rows": int, "steps": int | None, "seed": int,
    "scores": Mapping,
}  # fmt: skip
# More circles than a network ever has.
_MOST_CIRCLES = 100
# What predictions are made of, with the names inside.
_USED: dict[str, set[str] | None] = {
    "features": None, "columns": None, "target": None, "network": {"widths", "dtype", "units", "circles"},
    "scales": {"input_mean", "input_std", "target_mean", "target_std"},
}  # fmt: skip
# Not in files of older versions, and None if the noise is constant.
_NOISE = "noise"


def save_model(
    out: Path, model, columns: Sequence[Column], target: str, *, kernel: str, num_rows: int, seed: int, scores: dict
) -> None:
    """Write the posterior, and `model.json` with all that is needed to use it."""
    from fsplaplace import io as files

    files.save(out / "posterior.safetensors", model.posterior_)
    inputs, targets = model.input_scale_, model.target_scale_
    described: dict[str, Any] = {
        "version": __version__,
        "posterior_sha256": sha256_of(out / "posterior.safetensors"),
        "features": [column.name for column in columns],
        "columns": [column.described() for column in columns],
        "target": target,
        "kernel": kernel,
        "rows": num_rows,
        "steps": model.steps,
        "seed": seed,
        "scores": scores,
        "network": {
            "widths": [model.n_features_in_, *(layer.weight.shape[0] for layer in model.posterior_.model.params.layers)],
            "dtype": str(model.posterior_.model.dtype),
            "units": True,
            "circles": (model.posterior_.model.params.layers[0].weight.shape[1] - model.n_features_in_) // 2,
        },
        "scales": {
            "input_mean": np.ravel(inputs.mean), "input_std": np.ravel(inputs.std),
            "target_mean": np.ravel(targets.mean), "target_std": np.ravel(targets.std),
        },
    }  # fmt: skip
    profile = model.noise_profile_
    described[_NOISE] = profile.described() if isinstance(profile, NoiseNetworks) else None
    write_record(out / "model.json", _KIND, described)


def prepare_folder(out: Path, table: Path) -> None:
    """Make the directory that `fit` writes to, or refuse one in which files that no fit wrote would be lost."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out is {out}, which is a file; pass a directory")
    out.mkdir(parents=True, exist_ok=True)
    there = [name for name in WRITTEN if (out / name).exists()]
    for name in there:
        check_target(out / name, reads=[table])
    # A fit writes its model first, so that the other files are never alone.
    if there and not _is_description(out / "model.json"):
        raise FileExistsError(
            f"--out is {out}, which holds {', '.join(there)}, but no model.json that `fsplaplace fit` wrote; pass another directory, "
            "or move what is there"
        )
    check_target(out / "model.json")


def _is_description(path: Path) -> bool:
    """Whether a file begins as `write_record` begins it, whole or damaged."""
    return path.is_file() and _KIND.encode() in path.read_bytes()[:200]


def model_folder(model: Path) -> Path:
    """The directory of a saved model, named by itself or by one of its two files; never another one."""
    if model.is_dir():
        return model
    if model.is_file() and model.name in ("model.json", "posterior.safetensors"):
        return model.parent
    raise FileNotFoundError(f"{model} is no saved model; pass the directory that `fsplaplace fit` wrote")


def read_description(folder: Path) -> dict[str, Any]:
    """What `model.json` says, every value of its type and in its range before anything is built of it; `columns` as records."""
    path = folder / "model.json"
    described = read_record(path, _KIND)
    _check_names(path, described)
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
    columns = [Column(name, "number") for name in names]
    if "columns" in described:
        found = described["columns"]
        columns = [Column.restored(content) for content in found] if isinstance(found, list) else []
        if [column and column.name for column in columns] != names:
            raise ValueError(
                f"{path}: columns does not say how each of {len(names)} features becomes numbers; fit again"
            )
    width = sum(len(column.encoded) for column in columns if column)
    described["columns"] = columns
    widths = network.get("widths")
    if not (
        isinstance(widths, list) and len(widths) >= 2 and all(type(width) is int and width >= 1 for width in widths)
        and widths[0] == width and network.get("dtype") in ("float32", "float64")
        and network.get("units") in (None, False, True)
        and type(network.get("circles", 0)) is int and 0 <= network.get("circles", 0) <= _MOST_CIRCLES
    ):  # fmt: skip
        raise ValueError(f"{path} describes no network for {width} columns of numbers; fit again")
    # The file next to it holds every weight: a network that is larger than that file is not the saved one.
    stored = folder / "posterior.safetensors"
    weights = sum(a * b for a, b in itertools.pairwise(_widths(network)))
    if not stored.is_file():
        raise FileNotFoundError(f"{stored} does not exist; pass the directory that `fsplaplace fit` wrote")
    if weights * np.dtype(network["dtype"]).itemsize > stored.stat().st_size:
        raise ValueError(f"{path} describes a network of {weights} weights, which {stored.name} is too small to hold")
    for name, size in (("input_mean", width), ("input_std", width), ("target_mean", 1), ("target_std", 1)):
        values = scales.get(name)
        if not (
            isinstance(values, list) and len(values) == size and all(type(value) in (int, float) for value in values)
            and (name.endswith("mean") or min(values) > 0)
        ):  # fmt: skip
            raise ValueError(f"{path}: {name} is not {size} number(s); fit again")
        check_squares(np.asarray(values, dtype=float), f"{path}: {name}")
    if (noise := described.get(_NOISE)) is not None:
        described[_NOISE] = NoiseNetworks.restored(noise, width)
        if described[_NOISE] is None:
            raise ValueError(f"{path}: noise does not say how the noise varies with {width} columns; fit again")
    return described


def _check_names(path: Path, described: dict[str, Any]) -> None:
    """Refuse what nobody knows, and what is shown if it is of another type."""
    inner = {name: described[name] for name, known in _USED.items() if known and isinstance(described.get(name), dict)}
    unknown = [name for name in described if name not in (*_SHOWN, *_USED, _NOISE)]
    unknown += [f"{name}.{part}" for name, parts in inner.items() for part in parts if part not in (_USED[name] or ())]
    if unknown:
        raise ValueError(f"{path} has the unknown field {unknown[0]!r}; fit again, or use the version that wrote it")
    # Older versions wrote no columns, and not all of the rest either.
    missing = [name for name in (*_SHOWN, *_USED) if name not in described] if "columns" in described else []
    if missing:
        raise ValueError(f"{path} lacks {missing[0]!r}, which `fsplaplace fit` writes; fit again")
    for name, kind in _SHOWN.items():
        if name in described and not accepts(kind, described[name]):
            raise ValueError(f"{path}: {name} is not what `fsplaplace fit` writes there; fit again")


def saved_network(described: dict[str, Any]) -> MLP:
    """A network of the saved shape, whose weights the file then replaces."""
    widths, dtype, circles = _widths(described), described["dtype"], described.get("circles", 0)
    with jax.enable_x64(True):
        layers = tuple(
            eqx.nn.Linear(size_in, size_out, dtype=dtype, key=jax.random.key(0))
            for size_in, size_out in itertools.pairwise(widths)
        )
        columns = described["widths"][0]
        units = Units(
            jnp.zeros(columns, dtype), jnp.ones(columns, dtype), jnp.ones(widths[-1], dtype),
            frequencies=jnp.zeros((circles, columns), dtype) if circles else None,
        )  # fmt: skip
    # Older files have networks that take inputs as they are.
    return MLP(layers, jnp.tanh, NonTrainable(units) if described.get("units") else None)


def _widths(network: dict[str, Any]) -> list[int]:
    """Of all layers; the first one also takes two numbers for each circle on which inputs are wound up."""
    columns, *others = network["widths"]
    return [columns + 2 * network.get("circles", 0), *others]


def sha256_of(path: Path) -> str:
    """Of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
