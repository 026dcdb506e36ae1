"""Fitting a prior's parameters by the marginal likelihood of its Gaussian process."""

import time
import warnings
from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from numpy.typing import ArrayLike

from fsplaplace.host import host_generator, in_float64, one_blas_thread
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.prior import Prior
from fsplaplace.tuning._ard import expand_lengthscales
from fsplaplace.tuning._optimize import Box, Optimum, adam, curvature, maximize
from fsplaplace.tuning._parameters import ParameterSpace
from fsplaplace.tuning._problem import MarginalLikelihood, set_up
from fsplaplace.tuning._report import FitReport, bound_notes, mean_rows, parameter_rows
from fsplaplace.tuning.labels import gaussian_targets

# Restarts run on a subset of this size: where they end does not need every row.
_RESTART_ROWS = 300


class FittedPrior(eqx.Module):
    """The fitted `prior`, the `likelihood` with its noise, and a `report` that prints as a table."""

    prior: Prior
    likelihood: Likelihood
    report: FitReport

    def __str__(self) -> str:
        return str(self.report)


def fit_prior(
    prior: Prior,
    X: ArrayLike,
    y: ArrayLike,
    likelihood: Likelihood | None = None,
    *,
    key: PRNGKeyArray,
    ard: bool = False,
    fit_noise: bool = True,
    restarts: int = 3,
    exact_rows: int = 1500,
    batch_size: int = 500,
    steps: int = 300,
    alpha_epsilon: float = 0.01,
    standard_errors: bool = True,
) -> FittedPrior:
    r"""Kernel, mean and noise parameters that maximise $\log \mathcal N(y;\, \mu(X),\, \Sigma(X, X) + \sigma^2 I)$.

    Starts from the data, not only from the values in `prior`: length scales from distances between rows, variances from
    the targets', periods from a periodogram; each parameter stays within bounds that the data suggests, and a warning
    names those that end at one. The parameters of a constant or linear mean are those of generalised least squares.

    Args:
        prior: any kernel, shared, separate or multi-output. Parameters wrapped in `paramax.non_trainable` are kept. In
            a product only the first factor's variance is fitted. A mean that is not a GPJax mean function is kept.
        X: inputs, (n, ...).
        y: targets, (n,), (n, q), or labels.
        likelihood: Gaussian by default: its scale (one, or one per output) is fitted along, scales per row are kept.
            Labels are fitted through `dirichlet_labels`, with a constant shared by all classes taken out; counts
            through their logarithms. Those likelihoods come back as they are.
        key: for the restarts and the subsets.
        ard: give every isotropic length scale one value per input dimension.
        fit_noise: False keeps the Gaussian likelihood's scale.
        restarts: number of starts: from the data, from the prior's own values, then random ones around the first. With
            more than 300 rows they run on 300 of them, and the best continues on all.
        exact_rows: up to this many rows all rows are used at once, with L-BFGS; beyond it Adam takes `steps` steps on
            random subsets of `batch_size` rows.
        alpha_epsilon: see `dirichlet_labels`.
        standard_errors: from the Hessian at the optimum; two evaluations per parameter. Not for minibatches.

    Returns:
        The fitted prior and likelihood in the dtypes they came in; inside, everything is float64.

    Time $O(n^3)$ per evaluation (about 50), memory $O(n^2)$, with b in place of n beyond `exact_rows`.
    """
    began = time.perf_counter()
    likelihood = Gaussian() if likelihood is None else likelihood
    if restarts < 1 or batch_size < 2 or steps < 1:
        raise ValueError(
            f"fit_prior: restarts is {restarts}, batch_size {batch_size} and steps {steps}; pass at least 1, 2 and 1"
        )
    inputs, targets, noise_variance = _check_data(prior, X, y, likelihood, alpha_epsilon)
    prior = expand_lengthscales(prior, inputs.shape[1]) if ard else prior
    noise_scale = None
    if isinstance(likelihood, Gaussian):
        scale = np.asarray(likelihood.scale, dtype=float)
        if fit_noise and not likelihood.per_row:
            noise_scale = scale
        else:
            noise_variance = np.broadcast_to(scale**2, targets.shape)
    exact = inputs.shape[0] <= exact_rows
    with one_blas_thread():
        found = _maximum(
            prior, inputs, targets, noise_variance, noise_scale,
            shared_constant=not isinstance(likelihood, Gaussian) and targets.shape[1] > 1, key=key, restarts=restarts,
            subsets=None if exact else _Subsets(exact_rows, batch_size, steps), standard_errors=standard_errors,
        )  # fmt: skip
    space, best = found.space, found.best
    fitted = space.fitted(best.vector[: space.size], found.mean, prior)
    rows = parameter_rows(space, prior, best.vector, found.errors, found.box, noise_scale=noise_scale)
    rows += mean_rows(space, prior, found.mean, found.mean_errors)
    notes = found.notes + bound_notes(rows) + _period_notes(rows, inputs)
    for note in notes:
        warnings.warn(f"fit_prior: {note}", UserWarning, stacklevel=2)
    report = FitReport(
        rows=rows, objective="log marginal likelihood", value=best.value, trace=best.trace, restarts=found.ends,
        restart_rows=found.restart_rows, num_rows=inputs.shape[0] if exact else batch_size, method=best.method,
        evaluations=best.evaluations, seconds=time.perf_counter() - began, notes=tuple(notes),
    )  # fmt: skip
    if noise_scale is not None:
        likelihood = with_log_scale(likelihood, best.vector[space.size :])
    return FittedPrior(fitted, likelihood, report)


