"""The covariance form: pull the prior's covariance back to the weights, then condition on the data."""

import warnings
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import get_lapack_funcs

from fsplaplace.host import itemsize, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._choices import Options, Treatment
from fsplaplace.laplace._compare_means import compare_means, means_at
from fsplaplace.laplace._cost import Cost, check_golub_kahan
from fsplaplace.laplace._diagnostics import Clock, Diagnostics, misfit_to_noise, variance_ratios
from fsplaplace.laplace._exact_process import Moments, typical
from fsplaplace.laplace._features import Blocks, Known, data_blocks, known_at
from fsplaplace.laplace._loss import loss_to_exact, moments_at
from fsplaplace.laplace._mode import (
    Mode,
    at_network,
    best_noise_factor,
    local_model,
    mode_at_network,
    objective,
    posterior_mode,
)
from fsplaplace.laplace._observed import Observed
from fsplaplace.laplace._posterior import Posterior
from fsplaplace.laplace._problem import Places, Problem
from fsplaplace.laplace._pull_back import PulledBack, Task, solve
from fsplaplace.laplace._reference import reference_at
from fsplaplace.laplace._verdict import verdict_of
from fsplaplace.networks import CapacityWarning, linear_model, linearisation
from fsplaplace.prior import PriorFactor, moments, plan_factor


def covariance_form(problem: Problem, options: Options) -> Posterior:
    """The six steps of the covariance form; see `fsplaplace.laplace` and the README of this room."""
    clock, places = Clock(), Places.of(problem)
    solver = _solver(problem, options)
    factor = factor_prior(problem, options, solver)
    clock.finish("prior factor")
    reference = reference_at(problem, places)
    pulled = solve(Task(problem, np.asarray(factor.columns), places, reference, options, solver))
    clock.finish(f"pull-back ({solver})")
    known = known_at(problem.prior, places.stacked, pulled.seen)
    blocks = data_blocks(problem, pulled.directions, missed=pulled.missed, places=places, known=known)
    found = refine(problem, pulled, Refined(problem.observed, blocks, first_mode(problem, options, factor, blocks)))
    mode = found.mode
    clock.finish("data")
    if found.observed is not problem.observed:
        reference = reference_at(problem, places, found.observed)
    scores = compare_means(problem, reference, known.rows(reference.compared_rows(places)), blocks, mode)
    mean = scores.best if options.mean == "auto" else options.mean
    ratios = variance_ratios(known.stated, places, pulled.seen.features)
    clock.finish("diagnostics")
    precision = curvature_at(mean, problem, blocks, mode)
    guards = reference.compared_rows(places)[: len(reference.points)]
    new, at_guards = (
        posterior_at(known.rows(part), pulled.missed, mode, precision, mean) for part in (places.slice("new"), guards)
    )
    loss = loss_to_exact(problem, found.observed, places, reference, new, at_guards, pulled, known)
    verdict = verdict_of(problem, places, loss, ratios, mean=mean, scores=scores)
    weights = posterior_weights(pulled, precision, mode.z)
    clock.finish("posterior")
    return Posterior(
        model=problem.model,
        prior=problem.prior,
        likelihood=problem.likelihood,
        scale=weights.scale,
        shift=weights.shift if mean == "refined" else jnp.zeros_like(weights.shift),
        information=to_device(weights.information, problem.model.dtype),
        context_points=to_device(problem.context),
        log_evidence=to_device(mode.log_evidence, problem.model.dtype),
        diagnostics=Diagnostics(
            form="covariance",
            solver=solver,
            factorisation=factor.method,
            mean=mean,
            rank=factor.rank,
            captured=factor.captured,
            pull_back_residual=pulled.misfit,
            ratios=ratios,
            criterion=scores.criterion,
            objectives=scores.scores,
            jitter=_choices.MEAN_JITTER,
            delta=pulled.delta,
            missed_as_noise=pulled.missed == "noise",
            noise_factor=weights.noise_factor(mode),
            misfit_to_noise=misfit_to_noise(ratios, known.stated, problem.noise),
            verdict=verdict,
            stages=clock.stages(_cost(problem, options, factor, solver).bytes()),
            data_share=problem.data_share,
            sampling_error=None if problem.data_share == 1 else mode.sampling_error,
        ),
    )


