"""One verdict on a posterior: how much worse than the exact process it is, why, and what to do."""

import numpy as np

from fsplaplace.laplace import _choices
from fsplaplace.laplace._diagnostics import Ratio, Verdict
from fsplaplace.laplace._problem import Problem
from fsplaplace.laplace._reference import Reference


def verdict_of(problem: Problem, reference: Reference, loss: float, ratios: dict[str, Ratio], *, mean: str) -> Verdict:
    """The verdict from what was measured.

    Args:
        problem: the problem.
        reference: what the loss was measured against.
        loss: in nats for each new target; NaN if unknown.
        ratios: implied over stated prior variance, before normalisation.
        mean: the mean that was chosen; empty if there was no choice.
    """
    level = "good"
    if not loss < _choices.CAUTION_LOSS:
        level = "do not use" if loss >= _choices.UNUSABLE_LOSS else "caution"
    if np.isnan(loss):
        level = "good" if _holds(ratios) else "caution"
        reasons = ["it was compared with the prior's variances only"]
    else:
        of_what = "of the latent function" if reference.exact is None else "for each new target"
        reasons = [f"about {loss:.2g} nats {of_what} from the exact Gaussian process with this prior"]
    if level == "good":
        return Verdict(level, loss, tuple(reasons), ())
    low, high = (
        func([float(getattr(ratio, name)) for ratio in ratios.values()])
        for func, name in ((min, "smallest"), (max, "largest"))
    )
    if low < _choices.HELD_RATIOS[0] or high > _choices.HELD_RATIOS[1]:
        reasons.append(f"the network's features imply {low:.2g} to {high:.2g} times the prior variance that was stated")
    if mean == "network":
        reasons.append("the network's own mean was closer to the exact process than the refined one")
    remedies = ["use a wider network", "more context points where you predict", "a prior with longer length scales"]
    targets = problem.data.num_rows * problem.prior.num_outputs
    if targets <= _choices.EXACT_TARGETS:
        gain = "" if np.isnan(loss) else f", about {loss:.2g} nats better here"
        remedies.append(f"an exact Gaussian process, which {problem.data.num_rows} rows allow (method='gp'{gain})")
    return Verdict(level, loss, tuple(reasons), tuple(remedies))


def _holds(ratios: dict[str, Ratio]) -> bool:
    low, high = _choices.HELD_RATIOS
    return all(low <= float(ratio.smallest) and float(ratio.largest) <= high for ratio in ratios.values())
