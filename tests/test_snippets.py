"""Every Python block of the README and of the documentation runs, in order, in one namespace for each page."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_PAGES = [_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md"))]
# A block with a title is not ours to run on every machine: another library's code, or a file of its own.
_BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.M | re.S)
_PACKAGES = {"GPyTorch": "gpytorch", "laplace-torch": "laplace", "BoTorch": "botorch", "Flax": "flax", "torch": "torch"}


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """Line, title and code of each block."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start()) + 2, (re.findall(r'title="([^"]*)"', found[1]) or [""])[0], found[2])
        for found in _BLOCK.finditer(text)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in _PAGES if blocks(page)], ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    space = {"__name__": page.stem}
    for line, title, code in blocks(page):
        # Line numbers of the page, so that a failure points into it.
        tree = ast.increment_lineno(ast.parse(code), line - 1)
        program = compile(tree, str(page), "exec")
        if title.endswith(".py") or (title in _PACKAGES and importlib.util.find_spec(_PACKAGES[title]) is None):
            continue
        exec(program, space)


def test_every_title_names_a_file_or_a_package():
    titles = {title for page in _PAGES for _, title, _ in blocks(page) if title}
    assert all(title.endswith(".py") or title in _PACKAGES for title in titles), titles


def test_tables_of_readme_and_documentation_are_those_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(str(_ROOT / "benchmarks"))
    readme = importlib.import_module("readme")
    for page in _PAGES:
        text = page.read_text(encoding="utf-8")
        assert readme.filled(text) == text, f"{page.name}: run `python benchmarks/readme.py`"