def first_mode(problem: Problem, options: Options, factor: PriorFactor, blocks: Blocks) -> Mode:
    """Step 3. Without Gaussian noise the mode takes many passes over the data: not if only the network's mean is asked for."""
    if options.mean == "network" and problem.of_values and problem.noise is None:
        return mode_at_network(blocks, network_coordinates(problem, factor))
    return posterior_mode(blocks, factor.rank)


def network_coordinates(problem: Problem, factor: PriorFactor) -> Float[np.ndarray, " r"]:
    r"""z with $B z \approx f(C) - \mu(C)$, in least squares: the network's function in the whitened coordinates."""
    outputs = np.asarray(problem.model(to_device(problem.context)), np.float64)
    residual = outputs - moments.mean(problem.prior, problem.context)
    columns = np.asarray(factor.matrix, np.float64)
    gram = columns.T @ columns
    ridge = _choices.LARGEST_CUT * float(np.max(np.diagonal(gram)))
    return np.linalg.solve(gram + ridge * np.eye(len(gram)), columns.T @ residual.ravel())


def factor_prior(problem: Problem, options: Options, solver: str) -> PriorFactor:
    r"""Step 1: $B B^\top \approx \Sigma(C, C)$, as many columns as the noise can tell apart; a `CapacityWarning` if there are fewer."""
    stated = moments.variance(problem.prior, problem.context)
    cut = _choices.cut_off(
        options, [noise for kind in problem.observed for noise in _as_noise_of_values(kind, stated)], stated
    )
    rank, count = _most_directions(problem, options, solver), problem.context.shape[0]
    try:
        factor = problem.prior.factor(
            to_device(problem.context), rank=rank, rtol=cut.rtol, captured=cut.captured, memory_budget=problem.budget
        )
    except MemoryError:
        if solver == "golub-kahan":
            # What the factor alone cannot have, its pull-back cannot either: say the rank that fits both.
            q, most = problem.prior.num_outputs, plan_factor(problem.prior, count, rank, problem.budget).rank
            check_golub_kahan(
                problem.model,
                problem.context,
                count * q,
                most,
                options.passes,
                problem.budget,
                least=q,
                caller="laplace",
            )
        raise
    if options.rank is None and problem.noise is not None:
        captured = float(factor.captured)
        hidden = (1 - captured) * float(np.mean(stated)) / float(np.min(typical(problem.noise.variance)))
        if hidden > _choices.HIDDEN_DIRECTIONS:
            warnings.warn(
                f"laplace: {factor.rank} directions hold {100 * captured:.4g} % of the prior variance at "
                f"{count} context points; what is missing is {hidden:.2g} times the noise variance. Pass a "
                "larger rank, or fewer context points",
                CapacityWarning, stacklevel=4,
            )  # fmt: skip
    return factor


def _as_noise_of_values(kind: Observed, stated: Float[np.ndarray, "m q"]) -> list[float]:
    """The smallest noise variance of a kind over what its operator multiplies the variance of high frequencies by."""
    if kind.noise is None:
        return []
    smallest = float(np.min(kind.noise.variance))
    if kind.of_values:
        return [smallest]
    seen = kind.variance(kind.data.spread(_choices.NEIGHBOURS).inputs)
    gain = 1.0 if seen is None else float(np.max(seen)) / max(float(np.mean(stated)), 1e-300)
    return [smallest / max(gain * _choices.DROPPED_FREQUENCY**kind.operator.order, 1e-300)]


class Refined(NamedTuple):
    """The mode, and the observations as they are linearised there.

    Attributes:
        observed: kinds of observations; the tangents of those that are not linear belong to the function at the mode.
        blocks: their rows.
        mode: of the linear model.
    """

    observed: tuple[Observed, ...]
    blocks: Blocks
    mode: Mode


