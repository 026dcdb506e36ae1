"""What every public function says to values that it cannot use.

    python benchmarks/trust.py               # this tree, as "after"
    python benchmarks/trust.py --before      # the tree of commit 168fc86, as "before", with the same cases
    python benchmarks/trust.py --sample 5    # every fifth case only
    python benchmarks/trust.py --here --sample 25   # as the test suite does

Cases are built from signatures: one wrong value after the other for each argument of each public callable, the others being
right. A new function is covered as soon as it is exported; one whose required arguments have no right value here is an error.

An answer is *clear* if it is an error that names the argument, *documented* if the documentation says what happens, *obscure* if
it is any other error, *silent* if there is none, *crash* or *hang* (over 10 seconds) if the process does not survive.

Each run replaces the column of its own name in `benchmarks/results/trust.json`; `trust.md` shows them side by side.
"""

import argparse
import collections
import contextlib
import dataclasses
import importlib
import inspect
import io
import json
import math
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from results import markdown_table, write_results

REPOSITORY = Path(__file__).resolve().parents[1]
BEFORE = "168fc86"
LIMIT_SECONDS = 10
LIMIT_BYTES = 8 * 2**30
OUTCOMES = ("clear", "documented", "obscure", "silent", "crash", "hang")
ROOMS = (
    "fsplaplace", "fsplaplace.context", "fsplaplace.likelihoods", "fsplaplace.means", "fsplaplace.metrics",
    "fsplaplace.kernels", "fsplaplace.methods", "fsplaplace.tuning", "fsplaplace.plotting", "fsplaplace.io",
)  # fmt: skip
# Rooms whose callables are for those who extend the library: they take what the library itself hands them.
_FOR_EXTENSIONS = {
    "radial_entry", "register_kernel", "nearest_entry", "parameter_starts", "covariance", "variance", "block_covariance",
    "block_variance", "lengthscales", "smoothness", "num_outputs", "check_columns", "maximize", "log_marginal_likelihood",
    "register", "checksum", "read_tensors", "write_tensors", "signature", "entry_named", "entry_of", "last_layer", "names",
    "ParameterSpace", "GemmComputation", "BlockKernel", "Likelihood", "Sampler", "Method",
}  # fmt: skip


class Case(NamedTuple):
    """One call: a callable by name, the argument that is wrong, what it should be, and the name of the wrong value."""

    function: str
    argument: str
    kind: str
    value: str


# Wrong values, by what the signature says an argument is.


def _torch_with_gradient():
    import torch

    return torch.ones((12, 1), requires_grad=True)


def _half_precision():
    import jax.numpy as jnp

    return jnp.ones((12, 1), jnp.bfloat16)


def _masked():
    import numpy as np

    return np.ma.masked_array(np.ones((12, 1)), np.arange(12)[:, None] % 2 == 0)


def _keys():
    import jax

    return jax.random.split(jax.random.key(0), 3)


