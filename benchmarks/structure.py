"""How the package is built, before and after `laplace` became a room: files, imports, calls, repetitions, programs.

    python benchmarks/structure.py                            # this tree, as "after"
    python benchmarks/structure.py --before                   # the tree of commit 168fc86, as "before"
    python benchmarks/structure.py --source DIR --name NAME   # the package in DIR, under a name of your own
    python benchmarks/structure.py --quick                    # this tree with a short fit, for the test suite

Every call is measured in a process of its own. Each run replaces the rows of its own name in
`benchmarks/results/structure.json` and keeps the others; `structure.md` shows all names side by side.
"""

import argparse
import ast
import collections
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from results import markdown_table, write_results

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "fsplaplace"
BEFORE = "168fc86"
STEPS, QUICK_STEPS = 200, 10
# Rooms that are named, those with the most switches first.
_MOST_ROOMS = 6
PATTERNS = {
    "`enable_x64`": r"\benable_x64\b",
    "`isinstance(.., Gaussian)`": r"isinstance\([^()]*\bGaussian\b",
    "`missed_as_noise`": r"\bmissed_as_noise\b",
    "`np.asarray`": r"\bnp\.asarray\b",
}


# What can be read from the files.


def measure_files(package: Path) -> dict[str, int | str]:
    """Everything that needs no run."""
    sources = {path: path.read_text() for path in sorted(package.rglob("*.py"))}
    measured: dict[str, int | str] = {"files at the root": sum(path.parent == package for path in sources)}
    imports = list(_imports(package, sources))
    kinds = {"at import": {"module"}, "with lazy and typing imports": {"module", "lazy", "typing"}}
    for label, wanted in kinds.items():
        modules = _graph((one.importer, one.imported) for one in imports if one.kind in wanted)
        rooms = _graph((_room(one.importer), _room(one.imported)) for one in imports if one.kind in wanted)
        groups = _strong_components(rooms)
        measured[f"import layers of rooms, {label}"] = _longest_chain(rooms, groups)
        for what, graph in (("modules", modules), ("rooms", rooms)):
            cycles = [group for group in _strong_components(graph) if len(group) > 1]
            measured[f"import cycles of {what}, {label}"] = _of(len(cycles), sum(map(len, cycles)), what)
    for label, pattern in PATTERNS.items():
        found = [len(re.findall(pattern, text)) for text in sources.values()]
        measured[label] = _of(sum(found), sum(count > 0 for count in found), "files")
    constants = {path: _numeric_constants(text) for path, text in sources.items()}
    heart = [names for path, names in constants.items() if _decides_laplace(path.relative_to(package), package)]
    measured["constants of `laplace` outside its table of choices"] = _of(
        sum(map(len, heart)), sum(map(bool, heart)), "files"
    )
    measured["constants in the package"] = _of(
        sum(map(len, constants.values())), sum(map(bool, constants.values())), "files"
    )
    return measured


def _of(count: int, holders: int, what: str) -> str:
    return f"{count} in {holders} {what}"


class Import(collections.namedtuple("Import", ("importer", "imported", "kind"))):
    """One import of a module of the package by another.

    Attributes:
        importer: dotted name within the package; "" is the package itself.
        imported: likewise.
        kind: "module" if executed on import, "lazy" if inside a function, "typing" if under TYPE_CHECKING.
    """


def _imports(package: Path, sources: dict[Path, str]) -> Iterator[Import]:
    names = {_module_name(package, path): path for path in sources}
    for importer, path in names.items():
        for node, kind in _with_kind(ast.parse(sources[path]), "module"):
            for target in _targets(node):
                # A name of a module that is not a module is something defined in it.
                imported = target if target in names else target.rpartition(".")[0]
                # The package's own face imports everything and is imported for convenience: no room.
                if imported in names and imported != importer and "" not in (imported, importer):
                    yield Import(importer, imported, kind)


def _module_name(package: Path, path: Path) -> str:
    return ".".join(part for part in path.relative_to(package).with_suffix("").parts if part != "__init__")


def _with_kind(node: ast.AST, kind: str) -> Iterator[tuple[ast.AST, str]]:
    for child in ast.iter_child_nodes(node):
        inner = kind
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner = "lazy"
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            inner = "typing"
        yield child, inner
        yield from _with_kind(child, inner)