def refine(problem: Problem, pulled: PulledBack, start: Refined) -> Refined:
    r"""Step 3 for operators that are not linear: the mode with tangents at the mode itself, by Gauss-Newton steps.

    The first tangents are at the network, which training has fitted to the same observations; further ones at
    $g = \mu + \Phi z$, until the objective falls no more. A step that would raise it is halved, or not taken: where a tangent is
    nearly flat it would lead anywhere. If the first one did, the prior mean is the start. Time per step: one pass over the
    observations that are not linear.
    """
    if not any(kind.tangent for kind in problem.observed):
        return start
    rank = start.mode.z.size

    def at(z) -> tuple[tuple[Observed, ...], Blocks, float]:
        shift = to_device(z.astype(pulled.directions.dtype) @ np.asarray(pulled.directions))
        base = linear_model(problem.model, problem.prior, shift)
        observed = tuple(kind.around(base) for kind in problem.observed)
        blocks = data_blocks(problem, pulled.directions, missed=pulled.missed, observed=observed)
        return observed, blocks, objective(blocks, z)

    z = start.mode.z
    observed, blocks, value = at(z)
    if not value <= (origin := at(np.zeros_like(z)))[2]:
        z, (observed, blocks, value) = np.zeros_like(z), origin
    for _ in range(_choices.TANGENT_STEPS):
        step = posterior_mode(blocks, rank).z - z
        size, moved = 1.0, at(z + step)
        while size > _choices.SMALLEST_STEP and not moved[2] <= value:
            size /= 2
            moved = at(z + size * step)
        gain = value - moved[2]
        if not gain >= 0:
            break
        z = z + size * step
        observed, blocks, value = moved
        if gain <= _choices.TANGENT_TOLERANCE * (1.0 + abs(value)):
            break
    mode = posterior_mode(blocks, rank)
    if not at(mode.z)[2] <= value + _choices.TANGENT_TOLERANCE * (1.0 + abs(value)):
        local = local_model(blocks, z)
        mode = Mode(z, local.value, local.precision, mode.at_prior_mean, local.sampling_error)
    return Refined(observed, blocks, mode)


def posterior_at(
    known: Known, missed: Treatment, mode: Mode, precision: Float[np.ndarray, "r r"], mean: str
) -> Moments:
    """The posterior of the function where features are known."""
    return moments_at(known.features, known.unexplained, precision, means_at(known, mode)[mean], missed)


def curvature_at(mean: str, problem: Problem, blocks: Blocks, mode: Mode) -> Float[np.ndarray, "r r"]:
    """Step 5: A where the mean is. Gaussian noise of linear observations has the same everywhere."""
    constant = mode.at_prior_mean.gaussian and not any(kind.tangent for kind in problem.observed)
    if mean == "network" and mode.searched and not constant:
        return local_model(at_network(blocks), np.zeros_like(mode.z)).precision
    return mode.precision


class Weights(NamedTuple):
    r"""The posterior over the weights, $\mathcal N(s, S S^\top)$ in the linear model.

    Attributes:
        scale: $S^\top$, rows $s_j$ with $S S^\top = S_0 A^{-1} S_0^\top$, then rows of zeros that round r up, (k, p).
        shift: $S_0 z^\star$, (p,).
        information: prior over posterior variance along each row of `scale`: eigenvalues of A, and 1 for rows of zeros, (k,).
        eigenvalues: of A.
        eigenvectors: of A, in columns.
    """

    scale: Float[Array, "k p"]
    shift: Float[Array, " p"]
    information: Float[np.ndarray, " k"]
    eigenvalues: Float[np.ndarray, " r"]
    eigenvectors: Float[np.ndarray, "r r"]

    def noise_factor(self, mode: Mode) -> float | None:
        """The noise with the highest evidence over the stated one; None for other likelihoods than Gaussian."""
        around = mode.at_prior_mean
        return best_noise_factor(around, self.eigenvalues, self.eigenvectors) if around.gaussian else None


def posterior_weights(pulled: PulledBack, precision: Float[np.ndarray, "r r"], z: Float[np.ndarray, " r"]) -> Weights:
    r"""Step 6: $A = Q \Lambda Q^\top$, $S = S_0 Q \Lambda^{-1/2}$."""
    eigenvalues, eigenvectors = np.linalg.eigh(precision)
    directions, rank = pulled.directions, eigenvalues.size
    more = _choices.rounded_rank(rank, directions.nbytes / rank) - rank
    scale, shift = _turn(directions, eigenvalues, eigenvectors, z, more)
    return Weights(scale, shift, np.pad(eigenvalues, (0, more), constant_values=1.0), eigenvalues, eigenvectors)


class _Turned(NamedTuple):
    """Combinations of directions.

    Attributes:
        scale: the rotation times the directions, (r, p).
        shift: the coordinates times the directions, (p,).
    """

    scale: Float[Array, "r p"]
    shift: Float[Array, " p"]


