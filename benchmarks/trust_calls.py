"""Every public callable with every kind of wrong value: cases from signatures, run in processes that may crash or hang."""

import collections
import contextlib
import importlib
import inspect
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trust_values import WRONG, Case, documented, is_estimator, right_arguments, world

REPOSITORY = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 10
CASES_OF_A_PROCESS = 1000
LIMIT_BYTES = 8 * 2**30
OUTCOMES = ("clear", "documented", "obscure", "silent", "crash", "hang")
ROOMS = (
    "fsplaplace", "fsplaplace.context", "fsplaplace.likelihoods", "fsplaplace.means", "fsplaplace.metrics",
    "fsplaplace.kernels", "fsplaplace.methods", "fsplaplace.tuning", "fsplaplace.plotting", "fsplaplace.io",
    "fsplaplace.operators", "fsplaplace.studio", "fsplaplace.botorch", "fsplaplace.parallel", "fsplaplace.experiments",
    "fsplaplace.datasets",
)  # fmt: skip
# Rooms whose callables are for those who extend the library: they take what the library itself hands them.
_FOR_EXTENSIONS = {
    "radial_entry", "register_kernel", "nearest_entry", "parameter_starts", "covariance", "variance", "block_covariance",
    "block_variance", "lengthscales", "circles", "lengthscales_on_circles", "smoothness", "num_outputs", "check_columns", "maximize", "log_marginal_likelihood",
    "register", "checksum", "read_tensors", "write_tensors", "signature", "entry_named", "entry_of", "last_layer", "names",
    "as_operator", "settled", "follows_shifts", "num_shards", "shard_rows", "row_sharding", "map_sharded", "replicate", "gather", "read_record",
    "write_record", "has_features", "linear_features", "on_columns", "with_bases_of", "has_label_evidence", "mauna_loa_kernel", "entry", "draw_paths", "FunctionPath",
    "ParameterSpace", "GemmComputation", "BlockKernel", "Likelihood", "Sampler", "Method",
}  # fmt: skip


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
            pairs = {"Labels": True, "LabelsOfMethod": True, "Posterior": False, "LinearisedPosterior": False}
            fits = owner not in pairs or pairs[owner] == (name == "predict_proba")
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
            if (
                name.startswith("_")
                or not (inspect.isroutine(value) or inspect.isclass(value))
                or not own.startswith(room)
                or id(value) in seen
            ):
                continue
            if name in _FOR_EXTENSIONS or (inspect.isclass(value) and not _is_built_by_users(value)):
                continue
            seen.add(id(value))
            found[prefix + name] = value
    return found


# Methods between the parts of the library.
_INTERNAL_METHODS = {
    "draw", "draw_outputs", "minus", "load_state_dict", "on_columns", "prediction", "blocks", "to_blocks", "from_blocks", "independent_parts", "gram_product", "squared_norm",
    "resolve", "forward", "get_extra_state", "set_extra_state", "known", "process_at", "set_train_data",
    "check_columns", "refusal", "misfit_to_noise", "get_metadata_routing", "set_fit_request", "set_predict_request", "set_score_request", "evaluate", "score",
}  # fmt: skip


def _is_built_by_users(kind: type) -> bool:
    bases = {base.__name__ for base in kind.__mro__}
    families = {"Sampler", "Likelihood", "Method", "AbstractKernel", "AbstractMeanFunction", "FSPEstimator"}
    return bool(bases & families) or kind.__name__ in ("Prior", "Observation", "FSPModel")


def cases() -> list[Case]:
    """All cases, in an order that stays the same."""
    return [case for name, function in callables().items() for case in _cases_of(name, function)]


def _cases_of(name: str, function: Callable) -> Iterator[Case]:
    traced = False
    for parameter in inspect.signature(function).parameters.values():
        kind = _kind(parameter)
        for value in WRONG.get(kind or "", {}):
            if not (value == "None" and _may_be_none(parameter)) and not (
                (value == "0" and parameter.name in _FROM_ZERO)
                or (value == "10**9" and parameter.name in _MAY_BE_LARGE)
            ):
                yield Case(name, parameter.name, str(kind), value)
        if kind == "array" and not traced and parameter.name in ("X", "rows", "context_points"):
            traced = True
            yield Case(name, parameter.name, kind, "traced by jit")


