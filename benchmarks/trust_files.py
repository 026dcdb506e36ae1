"""Damaged files of every kind: bytes, headers, and meanings under a right checksum.

Each mutation is one file that a user might open. What may happen: it is refused by a sentence of ours, it is what it was bit by
bit, or, if the damage was sealed with a new checksum, it is a well-formed object with other numbers, which no checksum prevents
(a secret does). Everything else is a fault: another error, other numbers unnoticed, numbers that are not finite, a wait, a crash.
"""

import collections
import copy
import hashlib
import json
import signal
import struct
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from results import peak_memory

# Mutations of one kind of file: bytes, header, meaning. Together above 20,000.
COUNTS = {"bytes": 1500, "header": 1000, "meaning": 1000}
LIMIT_SECONDS = 10
OUTCOMES = ("refused", "the same", "other numbers", "obscure", "silent", "hang")
_VALUES = [
    None, True, -1, 0, 1, 10**12, 2**31, 1e308, -1e308, 0.5, "", "x", "float64", [], {}, [[]], {"tuple": []}, {"array": "x"},
    {"slice": [0, 1, 2]}, {"list": [1]}, {"class": "Prior", "fields": {}}, {"dict": {"a": 1}}, ["x"] * 3, "\u0000", "../../x",
]  # fmt: skip


class Sample(NamedTuple):
    """One kind of file.

    Attributes:
        path: the file, as it was written.
        read: what a user does with it; returns numbers, which are compared with those of the whole file.
        parts: of the file as JSON and arrays; None if it is of one piece.
        join: the bytes of a file with these parts, under a right checksum.
    """

    path: Path
    read: Callable[[], list[np.ndarray]]
    parts: Callable[[bytes], tuple[Any, dict[str, np.ndarray]]] | None
    join: Callable[[Any, dict[str, np.ndarray]], bytes] | None


def mutations(sample: Sample, way: str, count: int, seed: int) -> dict[str, Any]:
    """Outcomes of `count` mutations, with one example of each fault, and the longest time."""
    whole, generator = sample.path.read_bytes(), np.random.default_rng(seed)
    wanted = sample.read()
    found: collections.Counter = collections.Counter()
    faults, longest = [], 0.0
    signal.signal(signal.SIGALRM, _too_long)
    for _ in range(count):
        data, what = _damage(sample, whole, way, generator)
        if data == whole:
            found["the same"] += 1
            continue
        sample.path.write_bytes(data)
        began = time.perf_counter()
        outcome, message = _outcome(sample, wanted, sealed=way == "meaning")
        longest = max(longest, time.perf_counter() - began)
        found[outcome] += 1
        if outcome in ("obscure", "silent", "hang"):
            faults.append({"outcome": outcome, "what": what, "message": message[:300]})
    sample.path.write_bytes(whole)
    return {
        "outcomes": {name: found[name] for name in OUTCOMES}, "faults": faults[:20], "longest_seconds": round(longest, 2),
        "peak_bytes": peak_memory(),
    }  # fmt: skip