_NUMPY: dict[str, Callable[[Any], Any]] = {
    "complex numbers": lambda np: np.ones((12, 1), complex),
    "dates": lambda np: np.arange(12).astype("datetime64[D]")[:, None],
    "texts": lambda np: np.array([["a"]] * 12),
    "objects": lambda np: np.array([[object()]] * 12),
    "no rows": lambda np: np.ones((0, 1)),
    "NaN inside": lambda np: np.where(np.arange(12)[:, None] == 3, np.nan, 1.0),
    "infinity inside": lambda np: np.where(np.arange(12)[:, None] == 3, np.inf, 1.0),
    "1e300 inside": lambda np: np.where(np.arange(12)[:, None] == 3, 1e300, 1.0),
    "four axes": lambda np: np.ones((2, 2, 2, 2)),
}
_WRONG: dict[str, dict[str, Callable[[], Any]]] = {
    "count": {
        "-1": lambda: -1, "0": lambda: 0, "1.5": lambda: 1.5, "nan": lambda: math.nan, "inf": lambda: math.inf,
        "text": lambda: "3", "list": lambda: [3], "None": lambda: None, "True": lambda: True, "complex": lambda: 1j,
    },
    "number": {
        "nan": lambda: math.nan, "inf": lambda: math.inf, "text": lambda: "x", "list": lambda: [1.0, 2.0],
        "None": lambda: None, "complex": lambda: 1j, "True": lambda: True, "10**400": lambda: 10**400,
    },
    "flag": {"'no'": lambda: "no", "1": lambda: 1, "None": lambda: None, "0.5": lambda: 0.5, "list": lambda: []},
    "choice": {"unknown": lambda: "unknown", "3": lambda: 3, "None": lambda: None, "list": lambda: ["a"]},
    "key": {
        "None": lambda: None, "1.5": lambda: 1.5, "text": lambda: "a", "-1": lambda: -1, "2**40": lambda: 2**40,
        "three keys": _keys, "list": lambda: [0], "True": lambda: True,
    },
    "array": {
        "None": lambda: None, "text": lambda: "a", "dict": lambda: {}, "ragged list": lambda: [[1.0], [1.0, 2.0]],
        "function": lambda: len, "torch with gradient": _torch_with_gradient, "bfloat16": _half_precision, "masked": _masked,
        **{name: (lambda make=make: make(__import__("numpy"))) for name, make in _NUMPY.items()},
    },
    "object": {
        "None": lambda: None, "3": lambda: 3, "text": lambda: "x", "list": lambda: [], "class": lambda: dict,
        "function": lambda: len,
    },
    "path": {"3": lambda: 3, "None": lambda: None, "list": lambda: [], "a directory": tempfile.gettempdir,
             "in no directory": lambda: "/nowhere/at/all/file"},
    "function": {"3": lambda: 3, "text": lambda: "x", "list": lambda: []},
    "sequence": {"None": lambda: None, "3": lambda: 3, "text": lambda: "ab", "objects": lambda: [object()], "empty": lambda: []},
    "mapping": {"3": lambda: 3, "text": lambda: "x", "list": lambda: [3], "empty": lambda: {}},
}  # fmt: skip


def documented(case: Case) -> bool:
    """What the documentation allows although it looks wrong."""
    name, argument, _, value = case
    if name.startswith("metrics."):
        # "Predictions of NaN give NaN, never a score"; only noise must be a number.
        return value in ("NaN inside", "infinity inside", "1e300 inside") and argument != "noise_variance"
    if value == "True" and argument in ("scale", "lower", "upper", "jitter", "intercept", "slope", "mean", "centre"):
        return True  # as NumPy has it, a truth value is a number where arrays are taken
    if name == "plan" and argument in ("X", "context_points"):
        return value in ("NaN inside", "infinity inside", "1e300 inside")  # only shapes are read
    if name.startswith("plotting.plot_") and argument == "num_samples" and value == "0":
        return True  # none are drawn
    if name == "Posterior().condition" and value == "traced by jit":
        return True  # it works there
    if argument == "also" and value == "empty":
        return True  # no further observations
    if name == "cache_programs" and value == "in no directory":
        return True  # it is made
    if name.startswith("methods.") and argument == "context_points":
        return True  # looked at when `fit` is called, together with X
    if argument in ("centre", "scale", "output_scale") and value == "four axes":
        return name == "as_model"  # as inputs of any shape
    if argument in ("X", "rows", "x", "context_points", "guard_points") and value == "four axes":
        return True  # inputs of any shape (n, ...)
    if name.endswith("load") and argument in ("mean", "model"):
        return value == "None"
    return False


# The callables, and right values for what they require.


def callables() -> dict[str, Callable]:
    """Every public callable of the package by a name that says where it is; methods belong to example objects."""
    found = module_callables()
    for owner, example in world().examples.items():
        for name in dir(type(example)):
            method = inspect.getattr_static(type(example), name)
            function = getattr(type(example), name, None)
            inner = inspect.unwrap(function) if callable(function) else None
            own = (getattr(inner, "__module__", None) or "").startswith("fsplaplace")
            if (
                name.startswith("_")
                or isinstance(method, property | classmethod)
                or not own
                or inspect.isclass(function)
            ):
                continue
            # Probabilities of labels, everything else of a regression.
            fits = owner not in ("Labels", "Posterior") or (owner == "Labels") == (name == "predict_proba")
            if name not in _INTERNAL_METHODS and fits:
                found[f"{owner}().{name}"] = getattr(example, name)
    return found


