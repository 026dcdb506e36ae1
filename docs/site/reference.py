"""The API reference: a page for each room of the package, with every public name that the room exports."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import fsplaplace

# What a user calls comes first; rooms that are not named here follow by name.
_FIRST = (
    "prior", "kernels", "means", "likelihoods", "context", "networks", "observations", "operators", "training", "laplace",
    "tuning", "estimators", "studio", "metrics", "plotting", "io", "methods", "parallel", "datasets", "experiments",
)  # fmt: skip
# Former names, and the command line, which documents itself by `--help`.
_ELSEWHERE = ("adapters", "baselines", "cli")


def rooms() -> list[ModuleType]:
    """The public modules and packages directly under `fsplaplace`, and public packages inside them."""
    found = [
        info.name.removeprefix("fsplaplace.")
        for info in pkgutil.walk_packages(fsplaplace.__path__, "fsplaplace.")
        if not any(part.startswith("_") for part in info.name.split("."))
    ]
    top = [name for name in found if "." not in name and name not in _ELSEWHERE]
    order = [name for name in (*_FIRST, *top) if name in top]
    return [importlib.import_module(f"fsplaplace.{name}") for name in dict.fromkeys(order)]


def public_names(room: ModuleType) -> list[str]:
    """Names that the room exports: what it defines, and what it imports as itself (`from ... import x as x`)."""
    names = []
    for node in ast.parse(Path(room.__file__ or "").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names += [found.asname for found in node.names if found.asname == found.name]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_") and not inspect.ismodule(getattr(room, name))]


def write_pages(pages: Path) -> list[str]:
    """Write `index.md` and one page for each room; returns the file names, the index first."""
    pages.mkdir(parents=True, exist_ok=True)
    written, places = [], {}
    for room in rooms():
        short = room.__name__.removeprefix("fsplaplace.")
        # What is called comes before what it takes and returns.
        names = sorted(public_names(room), key=lambda name, room=room: inspect.isclass(getattr(room, name)))
        about = inspect.cleandoc(room.__doc__ or "").split("\n\n")[0]
        body = [f"# fsplaplace.{short}", about, *(_entry(room, name) for name in names)]
        (pages / f"{short}.md").write_text("\n\n".join(body) + "\n", encoding="utf-8")
        written.append(f"{short}.md")
        places |= {id(getattr(room, name)): (short, name) for name in names}
    rows = []
    for name in sorted(top_level_names(), key=str.lower):
        value = getattr(fsplaplace, name)
        short, found = places[id(value)]
        rows.append(f"| [`fsp.{name}`]({short}.md#fsplaplace.{short}.{found}) | {_summary(value)} |")
    listing = "\n".join(
        f"- [`fsplaplace.{name[:-3]}`]({name}): {_summary(room)}" for name, room in zip(written, rooms(), strict=True)
    )
    (pages / "index.md").write_text(_INDEX.format(rows="\n".join(rows), rooms=listing), encoding="utf-8")
    return ["index.md", *written]


def top_level_names() -> list[str]:
    """What `import fsplaplace as fsp` gives beside the rooms."""
    lazy = [name for name in fsplaplace._LAZY if not inspect.ismodule(getattr(fsplaplace, name))]
    return [*public_names(fsplaplace), *lazy]


def _entry(room: ModuleType, name: str) -> str:
    value, path = getattr(room, name), f"{room.__name__}.{name}"
    owner = str(getattr(value, "__module__", "fsplaplace"))
    if not owner.startswith("fsplaplace"):
        return f"## {name} {{ #{path} }}\n\nOf `{owner}`: {_summary(value)}"
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"::: {path}"
    # A constant, or an object made once: what it is an instance of says what it does.
    return f"## {name} {{ #{path} }}\n\nA `{type(value).__name__}`: {_summary(value)}"


def _summary(value: object) -> str:
    return inspect.cleandoc(value.__doc__ or "").split("\n")[0].replace("|", "\\|")


_INDEX = """# API reference

`import fsplaplace as fsp`

| name | what it is |
|---|---|
{rows}

## Rooms

{rooms}
"""
