"""The command line with arguments, tables and models that it cannot use, and on hosts that are in its way.

Cases run in this process, through the command's own entry point; a sample runs as processes of their own, where the host matters.
An answer is *clear* if it is one sentence and an exit code above 0, *right* if it is what the case asks for, *obscure* if it is a
traceback, *silent* if nothing is said of what is wrong.
"""

import contextlib
import ctypes
import io
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from results import peak_memory

OUTCOMES = ("clear", "right", "obscure", "silent", "hang")
_LIMIT_SECONDS = 10
_NUMBERS = "a,b,y\n" + "".join(f"{i / 10},{i * i % 7},{i / 5}\n" for i in range(12))


class Command(NamedTuple):
    """One case: what is typed, and whether it should be refused."""

    name: str
    words: tuple[str, ...]
    refused: bool = True


# Tables, by what is wrong with them.
TABLES: dict[str, bytes] = {
    "empty": b"", "blank lines": b"\n\n\n", "header only": b"a,b,y\n", "no header": b"1,2,3\n4,5,6\n", "comments only": b"# a\n# b\n",
    "text cell": b"a,b,y\n1,x,3\n" * 1 + b"1,2,3\n" * 9, "missing cell": b"a,b,y\n1,,3\n" + b"1,2,3\n" * 9,
    "short row": b"a,b,y\n1,2\n" + b"1,2,3\n" * 9, "long row": b"a,b,y\n1,2,3,4\n" + b"1,2,3\n" * 9,
    "NaN": b"a,b,y\n1,nan,3\n" + b"1,2,3\n" * 9, "infinity": b"a,b,y\n1,inf,3\n" + b"1,2,3\n" * 9,
    "semicolons": b"a;b;y\n1;2;3\n" * 9, "tabs": b"a\tb\ty\n1\t2\t3\n" * 9, "underscores": b"a,b,y\n1_000,2,3\n" + b"1,2,3\n" * 9,
    "empty name": b"a,,y\n1,2,3\n" * 9, "twice a name": b"a,a,y\n1,2,3\n" * 9, "zero bytes": b"a,b,y\n1,\x002,3\n" * 9,
    "binary": bytes(range(256)) * 9, "latin-1": "\xe4,b,y\n1,2,3\n".encode("latin-1"), "long field": b"a,b,y\n" + b"1" * 200_000 + b",2,3\n",
    "three rows": b"a,b,y\n1,2,3\n2,3,4\n3,4,5\n", "one column": b"y\n" + b"1\n" * 9, "quotes": b'a,b,y\n"1,2,3\n' * 9,
    "1e400": b"a,b,y\n1e400,2,3\n" + b"1,2,3\n" * 9, "1e300": b"a,b,y\n1e300,2,3\n" + b"1,2,3\n" * 9, "commas": b"a,b,y\n1,5,2,3\n" * 9,
    "hexadecimal": b"a,b,y\n0x10,2,3\n" + b"1,2,3\n" * 9, "true": b"a,b,y\ntrue,2,3\n" + b"1,2,3\n" * 9,
    "date": b"a,b,y\n2020-01-01,2,3\n" + b"1,2,3\n" * 9, "percent": b"a,b,y\n10%,2,3\n" + b"1,2,3\n" * 9,
}  # fmt: skip


