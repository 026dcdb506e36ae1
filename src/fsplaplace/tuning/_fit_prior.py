"""Fitting a prior's parameters by the marginal likelihood of its Gaussian process."""

import time
import warnings
from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from gpjax.mean_functions import Constant, Zero
from jaxtyping import Float, PRNGKeyArray
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, as_key, check_numbers, check_squares, checked
from fsplaplace.host import host_generator, in_float64, one_blas_thread, progress_bar, ready_to_compute, to_device
from fsplaplace.likelihoods import Categorical, Gaussian, Likelihood
from fsplaplace.prior import Prior
from fsplaplace.tuning._ard import expand_lengthscales
from fsplaplace.tuning._label_evidence import Classes, LabelEvidence, YesOrNo, has_label_evidence
from fsplaplace.tuning._optimize import Box, Optimum, adam, curvature, maximize
from fsplaplace.tuning._parameters import ParameterSpace
from fsplaplace.tuning._problem import Evaluation, Evidence, SetUp, set_up
from fsplaplace.tuning._repeats import DistinctRows, distinct_rows, observation_weights
from fsplaplace.tuning._report import FitReport, bound_notes, mean_rows, parameter_rows
from fsplaplace.tuning._ties import TiedProblem, Ties
from fsplaplace.tuning.labels import gaussian_targets

# Restarts run on a subset of this size: where they end does not need every row.
_RESTART_ROWS = 300
# With more rows than this for each length scale the evidence always tells columns apart.
_ROWS_PER_LENGTHSCALE = 20
# What each further length scale must gain in nats: the evidence is that of the best of many optima, which flatters the
# larger model (measured on tables of 10 to 100 rows: without it 90 % intervals cover 75 to 80 %).
_NATS_PER_LENGTHSCALE = 1.0
# What a caller's period could be a multiple or a fraction of.
_PERIOD_FACTORS = (1.0, 2.0, 0.5)
# Rows for the evidence of labels under one output: an evaluation takes a fifth of a second. With q outputs it takes as long on
# fewer of them.
_MOST_LABEL_ROWS = 600
# With fewer labels than this for each length scale separate ones are not tried: a label says less than a bit.
_LABELS_PER_LENGTHSCALE = 5
_MAXIMISED = {True: "log marginal likelihood + log hyperprior", False: "log marginal likelihood"}


class FittedPrior(eqx.Module):
    """The fitted `prior`, the `likelihood` with its noise, and a `report` that prints as a table."""

    prior: Prior
    likelihood: Likelihood
    report: FitReport

    def __str__(self) -> str:
        return str(self.report)