def _outcome(sample: Sample, wanted: list[np.ndarray], *, sealed: bool) -> tuple[str, str]:
    signal.alarm(LIMIT_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            numbers = sample.read()
    except _TooLong:
        return "hang", ""
    except (ValueError, FileNotFoundError) as error:
        # Ours names the file; `FileFormatError` and `ResultFormatError` are ValueErrors.
        ours = str(sample.path.name) in str(error) or sample.path.parent.name in str(error)
        return ("refused" if ours else "obscure"), f"{type(error).__name__}: {error}"
    except Exception as error:  # whatever it is, it is counted
        return "obscure", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    if all(np.array_equal(a, b) for a, b in zip(numbers, wanted, strict=True)):
        return "the same", ""
    if sealed and all(np.all(np.isfinite(values)) for values in numbers):
        return "other numbers", ""
    return "silent", str([values.ravel()[:2] for values in numbers])


def _too_long(*_):
    raise _TooLong


class _TooLong(BaseException):
    """A file that takes more than its time."""


def _damage(sample: Sample, whole: bytes, way: str, generator) -> tuple[bytes, str]:
    if way == "meaning" and sample.parts is not None and sample.join is not None:
        header, arrays = sample.parts(whole)
        what = _change_meaning(header, arrays, generator)
        try:
            return sample.join(header, arrays), what
        except (ValueError, TypeError):
            return whole, what
    # Where a header is: the first tenth of a file, at least 600 bytes.
    most = len(whole) if way == "bytes" else min(len(whole), max(600, len(whole) // 10))
    data = bytearray(whole)
    start, size = int(generator.integers(most)), int(2 ** generator.integers(0, 7))
    match generator.integers(7):
        case 0:
            data = data[:start]
        case 1:
            data[start] ^= 1 << int(generator.integers(8))
        case 2:
            data[start : start + size] = generator.bytes(size)
        case 3:
            data[start:start] = generator.bytes(size)
        case 4:
            del data[start : start + size]
        case 5:
            data[start : start + size] = bytes(size)
        case 6:
            other = int(generator.integers(most))
            data[start : start + size] = data[other : other + size]
    return bytes(data), f"{way} at {start}, {size}"


def _change_meaning(header: Any, arrays: dict[str, np.ndarray], generator) -> str:
    """Change one thing in place: a value of the header, or an array, with the header following it or not."""
    if arrays and generator.random() < 0.4:
        return _change_array(header, arrays, generator)
    places = [place for place in _places(header) if place]
    place = places[generator.integers(len(places))]
    node = header
    for key in place[:-1]:
        node = node[key]
    match generator.integers(5):
        case 0 if isinstance(node, dict):
            del node[place[-1]]
        case 1 if isinstance(node, dict):
            node[f"{place[-1]} "] = node.pop(place[-1])
        case 2:
            other = places[generator.integers(len(places))]
            part = header
            for key in other:
                part = part[key]
            node[place[-1]] = copy.deepcopy(part)
        case 3 if isinstance(node[place[-1]], int | float) and not isinstance(node[place[-1]], bool):
            node[place[-1]] = node[place[-1]] * [-1, 0, 2, 1e6, 0.5][generator.integers(5)]
        case _:
            node[place[-1]] = _VALUES[generator.integers(len(_VALUES))]
    return f"{'/'.join(map(str, place))} = {json.dumps(node.get(place[-1]) if isinstance(node, dict) else node)[:80]}"


def _change_array(header: Any, arrays: dict[str, np.ndarray], generator) -> str:
    name = list(arrays)[generator.integers(len(arrays))]
    array = arrays[name]
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: array.reshape(-1)[:0], lambda: array[None], lambda: array.reshape(-1), lambda: array.astype(np.int8),
        lambda: array.astype(np.float64), lambda: array.astype(np.float16), lambda: array * -1, lambda: array * 0,
        lambda: array * np.asarray(np.inf, array.dtype) if array.dtype.kind == "f" else array + 1,
        lambda: np.full_like(array, np.nan) if array.dtype.kind == "f" else array - 1,
        lambda: (array * np.asarray(1e30, array.dtype)) if array.dtype.kind == "f" else array * 2**20,
        lambda: np.concatenate([array, array]) if array.ndim else np.stack([array, array]),
    ]  # fmt: skip
    number = int(generator.integers(len(kinds) + 2))
    if number == len(kinds):
        del arrays[name]
        return f"without {name}"
    if number == len(kinds) + 1:
        arrays[f"{name} too"] = array
        return f"{name} twice"
    with np.errstate(all="ignore"):
        arrays[name] = np.asarray(kinds[number]())
    if generator.random() < 0.7:
        _follow(header, name, arrays[name])
    return f"{name}: change {number}"


def _follow(node: Any, name: str, array: np.ndarray) -> None:
    """Let the header say the shape and dtype that the array has now."""
    if isinstance(node, dict):
        if node.get("array") == name:
            node["shape"], node["dtype"] = list(array.shape), str(array.dtype)
        for part in node.values():
            _follow(part, name, array)
    elif isinstance(node, list):
        for part in node:
            _follow(part, name, array)


def _places(node: Any, path: tuple = ()) -> list[tuple]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, value in items for place in _places(value, (*path, key)))]


# The kinds of files, each small, with what a user does to read it.


def _problem():
    import equinox as eqx
    import jax.numpy as jnp
    import jax.random as jr
    from gpjax.kernels import RBF

    import fsplaplace as fsp

    X = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
    network = eqx.nn.MLP(1, 1, 4, 1, activation=jnp.tanh, key=jr.key(0))
    return fsp.as_model(network), fsp.Prior(RBF(lengthscale=0.5)), fsp.likelihoods.Gaussian(0.1), X, np.sin(3 * X[:, 0])


def _laplace():
    import fsplaplace as fsp

    model, prior, likelihood, X, y = _problem()
    return model, fsp.laplace(model, prior, likelihood, X, y, context_points=X)


def _method():
    import jax.random as jr

    from fsplaplace.methods import WeightLaplace

    model, prior, likelihood, X, y = _problem()
    method = WeightLaplace(prior_precision=1.0, train=None)
    return model, method.fit(model, X, y, likelihood, key=jr.key(0), prior=prior, progress=False)


def _trained():
    import jax.random as jr

    import fsplaplace as fsp

    model, prior, likelihood, X, y = _problem()
    context = fsp.context.Uniform([-1.0], [1.0])
    return model, fsp.train(
        model, prior, likelihood, context, X, y, key=jr.key(0), steps=2, progress=False, num_context=4
    )


def _numbers(found, X) -> list[np.ndarray]:
    if hasattr(found, "predict"):
        predicted = found.predict(X)
        return [np.asarray(predicted.mean), np.asarray(predicted.variance)]
    return [np.asarray(found.model(X))]