def module_callables() -> dict[str, Callable]:
    """Functions, and classes that users build, of all rooms."""
    found: dict[str, Callable] = {}
    seen = set()
    for room in ROOMS:
        try:
            module = importlib.import_module(room)
        except ImportError:
            continue
        prefix = "" if room == "fsplaplace" else room.rpartition(".")[2] + "."
        for name in dir(module):
            value = getattr(module, name)
            own = getattr(value, "__module__", None) or ""
            # What a room of one file imports from others is not its own.
            if name.startswith("_") or not callable(value) or not own.startswith(room) or id(value) in seen:
                continue
            if name in _FOR_EXTENSIONS or (inspect.isclass(value) and not _is_built_by_users(value)):
                continue
            seen.add(id(value))
            found[prefix + name] = value
    return found


# Methods between the parts of the library.
_INTERNAL_METHODS = {
    "draw", "draw_outputs", "prediction", "blocks", "to_blocks", "from_blocks", "independent_parts", "gram_product", "squared_norm",
    "check_columns", "refusal", "misfit_to_noise", "get_metadata_routing", "set_fit_request", "set_predict_request", "set_score_request", "evaluate", "score",
}  # fmt: skip


def _is_built_by_users(kind: type) -> bool:
    bases = {base.__name__ for base in kind.__mro__}
    families = {"Sampler", "Likelihood", "Method", "AbstractKernel", "AbstractMeanFunction", "FSPEstimator"}
    return bool(bases & families) or kind.__name__ in ("Prior",)


class World(NamedTuple):
    """Right values by the name of an argument, and example objects whose methods are called."""

    values: dict[str, Any]
    examples: dict[str, Any]


