"""The covariance form: pull the prior's covariance back to the weights, then condition on the data."""

import warnings
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.host import itemsize, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._choices import Options
from fsplaplace.laplace._cost import Cost
from fsplaplace.laplace._diagnostics import Clock, Diagnostics, misfit_to_noise, variance_ratios
from fsplaplace.laplace._features import Blocks, Normalised, View, data_blocks, normalise, view
from fsplaplace.laplace._mode import Mode, at_network, best_noise_factor, local_model, objective, posterior_mode
from fsplaplace.laplace._posterior import Posterior
from fsplaplace.laplace._problem import Places, Problem
from fsplaplace.laplace._pull_back import PulledBack, Task, solve
from fsplaplace.laplace._reference import MeanScores, Reference, reference_at, score_means, typical
from fsplaplace.laplace._verdict import gaussian_loss, latent_loss, variance_at, verdict_of
from fsplaplace.networks import CapacityWarning
from fsplaplace.prior import PriorFactor, moments, plan_factor


def covariance_form(problem: Problem, options: Options) -> Posterior:
    """The six steps of the covariance form; see `fsplaplace.laplace` and the README of this room."""
    clock, places = Clock(), Places.of(problem)
    solver = _solver(problem, options)
    factor = factor_prior(problem, options, solver)
    clock.finish("prior factor")
    reference = reference_at(problem, places)
    pulled = solve(Task(problem, np.asarray(factor.columns), places, reference, options), solver)
    clock.finish(f"pull-back ({solver})")
    blocks = data_blocks(problem, pulled.directions, missed=pulled.missed, places=places, seen=pulled.seen)
    mode = posterior_mode(blocks, factor.rank)
    clock.finish("data")
    stated = moments.variance(problem.prior, places.stacked)
    normalised = normalise(pulled.seen.features, stated)
    means = means_at(problem, places, reference, View(pulled.seen.outputs, normalised.features), mode)
    scores = compare_means(problem, reference, means, blocks, mode)
    mean = scores.best if options.mean == "auto" else options.mean
    ratios = variance_ratios(stated, places, pulled.seen.features)
    clock.finish("diagnostics")
    precision = curvature_at(mean, blocks, mode)
    loss = loss_to_exact(problem, places, reference, pulled, normalised, means[mean], precision)
    verdict = verdict_of(problem, reference, loss, ratios, mean=mean)
    weights = posterior_weights(pulled, precision, mode.z)
    clock.finish("posterior")
    return Posterior(
        model=problem.model,
        prior=problem.prior,
        likelihood=problem.likelihood,
        scale=weights.scale,
        shift=weights.shift if mean == "refined" else jnp.zeros_like(weights.shift),
        information=to_device(weights.eigenvalues, problem.model.dtype),
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
            misfit_to_noise=misfit_to_noise(ratios, stated, problem.noise),
            verdict=verdict,
            stages=clock.stages(_cost(problem, options, factor, solver).bytes()),
        ),
    )


def factor_prior(problem: Problem, options: Options, solver: str) -> PriorFactor:
    r"""Step 1: $B B^\top \approx \Sigma(C, C)$, as many columns as the noise can tell apart; a `CapacityWarning` if there are fewer."""
    stated = moments.variance(problem.prior, problem.context)
    cut = _choices.cut_off(options, problem.noise, stated)
    factor = problem.prior.factor(
        to_device(problem.context),
        rank=_most_directions(problem, options, solver), rtol=cut.rtol, captured=cut.captured, memory_budget=problem.budget,
    )  # fmt: skip
    if options.rank is None and problem.noise is not None:
        captured = float(factor.captured)
        hidden = (1 - captured) * float(np.mean(stated)) / typical(problem.noise.variance.ravel())
        if hidden > _choices.HIDDEN_DIRECTIONS:
            warnings.warn(
                f"laplace: {factor.rank} directions hold {100 * captured:.4g} % of the prior variance at "
                f"{problem.context.shape[0]} context points; what is missing is {hidden:.2g} times the noise variance. Pass a "
                "larger rank, or fewer context points",
                CapacityWarning, stacklevel=4,
            )  # fmt: skip
    return factor


def means_at(
    problem: Problem, places: Places, reference: Reference, seen: View, mode: Mode
) -> dict[str, Float[np.ndarray, "k q"]]:
    r"""The network's mean and the refined one, $\mu + a \Phi z^\star$, at the judged points and then at the witnesses."""
    there, where = reference.compared(seen, places), reference.compared_points(places)
    return {"network": there.outputs, "refined": moments.mean(problem.prior, where) + there.features @ mode.z}


