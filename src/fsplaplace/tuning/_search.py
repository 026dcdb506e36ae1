"""The search for the highest marginal likelihood: from several starts, on few rows first, with length scales that may be tied."""

from collections.abc import Callable
from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from fsplaplace.host import host_generator, in_float64, progress_bar
from fsplaplace.prior import Prior
from fsplaplace.tuning._label_evidence import Classes, LabelEvidence, YesOrNo
from fsplaplace.tuning._optimize import CONVERGED, Box, Optimum, adam, curvature, maximize
from fsplaplace.tuning._parameters import ParameterSpace
from fsplaplace.tuning._problem import Evaluation, Evidence, SetUp, set_up
from fsplaplace.tuning._repeats import DistinctRows
from fsplaplace.tuning._ties import TiedProblem, Ties

# Restarts run on a subset of this size: where they end does not need every row.
_RESTART_ROWS = 300
# With more rows than this for each length scale the evidence always tells columns apart.
_ROWS_PER_LENGTHSCALE = 20
# What each further length scale must gain in nats: the evidence is that of the best of many optima, which flatters the
# larger model (measured on tables of 10 to 100 rows: without it 90 % intervals cover 75 to 80 %).
_NATS_PER_LENGTHSCALE = 1.0
# Numbers of the inputs that are looked at for the neighbours of a row, and rows that tell the spread of the columns.
_MOST_COMPARED, _SPREAD_ROWS = 20_000_000, 10_000
# The same as `CONVERGED` for climbs that are only compared with each other, a thousandth of a nat for some hundred rows: half of all
# evaluations were spent on digits of maxima that another one beats.
_COMPARED = 1e-6
# And for climbs from an earlier fit that others will follow: a millionth of a nat, where parameters are right to a thousandth of their
# uncertainty.
_FROM_LAST = 1e-8
# What a caller's period could be a multiple or a fraction of.
_PERIOD_FACTORS = (1.0, 2.0, 0.5)
# Rows for the evidence of labels under one output: an evaluation takes a fifth of a second. With q outputs it takes as long on
# fewer of them.
_MOST_LABEL_ROWS = 600
# With fewer labels than this for each length scale separate ones are not tried: a label says less than a bit.
_LABELS_PER_LENGTHSCALE = 5


class Subsets(NamedTuple):
    """How to climb on subsets of the rows.

    Attributes:
        exact_rows: rows that the mean's parameters are computed from at the end.
        batch_size: rows of each step.
        steps: number of steps.
    """

    exact_rows: int
    batch_size: int
    steps: int


class Maximum(NamedTuple):
    """Where the search ended.

    Attributes:
        space: the parameters of kernel and mean; `vector` holds the former, then the log noise scale.
        box: the bounds of that vector.
        vector: the parameters found.
        best: how they were found.
        errors: standard errors of `vector`, NaN if unknown.
        at_best: log marginal likelihood and the mean's coefficients there.
        ends: value at the end of each restart.
        restart_rows: number of rows that those values are for.
        num_rows: number of rows that were used.
        notes: what the user must know about the data.
        remarks: what the search decided.
        tied: whether length scales were kept in proportion.
    """

    space: ParameterSpace
    box: Box
    vector: Float[np.ndarray, " P"]
    best: Optimum
    errors: Float[np.ndarray, " P"]
    at_best: Evaluation
    ends: tuple[float, ...]
    restart_rows: int
    num_rows: int
    notes: list[str]
    remarks: list[str]
    tied: bool


