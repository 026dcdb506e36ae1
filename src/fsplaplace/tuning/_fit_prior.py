"""Fitting a prior's parameters by the marginal likelihood of its Gaussian process."""

import time
import warnings
from typing import Literal

import equinox as eqx
import jax
import numpy as np
from gpjax.mean_functions import Constant, Zero
from jaxtyping import Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, as_key, check_numbers, check_squares, checked, warn_if_grey_levels
from fsplaplace.host import one_blas_thread, ready_to_compute, to_device
from fsplaplace.likelihoods import Categorical, Gaussian, Likelihood
from fsplaplace.prior import Prior
from fsplaplace.tuning._ard import expand_lengthscales
from fsplaplace.tuning._label_evidence import has_label_evidence
from fsplaplace.tuning._repeats import DistinctRows, distinct_rows, observation_weights
from fsplaplace.tuning._report import FitReport, bound_notes, mean_rows, parameter_rows
from fsplaplace.tuning._search import Subsets, maximum
from fsplaplace.tuning.labels import gaussian_targets

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
        restarts: number of starts: from the data, from the prior's own values, from long length scales with most of the targets
            noise, then random ones around the first. With more than 300 rows they run on 300 of them, and the best continues on all.
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
        found = maximum(
            prior, data, noise_scale, counts, shared_constant=not isinstance(likelihood, Gaussian) and data.y.shape[1] > 1,
            hyperpriors=hyperpriors, ard=ard, key=as_key(key), restarts=restarts,
            subsets=None if exact else Subsets(exact_rows, batch_size, steps), standard_errors=standard_errors,
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
        notes=(*notes, *found.remarks), maximised=_MAXIMISED[hyperpriors], tied=found.tied,
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
    inputs = check_numbers(X, "fit_prior: X")
    warn_if_grey_levels(inputs, "X")
    inputs = inputs.astype(float)
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


def _period_notes(rows, inputs: np.ndarray) -> list[str]:
    span = float(np.max(np.ptp(inputs, axis=0)))
    return [
        f"{row.name} = {row.after:.3g} is longer than the data's range of {span:.3g}, which then shows no repetition; "
        "fix the period, or drop the periodic term"
        for row in rows
        if row.name.endswith("period") and row.after > span
    ]
