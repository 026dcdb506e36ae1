"""How the columns of a table become numbers: numbers as they are, ISO dates as years, categories as columns of zeros and ones."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from fsplaplace.cli._reading import TextTable, number

# Of the Gregorian calendar. Years of equal length keep days, weeks and years in fixed proportions.
DAYS_PER_YEAR = 365.2425
# More categories than this are names of rows.
_MOST_CATEGORIES = 50
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?)?")
# The second of January to some, the first of February to others.
_UNSURE_DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2,4}\b")
_KINDS = ("number", "date", "category")


class Column(NamedTuple):
    """One column and how it becomes numbers.

    Attributes:
        name: in the table.
        kind: "number", "date" (years since the year 0) or "category" (one column of zeros and ones for each category; one column
            alone for two of them).
        categories: those seen, sorted.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()

    @property
    def encoded(self) -> tuple[str, ...]:
        """Names of the columns of numbers that it becomes."""
        if self.kind != "category":
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self._shown)

    @property
    def unit(self) -> str:
        return "year" if self.kind == "date" else ""

    @property
    def _shown(self) -> tuple[str, ...]:
        return self.categories[1:] if len(self.categories) == 2 else self.categories

    def numbers(self, table: TextTable) -> Float[np.ndarray, "n k"]:
        """The column's numbers; zeros for a category that was never seen."""
        cells = table.column(self.name)
        if self.kind == "category":
            _check_present(table, self.name, ("",))
            return np.array([[float(cell == category) for category in self._shown] for cell in cells])
        read = _years if self.kind == "date" else _number
        return np.array([[read(table, self.name, row)] for row in range(len(cells))])

    def unknown(self, table: TextTable) -> Bool[np.ndarray, " n"]:
        """Rows whose category was never seen."""
        cells = table.column(self.name)
        return np.array([self.kind == "category" and cell not in self.categories for cell in cells])

    def described(self) -> dict[str, Any]:
        """The column as JSON holds it."""
        return {"name": self.name, "kind": self.kind, "categories": list(self.categories)}

    @classmethod
    def restored(cls, content: Any) -> "Column | None":
        """What `described` gave, None if it is anything else."""
        if not (isinstance(content, dict) and isinstance(content.get("name"), str) and content.get("kind") in _KINDS):
            return None
        categories = content.get("categories")
        if not isinstance(categories, list) or not all(isinstance(category, str) for category in categories):
            return None
        if len(set(categories)) != len(categories) or (content["kind"] == "category") != (len(categories) >= 2):
            return None
        return cls(content["name"], content["kind"], tuple(categories))


def learn_column(table: TextTable, name: str, *, categorical: bool = False) -> Column:
    """The kind of a column by all its cells, or an error that names the one that does not fit the others."""
    cells = table.column(name)
    there = [cell for cell in cells if cell.lower() not in _MISSING]
    numbers = [number(cell) is not None for cell in there]
    if not categorical and (all(numbers) or any(numbers)):
        odd = next((cell for cell, found in zip(there, numbers, strict=True) if not found), None)
        if odd is not None:
            raise ValueError(
                f"{table.path}: row {table.lines[cells.index(odd)]} has {odd!r} in column {name!r}, which is not a number; mend "
                f"it, or pass --categorical {name} or --drop {name}"
            )
        return Column(name, "number")
    if not categorical and all(_DATE.fullmatch(cell) for cell in there):
        return Column(name, "date")
    if not categorical and there and all(_UNSURE_DATE.match(cell) for cell in there):
        raise ValueError(
            f"{table.path}: column {name!r} has {there[0]!r}, which may be a date; write dates as 2026-01-31, or pass --categorical "
            f"{name} or --drop {name}"
        )
    categories = tuple(sorted(set(cells) - {""}))
    if len(categories) < 2:
        seen = "".join(categories)
        raise ValueError(f"{table.path}: column {name!r} is {seen!r} in every row; leave it out with --drop {name}")
    if len(categories) > min(_MOST_CATEGORIES, max(2, len(cells) // 2)):
        raise ValueError(
            f"{table.path}: column {name!r} has {len(categories)} different texts in {len(cells)} rows; leave it out with "
            f"--drop {name}"
        )
    return Column(name, "category", categories)


def missing(table: TextTable, name: str, *, categorical: bool = False) -> Bool[np.ndarray, " n"]:
    """Rows without a value: an empty cell, or a word for it where the others are numbers or dates ("none" may be a category)."""
    cells = table.column(name)
    there = [cell for cell in cells if cell.lower() not in _MISSING]
    text = categorical or not (any(number(cell) is not None for cell in there) or all(map(_DATE.fullmatch, there)))
    return np.array([cell == "" if text else cell.lower() in _MISSING for cell in cells])


def target_numbers(table: TextTable, name: str) -> Float[np.ndarray, " n"]:
    """The column to predict."""
    return np.array([_number(table, name, row) for row in range(len(table.cells))])


def encode(table: TextTable, columns: Sequence[Column]) -> Float[np.ndarray, "n k"]:
    """The numbers of all columns side by side."""
    return np.concatenate([column.numbers(table) for column in columns], axis=1)


def _number(table: TextTable, name: str, row: int) -> float:
    cell, line = table.cells[row][table.names.index(name)], table.lines[row]
    value = number(cell)
    if cell.lower() in _MISSING or (value is not None and np.isnan(value)):
        raise ValueError(f"{table.path}: row {line} has no value in column {name!r}; fill or remove that row")
    if value is None:
        raise ValueError(
            f"{table.path}: row {line} has {cell!r} in column {name!r}, which is not a number; mend that cell"
        )
    if not np.isfinite(value):
        raise ValueError(f"{table.path}: row {line} has an infinite value in column {name!r}; remove that row")
    return value


def _years(table: TextTable, name: str, row: int) -> float:
    """Years since the year 0 of a date and time of day, midnight if there is none; UTC without a zone."""
    cell, line = table.cells[row][table.names.index(name)], table.lines[row]
    if cell.lower() in _MISSING:
        raise ValueError(f"{table.path}: row {line} has no value in column {name!r}; fill or remove that row")
    try:
        if not _DATE.fullmatch(cell):
            raise ValueError
        moment = datetime.fromisoformat(f"{cell}-01" if len(cell) == len("2026-01") else cell.replace(",", "."))
    except ValueError:
        raise ValueError(
            f"{table.path}: row {line} has {cell!r} in column {name!r}, which is no date; write it as 2026-01-31 or "
            "2026-01-31T12:00"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    days = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() / 86400
    return 1970 + days / DAYS_PER_YEAR


def _check_present(table: TextTable, name: str, missing: tuple[str, ...]) -> None:
    for line, cell in zip(table.lines, table.column(name), strict=True):
        if cell in missing:
            raise ValueError(f"{table.path}: row {line} has no value in column {name!r}; fill or remove that row")
