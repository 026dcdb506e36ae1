"""A text file of rows: its encoding, comments, separator, header and decimal mark are found out, and what was found is said."""

import csv
import io
import re
from pathlib import Path
from typing import NamedTuple

# Marks between cells, and their names; blanks are tried last.
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
# Lines that the separator is judged by.
_TRIED = 20
_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
# 1,234 is a thousand and more to some, a little more than one to others.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


class TextTable(NamedTuple):
    """A table as it was typed.

    Attributes:
        path: of the file, for messages.
        names: of the columns.
        cells: of each row, without blanks around them, numbers with a decimal point.
        lines: the line of the file that each row ends in.
        notes: what was found out that is not what a plain CSV file has.
    """

    path: Path
    names: tuple[str, ...]
    cells: list[list[str]]
    lines: list[int]
    notes: tuple[str, ...]

    def column(self, name: str) -> list[str]:
        """The cells below a name."""
        place = self.names.index(name)
        return [row[place] for row in self.cells]


def read_text_table(path: Path) -> TextTable:
    """The table in a file with one header line, or an error that names the place at fault."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} {'is not a file' if path.exists() else 'does not exist'}; pass a CSV file")
    raw = path.read_bytes()
    if not raw.strip():
        raise ValueError(f"{path} is empty; pass a CSV file with a header and rows of numbers")
    # All kinds of line ends, and nothing else that `str.splitlines` takes for one.
    lines = io.StringIO(_decode(path, raw), newline=None)
    numbered = [(line, text) for line, text in enumerate(lines, 1) if text.strip()]
    comments = [(line, text) for line, text in numbered if text.lstrip().startswith("#")]
    content = [(line, text) for line, text in numbered if not text.lstrip().startswith("#")]
    if not content:
        raise ValueError(f"{path} has comments only; pass a CSV file with a header and rows of numbers")
    mark = _separator([text for _, text in content[:_TRIED]])
    notes = [f"{len(comments)} comment line{'s' * (len(comments) > 1)} skipped"] * bool(comments)
    if mark != ",":
        notes.append(f"columns are separated by {_SEPARATORS[mark]}")
    (_, first), *rows = _split(path, content, mark)
    above = [text.lstrip().lstrip("#") for line, text in comments if line < content[0][0]]
    if _all_numbers(first) and above:
        # NumPy writes its header as a comment.
        (_, named), *_ = _split(path, [(0, above[-1])], mark)
        if len(named) == len(first) and not _all_numbers(named):
            rows, first = [(content[0][0], first), *rows], named
            notes.append(f"the last comment names the columns: {', '.join(named)}")
    names = _header(path, first)
    if not rows:
        raise ValueError(f"{path} has a header but no rows")
    for line, row in rows:
        if len(row) != len(names):
            raise ValueError(f"{path}: row {line} has {len(row)} cells, but the header has {len(names)}")
    cells = [row for _, row in rows]
    if example := _decimal_comma(path, cells, [line for line, _ in rows]):
        notes.append(f"decimal commas: {example!r} is {example.replace(',', '.')}")
        cells = [[cell.replace(",", ".") if _COMMA.fullmatch(cell) else cell for cell in row] for row in cells]
    return TextTable(path, names, cells, [line for line, _ in rows], tuple(notes))


def number(cell: str) -> float | None:
    """The number that a cell holds, None if it holds none."""
    if "_" in cell:  # Python's own way to write numbers, nobody else's
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def _decode(path: Path, raw: bytes) -> str:
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8") from error
    if "\x00" in text:
        raise ValueError(f"{path} holds zero bytes and is not a text file; pass a CSV file")
    return text


def _separator(lines: list[str]) -> str:
    """The mark that splits most lines into as many cells as the header, then the one with most cells; a comma if none does."""

    def agreement(mark: str) -> tuple[int, int]:
        counts = [len(_cells_of(line, mark)) for line in lines]
        return (sum(count == counts[0] for count in counts), counts[0]) if counts[0] > 1 else (0, 0)

    plain = max((mark for mark in _SEPARATORS if mark != " "), key=agreement)
    if agreement(plain)[0] == 0 and agreement(" ")[0] == len(lines):
        return " "
    return plain if agreement(plain)[0] else ","


def _cells_of(line: str, mark: str) -> list[str]:
    if mark == " ":
        return line.split()
    try:
        return next(csv.reader([line.strip("\r\n")], delimiter=mark, skipinitialspace=True), [])
    except csv.Error:
        return []


def _split(path: Path, lines: list[tuple[int, str]], mark: str) -> list[tuple[int, list[str]]]:
    """Line and cells of each row."""
    if mark == " ":
        return [(line, text.split()) for line, text in lines]
    reader = csv.reader(io.StringIO("".join(text for _, text in lines)), delimiter=mark, skipinitialspace=True)
    rows = []
    try:
        for row in reader:
            rows.append((lines[reader.line_num - 1][0], [cell.strip() for cell in row]))
    except csv.Error as error:
        place = lines[min(reader.line_num, len(lines)) - 1][0]
        raise ValueError(f"{path}: line {place} cannot be read as CSV ({error})") from error
    return [(line, row) for line, row in rows if any(row)]


def _header(path: Path, names: list[str]) -> tuple[str, ...]:
    if "" in names:
        raise ValueError(f"{path}: column {names.index('') + 1} has no name in the header; give each column a name")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{path}: the header has {', '.join(map(repr, repeated))} more than once; give each column its own name"
        )
    if _all_numbers(names):
        raise ValueError(f"{path}: the first line holds numbers only; add a header with the names of the columns")
    return tuple(names)


def _all_numbers(cells: list[str]) -> bool:
    return all(number(cell) is not None or _COMMA.fullmatch(cell) for cell in cells)


def _decimal_comma(path: Path, cells: list[list[str]], lines: list[int]) -> str | None:
    """The first number that is written with a comma, None if there is none; an error if its meaning is not sure."""
    found = [(line, cell) for line, row in zip(lines, cells, strict=True) for cell in row if _COMMA.fullmatch(cell)]
    if not found:
        return None
    line, first = found[0]
    for other, row in zip(lines, cells, strict=True):
        for cell in row:
            if _POINT.fullmatch(cell):
                raise ValueError(
                    f"{path}: row {line} has {first!r} and row {other} has {cell!r}; write all numbers with the same decimal mark"
                )
    if all(_THOUSANDS.fullmatch(cell) for _, cell in found):
        raise ValueError(
            f"{path}: row {line} has {first!r}, which may be {first.replace(',', '')} or {first.replace(',', '.')}; "
            "write it without a comma"
        )
    return first