@checked
def fit_prior(
    prior: Prior,
    X: ArrayLike,
    y: ArrayLike,
    likelihood: Likelihood | None = None,
    *,
    key: KeyLike,
    ard: bool = False,
    fit_noise: bool = True,
    restarts: int = 3,
    start: Literal["data", "prior"] = "data",
    exact_rows: int = 1500,
    batch_size: int = 500,
    steps: int = 300,
    alpha_epsilon: float = 0.01,
    labels: Literal["dirichlet", "laplace"] = "dirichlet",
    standard_errors: bool = True,
    hyperpriors: bool = True,
    weights: ArrayLike | None = None,
    progress: bool = False,
) -> FittedPrior:
    r"""Kernel, mean and noise parameters θ that maximise $\log \mathcal N(y;\, \mu(X),\, \Sigma(X, X) + \sigma^2 I) + \log p(\theta)$.

    p(θ) is weak and relative to the data: log-normal length scales that grow with $\sqrt d$, in units of each column's
    range, log-normal variances and noise in units of the targets'. It decides where few rows leave parameters open, and
    `hyperpriors=False` leaves it out.

    Starts from the data, not only from the values in `prior`: length scales from distances between rows, variances from
    the targets', periods from a periodogram and from the prior's own period, its double and its half; the best of all starts
    wins. Each parameter stays within bounds that the data suggests, and a warning names those that end at one. The
    parameters of a constant or linear mean are those of generalised least squares.

    Rows that share an input are merged without loss (mean, number and scatter of their targets). Rows that share their
    target, too, count as observations only if targets at one input differ as observations do; else (whole tables with every
    record twice) each record counts once, because copies would say that there is no noise.

    Args:
        prior: any kernel, shared, separate or multi-output. Parameters wrapped in `paramax.non_trainable` are kept. In
            a product only the first factor's variance is fitted. A mean that is not a GPJax mean function is kept.
        X: inputs, (n, ...).
        y: targets, (n,), (n, q), or labels.
        likelihood: Gaussian by default: its scale (one, or one per output) is fitted along, scales per row are kept.
            Labels are fitted through `dirichlet_labels`, with a constant shared by all classes taken out; counts
            through their logarithms. Those likelihoods come back as they are.
        key: for the restarts and the subsets.
        ard: give every isotropic length scale one value per input dimension. With fewer than 20 rows per length scale
            they stay in proportion to the columns' spread unless separate ones have the higher evidence.
        fit_noise: False keeps the Gaussian likelihood's scale.
        restarts: number of starts: from the data, from the prior's own values, then random ones around the first. With
            more than 300 rows they run on 300 of them, and the best continues on all.
        start: the first of the starts, before the other: with `restarts=1` and "prior" a prior that was fitted to fewer rows is
            brought up to date in a third of the time.
        exact_rows: up to this many rows all rows are used at once, with L-BFGS; beyond it Adam takes `steps` steps on
            random subsets of `batch_size` rows.
        alpha_epsilon: see `dirichlet_labels`.
        labels: what is maximised for classes: "dirichlet", the marginal likelihood of Gaussian stand-ins, on all rows; or
            "laplace", the evidence of the labels themselves by Laplace's method, with one kernel for all outputs and mean zero,
            on at most $600 / q^{1/3}$ rows: time linear in the number q of outputs.
        standard_errors: from the Hessian at the optimum; two evaluations per parameter. Not for minibatches.
        hyperpriors: False maximises the marginal likelihood alone.
        weights: number of observations that each row stands for, (n,); one by default.
        progress: show a bar in a terminal.

    Returns:
        The fitted prior and likelihood in the dtypes they came in; inside, everything is float64.

    Time $O(n^3)$ per evaluation (about 50), memory $O(n^2)$, with b in place of n beyond `exact_rows`.

    Examples:
        >>> fitted = fsp.fit_prior(prior, X, y, key=jr.key(0), restarts=1, standard_errors=False)
        >>> float(fitted.likelihood.scale) > 0
        True
    """
    began = time.perf_counter()
    ready_to_compute()
    likelihood = Gaussian() if likelihood is None else likelihood
    if batch_size < 2:
        raise ValueError(f"fit_prior: batch_size is {batch_size}; pass 2 or more")
    data, noise_scale = _data(prior, X, y, likelihood, weights, fit_noise=fit_noise, alpha_epsilon=alpha_epsilon)
    given, (prior, data) = prior, _on_features(prior, data)
    prior = expand_lengthscales(prior, data.X.shape[1]) if ard else prior
    counts = None
    if labels == "laplace" and not isinstance(likelihood, Gaussian):
        counts = _class_counts(prior, X, y, likelihood, weights)
    exact = counts is not None or data.X.shape[0] <= exact_rows
    with one_blas_thread():
        found = _maximum(
            prior, data, noise_scale, counts, shared_constant=not isinstance(likelihood, Gaussian) and data.y.shape[1] > 1,
            hyperpriors=hyperpriors, ard=ard, key=as_key(key), restarts=restarts,
            subsets=None if exact else _Subsets(exact_rows, batch_size, steps), standard_errors=standard_errors,
            own_first=start == "prior", progress=progress,
        )  # fmt: skip
    space, vector = found.space, found.vector
    fitted = space.fitted(vector[: space.size], found.at_best.mean, prior)
    rows = parameter_rows(space, prior, vector, found.errors, found.box, noise_scale=noise_scale)
    rows += mean_rows(space, prior, found.at_best.mean, found.at_best.mean_errors)
    notes = found.notes + bound_notes(rows) + _period_notes(rows, np.asarray(data.X))
    for note in notes:
        warnings.warn(f"fit_prior: {note}", UserWarning, stacklevel=2)
    report = FitReport(
        rows=rows, objective="log marginal likelihood" if counts is None else "Laplace evidence of the labels", value=found.at_best.value, trace=found.best.trace,
        restarts=found.ends, restart_rows=found.restart_rows, num_rows=found.num_rows if exact else batch_size,
        method=found.best.method, evaluations=found.best.evaluations, seconds=time.perf_counter() - began,
        notes=(*notes, *found.remarks), maximised=_MAXIMISED[hyperpriors],
    )  # fmt: skip
    if noise_scale is not None:
        likelihood = with_log_scale(likelihood, vector[space.size :])
    if given.on_features:
        fitted = given.with_bases_of(fitted)
    return FittedPrior(fitted, likelihood, report)


