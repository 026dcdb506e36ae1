"""Mean ranks of methods over tasks, as the paper's table defines them."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Scored(NamedTuple):
    """Mean and standard error of a score, the larger the better."""

    mean: float
    error: float


def ranks(scores: Mapping[str, Scored]) -> dict[str, int]:
    """Rank 1 to the best mean and to all whose error bars overlap its bar; then the same among the others, with rank 2.

    Methods without a score (NaN) have no rank. Cost: one pass for each rank.
    """
    left = {name: found for name, found in scores.items() if math.isfinite(found.mean)}
    given: dict[str, int] = {}
    rank = 0
    while left:
        rank += 1
        best = max(left.values(), key=lambda found: found.mean)
        level = best.mean - best.error
        alike = [name for name, found in left.items() if found.mean + found.error >= level]
        given |= dict.fromkeys(alike, rank)
        left = {name: found for name, found in left.items() if name not in given}
    return given


def mean_ranks(tasks: Sequence[Mapping[str, Scored]]) -> dict[str, float]:
    """Mean of the ranks over the tasks where a method has one."""
    of_tasks = [ranks(scores) for scores in tasks]
    names = dict.fromkeys(name for found in of_tasks for name in found)
    found = {name: [each[name] for each in of_tasks if name in each] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items()}
