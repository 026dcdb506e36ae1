"""Pages of results: the paper's experiments beside the paper, and the benchmarks, from committed JSON alone."""

import re
import shutil
from pathlib import Path

from fsplaplace.experiments.report import write_report


def write_pages(root: Path, pages: Path) -> list[str]:
    """Write the experiments' pages and one for the benchmarks; returns the file names, the index first."""
    pages.mkdir(parents=True, exist_ok=True)
    written = [path.name for path in write_report(root / "docs/results", pages)]
    (pages / "benchmarks.md").write_text(_benchmarks(root / "benchmarks/results", pages), encoding="utf-8")
    return [*written, "benchmarks.md"]


def _benchmarks(tables: Path, pages: Path) -> str:
    """The committed tables one below the other, their headings one level down."""
    parts = [_HEAD]
    for path in sorted(tables.glob("*.md")):
        text = re.sub(r"^(#+) ", r"#\1 ", path.read_text(encoding="utf-8").strip(), flags=re.M)
        for name in re.findall(r"\]\(([\w.-]+\.png)\)", text):
            shutil.copy(tables / name, pages / name)
        title = path.stem.replace("_", " ")
        body = text if text.startswith("## ") else f"## {title.capitalize()}\n\n{text}"
        parts.append(f"{body}\n\nMade by `python benchmarks/{path.stem}.py`.")
    return "\n\n".join(parts) + "\n"


_HEAD = """# Benchmarks

Every table is written by a script of `benchmarks/` from the JSON that the same script wrote on a machine with two CPU cores."""