def _on_features(prior: Prior, data: DistinctRows) -> tuple[Prior, DistinctRows]:
    """Features of frozen networks computed once, instead of in each of the search's covariances."""
    if not prior.on_features or not isinstance(prior.mean, Zero | Constant):
        return prior, data
    written, columns = prior.on_columns(to_device(data.X.astype(np.float32)))
    return eqx.tree_at(lambda tree: tree.mean, written, prior.mean), data._replace(X=np.asarray(columns, float))


def with_log_scale(likelihood: Likelihood, log_scale: Float[np.ndarray, " k"]) -> Likelihood:
    """The Gaussian likelihood with another scale, in its own dtype and as learnable as it was."""
    (leaf,) = jax.tree.leaves(likelihood)
    new = to_device(np.reshape(log_scale, leaf.shape), leaf.dtype)
    return eqx.tree_at(lambda tree: jax.tree.leaves(tree), likelihood, [new])


def _data(
    prior: Prior, X, y, likelihood: Likelihood, weights, *, fit_noise: bool, alpha_epsilon: float
) -> tuple[DistinctRows, Float[np.ndarray, "..."] | None]:
    """The rows of distinct inputs, and the scale of the noise if that is to be fitted."""
    inputs, targets, variance = _check_data(prior, X, y, likelihood, alpha_epsilon)
    number = np.ones(inputs.shape[0]) if weights is None else np.asarray(weights, dtype=float)
    if number.shape != inputs.shape[:1] or not np.all(np.isfinite(number)) or np.any(number < 0) or not np.any(number):
        raise ValueError(
            f"fit_prior: weights has shape {number.shape} and values from {np.min(number, initial=0):.3g}; pass "
            f"{inputs.shape[0]} numbers, none of them negative or NaN and at least one above zero"
        )
    noise_scale = None
    if isinstance(likelihood, Gaussian):
        number = observation_weights(inputs, targets, number)
        scale = np.asarray(likelihood.scale, dtype=float)
        if fit_noise and not likelihood.per_row:
            noise_scale = scale
        else:
            variance = np.broadcast_to(scale**2, targets.shape if scale.ndim else (targets.shape[0], 1))
    used = number > 0
    variance = None if variance is None else variance[used]
    return distinct_rows(inputs[used], targets[used], number[used], variance), noise_scale


def _check_data(prior, X, y, likelihood, alpha_epsilon):
    """Inputs (n, d), targets (n, q) in the space of the outputs, and their variances where those are known."""
    inputs = check_numbers(X, "fit_prior: X").astype(float)
    if inputs.ndim < 2 or inputs.shape[0] < 2:
        raise ValueError(f"fit_prior: X has shape {inputs.shape}; pass at least two rows, as (n, d)")
    inputs = inputs.reshape(inputs.shape[0], -1)
    if not np.all(np.isfinite(inputs)):
        raise ValueError("fit_prior: X has NaN or infinite values; remove those rows")
    if not np.any(np.ptp(inputs, axis=0) > 0):
        raise ValueError(
            "fit_prior: all rows of X are the same, so nothing says how the function varies; pass other rows"
        )
    check_squares(inputs, "fit_prior: X")
    prior.check_columns(inputs.shape[1])
    targets, variances = np.asarray(likelihood.check_targets(y, num_rows=inputs.shape[0])), None
    if not isinstance(likelihood, Gaussian):
        targets, variances = gaussian_targets(likelihood, targets, alpha_epsilon=alpha_epsilon)
    targets = np.asarray(targets, dtype=float)
    check_squares(targets, "fit_prior: y")
    if targets.shape[1] != prior.num_outputs:
        raise ValueError(
            f"fit_prior: the prior has {prior.num_outputs} outputs, but y needs {targets.shape[1]}; pass "
            f"num_outputs={targets.shape[1]} to Prior, or another y"
        )
    flat = np.ptp(targets, axis=0) == 0
    if any(np.all(flat[list(outputs)]) for outputs in prior.blocks.outputs):
        output = int(np.argmax(flat))
        raise ValueError(
            f"fit_prior: output {output} of y is constant ({targets[0, output]:g} in all {targets.shape[0]} rows), so "
            "it has no scale to fit; keep your own kernel parameters, or pass a y that varies"
        )
    return inputs, targets, variances


def _class_counts(prior: Prior, X, y, likelihood: Likelihood, weights) -> Float[np.ndarray, "n c"]:
    """How often each class was seen at each distinct input, in the order of `distinct_rows`."""
    if not has_label_evidence(prior, likelihood):
        raise ValueError(
            f"fit_prior: labels is 'laplace', which needs classes, one kernel for all outputs and mean zero; here are "
            f"{type(likelihood).__name__}, {prior.structure} kernels and the mean {type(prior.mean).__name__}; pass labels='dirichlet'"
        )
    inputs = np.asarray(X, dtype=float).reshape(len(np.asarray(X)), -1)
    seen = np.asarray(likelihood.check_targets(y, num_rows=inputs.shape[0])).ravel().astype(int)
    each = np.eye(likelihood.num_classes if isinstance(likelihood, Categorical) else 2)[seen]
    number = np.ones(len(seen)) if weights is None else np.asarray(weights, dtype=float)
    used = number > 0
    merged = distinct_rows(inputs[used], each[used], number[used])
    return merged.y * merged.precision


