"""Declared dependencies are the imported ones: no more, no less, and each extra where it is needed."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The name of a distribution where it is not that of its module.
DISTRIBUTION = {"sklearn": "scikit-learn", "haiku": "dm-haiku"}
# Installed with another dependency that declares it: jaxlib with jax, torch by the user whose networks are of torch.
OF_OTHERS = {"jaxlib", "torch"}


def imported(folder: Path) -> set[str]:
    """Distributions of all modules that a folder imports, also inside functions."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_extra":
                names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            found |= {name.partition(".")[0] for name in names}
    found -= {"fsplaplace", *sys.stdlib_module_names}
    return {DISTRIBUTION.get(name, name) for name in found} - OF_OTHERS


def declared(requirements: list[str]) -> set[str]:
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}
    return names - {"fsplaplace"}


def test_declared_dependencies_are_the_imported_ones():
    optional = PROJECT["optional-dependencies"]
    extras = {name: parts for name, parts in optional.items() if name != "dev"}
    everything = declared(PROJECT["dependencies"]).union(*map(declared, extras.values()))
    assert imported(ROOT / "src") == everything


def test_what_the_tests_import_is_in_the_extra_for_developers():
    folders = [*(ROOT / "tests").rglob("*"), *(ROOT / "benchmarks").glob("*.py")]
    helpers = {path.stem for path in folders if path.is_dir() or path.suffix == ".py"}
    own = imported(ROOT / "tests") - imported(ROOT / "src") - helpers
    assert own <= declared(PROJECT["optional-dependencies"]["dev"])


@pytest.mark.parametrize("requirement", PROJECT["dependencies"])
def test_every_dependency_has_a_lowest_version(requirement):
    assert ">=" in requirement
