"""What an experiment is: cells to run, what the paper printed, how to draw it and what to say about it."""

import abc
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from matplotlib.figure import Figure

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One unit of work: a method on a task with a seed."""

    task: str
    method: str
    seed: int

    @property
    def file_name(self) -> str:
        """A name for its file, different for different cells."""
        words = (self.task, self.method, f"seed{self.seed}")
        return "--".join("".join(c if c.isalnum() or c in ".=" else "_" for c in word) for word in words) + ".json"


@dataclass(frozen=True)
class Row:
    """Scores of one variant of a method: one line of a table. A score that does not exist is None."""

    method: str
    scores: Mapping[str, float | None]
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a cell produced.

    - `rows`: one per variant (a training run serves several means and forms).
    - `choices`: how hyper-parameters were chosen, and what was chosen.
    - `curves`: lists of numbers for the figures, rounded.
    """

    rows: tuple[Row, ...]
    choices: dict[str, Any] = field(default_factory=dict)
    curves: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """A number printed in the paper: mean and standard error of one score."""

    task: str
    method: str
    score: str
    mean: float
    error: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Experiment(abc.ABC):
    """One experiment of the paper.

    Attributes:
        name: as the command line has it.
        title, place: what it is, and where in the paper.
        presets: settings of "quick" (a minute), "cpu" (minutes on two cores) and "paper" (the authors').
        scores: score -> (heading, how to write it, "lower", "higher" or "" for the better direction).
        medians: scores whose median over seeds is printed beside the mean: a few bad seeds decide the mean.
        counterparts: our row -> the method of the paper's table it is compared with.
        published: the paper's numbers.
        notes: what is not comparable, and why.
        difference: what explains that our numbers are not the paper's, as far as it is known.
        captions: name of a figure -> what it shows, in words.
        untrained: methods that take no training steps.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    place: ClassVar[str]
    presets: ClassVar[dict[str, dict[str, Any]]]
    scores: ClassVar[dict[str, tuple[str, str, str]]]
    medians: ClassVar[tuple[str, ...]] = ()
    counterparts: ClassVar[dict[str, str]] = {}
    published: ClassVar[tuple[Published, ...]] = ()
    notes: ClassVar[tuple[str, ...]] = ()
    difference: ClassVar[str] = ""
    captions: ClassVar[dict[str, str]] = {}
    untrained: ClassVar[tuple[str, ...]] = ("GP", "Sparse GP")

    @abc.abstractmethod
    def cells(self, settings: Settings, seeds: int) -> list[Cell]:
        """All cells, in the order to run them."""

    @abc.abstractmethod
    def run(self, cell: Cell, settings: Settings) -> Outcome:
        """Run one cell; called with JAX in float64."""

    @abc.abstractmethod
    def figures(self, outcomes: Mapping[Cell, Outcome], settings: Settings) -> dict[str, Figure]:
        """Name -> figure, from finished cells alone."""

    @abc.abstractmethod
    def verdict(self, summary: "Summary") -> str:
        """One line against the paper."""


class Summary:
    """Mean, standard error and median over seeds of every score of every row."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]):
        self.entries: dict[tuple[str, str], dict[str, tuple[float, float, int]]] = {}
        self._values: dict[tuple[str, str], dict[str, list[float]]] = {}
        groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for row in rows:
            groups.setdefault((row["task"], row["method"]), []).append(row)
        for where, members in groups.items():
            names = dict.fromkeys(name for member in members for name in member["scores"])
            self._values[where] = {
                name: [member["scores"][name] for member in members if member["scores"].get(name) is not None]
                for name in names
            }
            self.entries[where] = {name: _mean_and_error(values) for name, values in self._values[where].items()}

    def mean(self, task: str, method: str, score: str) -> float:
        """Mean over seeds; NaN where there is no such row or score."""
        return self.entries.get((task, method), {}).get(score, (math.nan, math.nan, 0))[0]

    def median(self, task: str, method: str, score: str) -> float:
        """Median over seeds; NaN where there is no such row or score."""
        values = self._values.get((task, method), {}).get(score)
        return statistics.median(values) if values else math.nan

    def as_rows(self) -> list[dict[str, Any]]:
        """For JSON: one dictionary per row of the table."""
        return [
            {
                "task": task,
                "method": method,
                "scores": {
                    name: {"mean": mean, "error": error, "median": self.median(task, method, name), "seeds": count}
                    for name, (mean, error, count) in scores.items()
                    if count
                },
            }
            for (task, method), scores in self.entries.items()
        ]


def _mean_and_error(values: Sequence[float]) -> tuple[float, float, int]:
    count = len(values)
    if count == 0:
        return float("nan"), float("nan"), 0
    mean = sum(values) / count
    spread = (sum((value - mean) ** 2 for value in values) / max(1, count - 1)) ** 0.5
    return mean, spread / count**0.5, count