@in_float64
def maximum(
    prior: Prior, data: DistinctRows, noise_scale, counts: Float[np.ndarray, "n c"] | None, *, shared_constant: bool, hyperpriors: bool, ard: bool,
    key: PRNGKeyArray, restarts: int, subsets: Subsets | None, standard_errors: bool, own_first: bool, progress: bool,
) -> Maximum:  # fmt: skip
    """Search from several starts; on all rows, or with `subsets` on some of them at a time."""
    known = set_up(
        prior, data, noise_scale=noise_scale, shared_constant=shared_constant, hyperpriors=hyperpriors,
        logits=counts is not None,
    )  # fmt: skip
    if counts is not None:
        seen = YesOrNo(counts) if prior.num_outputs == 1 else Classes(counts)
        of_labels = LabelEvidence.of(known.problem, seen)
        most = round(_MOST_LABEL_ROWS / prior.num_outputs ** (1 / 3))
        if len(counts) > most:
            of_labels = of_labels.take(_some_rows(key, len(counts), most))
        known = known._replace(problem=of_labels)
    problem, start, given, box = known.problem, known.start, known.given, known.box
    few = problem.num_rows < _ROWS_PER_LENGTHSCALE * sum(map(len, known.lengthscales))
    tie = Ties.of(known.lengthscales, start, box) if ard and hyperpriors and few else None
    starts = _starts(known, restarts, key, own_first=own_first)
    with progress_bar("prior, climbs", total=_num_climbs(known, starts, tie, subsets is None), show=progress) as report:
        apart = counts is None or problem.num_rows >= _LABELS_PER_LENGTHSCALE * sum(map(len, known.lengthscales))
        climb = _reporting_climb(report, _FROM_LAST if _is_warm(known, starts) else _COMPARED)
        search = _search(known, starts, tie, key, subsets is None, climb, try_apart=apart)
    best, tied = search.best, search.tied
    errors, last = np.full(given.size, np.nan), problem
    if subsets is not None:
        # The few rows of the restarts can often be fitted without noise, and a short run does not come back from there.
        start = tied.ties.reduce(start)
        noise = tied.ties.owner[problem.space.size :]
        first = best.vector.copy()
        first[noise] = np.maximum(first, start)[noise]
        with progress_bar("prior, steps", total=subsets.steps, show=progress) as report:
            best = _minibatch(tied, best._replace(vector=first), tied.ties.box(box), key, subsets, report)
        last = problem.take(_some_rows(key, problem.num_rows, subsets.exact_rows))
    if not np.isfinite(best.value):
        raise FloatingPointError(
            f"fit_prior: the marginal likelihood was not finite from any of {restarts} starts; check the scales "
            "of X and y, and the kernel"
        )
    if subsets is None and standard_errors:
        errors = _standard_errors(tied, best.vector, tied.ties.box(box))[tied.ties.owner]
    vector = box.clip(tied.ties.expand(best.vector))
    at_best = last.evaluate(vector)
    if subsets is not None:
        at_best = at_best._replace(value=best.value - problem.penalty(vector))
    return Maximum(
        problem.space,
        box,
        vector,
        best,
        errors,
        at_best,
        search.ends,
        search.restart_rows,
        problem.num_rows,
        known.notes + _count_notes(problem, tied.ties),
        search.remarks,
        bool(np.any(tied.ties.counts > 1)),
    )


def _starts(known: SetUp, count: int, key: PRNGKeyArray, *, own_first: bool) -> list[np.ndarray]:
    """From the data, from the caller (or in the other order), from the data with more noise, and random ones around the data's."""
    generator, box, start = host_generator(key), known.box, known.start
    random = [box.clip(start + box.unit * generator.normal(size=start.size)) for _ in range(max(0, count - 3))]
    first = (known.given, start) if own_first else (start, known.given)
    return [*first, known.noisy, *random][:count]


# From a start to a local maximum inside a box; the last argument, if there is one, is the tolerance.
Climb = Callable[..., Optimum]


def _reporting_climb(report: Callable[[int, str], None], usual: float) -> Climb:
    """`maximize`, with this tolerance unless another is asked for, that says how many climbs have ended, and how high the last one came."""
    ended = 0

    def climb(objective: TiedProblem, start: np.ndarray, box: Box, tolerance: float = usual) -> Optimum:
        nonlocal ended
        found = maximize(objective, start, box, tolerance=tolerance)
        ended += 1
        report(ended, f"log evidence {found.value:.5g}")
        return found

    return climb


def _num_climbs(known: SetUp, starts: list[np.ndarray], tie: Ties | None, exact: bool) -> int:
    """How many climbs `_search` makes."""
    count = len(starts) + bool(known.periods)
    held = len(_PERIOD_FACTORS) + 1 if known.periods else 0
    last = exact and not _is_done(known, starts)
    return held + (count if tie is None else 2 * count + (not _is_warm(known, starts))) + last