def commands(folder: Path) -> Iterator[Command]:
    """All cases; their files are made in `folder`."""
    for name, content in TABLES.items():
        (folder / f"{name}.csv").write_bytes(content)
    (folder / "good.csv").write_text(_NUMBERS)
    (folder / "file").write_text("")
    good, out = str(folder / "good.csv"), str(folder / "out")
    # Options that no command takes as they are.
    wrong = {
        "fit": {
            "--steps": ["0", "-1", "1.5", "many", "1e400", "nan", "", str(10**30)], "--seed": ["-1", "1.5", "x", str(2**40)],
            "--test-fraction": ["-0.1", "0.95", "x", "nan", "inf"], "--kernel": ["unknown", "", "rbf rbf", "3", "rbf + ", "periodic("],
            "--target": ["z", "", "a,b"], "--out": [str(folder / "file"), "/proc/none", "/dev/null"],
        },
        "demo": {"--steps": ["0", "-1", "x"], "--out": [str(folder / "file")]},
        "reproduce": {"--preset": ["fast", "", "3"], "--seeds": ["0", "-1", "x", "1.5"], "--out": [str(folder / "file")]},
        "report": {"--out": [str(folder / "file")]},
        "studio": {"--target": ["z", ""], "--out": [str(folder)]},
    }  # fmt: skip
    fixed = {
        "fit": ["fit", good, "--target", "y", "--out", out, "--quiet"], "demo": ["demo", "--quiet"],
        "reproduce": ["reproduce", "sine", "--quiet"], "report": ["report", str(folder)], "studio": ["studio", good, "--no-open"],
    }  # fmt: skip
    for command, options in wrong.items():
        for option, values in options.items():
            for value in values:
                words = list(fixed[command])
                if option in words:
                    words[words.index(option) + 1] = value
                else:
                    words += [option, value]
                yield Command(f"{command} {option} {value[:20] or 'nothing'}", tuple(words))
        yield Command(f"{command} --unknown", (*fixed[command], "--unknown"))
    for name in TABLES:
        table = str(folder / f"{name}.csv")
        yield Command(f"fit of a table: {name}", ("fit", table, "--target", "y", "--out", out, "--quiet"))
        # Three rows are too few to fit, but not to predict.
        predict = ("predict", str(folder / "model"), table, "--out", out + ".csv")
        yield Command(f"predict of a table: {name}", predict, refused=name != "three rows")
    for name in ("empty", "header only", "one column", "binary", "latin-1", "long field"):
        yield Command(
            f"studio of a table: {name}", ("studio", str(folder / f"{name}.csv"), "--no-open", "--out", out + ".html")
        )
    for words in (
        ("fit",), ("fit", "/nowhere.csv", "--target", "y"), ("fit", str(folder), "--target", "y"), ("fit", good), ("nothing",),
        ("predict",), ("predict", str(folder / "typo"), good), ("predict", str(folder), good), ("predict", good, good),
        ("predict", str(folder / "model"), "/nowhere.csv"), ("predict", str(folder / "model"), good, "--out", str(folder)),
        ("predict", str(folder / "model"), good, "--out", str(folder / "missing" / "all.csv")), ("reproduce",), ("reproduce", "unknown"),
        ("reproduce", "../sine"), ("data", "fetch", "unknown"), ("data", "verify", "unknown"), ("data", "unknown"),
        ("report", "/nowhere"), ("report", str(folder / "file")), ("studio", "/nowhere.csv", "--no-open"),
        ("--cache", str(folder / "file"), "reproduce", "--list"),
    ):  # fmt: skip
        yield Command(" ".join(words).replace(str(folder), "DIR") or "nothing", words)
    # What is read is the user's: it is never written over.
    (folder / "link.csv").unlink(missing_ok=True)
    (folder / "link.csv").symlink_to(folder / "good.csv")
    for name in ("good.csv", "link.csv", "model/model.json", "model/posterior.safetensors"):
        yield Command(f"predict over {name}", ("predict", str(folder / "model"), good, "--out", str(folder / name)))
    yield Command("studio over the table", ("studio", good, "--no-open", "--out", good))
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "predictions.csv").write_text("mine")
    yield Command("fit beside predictions of others", ("fit", good, "--target", "y", "--out", str(folder / "mine")))
    yield Command("fit of a row or two", ("fit", good, "--target", "y", "--test-fraction", "0.9", "--out", out))
    for name in damaged_models(folder):
        yield Command(f"predict with a model: {name}", ("predict", str(folder / name), good, "--out", out + ".csv"))
    for words in (
        ("--version",), ("reproduce", "--list"), ("data", "list"), ("--help",), ("fit", "--help"), ("studio", "--no-open", "--out", out + ".html"),
        ("predict", str(folder / "model"), good, "--out", out + ".csv"),
    ):  # fmt: skip
        yield Command(" ".join(words).replace(str(folder), "DIR"), words, refused=False)