def _targets(node: ast.AST) -> list[str]:
    full = []
    if isinstance(node, ast.Import):
        full = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        full = [f"{node.module}.{alias.name}" for alias in node.names]
    return [name.partition(".")[2] for name in full if name.split(".")[0] == PACKAGE]


def _room(module: str) -> str:
    return module.split(".")[0]


def _graph(edges: Iterator[tuple[str, str]]) -> dict[str, set[str]]:
    graph = collections.defaultdict(set)
    for one, other in edges:
        graph[other]  # a node without imports of its own
        if one != other:
            graph[one].add(other)
    return dict(graph)


def _strong_components(graph: dict[str, set[str]]) -> list[set[str]]:
    reach = {node: _reachable(graph, node) for node in graph}
    groups = {frozenset({node} | {other for other in reach[node] if node in reach[other]}) for node in graph}
    return [set(group) for group in groups]


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen, waiting = set(), list(graph[start])
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(graph[node])
    return seen


def _longest_chain(graph: dict[str, set[str]], groups: list[set[str]]) -> int:
    """Rooms on the longest path of imports, a cycle counting as all its rooms."""
    group_of = {node: index for index, group in enumerate(groups) for node in group}
    depth: dict[int, int] = {}

    def below(index: int) -> int:
        if index not in depth:
            following = {group_of[other] for node in groups[index] for other in graph[node]} - {index}
            depth[index] = len(groups[index]) + max(map(below, following), default=0)
        return depth[index]

    return max(map(below, range(len(groups))), default=0)


def _decides_laplace(path: Path, package: Path) -> bool:
    """Whether a constant in this file belongs into the table of choices: before there was a room, the private root files."""
    if (package / "laplace").is_dir():
        return path.parts[0] == "laplace" and path.name != "_choices.py"
    return len(path.parts) == 1 and path.name.startswith("_") and path.name not in ("__init__.py", "_version.py")


def _numeric_constants(source: str) -> list[str]:
    """UPPER_CASE names of a module that are bound to a number, or to a tuple or dict of numbers."""
    names = []
    for node in ast.parse(source).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            names += [
                name.id
                for name, value in pairs
                if isinstance(name, ast.Name) and re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name.id) and _is_numeric(value)
            ]
    return names


def _is_numeric(node: ast.AST | None) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.BinOp):
        return _is_numeric(node.left) and _is_numeric(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_numeric(node.operand)
    if isinstance(node, ast.Tuple):
        return bool(node.elts) and all(map(_is_numeric, node.elts))
    return isinstance(node, ast.Dict) and bool(node.values) and all(map(_is_numeric, node.values))


# What has to be run. The sample program: 100 rows of a sine, RBF of length scale 0.3, 2 x 50 network, 200 context points.


def _sample():
    import jax.random as jr
    import numpy as np
    from gpjax.kernels import RBF

    import fsplaplace as fsp

    X = np.random.default_rng(0).uniform(-1, 1, (100, 1))
    y = np.sin(6 * X[:, 0])
    prior, likelihood = fsp.Prior(RBF(lengthscale=0.3)), fsp.likelihoods.Gaussian(scale=0.1)
    model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=fsp.context.around(X), key=jr.key(0)))
    points = np.linspace(-2, 2, 200)[:, None]
    return X, y, lambda: fsp.laplace(model, prior, likelihood, X, y, context_points=points)


def measure_laplace(_steps: int) -> dict[str, str]:
    """Files and switches of a first and of a second posterior, and which rooms the second one's lead to."""
    _, _, laplace = _sample()
    found = _profile("`laplace`, cold", laplace) | _profile("`laplace`, warm", laplace)
    entered = _entered(_visits(laplace))
    rooms = collections.Counter(Path(path).parts[0] for path in entered if len(Path(path).parts) > 1)
    return found | {
        f"`laplace`, warm: switches into `{room}`": _of(
            count, len({path for path in entered if path.startswith(f"{room}{os.sep}")}), "files"
        )
        for room, count in rooms.most_common(_MOST_ROOMS)
    }


def measure_fit(steps: int) -> dict[str, str]:
    """Files and switches of a second fit of the estimator."""
    import fsplaplace as fsp

    X, y, _ = _sample()

    def fit():
        fsp.FSPRegressor(random_state=0, steps=steps).fit(X, y)

    fit()
    return _profile("`FSPRegressor.fit`, warm", fit)


