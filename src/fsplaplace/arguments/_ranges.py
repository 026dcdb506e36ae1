"""The range of a number by its name: one meaning for a name in the whole library."""

import math
from typing import NamedTuple


class Range(NamedTuple):
    """Numbers from `least` to `most`, or strictly between `above` and `below`; `wanted` says it in words."""

    wanted: str
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def holds(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def advice(self, value: float) -> str:
        """What to pass instead of a value that is not in the range."""
        said = value <= self.most or any(f" {word} " in self.wanted for word in ("most", "to"))
        return self.wanted if said else f"{self.wanted}, at most {self.most}"


# Counts within compiled programs are 32-bit numbers; memory and time end far below.
_MOST = 2**31 - 1


def _counts(wanted: str, least: int, most: int = _MOST) -> Range:
    return Range(wanted, least=least, most=most)


_COUNT = _counts("1 or more", 1)
_POSITIVE = Range("a positive number", above=0)
# One meaning for a name in the whole library. None, where a function allows it, is always in range.
RANGES: dict[str, Range] = {
    **dict.fromkeys(
        (
            "steps", "num_samples", "num_points", "num_units",
            "max_steps", "patience", "restarts", "exact_rows",
            "n_samples", "rounds", "seeds",
        ),
        _COUNT,
    ),
    # Far above what anybody draws or a machine holds: said before anything is tried.
    **dict.fromkeys(
        ("num_outputs", "num_features", "num_bins", "num_levels", "kl_samples", "likelihood_samples", "predict_samples"),
        _counts("1 or more", 1, 10**6),
    ),
    **dict.fromkeys(("num_context", "num_posterior_context", "num_inducing"), _counts("1 or more", 1, 10**7)),
    "passes": _counts("1 or more", 1, 1000),
    "batch_size": _counts("1 or more, or None for all rows", 1),
    "rank": _counts("1 or more, or None for no limit", 1),
    "neighbours": _counts("1 or more, or None for any row", 1),
    "num_classes": _counts("2 or more", 2, 10**6),
    "size": _counts("2 or more", 2),
    "rtol": Range("a number above 0 and below 1", above=0, below=1),
    "delta": _POSITIVE,
    "learning_rate": _POSITIVE,
    "alpha_epsilon": Range("a positive number, for instance 0.01", above=0),
    "memory_budget": Range("a positive number of bytes, or None for RAM / 4", above=0),
    "captured": Range("a share of the variance, above 0 and at most 1", above=0, most=1),
    "level": Range("a probability strictly between 0 and 1", above=0, below=1),
    "noise": _POSITIVE,
    "max_weights": _COUNT,
    "margin": Range("0 or more", least=0),
    "resolution": _counts("2 or more", 2, 2000),
    "output": _counts("0 or more", 0),
    "seed": Range("0 to 4294967295", least=0, most=2**32 - 1),
    "nodes": Range("1 to 1000, or None for as many as the prior needs", least=1, most=1000),
    "order": Range("0 or more, or None to find out", least=0, most=100),
    "label": _counts("0 or more", 0),
}  # fmt: skip