def _is_warm(known: SetUp, starts: list[np.ndarray]) -> bool:
    """Whether the caller's values, of an earlier fit for example, are the only start."""
    return len(starts) == 1 and starts[0] is known.given


def _is_done(known: SetUp, starts: list[np.ndarray]) -> bool:
    """Whether the first climb is the last: from an earlier fit, on all rows."""
    return _is_warm(known, starts) and known.problem.num_rows <= _RESTART_ROWS


def _with_stated_periods(problem: TiedProblem, known: SetUp, climb: Climb) -> list[np.ndarray]:
    """A start with the caller's periods, their double or their half: the best end of climbs on which those stay fixed.

    A period has many optima, and a climb that begins with poor values of the other parameters leaves the right one.
    """
    periods, box = known.periods, known.box
    found = []
    for factor in _PERIOD_FACTORS if periods else ():
        held = known.given[periods] + np.log(factor)
        lower, upper = box.lower.copy(), box.upper.copy()
        lower[periods] = upper[periods] = np.clip(held, lower[periods], upper[periods])
        for start in (known.start, known.given) if factor == 1 else (known.start,):
            found.append(climb(problem, start, Box(lower, upper, box.unit)))
    return [_best(found).vector] if found else []


class _Search(NamedTuple):
    """The best of all starts.

    Attributes:
        tied: the problem on all rows, with the length scales that move together.
        best: where its vector ended.
        ends: value at the end of each start.
        restart_rows: number of rows that those values are for.
        remarks: what was decided.
    """

    tied: TiedProblem
    best: Optimum
    ends: tuple[float, ...]
    restart_rows: int
    remarks: list[str]


def _search(
    known: SetUp, starts: list[np.ndarray], tie: Ties | None, key, exact: bool, climb: Climb, *, try_apart: bool
) -> _Search:
    """Climb from every start, on few rows first.

    Args:
        known: the problem on all rows, its bounds, and the caller's values, below which the search never ends.
        starts: where to begin; those with the caller's periods are added.
        tie: length scales that move together unless separate ones have the higher evidence.
        key: for the subset.
        exact: whether to climb on all rows at the end.
        climb: to a local maximum inside a box.
        try_apart: False keeps tied length scales together without a trial.
    """
    problem, given, box = known.problem, known.given, known.box
    # Asked before starts are added.
    warm, done, small = _is_warm(known, starts), _is_done(known, starts), problem.num_rows <= _RESTART_ROWS
    # Where the climb goes on with rows near each other, it begins with such rows, too: it would not come from other ones.
    some = (
        _some_rows(key, problem.num_rows, _RESTART_ROWS) if exact else _near_and_far(key, problem.rows.X, _RESTART_ROWS)
    )
    screen = problem if small else problem.take(some)
    tied, remarks = TiedProblem.of(problem, Ties.none(box.lower.size)), []
    few = tied._replace(problem=screen)
    starts = starts + _with_stated_periods(few, known, climb)
    if tie is not None:
        together = TiedProblem.of(screen, tie)
        reduced = tie.box(box)
        common = _best([climb(together, tie.reduce(start), reduced) for start in starts])
        found, gain = [], -np.inf
        if try_apart:
            # The end of the tied climb is one more start, if the caller's values are not good already.
            more = [] if warm else [box.clip(tie.expand(common.vector))]
            found = [climb(few, start, box) for start in [*more, *starts]]
            gain = few.log_evidence(_best(found).vector, box) - together.log_evidence(common.vector, reduced)
            gain -= _NATS_PER_LENGTHSCALE * float(np.sum(tie.counts - 1))
        if not gain > 0:
            tied, few, found, box, given = TiedProblem.of(problem, tie), together, [common], reduced, tie.reduce(given)
            why = (
                f"separate ones would have to gain {-gain:.1f} nats more" if try_apart else "too few to tell them apart"
            )
            remarks.append(
                f"length scales stay in proportion to the spread of their columns: on {screen.num_rows} rows {why}"
            )
    else:
        found = [climb(few, start, box) for start in starts]
    best = _best(found)
    if exact and not done:
        first = best.vector if small else _highest(tied, [*_different(found), given])
        best = climb(tied, first, box, _FROM_LAST if warm else CONVERGED)
    return _Search(tied, best, tuple(optimum.value for optimum in found), screen.num_rows, remarks)