def _turn(
    directions: Float[Array | np.ndarray, "r p"],
    eigenvalues: Float[np.ndarray, " r"],
    eigenvectors: Float[np.ndarray, "r r"],
    coordinates: Float[np.ndarray, " r"],
    more: int,
) -> _Turned:
    """Rows of weights combined, and `more` rows of zeros: by BLAS on the host if they are few, where XLA would first compile it."""
    dtype, coordinates = directions.dtype, coordinates.astype(directions.dtype)
    if directions.nbytes > _choices.LARGEST_ON_HOST:
        rotation = np.pad((eigenvectors / np.sqrt(eigenvalues)).T, ((0, more), (0, 0)))
        return _Turned(*_turn_compiled(directions, to_device(rotation.astype(dtype)), to_device(coordinates)))
    rows = np.asarray(directions)
    told = int(np.sum(eigenvalues - 1 > _choices.TOLD_ROUNDING * eigenvalues[-1]))
    if told > _choices.FEW_TOLD * eigenvalues.size:
        turned = (eigenvectors / np.sqrt(eigenvalues)).T.astype(dtype) @ rows
    else:
        turned = _turned_by_reflections(rows, eigenvalues, eigenvectors, told)
    return _Turned(to_device(np.pad(turned, ((0, more), (0, 0)))), to_device(coordinates @ rows))


def _turned_by_reflections(
    rows: Float[np.ndarray, "r p"],
    eigenvalues: Float[np.ndarray, " r"],
    eigenvectors: Float[np.ndarray, "r r"],
    told: int,
) -> Float[np.ndarray, "r p"]:
    r"""$\Lambda^{-1/2} Q^\top S_0^\top$ if the data tell of few directions: any others that complete the basis serve as well.

    The last `told` eigenvectors are the first columns of a product of as many Householder reflections, up to signs. Time
    $O(\text{told}\, r p)$ instead of $O(r^2 p)$.
    """
    if told == 0:
        return rows
    (geqrf, ormqr) = get_lapack_funcs(("geqrf", "ormqr"), (rows,))
    reflectors, factors, *_ = geqrf(np.asfortranarray(eigenvectors[:, -told:], dtype=rows.dtype))
    # LAPACK stores by columns: S_0 times the reflections is what it sees of the transposed product.
    work = int(ormqr("R", "N", reflectors, factors, rows.T[:1], lwork=-1)[1][0])
    turned = ormqr("R", "N", reflectors, factors, rows.T, lwork=max(work, 64 * rows.shape[1]))[0].T
    signs = np.sign(np.diagonal(reflectors))[:, None]
    told_of = turned[:told] * signs / np.sqrt(eigenvalues[-told:, None]).astype(rows.dtype)
    return np.concatenate([turned[told:], told_of])


@eqx.filter_jit
def _turn_compiled(directions, rotation, coordinates):
    return rotation @ directions, coordinates @ directions


def _solver(problem: Problem, options: Options) -> str:
    rows, model = problem.context.shape[0] * problem.prior.num_outputs, problem.model
    return _choices.choose_solver(rows, model.num_params, itemsize(model.dtype), options.solver, problem.budget)


def _most_directions(problem: Problem, options: Options, solver: str) -> int | None:
    """The limit on the rank; the usual one unless the noise is Gaussian and may tell more directions apart."""
    blocks, points = problem.prior.blocks, problem.context
    rank = _choices.default_rank(
        options.rank, points.shape[0] * problem.prior.num_outputs, blocks.num_independent,
        convolutional=linearisation(problem.model, points).convolutional,
    )  # fmt: skip
    if problem.noise is None:
        return rank
    size = points.shape[0] * blocks.rows_per_point
    return _choices.most_directions(rank, size, blocks.num_independent, solver, problem.budget)


def _cost(problem: Problem, options: Options, factor: PriorFactor, solver: str) -> Cost:
    """The cost model at the rank that was found."""
    m, q = problem.context.shape[0], problem.prior.num_outputs
    return Cost(
        model=problem.model,
        inputs=problem.context[:1],
        num_rows=problem.data.num_rows,
        num_outputs=q,
        context_rows=m * q,
        rank=factor.rank,
        factor=factor.plan,
        solver=solver,
        passes=_choices.golub_kahan_passes(options.passes, factor.rank, problem.model.num_params, m * q),
        num_ridges=len(options.ridges(problem.model.dtype, solver=solver, of_derivatives=problem.of_derivatives)),
        budget=problem.budget,
    )