def measure_programs(_steps: int) -> dict[str, int]:
    """Programs that XLA compiles in a process that has not computed a posterior before."""
    import jax.monitoring

    _, _, laplace = _sample()
    events = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _seconds, **_: events.append(event) if "backend_compile" in event else None
    )
    posterior = laplace()
    first = len(events)
    posterior.predict([[0.0], [0.5]])
    return {"programs of a cold posterior": first, "programs of a first prediction": len(events) - first}


def _profile(call: str, function) -> dict[str, str | int]:
    """Files of the package that a call enters, how often it lands in another file than before, and from how many files into which."""
    visited = _visits(function)
    return {
        f"{call}: switches between files": _of(len(_entered(visited)), len(set(visited)), "files"),
        f"{call}: different switches": len({pair for pair in itertools.pairwise(visited) if pair[0] != pair[1]}),
    }


def _visits(function) -> list[str]:
    """The file of each call into the package, relative to it, in order."""
    import fsplaplace

    root = os.path.dirname(fsplaplace.__file__) + os.sep
    visited: list[str] = []

    def note(frame, event, _argument):
        if event == "call" and frame.f_code.co_filename.startswith(root):
            visited.append(frame.f_code.co_filename.removeprefix(root))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return visited


def _entered(visited: list[str]) -> list[str]:
    """The files that calls land in from another one."""
    return [other for one, other in itertools.pairwise(visited) if one != other]


MEASUREMENTS = {"laplace": measure_laplace, "fit": measure_fit, "programs": measure_programs}


def in_a_process(name: str, source: Path, steps: int) -> dict:
    """Run one of the measurements above with the package in `source`, and read what it prints."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--measure", name, str(steps), str(source)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def measure(source: Path, name: str, steps: int) -> dict:
    """One row: everything about the package in this directory."""
    values = measure_files(source / PACKAGE)
    for measurement in MEASUREMENTS:
        values |= in_a_process(measurement, source, steps)
    return {"tree": name, "values": values}


def before(directory: str) -> Path:
    """The sources of the commit before, unpacked into a directory."""
    packed = subprocess.run(["git", "archive", BEFORE, "src"], cwd=REPOSITORY, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    return Path(directory) / "src"


def tables(rows: list[dict]) -> str:
    labels = list(dict.fromkeys(label for row in rows for label in row["values"]))
    body = [[label, *(row["values"].get(label) for row in rows)] for label in labels]
    return "\n".join(
        [
            "# The package, before and after `laplace` became a room\n",
            "A room is a directory or a file at the root of the package; its own `__init__` is none. A cycle is a group of "
            "modules or rooms that import each other. A switch is a call into another file of the package than the call "
            "before it; different ones are counted once however often a loop repeats them (a fit evaluates the marginal likelihood some "
            "hundred times).\n",
            markdown_table(["", *(row["tree"] for row in rows)], body),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", action="store_true", help=f"measure commit {BEFORE}")
    parser.add_argument("--source", type=Path, default=REPOSITORY / "src", help="directory that holds the package")
    parser.add_argument("--name", default="after", help="column of the table")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_STEPS} training steps")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks" / "results", help="for JSON and table")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        import fsplaplace

        name, steps, source = arguments.measure
        if not Path(fsplaplace.__file__).is_relative_to(source):
            raise RuntimeError(f"fsplaplace came from {fsplaplace.__file__}, not from {source}")
        print(json.dumps(MEASUREMENTS[name](int(steps))))
        return
    start, steps = time.perf_counter(), QUICK_STEPS if arguments.quick else STEPS
    with tempfile.TemporaryDirectory() as directory:
        source = before(directory) if arguments.before else arguments.source.resolve()
        row = measure(source, "before" if arguments.before else arguments.name, steps)
    path = arguments.out / "structure.json"
    rows = {old["tree"]: old for old in (json.loads(path.read_text())["rows"] if path.exists() else [])}
    rows[row["tree"]] = row
    ordered = sorted(rows.values(), key=lambda row: row["tree"] != "before")
    write_results(arguments.out, "structure", ordered, {"steps": steps, "before": BEFORE},
                  seconds=time.perf_counter() - start, tables=tables)  # fmt: skip


if __name__ == "__main__":
    main()