def damaged_models(folder: Path) -> list[str]:
    """Directories with a model of which something is wrong, sealed as `fit` seals it; the model itself is in `model`."""
    from fsplaplace.cli import _tables
    from fsplaplace.experiments import read_record, write_record

    if not (folder / "model").exists():
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            _tables.fit_table(
                folder / "good.csv", folder / "model", _tables.Wanted("y", kernel="rbf", steps=1, quiet=True)
            )
    content = read_record(folder / "model" / "model.json", "fsplaplace table model")
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    changes: dict[str, Any] = {
        "without network": {"network": None}, "negative widths": {"network": {**content["network"], "widths": [2, -5, 1]}},
        "huge widths": {"network": {**content["network"], "widths": [2, 10**6, 10**6, 1]}}, "deep": {"scores": deep},
        "text scale": {"scales": {**content["scales"], "input_mean": ["x", "y"]}}, "no features": {"features": []},
        "zero scale": {"scales": {**content["scales"], "input_std": [0, 0]}}, "other features": {"features": ["a", "c"]},
        "float128": {"network": {**content["network"], "dtype": "float128"}}, "no target": {"target": None},
    }  # fmt: skip
    for name, change in changes.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "posterior.safetensors").write_bytes((folder / "model" / "posterior.safetensors").read_bytes())
        with contextlib.suppress(RecursionError):
            write_record(folder / name / "model.json", "fsplaplace table model", {**content, **change})
    (folder / "no posterior").mkdir(exist_ok=True)
    (folder / "no posterior" / "model.json").write_bytes((folder / "model" / "model.json").read_bytes())
    (folder / "nothing").mkdir(exist_ok=True)
    return [*changes, "no posterior", "nothing"]


def run_here(command: Command) -> dict[str, Any]:
    """Run one command through the entry point, in this process."""
    from fsplaplace import cli

    out, errors, code, obscure = io.StringIO(), io.StringIO(), 0, ""
    # Of the processor, which other programs may be using; and on the clock, for what waits.
    for limit in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(limit, _too_long)
    signal.setitimer(signal.ITIMER_PROF, _LIMIT_SECONDS)
    signal.alarm(20 * _LIMIT_SECONDS)
    began, typed = time.process_time(), sys.argv
    try:
        sys.argv = ["fsplaplace", *command.words]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except _TooLong:
        return {"case": command.name, "outcome": "hang", "message": "", "seconds": float(_LIMIT_SECONDS)}
    except BaseException as error:  # what a user would see as a traceback
        obscure = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.argv = typed
    return _judged(command, code, errors.getvalue(), obscure, time.process_time() - began)


def _judged(command: Command, code: int, said: str, obscure: str, seconds: float) -> dict[str, Any]:
    if seconds > _LIMIT_SECONDS:
        outcome = "hang"
    elif obscure or "Traceback" in said:
        outcome = "obscure"
    elif command.refused:
        outcome = "clear" if code and said.strip() else "silent"
    else:
        outcome = "right" if code == 0 else "obscure"
    return {
        "case": command.name,
        "outcome": outcome,
        "message": (obscure or said.strip())[-300:],
        "seconds": round(seconds, 2),
    }


def _too_long(*_):
    raise _TooLong


class _TooLong(BaseException):
    """A command that takes more than its time."""


# Hosts that are in the way: each is a process of its own.


