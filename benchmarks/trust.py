"""What the library does with what it cannot use: wrong values, damaged files, killed processes, hostile hosts, long runs.

    python benchmarks/trust.py                      # all parts, about half an hour on one core
    python benchmarks/trust.py --parts calls files  # some of them; the others stay as they were measured
    python benchmarks/trust.py --minutes 4          # stops then; the next call goes on
    python benchmarks/trust.py --before             # calls on the tree of commit 168fc86, with the same cases
    python benchmarks/trust.py --here --sample 25   # every 25th call in this process, as the test suite does

Calls are built from signatures: one wrong value after the other for each argument of each public callable, the others being
right. A new function is covered as soon as it is exported; one whose required arguments have no right value is an error.

An answer is *clear* if it is an error that names the argument, *documented* if the documentation says what happens, *obscure* if
it is any other error, *silent* if there is none, *crash* or *hang* (over 10 seconds) if the process does not survive.

Each part replaces its own record in `benchmarks/results/trust.json`; `trust.md` is made from that file alone.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trust_calls
import trust_commands
import trust_files
import trust_findings
import trust_kills
import trust_long
from results import markdown_table, write_results
from trust_calls import module_callables as module_callables

REPOSITORY = Path(__file__).resolve().parents[1]
BEFORE = "168fc86"
PARTS = ("calls", "files", "kills", "commands", "sizes", "tables", "soak")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--before", action="store_true", help=f"calls on commit {BEFORE}")
    parser.add_argument("--here", action="store_true", help="calls in this process: quicker, but a crash ends it")
    parser.add_argument("--sample", type=int, default=1, help="every n-th call, an n-th of the mutations and kills")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop then; the same command goes on")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "results", help="for JSON and table")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--kinds", nargs="+", choices=[*trust_kills.KILLS, *trust_files.KINDS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(_run_here(arguments.part, arguments.sample, arguments.kinds)))
        return
    os.environ |= {"MPLBACKEND": "agg", "JAX_PLATFORMS": "cpu"}
    began = time.monotonic()
    records = _read(arguments.out / "trust.json")
    for part in ["calls"] if arguments.before or arguments.here else arguments.parts:
        name = "calls before" if arguments.before else part
        found = _measure(part, name, arguments, began + 60 * arguments.minutes)
        if found is None:
            print(f"{name}: to be continued by the same command")
            return
        records[name] = {"part": name, "every": arguments.sample, **found}
        ordered = sorted(records.values(), key=lambda record: record["part"])
        write_results(
            arguments.out, "trust", ordered, {"before": BEFORE}, seconds=time.monotonic() - began, tables=tables
        )


def _read(path: Path) -> dict[str, dict[str, Any]]:
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return {row["part"]: row for row in rows if "part" in row}


def _measure(part: str, name: str, arguments: argparse.Namespace, deadline: float) -> dict[str, Any] | None:
    """The record of one part; None if the deadline came first."""
    if part in _KINDS:
        return _by_kind(part, arguments, deadline)
    if part != "calls":
        return None if time.monotonic() >= deadline else _in_own_process(part, arguments.sample)
    if arguments.here:
        return trust_calls.summary(trust_calls.here(arguments.sample))
    state = arguments.out / f".trust-{name.replace(' ', '-')}-{arguments.sample}.jsonl"
    with tempfile.TemporaryDirectory() as directory:
        source = before(directory) if arguments.before else REPOSITORY / "src"
        rows = trust_calls.campaign(source, arguments.sample, state, deadline)
    if rows is None:
        return None
    state.unlink()
    return trust_calls.summary(rows)


# Parts of several kinds of work, each in a process of its own: memory is then that of the kind.
_KINDS = {"kills": trust_kills.KILLS, "files": trust_files.KINDS}


def _by_kind(part: str, arguments: argparse.Namespace, deadline: float) -> dict[str, Any] | None:
    """One kind of work after the other, each kept when it is done."""
    state = arguments.out / f".trust-{part}-{arguments.sample}.json"
    found = json.loads(state.read_text()) if state.exists() else {"done": [], "kinds": {}, "seconds": 0.0}
    for kind in _KINDS[part]:
        if kind in found["done"]:
            continue
        if time.monotonic() >= deadline:
            return None
        new = _in_own_process(part, arguments.sample, "--kinds", kind)
        found = {
            "done": [*found["done"], kind], "kinds": found["kinds"] | new["kinds"],
            "seconds": round(found["seconds"] + new["seconds"], 1),
        }  # fmt: skip
        state.write_text(json.dumps(found))
    state.unlink(missing_ok=True)
    return {name: value for name, value in found.items() if name != "done"}


def _in_own_process(part: str, sample: int, *more: str) -> dict[str, Any]:
    """Memory is then that of the part, and forks begin before anything is computed."""
    command = [sys.executable, "-W", "ignore", __file__, "--part", part, "--sample", str(sample), *more]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def _run_here(part: str, sample: int, kinds: list[str] | None) -> dict[str, Any]:
    kinds = kinds or list(_KINDS.get(part, ()))
    work: dict[str, Callable[[Path], dict[str, Any]]] = {
        "files": lambda place: {"kinds": trust_files.campaign(place, scale=1 / sample, kinds=kinds)},
        "kills": lambda place: {"kinds": trust_kills.campaign(place, scale=1 / sample, kinds=kinds)},
        "commands": lambda place: trust_commands.campaign(place, every=sample, with_hosts=sample == 1),
        "sizes": lambda _: trust_long.sizes(trust_long.FITS // sample),
        "tables": lambda _: trust_long.tables(trust_long.FITS // sample),
        "soak": lambda _: trust_long.soak(trust_long.REQUESTS // sample),
    }
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        found = work[part](Path(directory) / part)
    return {**found, "seconds": round(time.monotonic() - began, 1)}


def before(directory: str) -> Path:
    """The sources of the commit before, unpacked into a directory."""
    packed = subprocess.run(["git", "archive", BEFORE, "src"], cwd=REPOSITORY, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    return Path(directory) / "src"


# The tables, from the records alone.


def tables(rows: list[dict[str, Any]]) -> str:
    records = {row["part"]: row for row in rows}
    parts = [
        "# What the library does with what it cannot use\n",
        "Written by `python benchmarks/trust.py`; `--before` measures the calls on commit 168fc86, for the callables that it has. Clear: an "
        "error that names the argument. Documented: the documentation says what happens. Obscure: another error. Silent: no error. The "
        "review that began this work found 164 obscure errors and 13 kinds of silence in 646 calls.\n",
    ]
    writers = {"files": _files_table, "kills": _kills_table, "commands": _commands_table, "soak": _soak_table}
    calls = [records[name] for name in ("calls before", "calls") if name in records]
    if calls:
        parts += ["## Calls with one wrong value\n", _calls_table(calls)]
    for name, write in writers.items():
        if name in records:
            parts += ["", write(records[name])]
    if "sizes" in records or "tables" in records:
        parts += ["", _sizes_table(records)]
    for heading, listed in (
        ("Each finding and its test", trust_findings.FINDINGS),
        ("Each property and its test", trust_findings.PROPERTIES),
    ):
        body = [[what, f"`tests/{file}::{test}`"] for what, file, test in listed]
        parts += ["", f"## {heading}\n", markdown_table([heading.split()[1], "test"], body)]
    if calls:
        parts += ["", "## Each callable: clear/documented/obscure/silent\n", _callables_table(calls)]
    return "\n".join(parts)


def _calls_table(calls: list[dict[str, Any]]) -> str:
    body = [["cases", *(row["cases"] for row in calls)], ["every n-th case", *(row["every"] for row in calls)]]
    body += [[outcome, *(row["outcomes"][outcome] for row in calls)] for outcome in trust_calls.OUTCOMES]
    body += [
        ["longest call in seconds", *(f"{row['longest_seconds']:.1f}" for row in calls)],
        ["largest memory of the process in MiB", *(f"{row['peak_bytes'] / 2**20:.0f}" for row in calls)],
        [
            "of these by imports and examples, before the first call",
            *(_mebibytes(row.get("start_bytes")) for row in calls),
        ],
    ]
    text = markdown_table(["", *(_tree(row) for row in calls)], body)
    left = [[f"`{row['function']}`", row["argument"], row["value"], row["outcome"]] for row in calls[-1]["not_clear"]]
    if left and calls[-1]["part"] == "calls":
        text += "\n\nNot clear:\n\n" + markdown_table(["callable", "argument", "value", "outcome"], left)
    return text


def _mebibytes(count: int | None) -> str | None:
    return f"{count / 2**20:.0f}" if count else None


def _tree(row: dict[str, Any]) -> str:
    return "before" if row["part"] == "calls before" else "after"


def _callables_table(calls: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in calls[::-1] for name in row["functions"]))

    def cell(row, name):
        counts = row["functions"].get(name)
        return (
            "/".join(str(counts.get(outcome, 0)) for outcome in ("clear", "documented", "obscure", "silent"))
            if counts
            else "-"
        )

    return markdown_table(
        ["callable", *(_tree(row) for row in calls)],
        [[f"`{name}`", *(cell(row, name) for row in calls)] for name in names],
    )


def _files_table(record: dict[str, Any]) -> str:
    body = [
        [name, sum(found["outcomes"].values()), *(found["outcomes"][outcome] for outcome in trust_files.OUTCOMES)]
        for name, found in record["kinds"].items()
    ]
    mutations = sum(row[1] for row in body)
    longest = max(found["longest_seconds"] for found in record["kinds"].values())
    peak = max(found["peak_bytes"] for found in record["kinds"].values())
    return (
        f"## {mutations} damaged files\n\nBytes and headers as accidents change them; meanings under a new, right checksum, as "
        "only intent changes them (then other numbers are no fault: a checksum does not know who wrote them, a secret does). Longest "
        f"{longest:.1f} s, largest memory of a process {peak / 2**20:.0f} MiB.\n\n"
        + markdown_table(["file / change", "files", *trust_files.OUTCOMES], body)
    )


def _kills_table(record: dict[str, Any]) -> str:
    body = [
        [name, found["kills"], ", ".join(f"{count} {what}" for what, count in found["files"].items()), found["lost"],
         found["left by killed writers"], found["left in the end"]]
        for name, found in record["kinds"].items()
    ]  # fmt: skip
    total = sum(found["kills"] for found in record["kinds"].values())
    return f"## {total} processes killed while they write\n\n" + markdown_table(
        ["work", "kills", "found afterwards", "lost", "`.part` files left", "after the next writer"], body
    )


def _commands_table(record: dict[str, Any]) -> str:
    body = [[outcome, record["outcomes"][outcome]] for outcome in trust_commands.OUTCOMES]
    text = (
        f"## {record['cases']} commands\n\nAmong them, in processes of their own: {', '.join(record['hosts'])}. Longest "
        f"{record['longest_seconds']:.1f} s of the processor, largest memory of a process {record['peak_bytes'] / 2**20:.0f} MiB.\n\n"
        + markdown_table(["answer", "commands"], body)
    )
    left = [[row["case"], row["outcome"], row["message"][:120].replace("\n", " ")] for row in record["not_clear"]]
    return text + ("\n\n" + markdown_table(["command", "answer", "what it said"], left) if left else "")


def _sizes_table(records: dict[str, dict[str, Any]]) -> str:
    named = {"sizes": "train and laplace", "tables": "FSPRegressor"}
    found = {heading: records[part] for part, heading in named.items() if part in records}
    rows: dict[str, Callable[[dict[str, Any]], Any]] = {
        "fits, each of another number of rows": lambda record: record["fits"],
        "largest memory in MiB": lambda record: f"{record['most_bytes'] / 2**20:.0f}",
        "memory gained by a further fit in KiB": lambda record: f"{record['bytes_per_fit'] / 1024:.0f}",
        "most memory maps": lambda record: f"{record['most_maps']} of {record['limit_of_maps']}",
        "maps gained by a further fit": lambda record: f"{record['maps_per_fit']:.1f}",
        "seconds": lambda record: f"{record['seconds']:.0f}",
    }
    body = [[name, *(value(record) for record in found.values())] for name, value in rows.items()]
    return "## Many sizes in one process\n\n" + markdown_table(["", *found], body)


def _soak_table(record: dict[str, Any]) -> str:
    body = [
        ["requests", record["requests"]], ["clients at once", record["clients"]],
        *([f"answers: {kind}", count] for kind, count in record["answers"].items()),
        ["memory gained after the first fifth in MiB", f"{record['bytes_grown'] / 2**20:.1f}"],
        ["maps gained after the first fifth", record["maps_grown"]], ["seconds", record["seconds"]],
    ]  # fmt: skip
    return "## The HTTP example under concurrent requests\n\n" + markdown_table(["", ""], body)


if __name__ == "__main__":
    main()