def _posterior(folder: Path, fit: Callable) -> Sample:
    import fsplaplace as fsp

    folder.mkdir(parents=True)
    model, found = fit()
    path, X = folder / "file.safetensors", np.linspace(-1, 1, 3, dtype=np.float32)[:, None]
    fsp.save(path, found)
    return Sample(path, lambda: _numbers(fsp.load(path, model), X), _tensor_parts, _tensor_file)


def _tensor_parts(data: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    from safetensors.numpy import load

    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["header"]), load(data)


def _tensor_file(header: dict, arrays: dict[str, np.ndarray]) -> bytes:
    from safetensors.numpy import save

    from fsplaplace.host import checksum

    header.pop("checksum", None)
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(arrays, metadata={"header": json.dumps({**header, "checksum": checksum(header, arrays)})})


def _checkpoint(folder: Path) -> Sample:
    """What `train` does when it finds a file, without the network's programs, which are the same each time."""
    import jax
    import jax.random as jr

    import fsplaplace as fsp
    from fsplaplace.training import _checkpoint as checkpoint
    from fsplaplace.training import _loop as loop

    folder.mkdir(parents=True)
    path, kept = folder / "run.checkpoint", {}
    model, prior, likelihood, X, y = _problem()
    restore = checkpoint.restore

    def remember(path, state, identity):
        kept.update(state=state, identity=identity)
        return restore(path, state, identity)

    checkpoint.restore = remember
    try:
        fsp.train(
            model, prior, likelihood, fsp.context.Uniform([-1.0], [1.0]), X, y, key=jr.key(0), steps=3, num_context=4,
            checkpoint=path, progress=False,
        )  # fmt: skip
    finally:
        checkpoint.restore = restore

    def read() -> list[np.ndarray]:
        state, record = restore(path, kept["state"], kept["identity"])
        loop._check_restored(path, state, record, 3, kept["state"][0].memory)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(state.parameters)]

    return Sample(path, read, _tensor_parts, _tensor_file)


def _table_model(folder: Path) -> dict[str, Sample]:
    """The two files that `fsplaplace fit` writes, read by `fsplaplace predict`."""
    import contextlib
    import io

    from fsplaplace.cli import _tables

    folder.mkdir(parents=True)
    X = np.random.default_rng(0).uniform(-1, 1, (12, 2))
    table = folder.parent / "table.csv"
    table.write_text("a,b,c\n" + "".join(f"{a},{b},{a * b}\n" for a, b in X))
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        _tables.fit_table(table, folder, _tables.Wanted("c", kernel="rbf", steps=1, quiet=True))

    def read() -> list[np.ndarray]:
        with contextlib.redirect_stdout(io.StringIO()):
            _tables.predict_table(folder, table, folder.parent / "predictions.csv")
        return [np.loadtxt(folder.parent / "predictions.csv", delimiter=",", skiprows=1)]

    def parts(data: bytes):
        return json.loads(data)["content"], {}

    def join(content, _) -> bytes:
        from fsplaplace.experiments import write_record

        write_record(folder.parent / "new.json", "fsplaplace table model", content)
        return (folder.parent / "new.json").read_bytes()

    return {
        "model.json": Sample(folder / "model.json", read, parts, join),
        "estimator directory": Sample(folder / "posterior.safetensors", read, _tensor_parts, _tensor_file),
    }


def _program(folder: Path) -> Sample:
    import jax

    import fsplaplace as fsp

    folder.mkdir(parents=True)
    path, X = folder / "posterior.jaxprogram", np.linspace(-1, 1, 3, dtype=np.float32)[:, None]
    fsp.export(_laplace()[1], path, platforms=["cpu"])

    def read() -> list[np.ndarray]:
        data = path.read_bytes()
        if hashlib.sha256(data[:-32]).digest() != data[-32:]:
            raise ValueError(f"{path} is damaged")
        found = jax.export.deserialize(bytearray(data)).call(X)
        return [np.asarray(found[name]) for name in sorted(found)]

    return Sample(path, read, None, None)


# Files that belong together are made at once.
KINDS: dict[str, Callable[[Path], dict[str, Sample]]] = {
    "posterior": lambda folder: {"posterior": _posterior(folder, fit=_laplace)},
    "method": lambda folder: {"method posterior": _posterior(folder, fit=_method)},
    "trained": lambda folder: {"trained network": _posterior(folder, fit=_trained)},
    "training": lambda folder: {"checkpoint": _checkpoint(folder)},
    "table": _table_model,
    "program": lambda folder: {"exported program": _program(folder)},
}


def campaign(folder: Path, *, scale: float, kinds: Iterable[str] = KINDS) -> dict[str, Any]:
    """Files of these kinds, changed in all ways, each so many times `scale`."""
    found = {}
    made = {name: sample for kind in kinds for name, sample in KINDS[kind](folder / kind).items()}
    for name, sample in made.items():
        for number, (way, count) in enumerate(COUNTS.items()):
            if way == "meaning" and sample.parts is None:
                continue  # a program under a right checksum is code: open only what you trust
            found[f"{name} / {way}"] = mutations(sample, way, max(1, int(count * scale)), seed=number)
    return found
