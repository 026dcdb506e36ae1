"""`fsplaplace studio`: write the page, with a table or without, and open it."""

import csv
import io
import re
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np

from fsplaplace.arguments import checked
from fsplaplace.host import check_target, write_atomically
from fsplaplace.studio._page import studio_page

# Rows of a larger table that go into the page: all that it can draw. Evidence and posterior use 300 of them.
MOST_ROWS = 2000
# Comments and blank lines above the header; further down a cell may begin with the same mark.
_COMMENTS = re.compile(r"^(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))+")


@checked
def write_studio(
    page: str | Path, table: str | Path | None = None, *, target: str | list[str] | None = None, show: bool = False
) -> Path:
    """Write the studio as one HTML file.

    Text, missing values and whatever else a table may hold are the page's business: it says what it leaves out.

    Args:
        page: the file to write or to replace; its folder is made if there is none.
        table: a CSV file with a header that the page opens with; a random sample of 2,000 rows of a longer one.
        target: the column to predict, or two columns for a vector field; the last column by default.
        show: open the page in the browser.

    Returns:
        The page's path. Cost: one pass over the table.
    """
    targets = [target] if isinstance(target, str) else list(target or [])
    if table is None and targets:
        raise ValueError(
            f"studio: target is {', '.join(targets)}, but there is no table; pass a CSV file, or leave it out"
        )
    given = None if table is None else _given(Path(table), targets)
    page = Path(page)
    if table is not None and page.exists():
        check_target(page, reads=[table])
    write_atomically(page, studio_page(given).encode())
    if show:
        webbrowser.open(page.resolve().as_uri())
    return page


def _given(table: Path, targets: list[str]) -> dict[str, Any]:
    """What the page opens with, or an error for a table that it could show nothing of."""
    rows = _rows(table)
    if len(rows) < 2:
        raise ValueError(f"{table} has {len(rows)} line(s); pass a CSV file with a header and rows of numbers")
    names = [name.strip() for name in rows[0]]
    for target in targets:
        if target not in names:
            raise ValueError(f"{table} has no column {target!r}; its columns are {', '.join(names)}")
    if len(targets) > 2:
        raise ValueError(f"studio: target names {len(targets)} columns; pass one, or two for a vector field")
    if len(names) < max(2, 2 * len(targets)):
        raise ValueError(
            f"{table} has {len(names)} column(s); pass a table with a target and an input, or with two of each for a "
            "vector field"
        )
    return {"file": table.name, "text": _sampled(rows), "rows": len(rows) - 1, "targets": targets or None}


def _rows(table: Path) -> list[list[str]]:
    """The cells of all lines below comments that are not blank, with commas, semicolons, tabs or bars between them."""
    if not table.is_file():
        raise FileNotFoundError(f"{table} does not exist; pass a CSV file")
    raw = table.read_bytes()
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{table} is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8") from error
    text = _COMMENTS.sub("", text)
    first = text.split("\n", 1)[0]
    try:
        lines = list(csv.reader(io.StringIO(text), delimiter=max(",;\t|", key=first.count)))
    except csv.Error as error:
        raise ValueError(f"{table} is not a CSV file: {error}") from error
    return [row for row in lines if any(cell.strip() for cell in row)]


def _sampled(rows: list[list[str]]) -> str:
    """The header and at most MOST_ROWS rows as CSV, in their order."""
    count = len(rows) - 1
    chosen = range(count)
    if count > MOST_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(count, MOST_ROWS, replace=False))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([rows[0], *(rows[1 + index] for index in chosen)])
    return text.getvalue()