def world(_kept: list = []) -> World:  # noqa: B006 - built once in a process
    if _kept:
        return _kept[0]
    import equinox as eqx
    import jax.numpy as jnp
    import jax.random as jr
    import numpy as np
    from gpjax.kernels import RBF

    import fsplaplace as fsp

    X = np.linspace(-1, 1, 12)[:, None]
    y = np.sin(3 * X[:, 0])
    prior, likelihood, context = (
        fsp.Prior(RBF(lengthscale=0.5)),
        fsp.likelihoods.Gaussian(0.1),
        fsp.context.Uniform([-1.5], [1.5]),
    )
    network = eqx.nn.MLP(1, 1, 4, 1, activation=jnp.tanh, key=jr.key(0))
    model = fsp.as_model(network)
    posterior = fsp.laplace(model, prior, likelihood, X, y, context_points=np.linspace(-1.5, 1.5, 9)[:, None])
    folder = Path(tempfile.mkdtemp())
    fsp.save(folder / "saved.safetensors", posterior)
    probabilities = np.full((12, 2), 0.5)
    labels = dataclasses.replace(posterior, likelihood=fsp.likelihoods.Bernoulli())
    plane = np.stack([X[:, 0], X[::-1, 0] ** 2], axis=1)
    wide = fsp.as_model(eqx.nn.MLP(2, 2, 4, 1, activation=jnp.tanh, key=jr.key(0)))
    field = dataclasses.replace(
        posterior, model=wide, prior=fsp.Prior(RBF(), num_outputs=2), scale=jnp.ones((1, wide.num_params)) / 10,
        shift=jnp.zeros(wide.num_params), context_points=jnp.asarray(plane, jnp.float32),
        **({"information": jnp.ones(1)} if hasattr(posterior, "information") else {}),
    )  # fmt: skip
    values = {
        "X": X, "y": y, "x": X[:3], "prior": prior, "likelihood": likelihood, "context": context, "model": model, "key": jr.key(0),
        "network": network, "posterior": posterior, "context_points": X, "rows": X, "lower": [-1.0], "upper": [1.0],
        "samplers": [context], "kernel": RBF(), "hidden": [4], "num_units": 4, "num_points": 4, "num_classes": 2,
        "variance": np.full(12, 0.1), "std": np.full(12, 0.3), "mean": y, "noise_variance": 0.1, "labels": np.arange(12) % 2,
        "probabilities": probabilities, "logits": np.zeros((2, 12, 2)), "in_scores": y, "out_scores": y + 1, "slope": [1.0],
        "function": lambda output, target: -jnp.sum((output - target) ** 2), "potential": RBF(), "path": folder / "file.safetensors",
        "directory": folder / "cache", "factor": 2.0, "X_new": X[:2], "y_new": y[:2], "posteriors": [posterior],
        "operator": fsp.operators.partial(0) if hasattr(fsp, "operators") else None,
        "plane": plane, "field": field, "classes": dataclasses.replace(field, likelihood=fsp.likelihoods.Categorical(2)),
    }  # fmt: skip
    built: dict[str, Any] = {
        "Posterior": posterior, "Labels": labels, "Prior": prior, "Uniform": context,
        "Halton": fsp.context.Halton([-1.0], [1.0]), "Grid": fsp.context.Grid([-1.0], [1.0]), "Data": fsp.context.Data(X),
        "Segments": fsp.context.Segments(X) if hasattr(fsp.context, "Segments") else None,
        "Mixture": fsp.context.around(X),
    }  # fmt: skip
    examples = {name: example for name, example in built.items() if example is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        examples["FSPRegressor"] = fsp.FSPRegressor(**_QUICK_ESTIMATOR).fit(X, y)
    _kept.append(World(values, examples))
    return _kept[0]


_QUICK_ESTIMATOR = {"network": [4], "steps": 1, "num_context": 8, "fit_prior": False, "random_state": 0}
# Short work where a wrong value is let through.
_QUICK = {
    "steps": 1,
    "progress": False,
    "num_context": 8,
    "num_samples": 2,
    "restarts": 1,
    "max_steps": 1,
    "num_posterior_context": 8,
}
# Right values for a name that means something else in one callable.
_SPECIAL: dict[str, dict[str, Any]] = {
    "load": {"path": lambda: world().values["path"].with_name("saved.safetensors"), "model": lambda: world().values["network"]},
    "Prior().covariance": {"y": lambda: world().values["x"]},
    "dirichlet_labels": {"y": lambda: world().values["labels"]},
    "plotting.plot_history": {"history": lambda: _history()},
    "plotting.plot_reliability": {"probabilities": lambda: world().values["probabilities"]},
    "methods.by_name": {"name": lambda: "map"},
    "laplace": {"y": lambda: world().values["y"]},
    "train": {"y": lambda: world().values["y"]},
    "kernels.Helmholtz": {"potential": lambda: world().values["kernel"]},
    "plotting.plot_classification": {
        "posterior": lambda: world().values["classes"], "X": lambda: world().values["plane"],
        "y": lambda: world().values["labels"], "resolution": lambda: 3,
    },
    "plotting.plot_vector_field": {
        "posterior": lambda: world().values["field"], "X": lambda: world().values["plane"],
        "y": lambda: world().values["logits"][0], "resolution": lambda: 3,
    },
}  # fmt: skip


def _history():
    import jax.numpy as jnp

    import fsplaplace as fsp

    return fsp.History(jnp.ones(3), jnp.ones(3), jnp.zeros(0, int), jnp.zeros(0))


def right_arguments(name: str, function: Callable) -> dict[str, Any]:
    """What a call needs: required arguments by name, and short work."""
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.name in _SPECIAL.get(name, {}):
            found[parameter.name] = _SPECIAL[name][parameter.name]()
        elif parameter.name in _QUICK and not _is_estimator(function):
            found[parameter.name] = _QUICK[parameter.name]
        elif parameter.default is parameter.empty:
            if parameter.name not in world().values:
                raise LookupError(f"trust.py: {name} requires {parameter.name!r}; add a right value to world()")
            found[parameter.name] = world().values[parameter.name]
    return _QUICK_ESTIMATOR | found if _is_estimator(function) else found


def _is_estimator(function: Callable) -> bool:
    return inspect.isclass(function) and hasattr(function, "fit") and hasattr(function, "get_params")


def cases() -> list[Case]:
    """All cases, in an order that stays the same."""
    return [case for name, function in callables().items() for case in _cases_of(name, function)]


def _cases_of(name: str, function: Callable) -> Iterator[Case]:
    traced = False
    for parameter in inspect.signature(function).parameters.values():
        kind = _kind(parameter)
        for value in _WRONG.get(kind or "", {}):
            if not (value == "None" and _may_be_none(parameter)) and not (
                value == "0" and parameter.name in _FROM_ZERO
            ):
                yield Case(name, parameter.name, str(kind), value)
        if kind == "array" and not traced and parameter.name in ("X", "rows", "context_points"):
            traced = True
            yield Case(name, parameter.name, kind, "traced by jit")


# Numbers that count from zero.
_FROM_ZERO = {"random_state", "output", "label"}


def _may_be_none(parameter: inspect.Parameter) -> bool:
    return parameter.default is None or type(None) in typing.get_args(parameter.annotation)


def _kind(parameter: inspect.Parameter) -> str | None:
    """What a signature says that an argument is; None where anything goes."""
    import numpy.typing

    annotation, name = parameter.annotation, parameter.name
    if name == "key":
        return "key"
    if annotation is parameter.empty or annotation is Any:
        return {"X": "array", "y": "array", "x": "array", "num_points": "count", "num_samples": "count"}.get(name)
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return None
    origin = typing.get_origin(annotation)
    members = [annotation] if origin is not typing.Union and type(annotation).__name__ != "UnionType" else []
    members = members or [member for member in typing.get_args(annotation) if member is not type(None)]
    if Any in members or any(isinstance(member, str) for member in members):
        return None
    like_arrays = typing.get_args(numpy.typing.ArrayLike)
    if all(member in members for member in like_arrays):
        # An array among other things, such as a function or batches: only what is no array at all is wrong for sure.
        return "array" if len(members) == len(like_arrays) else None
    if len(members) != 1:
        return "path" if set(members) == {str, Path} else None
    (member,) = members
    origin = typing.get_origin(member)
    if hasattr(member, "array_type"):
        return "array"
    if origin is typing.Literal:
        return "choice"
    names = {int: "count", float: "number", bool: "flag", Path: "path"}
    if member in names:
        return names[member]
    if "Callable" in str(member):
        return "function"
    if origin is not None:
        return {"Sequence": "sequence", "Mapping": "mapping"}.get(origin.__name__)
    return "object" if inspect.isclass(member) and member not in (str, bytes, object) else None


# Running a case.


def run(case: Case, function: Callable) -> dict[str, Any]:
    """Call, and say what came of it."""
    began = time.process_time()
    arguments = right_arguments(case.function, function)
    outcome, message = "silent", ""
    try:
        if case.value == "traced by jit":
            import jax

            given = arguments.pop(case.argument, world().values[case.argument])
            jax.jit(
                lambda traced: jax.numpy.zeros(()) * (_call(function, {**arguments, case.argument: traced}) is None)
            )(given)
        else:
            _call(function, {**arguments, case.argument: _WRONG[case.kind][case.value]()})
    except Exception as error:  # whatever it is, its kind is what is counted
        message = f"{type(error).__name__}: {error}"
        outcome = "clear" if _is_clear(error, case.argument) else "obscure"
    if outcome != "clear" and documented(case):
        outcome = "documented"
    return {
        "function": case.function, "argument": case.argument, "value": case.value, "outcome": outcome,
        "message": message[:300], "seconds": round(time.process_time() - began, 3),
    }  # fmt: skip


def _call(function: Callable, arguments: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if _is_estimator(function):
            labels = "Classifier" in function.__name__
            return function(**arguments).fit(world().values["X"], world().values["labels" if labels else "y"])
        positional = [
            arguments.pop(parameter.name)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]
        return function(*positional, **arguments)


def _is_clear(error: Exception, argument: str) -> bool:
    expected = isinstance(error, TypeError | ValueError | OSError | MemoryError | FloatingPointError)
    named = re.search(rf"(?<![\w.]){re.escape(argument)}(?!\w)", str(error)) is not None
    # JAX's and Equinox's own messages are pages; ours are sentences.
    return expected and (named or isinstance(error, OSError)) and len(str(error)) < 1000


def list_cases(path: Path, sample: int) -> None:
    """Write every `sample`-th case to a file."""
    path.write_text(json.dumps(cases()[::sample]))


def work(indices: list[int]) -> None:
    """Run some of the cases and print one line of JSON for each: the process that may crash or hang."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    for limit in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(limit, _too_long)
    # Beforehand: an import that is cut short cannot be repeated.
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")
    known = callables()
    listed = [Case(*parts) for parts in json.loads(Path(os.environ["TRUST_CASES"]).read_text())]
    for index in indices:
        case = listed[index]
        print(json.dumps({"begin": index}), flush=True)
        if case.function not in known or case.argument not in inspect.signature(known[case.function]).parameters:
            print(json.dumps({"index": index, "outcome": "absent"}), flush=True)
            continue
        # Of the processor, which other programs may be using; and on the clock, for what waits.
        signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
        signal.alarm(20 * LIMIT_SECONDS)
        try:
            found = run(case, known[case.function])
        except _TooLong:
            found = {**case._asdict(), "outcome": "hang", "message": "", "seconds": float(LIMIT_SECONDS)}
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"index": index, "peak_bytes": peak, **found}), flush=True)


def _too_long(*_) -> None:
    raise _TooLong


class _TooLong(BaseException):
    """A call that takes more than its time; not an `Exception`, which the call could catch."""


def here(sample: int) -> list[dict[str, Any]]:
    """Every `sample`-th case in this process, which none may bring down: for the test suite."""
    known = callables()
    return [run(case, known[case.function]) for case in cases()[::sample]]


def campaign(source: Path, sample: int) -> list[dict[str, Any]]:
    """All cases in processes of their own; a process that dies or hangs is replaced by another for the rest.

    Args:
        source: directory of the package to run; the cases are those of this tree.
        sample: every how many-th case to run.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        environment = os.environ | {
            "TRUST_CASES": file.name, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg",
        }  # fmt: skip
        own = environment | {"PYTHONPATH": str(REPOSITORY / "src")}
        subprocess.run([sys.executable, __file__, "--list", str(sample)], check=True, env=own)
        listed = [Case(*parts) for parts in json.loads(Path(file.name).read_text())]
        environment["PYTHONPATH"] = str(source)
        waiting, done = list(range(len(listed))), {}
        while waiting:
            command = [sys.executable, __file__, "--work", json.dumps(waiting)]
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
            ) as process:
                current = _follow(process, done)
            waiting = [index for index in waiting if index not in done]
            if current is None and waiting:
                raise RuntimeError(
                    "trust.py: the process that runs cases does not start; run it by hand with --work '[0]'"
                )
            if current is not None and current not in done:
                done[current] = {**listed[current]._asdict(), "outcome": "crash", "message": "", "seconds": 0.0}
                waiting = [index for index in waiting if index != current]
    return [done[index] for index in sorted(done) if done[index]["outcome"] != "absent"]


def _follow(process: subprocess.Popen, done: dict[int, dict]) -> int | None:
    """Read what a process prints until it ends; the case that it was at last."""
    current, stream = None, process.stdout
    assert stream is not None
    while True:
        ready, _, _ = select.select([stream], [], [], 60 * LIMIT_SECONDS)
        line = stream.readline() if ready else ""
        if not line:
            process.kill()
            return current
        found = json.loads(line) if line.startswith("{") else {}
        if "begin" in found:
            current = found["begin"]
        elif "index" in found:
            done[found.pop("index")] = found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Outcomes for each callable, the longest time and the largest memory."""
    functions: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for row in rows:
        functions[row["function"]][row["outcome"]] += 1
    return {
        "cases": len(rows),
        "outcomes": {outcome: sum(row["outcome"] == outcome for row in rows) for outcome in OUTCOMES},
        "longest_seconds": max((row["seconds"] for row in rows), default=0.0),
        "peak_bytes": max((row.get("peak_bytes", 0) for row in rows), default=0),
        "functions": {name: dict(counts) for name, counts in functions.items()},
        "not_clear": [row for row in rows if row["outcome"] not in ("clear", "documented")],
    }


def tables(rows: list[dict[str, Any]]) -> str:
    trees = [row["tree"] for row in rows]
    total = [["cases", *(row["cases"] for row in rows)], ["every how many-th case", *(row["every"] for row in rows)]]
    total += [[outcome, *(row["outcomes"][outcome] for row in rows)] for outcome in OUTCOMES]
    total += [
        ["longest call in seconds", *(f"{row['longest_seconds']:.1f}" for row in rows)],
        ["largest memory of the process in MiB", *(f"{row['peak_bytes'] / 2**20:.0f}" for row in rows)],
    ]
    names = list(dict.fromkeys(name for row in rows for name in row["functions"]))
    each = []
    for name in names:
        cells = []
        for row in rows:
            counts = row["functions"].get(name)
            bad = (
                "/".join(str(counts.get(outcome, 0)) for outcome in ("clear", "documented", "obscure", "silent"))
                if counts
                else "-"
            )
            cells.append(bad)
        each.append([f"`{name}`", *cells])
    after = next((row for row in rows if row["tree"] == "after"), rows[-1])
    left = [[f"`{row['function']}`", row["argument"], row["value"], row["outcome"]] for row in after["not_clear"]]
    parts = [
        "# What every public function says to values that it cannot use\n",
        "One wrong value for one argument at a time, built from the signatures. Clear: an error that names the argument. "
        "Documented: the documentation says what happens. Obscure: another error. Silent: no error. Written by "
        "`python benchmarks/trust.py` and `--before` (commit 168fc86, callables that exist there).\n",
        markdown_table(["", *trees], total),
        "\nFor each callable: clear/documented/obscure/silent.\n",
        markdown_table(["callable", *trees], each),
    ]
    if left:
        parts += [
            f"\nNot clear, {after['tree']}:\n",
            markdown_table(["callable", "argument", "value", "outcome"], left),
        ]
    return "\n".join(parts)


def before(directory: str) -> Path:
    """The sources of the commit before, unpacked into a directory."""
    packed = subprocess.run(["git", "archive", BEFORE, "src"], cwd=REPOSITORY, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    return Path(directory) / "src"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", action="store_true", help=f"run on commit {BEFORE}")
    parser.add_argument("--here", action="store_true", help="in this process: quicker, but a crash ends it")
    parser.add_argument("--sample", type=int, default=1, help="run every n-th case")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "results", help="for JSON and table")
    parser.add_argument("--list", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.list:
        list_cases(Path(os.environ["TRUST_CASES"]), arguments.list)
        return
    if arguments.work:
        work(json.loads(arguments.work))
        return
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        source = before(directory) if arguments.before else REPOSITORY / "src"
        tree = {"tree": "before" if arguments.before else "after", "every": arguments.sample}
        rows = here(arguments.sample) if arguments.here else campaign(source, arguments.sample)
        found = {**tree, **summary(rows)}
    path = arguments.out / "trust.json"
    columns = {old["tree"]: old for old in (json.loads(path.read_text())["rows"] if path.exists() else [])}
    columns[found["tree"]] = found
    ordered = sorted(columns.values(), key=lambda row: row["tree"] != "before")
    write_results(arguments.out, "trust", ordered, {"before": BEFORE},
                  seconds=time.perf_counter() - began, tables=tables)  # fmt: skip
    print(json.dumps({name: found[name] for name in ("cases", "outcomes", "longest_seconds", "peak_bytes")}))


if __name__ == "__main__":
    main()