def with_log_scale(likelihood: Likelihood, log_scale: Float[np.ndarray, " k"]) -> Likelihood:
    """The Gaussian likelihood with another scale, in its own dtype and as learnable as it was."""
    (leaf,) = jax.tree.leaves(likelihood)
    new = jax.numpy.asarray(np.reshape(log_scale, leaf.shape), leaf.dtype)
    return eqx.tree_at(lambda tree: jax.tree.leaves(tree), likelihood, [new])


def _check_data(prior, X, y, likelihood, alpha_epsilon):
    """Inputs (n, d), targets (n, q) in the space of the outputs, and their variances where those are known."""
    if not isinstance(prior, Prior):
        raise TypeError(
            f"fit_prior: prior must be a Prior, but got {type(prior).__name__}; pass fsplaplace.Prior(kernel)"
        )
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"fit_prior: likelihood must be a Likelihood, but got {type(likelihood).__name__}")
    inputs = np.asarray(X, dtype=float)
    if inputs.ndim < 2 or inputs.shape[0] < 2:
        raise ValueError(f"fit_prior: X has shape {inputs.shape}; pass at least two rows, as (n, d)")
    inputs = inputs.reshape(inputs.shape[0], -1)
    if not np.all(np.isfinite(inputs)):
        raise ValueError("fit_prior: X has NaN or infinite values; remove those rows")
    if not np.any(np.ptp(inputs, axis=0) > 0):
        raise ValueError(
            "fit_prior: all rows of X are the same, so nothing says how the function varies; pass other rows"
        )
    targets, variances = np.asarray(likelihood.check_targets(y, num_rows=inputs.shape[0])), None
    if not isinstance(likelihood, Gaussian):
        targets, variances = gaussian_targets(likelihood, targets, alpha_epsilon=alpha_epsilon)
    targets = np.asarray(targets, dtype=float)
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
    """The maximum of the marginal likelihood.

    Attributes:
        space: the parameters of kernel and mean, of which `best.vector` holds the former and then the log noise scale.
        box: the bounds of that vector.
        best: the maximum.
        errors: standard errors of `best.vector`, NaN if unknown.
        mean: coefficients of the mean.
        mean_errors: their standard errors.
        ends: value at the end of each restart.
        restart_rows: number of rows that those values are for.
        notes: what the user should know about the bounds.
    """

    space: ParameterSpace
    box: Box
    best: Optimum
    errors: Float[np.ndarray, " P"]
    mean: Float[np.ndarray, " k"]
    mean_errors: Float[np.ndarray, " k"]
    ends: tuple[float, ...]
    restart_rows: int
    notes: list[str]