class _Subsets(NamedTuple):
    """How to climb on subsets of the rows.

    Attributes:
        exact_rows: rows that the mean's parameters are computed from at the end.
        batch_size: rows of each step.
        steps: number of steps.
    """

    exact_rows: int
    batch_size: int
    steps: int


class _Maximum(NamedTuple):
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


@in_float64
def _maximum(
    prior: Prior, data: DistinctRows, noise_scale, counts: Float[np.ndarray, "n c"] | None, *, shared_constant: bool, hyperpriors: bool, ard: bool,
    key: PRNGKeyArray, restarts: int, subsets: _Subsets | None, standard_errors: bool, own_first: bool, progress: bool,
) -> _Maximum:  # fmt: skip
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
    with progress_bar(
        "prior, climbs", total=_num_climbs(known, restarts, tie, subsets is None), show=progress
    ) as report:
        starts = _starts(start, given, box, restarts, key, own_first=own_first)
        apart = counts is None or problem.num_rows >= _LABELS_PER_LENGTHSCALE * sum(map(len, known.lengthscales))
        search = _search(known, starts, tie, key, subsets is None, _reporting_climb(report), try_apart=apart)
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
    return _Maximum(
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
    )


def _starts(start, given, box: Box, count: int, key: PRNGKeyArray, *, own_first: bool) -> list[np.ndarray]:
    """From the data, from the caller (or in the other order), and random ones around the data's."""
    generator = host_generator(key)
    random = [box.clip(start + box.unit * generator.normal(size=start.size)) for _ in range(max(0, count - 2))]
    return [*((given, start) if own_first else (start, given)), *random][:count]


Climb = Callable[[TiedProblem, np.ndarray, Box], Optimum]


def _reporting_climb(report: Callable[[int, str], None]) -> Climb:
    """`maximize` that says how many climbs have ended, and how high the last one came."""
    ended = 0

    def climb(objective: TiedProblem, start: np.ndarray, box: Box) -> Optimum:
        nonlocal ended
        found = maximize(objective, start, box)
        ended += 1
        report(ended, f"log evidence {found.value:.5g}")
        return found

    return climb


def _num_climbs(known: SetUp, restarts: int, tie: Ties | None, exact: bool) -> int:
    """How many climbs `_search` makes."""
    starts = restarts + bool(known.periods)
    held = len(_PERIOD_FACTORS) + 1 if known.periods else 0
    last = exact and known.problem.num_rows > _RESTART_ROWS
    return held + (starts if tie is None else 2 * starts + 1) + last


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
    small = problem.num_rows <= _RESTART_ROWS
    screen = problem if small else problem.take(_some_rows(key, problem.num_rows, _RESTART_ROWS))
    tied, remarks = TiedProblem.of(problem, Ties.none(box.lower.size)), []
    few = tied._replace(problem=screen)
    starts = starts + _with_stated_periods(few, known, climb)
    if tie is not None:
        together = TiedProblem.of(screen, tie)
        reduced = tie.box(box)
        common = _best([climb(together, tie.reduce(start), reduced) for start in starts])
        found, gain = [], -np.inf
        if try_apart:
            found = [climb(few, box.clip(tie.expand(common.vector)), box)]
            found += [climb(few, start, box) for start in starts]
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
    if exact:
        best = climb(tied, _highest(tied, [*_different(found), given]), box) if not small else best
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
    problem: TiedProblem, start: Optimum, box: Box, key, subsets: _Subsets, report: Callable[[int, str], None]
) -> Optimum:
    """Adam on random subsets of the rows, as the paper does for images."""
    values = []

    def objective(vector):
        rows = _some_rows(jr.fold_in(key, len(values)), problem.problem.num_rows, subsets.batch_size)
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


def _period_notes(rows, inputs: np.ndarray) -> list[str]:
    span = float(np.max(np.ptp(inputs, axis=0)))
    return [
        f"{row.name} = {row.after:.3g} is longer than the data's range of {span:.3g}, which then shows no repetition; "
        "fix the period, or drop the periodic term"
        for row in rows
        if row.name.endswith("period") and row.after > span
    ]