def compare_means(
    problem: Problem, reference: Reference, means: dict[str, Float[np.ndarray, "k q"]], blocks: Blocks, mode: Mode
) -> MeanScores:
    """Step 4: which of the means is closer to the exact process."""
    losses = {}
    if reference.exact is None:
        losses = {"network": objective(at_network(blocks), np.zeros_like(mode.z)), "refined": -mode.log_likelihood}
    return score_means(problem.prior, reference, means, losses)


def loss_to_exact(
    problem: Problem, places: Places, reference: Reference, pulled: PulledBack, normalised: Normalised,
    mean: Float[np.ndarray, "k q"], precision: Float[np.ndarray, "r r"],
) -> float:  # fmt: skip
    """The loss of log predictive density against the exact process, as far as it can be known cheaply."""
    if reference.sample is None:
        return latent_loss(problem, places, reference, pulled.seen)
    targets = problem.data.num_rows * problem.prior.num_outputs
    if targets > _choices.MOST_TARGETS:
        # The exact process has fewer data than the posterior: both are given the same few.
        seen = view(problem.model, reference.inputs, pulled.directions, budget=problem.budget)
        return reference.divergence(seen.features.reshape(-1, seen.features.shape[2]), pulled.missed).forward
    rows = reference.compared_rows(places)
    variance = variance_at(normalised.features[rows], normalised.unexplained[rows], precision, pulled.missed)
    assert problem.noise is not None
    return gaussian_loss(reference, mean, variance, typical(problem.noise.variance.ravel()))


def curvature_at(mean: str, blocks: Blocks, mode: Mode) -> Float[np.ndarray, "r r"]:
    """Step 5: A where the mean is. Gaussian noise has the same everywhere."""
    if mean == "network" and not mode.at_prior_mean.gaussian:
        return local_model(at_network(blocks), np.zeros_like(mode.z)).precision
    return mode.precision


class Weights(NamedTuple):
    r"""The posterior over the weights, $\mathcal N(s, S S^\top)$ in the linear model.

    Attributes:
        scale: $S^\top$, rows $s_j$ with $S S^\top = S_0 A^{-1} S_0^\top$, (r, p).
        shift: $S_0 z^\star$, (p,).
        eigenvalues: of A: prior over posterior variance along each row of `scale`.
        eigenvectors: of A, in columns.
    """

    scale: Float[Array, "r p"]
    shift: Float[Array, " p"]
    eigenvalues: Float[np.ndarray, " r"]
    eigenvectors: Float[np.ndarray, "r r"]

    def noise_factor(self, mode: Mode) -> float | None:
        """The noise with the highest evidence over the stated one; None for other likelihoods than Gaussian."""
        around = mode.at_prior_mean
        return best_noise_factor(around, self.eigenvalues, self.eigenvectors) if around.gaussian else None


def posterior_weights(pulled: PulledBack, precision: Float[np.ndarray, "r r"], z: Float[np.ndarray, " r"]) -> Weights:
    r"""Step 6: $A = Q \Lambda Q^\top$, $S = S_0 Q \Lambda^{-1/2}$."""
    directions = pulled.directions
    eigenvalues, eigenvectors = np.linalg.eigh(precision)
    rotation = (eigenvectors / np.sqrt(eigenvalues)).T.astype(directions.dtype)
    to_mode = z.astype(directions.dtype)
    if directions.nbytes > _choices.LARGEST_ON_HOST:
        scale, shift = _combine(directions, to_device(rotation), to_device(to_mode))
    else:
        rows = np.asarray(directions)
        scale, shift = to_device(rotation @ rows), to_device(to_mode @ rows)
    return Weights(scale, shift, eigenvalues, eigenvectors)


@eqx.filter_jit
def _combine(directions, rotation, to_mode):
    return rotation @ directions, to_mode @ directions


def _solver(problem: Problem, options: Options) -> str:
    rows, model = problem.context.shape[0] * problem.prior.num_outputs, problem.model
    return _choices.choose_solver(rows, model.num_params, itemsize(model.dtype), options.solver, problem.budget)


def _most_directions(problem: Problem, options: Options, solver: str) -> int | None:
    """The limit on the rank; the usual one unless the noise is Gaussian and may tell more directions apart."""
    if problem.noise is None:
        return options.rank
    blocks = problem.prior.blocks
    size = problem.context.shape[0] * blocks.rows_per_point
    return _choices.most_directions(options.rank, size, blocks.num_independent, solver, problem.budget)


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
        factor=plan_factor(problem.prior, m, _most_directions(problem, options, solver), problem.budget),
        solver=solver,
        passes=_choices.golub_kahan_passes(options.passes, factor.rank, problem.model.num_params, m * q),
        num_ridges=len(options.ridges(problem.model.dtype)),
        budget=problem.budget,
    )