def _best(found: list[Optimum]) -> Optimum:
    return max(found, key=lambda optimum: optimum.value)


def _different(found: list[Optimum]) -> list[np.ndarray]:
    """One vector for each optimum: ends of the same value are the same."""
    by_value = {round(optimum.value, 1): optimum.vector for optimum in found if np.isfinite(optimum.value)}
    return list(by_value.values())


def _highest(objective: TiedProblem, vectors: list[np.ndarray]) -> np.ndarray:
    values = [objective(vector)[0] for vector in vectors]
    return vectors[int(np.argmax(np.nan_to_num(values, nan=-np.inf)))]


def _minibatch(
    problem: TiedProblem, start: Optimum, box: Box, key, subsets: Subsets, report: Callable[[int, str], None]
) -> Optimum:
    """Adam on subsets of the rows, as the paper does for images."""
    values, inputs = [], problem.problem.rows.X

    def objective(vector):
        rows = _near_and_far(jr.fold_in(key, len(values)), inputs, subsets.batch_size)
        value, gradient = problem.take(rows)(vector)
        values.append(value)
        report(len(values), f"log evidence {value:.5g}")
        return value, gradient

    steps = subsets.steps
    vector = adam(objective, start.vector, box, steps=steps, step_size=0.02)
    return Optimum(vector, float(np.mean(values[-max(1, steps // 4) :])), "Adam on subsets", start.evaluations + steps)


def _some_rows(key: PRNGKeyArray, count: int, size: int) -> np.ndarray:
    generator = host_generator(key)
    return generator.permutation(count)[:size]


def _near_and_far(key: PRNGKeyArray, X: Float[np.ndarray, "n d"], size: int) -> np.ndarray:
    """Rows of a step: half of them around one, half by chance, so that they show how the function varies at every distance.

    Rows by chance are far from each other if there are many columns, and what varies between them is then called noise: on
    protein (41,000 x 9) the fitted process, given the 300 nearest rows of each, had a log density of -1.07 at rows held out of the
    training rows, and has -.81 so. Time and memory: one pass over at most 20 million numbers.
    """
    generator = host_generator(key)
    order = generator.permutation(len(X))
    seen = order[: max(size, _MOST_COMPARED // X.shape[1])]
    spread = np.std(X[order[:_SPREAD_ROWS]], axis=0)
    apart = (X[seen] - X[order[0]]) / np.where(spread > 0, spread, 1.0)
    near = seen[np.argsort(np.einsum("nd,nd->n", apart, apart), kind="stable")[: size // 2]]
    far = order[~np.isin(order, near)][: size - near.size]
    return np.concatenate([near, far])


def _standard_errors(problem: TiedProblem, vector, box: Box) -> np.ndarray:
    """Of the vector's entries; NaN where they sit at a bound or the likelihood does not determine them."""
    free = (vector - box.lower > 2e-3 * box.unit) & (box.upper - vector > 2e-3 * box.unit)
    errors = np.full(vector.size, np.nan)
    matrix = curvature(problem, vector, free, box)
    if not np.all(np.isfinite(matrix)) or not matrix.size:
        return errors
    eigenvalues, eigenvectors = np.linalg.eigh(matrix)
    known = eigenvalues > 1e-8 * eigenvalues[-1]
    variances = np.sum(eigenvectors[:, known] ** 2 / eigenvalues[known], axis=1)
    undetermined = np.sum(eigenvectors[:, ~known] ** 2, axis=1) > 1e-6
    errors[free] = np.where(undetermined, np.nan, np.sqrt(variances))
    return errors


def _count_notes(problem: Evidence, ties: Ties) -> list[str]:
    """Whether there are fewer targets than parameters, of which tied ones are one."""
    values = round(float(np.sum(np.max(np.asarray(problem.rows.number), axis=1)))) * problem.rows.y.shape[1]
    count = ties.counts.size + problem.design.shape[2]
    if values >= count:
        return []
    return [
        f"y has {values} values for {count} parameters, which they cannot determine; use a simpler kernel, or fix some "
        "parameters with paramax.non_trainable"
    ]