def hosts(folder: Path) -> list[dict[str, Any]]:
    """Locales, pipes, terminals, full disks, read-only folders, homes that cannot be written, two writers."""
    damaged_models(folder)
    listing, good = ["reproduce", "--list"], str(folder / "good.csv")
    predict = ["predict", str(folder / "model"), good, "--out"]
    unwritable = folder / "unwritable"
    unwritable.mkdir(exist_ok=True)
    unwritable.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH | stat.S_IRGRP | stat.S_IXGRP)
    found = [
        _process("ASCII locale", listing, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}, refused=False),
        _process("Turkish locale", listing, {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}, refused=False),
        _process("no terminal, no input", listing, {"TERM": "dumb"}, refused=False, stdin=subprocess.DEVNULL),
        _process("closed pipe", listing, {}, refused=False, close_output=True),
        _process("no home", listing, {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"}, refused=False),
        _process("full disk", [*predict, str(folder / "full.csv")], {}, refused=True, limit=100),
        _process("read-only folder", [*predict, str(unwritable / "p.csv")], {}, refused=True, held_by_permissions=True),
        _process("unwritable home", ["data", "fetch", "co2"], {"HOME": str(unwritable), "FSPLAPLACE_DATA": ""}, refused=True, held_by_permissions=True),
    ]  # fmt: skip
    left = [path for path in folder.rglob("*.part")] + ([folder / "full.csv"] if (folder / "full.csv").exists() else [])
    found.append({"case": "after the full disk no half file is left", "outcome": "silent" if left else "right", "message": str(left or ""), "seconds": 0.0})  # fmt: skip
    found.append(two_writers(folder))
    return found


def _process(
    name: str, words: list[str], environment: dict[str, str], *, refused: bool, close_output: bool = False, limit: int | None = None,
    held_by_permissions: bool = False, stdin: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    def prepare():
        if limit is not None:
            # A file may have so many bytes: what comes after is what a full disk says.
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        if held_by_permissions and os.getuid() == 0:
            # An administrator writes anywhere, unless the process gives that up (PR_CAPBSET_DROP of CAP_DAC_OVERRIDE).
            ctypes.CDLL(None).prctl(24, 1)

    code, began = "from fsplaplace_command import main; main()", _seconds_of_children()
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | environment, preexec_fn=prepare,
    ) as process:  # fmt: skip
        if close_output and process.stdout is not None:
            process.stdout.close()
            said = process.stderr.read() if process.stderr is not None else b""
            process.wait(120)
        else:
            said = process.communicate(timeout=120)[1]
    status = process.returncode
    if close_output and status in (0, 1, 141):  # whoever reads has seen enough; rich ends with 1
        status = 0
    return _judged(
        Command(name, tuple(words), refused), status, said.decode(errors="replace"), "", _seconds_of_children() - began
    )


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def two_writers(folder: Path, seconds: float = 2.0) -> dict[str, Any]:
    """Two processes that write one file, and a reader that must always see one of the two whole."""
    from fsplaplace.host._files import write_into

    path, contents = folder / "shared", [bytes([number]) * 300_000 for number in (1, 2)]
    write_into(path, contents[0])
    children, end = [], time.monotonic() + seconds
    for content in contents:
        child = os.fork()
        if child == 0:
            while time.monotonic() < end:
                write_into(path, content)
            os._exit(0)
        children.append(child)
    seen, broken = 0, 0
    while time.monotonic() < end:
        broken += path.read_bytes() not in contents
        seen += 1
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    right = not broken and codes == [0, 0] and not list(folder.glob(".shared.*.part"))
    return {"case": "two writers on one file", "outcome": "right" if right else "silent", "message": f"read {seen} times", "seconds": seconds}  # fmt: skip


def campaign(folder: Path, *, every: int = 1, with_hosts: bool = True) -> dict[str, Any]:
    """All commands here, and the hosts."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "good.csv").write_text(_NUMBERS)
    back = Path.cwd()
    os.chdir(folder)
    # Before anything is computed here: a fork of a process that computed with JAX could not go on.
    try:
        rows = hosts(folder) if with_hosts else []
        rows += [run_here(command) for command in list(commands(folder))[::every]]
    finally:
        os.chdir(back)
    return {
        "cases": len(rows), "outcomes": {name: sum(row["outcome"] == name for row in rows) for name in OUTCOMES},
        "longest_seconds": max(row["seconds"] for row in rows),
        "peak_bytes": max(peak_memory(), 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss),
        "not_clear": [row for row in rows if row["outcome"] not in ("clear", "right")], "hosts": [row["case"] for row in rows][:10] if with_hosts else [],
    }  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(campaign(Path(place)), indent=1))
