"""What the package imports is declared: at import time as a dependency, later as one or as an extra."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packages import USES

_ROOT = Path(__file__).parent.parent
# Import name -> name of the distribution, where they differ.
_NAMES = {
    "sklearn": "scikit-learn",
    "haiku": "dm-haiku",
    "yaml": "pyyaml",
    "botorch_community": "botorch",
    "ax": "ax-platform",
}
# Read only if the caller already has it: a network of his own, or an array of it.
_THE_CALLERS = {"torch"}
_ROOMS_OF_EXTRAS = ("experiments", "cli", "datasets", "adapters", "plotting", "botorch")


def declared() -> tuple[set[str], set[str]]:
    """Distributions that are always installed, and those of the extras."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    return tuple(
        {re.split(r"[\[<>=~ ;]", line)[0].lower() for line in lines} for lines in (project["dependencies"], extras)
    )  # pyright: ignore[reportReturnType]


def imports(path: Path) -> list[tuple[str, bool]]:
    """Top-level packages that a file imports, and whether at import time without a guard."""
    return imports_of(ast.parse(path.read_text(encoding="utf-8")))


def imports_of(tree: ast.AST) -> list[tuple[str, bool]]:
    """The same of a program."""
    found = []

    def visit(node: ast.AST, at_once: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((alias.name.split(".")[0], at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append(((node.module or "").split(".")[0], at_once))
        guarded = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Try | ast.If)
        for child in ast.iter_child_nodes(node):
            visit(child, at_once and not guarded)

    visit(tree, True)
    return found


def test_imports_are_declared():
    core, extras = declared()
    for path in sorted((_ROOT / "src").rglob("*.py")):
        # Rooms of an extra may import it at once: experiments and the command line say so in their own words.
        of_an_extra = any(part in _ROOMS_OF_EXTRAS for part in path.parts)
        for package, at_once in imports(path):
            name = _NAMES.get(package, package).lower()
            if package in sys.stdlib_module_names or package == "fsplaplace" or package in _THE_CALLERS:
                continue
            assert name in core | extras, f"{path}: {package} is not declared in pyproject.toml"
            assert name in core or of_an_extra or not at_once, (
                f"{path}: {package} belongs to an extra, but is imported at once"
            )


def test_declared_dependencies_are_imported():
    """And the other way round: nobody installs what is not used; tools of development are run, not imported."""
    core, extras = declared()
    tools = {"pytest", "pytest-xdist", "beartype", "hypothesis", "ruff", "pyright", "fsplaplace"}
    places = ("src", "docs/site", "tests", "examples")
    used = {
        _NAMES.get(package, package).lower()
        for place in places
        for path in (_ROOT / place).rglob("*.py")
        for package, _ in imports(path)
    }
    in_source = {
        _NAMES.get(package, package).lower() for path in (_ROOT / "src").rglob("*.py") for package, _ in imports(path)
    }
    assert core - in_source == set()
    # Not by an import statement: jax.export needs flatbuffers, the site is built by zensical with mkdocstrings, `import_extra`.
    assert extras - used - tools == {"flatbuffers", "zensical", "mkdocstrings-python", "pooch"}


def test_extras_that_the_pages_name_exist():
    extras = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    places = [
        _ROOT / "README.md",
        *(_ROOT / "docs").glob("*.md"),
        *(_ROOT / "examples").glob("*.py"),
        *(_ROOT / "src").rglob("*.py"),
    ]
    for path in places:
        text = path.read_text(encoding="utf-8")
        for named in re.findall(r"pip install [^\n]*?(?:fsplaplace|\.)\[([\w,]+)\]", text):
            assert set(named.split(",")) <= set(extras), f"{path.name}: {named}"


def test_every_dependency_has_a_lowest_version():
    dependencies = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert all(">=" in requirement for requirement in dependencies)


def test_importing_the_package_loads_nothing_heavy():
    """Each of these takes as long as the rest of the package together, and is imported by what needs it."""
    heavy = ("scipy.stats", "scipy.signal", "sklearn", "pandas", "matplotlib", "torch", "typer", "fsplaplace.tuning")
    code = "import sys, fsplaplace; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in heavy if name in loaded] == []


def test_every_extra_is_tried_alone_where_nothing_else_is_installed():
    """`tests/packages.py` has a use for each extra but `test` and `dev`, which are tools."""
    extras = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(USES) - {""} == set(extras) - {"test", "dev"}
    assert all(use.is_file() for use in USES.values() if isinstance(use, Path))


def test_the_example_of_an_extra_needs_nothing_else():
    """What it imports is a dependency or of that extra, with the extras that this one names."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    rooms = {"plotting": "matplotlib", "datasets": "pandas", "botorch": "botorch", "cli": "typer"}

    def brought(extra: str) -> set[str]:
        lines = project["optional-dependencies"][extra]
        named = [name for line in lines for name in re.findall(r"fsplaplace\[([\w,]+)\]", line)]
        others = [brought(other) for names in named for other in names.split(",")]
        return set().union({re.split(r"[\[<>=~ ;]", line)[0].lower() for line in lines}, *others)

    for extra, use in USES.items():
        known = declared()[0] | (brought(extra) if extra else set()) | {"fsplaplace"}
        source = use.read_text(encoding="utf-8") if isinstance(use, Path) else use
        tree = ast.parse(source)
        needed = {package for package, _ in imports_of(tree)} - sys.stdlib_module_names
        # Rooms of the package that need more than the core.
        needed |= {rooms[room] for room in re.findall(r"fsplaplace(?: import |\.)(\w+)", source) if room in rooms}
        unknown = {name for name in needed if _NAMES.get(name, name).lower() not in known}
        assert unknown == set(), f"{extra or 'no extra'}: {use} needs {unknown}"
