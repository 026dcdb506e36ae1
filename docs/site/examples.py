"""Every example as a page: its text, its code, and below each cell what it printed and drew when it was run just now."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

# The order in which a newcomer reads them; any other example follows by name.
_FIRST = ("quickstart", "choosing_a_prior", "classification", "physics_prior")


def write_pages(sources: Path, pages: Path, *, run: bool) -> list[str]:
    """Write one page for each example and an index; returns the file names, the index first.

    Args:
        sources: the directory of the `.py` files, in cells separated by `# %%`.
        pages: where the Markdown goes.
        run: execute the examples; otherwise their outputs are missing.
    """
    pages.mkdir(parents=True, exist_ok=True)
    found = {path.stem: path for path in sorted(sources.glob("*.py"))}
    order = [name for name in (*_FIRST, *found) if name in found]
    names, lines = [], []
    for name in dict.fromkeys(order):
        text = _page(found[name], pages, run=run)
        (pages / f"{name}.md").write_text(text, encoding="utf-8")
        names.append(f"{name}.md")
        title, about = re.match(r"# (.+)\n\n(.+?)\n\n", text, re.S).groups()  # pyright: ignore[reportOptionalMemberAccess] - the form of every example
        lines.append(f"- [{title}]({name}.md): {_first_sentence(about)}")
    (pages / "index.md").write_text(_INDEX + "\n".join(lines) + "\n", encoding="utf-8")
    return ["index.md", *names]


def _page(source: Path, pages: Path, *, run: bool) -> str:
    cells = [_cell(text) for text in re.split(r"^# %%", source.read_text(encoding="utf-8"), flags=re.M)[1:]]
    outputs = _run(source, pages) if run else [""] * len(cells)
    parts = []
    for (kind, text), output in zip(cells, outputs, strict=True):
        parts.append(text if kind == "markdown" else f"```python\n{text}\n```")
        if output:
            parts.append(output)
    parts.append(f"Run it yourself: `python examples/{source.name}`.")
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> tuple[str, str]:
    head, _, body = text.partition("\n")
    if "[markdown]" in head:
        return "markdown", re.sub(r"^# ?", "", body.strip(), flags=re.M)
    return "code", body.strip()


def _run(source: Path, pages: Path) -> list[str]:
    """Outputs of the cells as Markdown; those of an unchanged example and package are kept in `build/examples`."""
    root = source.parent.parent
    state = hashlib.sha256()
    for path in (source, Path(__file__), *sorted((root / "src").rglob("*.py"))):
        state.update(path.read_bytes())
    kept = root / "build/examples" / source.stem / state.hexdigest()[:16]
    if not (kept / "outputs.txt").is_file():
        kept.mkdir(parents=True, exist_ok=True)
        print(f"running examples/{source.name}", flush=True)
        environment = {**os.environ, "MPLBACKEND": "agg", "PYTHONPATH": str(root / "src"), "COLUMNS": "100"}
        command = [sys.executable, Path(__file__).with_name("run_cells.py"), source, kept]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"examples/{source.name} failed:\n{done.stderr[-3000:]}")
    outputs = (kept / "outputs.txt").read_text(encoding="utf-8").split("\f")
    for figure in kept.glob("*.png"):
        (pages / figure.name).write_bytes(figure.read_bytes())
    return outputs


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:])\s", text.replace("\n", " "), maxsplit=1)[0].rstrip(":") + ("" if "." in text else ".")


_INDEX = """# Examples

Each page is a file of `examples/`, run from start to end when this site was built; what is printed and drawn below a cell
is what it printed and drew.

"""