@in_float64
def _maximum(
    prior: Prior, X, y, noise_variance, noise_scale, *,
    shared_constant: bool, key: PRNGKeyArray, restarts: int, subsets: _Subsets | None, standard_errors: bool,
) -> _Maximum:  # fmt: skip
    """Search from several starts; on all rows, or with `subsets` on some of them at a time."""
    problem, start, given, box, notes = set_up(
        prior, X, y, noise_variance=noise_variance, noise_scale=noise_scale, shared_constant=shared_constant
    )
    best, ends, restart_rows = _search(problem, _starts(start, given, box, restarts, key), box, key, subsets is None)
    errors, last = np.full(start.size, np.nan), problem
    if subsets is not None:
        # The few rows of the restarts can often be fitted without noise, and a short run does not come back from there.
        noise = np.arange(start.size) >= problem.space.size
        first = np.where(noise, np.maximum(best.vector, start), best.vector)
        best = _minibatch(problem, best._replace(vector=first), box, key, subsets.batch_size, subsets.steps)
        last = problem.take(_some_rows(key, X.shape[0], subsets.exact_rows))
    if not np.isfinite(best.value):
        raise FloatingPointError(
            f"fit_prior: the marginal likelihood was not finite from any of {restarts} starts; check the scales "
            "of X and y, and the kernel"
        )
    if subsets is None and standard_errors:
        errors = _standard_errors(problem, best.vector, box)
    return _Maximum(problem.space, box, best, errors, *last.mean_parameters(best.vector), ends, restart_rows, notes)


def _starts(start, given, box: Box, count: int, key: PRNGKeyArray) -> list[np.ndarray]:
    generator = host_generator(key)
    random = [box.clip(start + box.unit * generator.normal(size=start.size)) for _ in range(max(0, count - 2))]
    return [start, given, *random][:count]


def _search(problem: MarginalLikelihood, starts, box: Box, key, exact: bool) -> tuple[Optimum, tuple[float, ...], int]:
    """The best of all starts, their values, and how many rows those are for."""
    count = problem.X.shape[0]
    small = count <= _RESTART_ROWS
    screen = problem if small else problem.take(_some_rows(key, count, _RESTART_ROWS))
    found = [maximize(screen, start, box) for start in starts]
    best = max(found, key=lambda optimum: optimum.value)
    if exact and not small:
        best = maximize(problem, best.vector, box)
    ends = tuple(optimum.value for optimum in found)
    return best, ends, screen.X.shape[0]


def _minibatch(problem: MarginalLikelihood, start: Optimum, box: Box, key, batch_size: int, steps: int) -> Optimum:
    """Adam on random subsets of the rows, as the paper does for images."""
    values = []

    def objective(vector):
        rows = _some_rows(jr.fold_in(key, len(values)), problem.X.shape[0], batch_size)
        value, gradient = problem.take(rows)(vector)
        values.append(value)
        return value, gradient

    vector = adam(objective, start.vector, box, steps=steps, step_size=0.02)
    return Optimum(vector, float(np.mean(values[-max(1, steps // 4) :])), "Adam on subsets", start.evaluations + steps)


def _some_rows(key: PRNGKeyArray, count: int, size: int) -> np.ndarray:
    generator = host_generator(key)
    return generator.permutation(count)[:size]


def _standard_errors(problem: MarginalLikelihood, vector, box: Box) -> np.ndarray:
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


def _period_notes(rows, inputs: np.ndarray) -> list[str]:
    span = float(np.max(np.ptp(inputs, axis=0)))
    return [
        f"{row.name} = {row.after:.3g} is longer than the data's range of {span:.3g}, which then shows no repetition; "
        "fix the period, or drop the periodic term"
        for row in rows
        if row.name.endswith("period") and row.after > span
    ]