# Numbers that count from zero.
_FROM_ZERO = {"random_state", "output", "label", "columns", "numbers", "seed", "order"}
# Numbers that only say how long to go on at most, or how many at once.
_MAY_BE_LARGE = {
    "steps", "max_steps", "restarts", "patience", "rounds", "seeds", "batch_size", "rank", "neighbours", "exact_rows",
    "random_state", "seed", "size", "max_weights",
}  # fmt: skip


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
    if parameter.kind is parameter.VAR_KEYWORD:
        return None
    origin = typing.get_origin(annotation)
    members = [annotation] if origin is not typing.Union and type(annotation).__name__ != "UnionType" else []
    members = members or [member for member in typing.get_args(annotation) if member is not type(None)]
    if Any in members or any(isinstance(member, str) for member in members):
        return None
    like_arrays = typing.get_args(numpy.typing.ArrayLike)
    if all(member in members for member in like_arrays):
        # An array among other things, such as a function or batches: only what is no array at all is wrong for sure.
        return "array" if len(members) == len(like_arrays) else "array or other"
    if len(members) != 1:
        return "path" if set(members) == {str, Path} else None
    (member,) = members
    origin = typing.get_origin(member)
    if hasattr(member, "array_type"):
        return "array"
    if origin is typing.Literal:
        return "choice"
    names = {int: "count", float: "number", bool: "flag", Path: "path", str: "text"}
    if member in names:
        return names[member]
    if "Callable" in str(member):
        return "function"
    if origin is not None:
        return {"Sequence": "sequence", "list": "sequence", "Mapping": "mapping"}.get(origin.__name__)
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
            wrong = WRONG[case.kind][case.value]()
            several = inspect.signature(function).parameters[case.argument].kind is inspect.Parameter.VAR_POSITIONAL
            _call(function, {**arguments, case.argument: (wrong,) if several else wrong})
    except Exception as error:  # whatever it is, its kind is what is counted
        # Without the directory of this machine.
        message = f"{type(error).__name__}: {error}".replace(f"{REPOSITORY}/", "")
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
        if is_estimator(function):
            labels = "Classifier" in function.__name__
            return function(**arguments).fit(world().values["X"], world().values["labels" if labels else "y"])
        positional = [
            arguments.pop(parameter.name)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]
        several = [
            name for name, found in inspect.signature(function).parameters.items() if found.kind is found.VAR_POSITIONAL
        ]
        return function(*positional, *(arguments.pop(several[0]) if several else ()), **arguments)


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
    # The examples' own programs are a third of what the process holds by now, and the calls have little use for them.
    importlib.import_module("jax").clear_caches()
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
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
        print(json.dumps({"index": index, "start_bytes": start, "peak_bytes": peak, **found}), flush=True)


def _too_long(*_) -> None:
    raise _TooLong


class _TooLong(BaseException):
    """A call that takes more than its time; not an `Exception`, which the call could catch."""


def here(sample: int) -> list[dict[str, Any]]:
    """Every `sample`-th case in this process, which none may bring down: for the test suite."""
    known = callables()
    return [run(case, known[case.function]) for case in cases()[::sample]]


def campaign(source: Path, sample: int, state: Path, deadline: float) -> list[dict[str, Any]] | None:
    """All cases in processes of their own; a process that dies or hangs is replaced by another for the rest.

    Args:
        source: directory of the package to run; the cases are those of this tree.
        sample: every how many-th case to run.
        state: a file with what was found so far; another run goes on from there.
        deadline: when to stop, as `time.monotonic` has it.

    Returns None if the deadline came first.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        environment = os.environ | {
            "TRUST_CASES": file.name, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg",
        }  # fmt: skip
        own = environment | {"PYTHONPATH": str(REPOSITORY / "src")}
        subprocess.run([sys.executable, __file__, "--list", str(sample)], check=True, env=own)
        listed = [Case(*parts) for parts in json.loads(Path(file.name).read_text())]
        environment["PYTHONPATH"] = str(source)
        known = (
            {tuple(row.pop("case")): row for row in map(json.loads, state.read_text().splitlines())}
            if state.exists()
            else {}
        )
        done = {index: known[case] for index, case in enumerate(listed) if case in known}
        waiting = [index for index in range(len(listed)) if index not in done]
        state.parent.mkdir(parents=True, exist_ok=True)
        while waiting and time.monotonic() < deadline:
            before = set(done)
            # A new process now and then: programs of thousands of calls would be counted as the memory of one.
            command = [sys.executable, __file__, "--work", json.dumps(waiting[:CASES_OF_A_PROCESS])]
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
            ) as process:
                current = _follow(process, done, deadline)
            late = time.monotonic() >= deadline
            finished = all(index in done for index in waiting[:CASES_OF_A_PROCESS])
            if current is None and not late and not finished:
                raise RuntimeError(
                    "trust.py: the process that runs cases does not start; run trust_calls.py --work '[0]'"
                )
            if current is not None and current not in done and not late:
                done[current] = {**listed[current]._asdict(), "outcome": "crash", "message": "", "seconds": 0.0}
            waiting = [index for index in waiting if index not in done]
            with state.open("a") as log:
                log.writelines(
                    json.dumps({"case": listed[index], **done[index]}) + "\n" for index in sorted(set(done) - before)
                )
    return None if waiting else [done[index] for index in sorted(done) if done[index]["outcome"] != "absent"]


def _follow(process: subprocess.Popen, done: dict[int, dict], deadline: float) -> int | None:
    """Read what a process prints until it ends; the case that it was at last."""
    current, stream = None, process.stdout
    assert stream is not None
    while True:
        ready, _, _ = select.select([stream], [], [], 60 * LIMIT_SECONDS)
        line = stream.readline() if ready else ""
        if not line or time.monotonic() >= deadline:
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
        "start_bytes": max((row.get("start_bytes", 0) for row in rows), default=0),
        "peak_bytes": max((row.get("peak_bytes", 0) for row in rows), default=0),
        "functions": {name: dict(counts) for name, counts in functions.items()},
        "not_clear": [row for row in rows if row["outcome"] not in ("clear", "documented")],
    }


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        list_cases(Path(os.environ["TRUST_CASES"]), int(sys.argv[2]))
    else:
        work(json.loads(sys.argv[2]))
