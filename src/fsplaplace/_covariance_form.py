"""The covariance form: pull the prior's covariance back to the weights, then condition on the data."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fsplaplace import _glm
from fsplaplace._data import data_blocks
from fsplaplace._diagnostics import Diagnostics, Stages, variance_ratio
from fsplaplace._jacobian import jacobian, pull_back, push_forward
from fsplaplace._memory import format_bytes, itemsize
from fsplaplace._model import Model
from fsplaplace._posterior import Posterior
from fsplaplace._precision import cast, to_double
from fsplaplace._prior import Prior, PriorFactor
from fsplaplace.likelihoods import Likelihood
from fsplaplace.linalg import block_golub_kahan, minimum_norm_solve

# Up to this many rows the N x N eigenproblem costs less than the passes it replaces.
_LARGEST_DENSE = 2000
# Ranks are rounded up to a multiple of this with zero columns, so that fits of similar rank share compiled programs.
_RANK_MULTIPLE = 16
_MEAN_JITTER = 1e-4


def covariance_form(
    model: Model, prior: Prior, likelihood: Likelihood, X, targets, points, guards, *,
    mean: str, rank: int | None, rtol: float, delta: float, solver: str, passes: int, budget: float,
) -> Posterior:  # fmt: skip
    """Steps 1 to 6 of the covariance form; see `fsplaplace.laplace`."""
    stages = Stages()
    factor = prior.factor(points, rank=rank, rtol=rtol, memory_budget=budget)
    stages.finish("prior factor", 2 * factor.columns.nbytes)

    solver = _choose_solver(model, factor, solver, budget)
    residual = (model(points) - prior.mean_at(points)).ravel()
    directions, shift, fit = _pull_back_prior(model, points, factor, -residual, solver, delta, passes, budget)
    size = points.shape[0] * prior.num_outputs
    dense_bytes = size * model.num_params * (8 + itemsize(model.dtype))
    stages.finish(f"pull-back ({solver})", directions.nbytes + (dense_bytes if solver == "dense" else passes * directions.nbytes))

    blocks = data_blocks(model, likelihood, X, targets, directions, shift, budget)
    with jax.enable_x64(True):
        z = _glm.posterior_mode(blocks, directions.shape[0])
        precision = _glm.posterior_precision(blocks, z)
        log_determinant = jnp.linalg.slogdet(precision)[1]
        log_evidence = -_glm.objective(blocks, z) - 0.5 * log_determinant
        refined_shift = cast(to_double(shift) + z @ to_double(directions), model.dtype)
    stages.finish("data", X.shape[0] * prior.num_outputs * directions.shape[0] * 8)

    objectives = _mean_objectives(model, prior, likelihood, X, targets, guards, refined_shift, budget)
    chosen = mean if mean != "auto" else min(objectives, key=lambda name: objectives[name])
    with jax.enable_x64(True):
        if chosen == "network":
            # The curvature belongs where the mean is: at the network's own outputs.
            network_blocks = data_blocks(model, likelihood, X, targets, directions, jnp.zeros_like(shift), budget)
            precision = _glm.posterior_precision(network_blocks, jnp.zeros_like(z))
        scale = cast(_posterior_scale(to_double(directions), precision, factor.rank), model.dtype)
    stages.finish("posterior", 2 * scale.nbytes)

    ratios = {
        name: variance_ratio(model, prior, where, directions, budget)
        for name, where in (("context", points), ("training", X), ("guard", guards))
    }
    stages.finish("diagnostics", 0)
    shift = refined_shift if chosen == "refined" else jnp.zeros_like(refined_shift)
    return Posterior(
        model=model,
        prior=prior,
        likelihood=likelihood,
        scale=scale,
        shift=shift,
        context_points=points,
        log_evidence=cast(log_evidence, model.dtype),
        diagnostics=Diagnostics(
            form="covariance", solver=solver, factorisation=factor.method, mean=chosen, rank=factor.rank,
            captured=factor.captured, pull_back_residual=fit, ratios=ratios, objectives=objectives,
            jitter=_MEAN_JITTER, delta=delta, stages=stages.records,
        ),
    )  # fmt: skip


def _choose_solver(model: Model, factor: PriorFactor, solver: str, budget: float) -> str:
    size = factor.columns.shape[0] * factor.columns.shape[1]
    needed = size * model.num_params * (8 + itemsize(model.dtype))
    if solver == "dense" and needed > budget:
        raise MemoryError(
            f"laplace: solver='dense' needs {format_bytes(needed)} for {size} context rows and {model.num_params} weights, but "
            f"memory_budget is {format_bytes(budget)}; pass solver='golub-kahan'"
        )
    if solver != "auto":
        return solver
    return "dense" if size <= _LARGEST_DENSE and needed <= budget else "golub-kahan"


def _pull_back_prior(
    model: Model, points, factor: PriorFactor, residual, solver: str, delta: float, passes: int, budget: float
) -> tuple[Float[Array, "r p"], Float[Array, " p"], Float[Array, ""]]:
    """Rows of S_0 (rank rounded up with zeros), the shift that moves the network to the prior mean, and the misfit."""
    m, q, rank = factor.columns.shape
    padding = -rank % _RANK_MULTIPLE
    with jax.enable_x64(True):
        residual = to_double(residual)
        columns = jnp.pad(factor.matrix, ((0, 0), (0, padding)))
        if solver == "dense":
            rows = to_double(jacobian(model, points).reshape(m * q, -1))
            targets = jnp.concatenate([columns, residual[:, None]], axis=1)
            solution, fit = _dense(rows, targets, factor.matrix, delta)
            solution = cast(solution, model.dtype)
            return solution[:-1], solution[-1], fit
        # The residual rides along as one more target, on the scale of the others.
        norm = jnp.linalg.norm(residual)
        size = jnp.linalg.norm(columns, axis=0)[0]
        unit = jnp.where(norm > 0, residual / jnp.where(norm > 0, norm, 1.0), 0.0) * size
        targets = cast(jnp.concatenate([columns[:, :rank], unit[:, None]], axis=1), model.dtype)
        ratio = float(norm / size)
    passes = max(1, min(passes, model.num_params // targets.shape[1], m * q // targets.shape[1]))
    solution, fit = block_golub_kahan(
        lambda rows: push_forward(model, points, rows, budget=budget).reshape(m * q, -1),
        lambda columns: pull_back(model, points, columns.reshape(m, q, -1), budget=budget),
        targets,
        passes=passes,
        delta=delta,
    )
    return jnp.pad(solution[:-1], ((0, padding), (0, 0))), solution[-1] * ratio, fit


@eqx.filter_jit
def _dense(rows, targets, factor, delta):
    solution = minimum_norm_solve(rows, targets, delta=delta)
    misfit = jnp.linalg.norm(rows @ solution[: factor.shape[1]].T - factor) / jnp.linalg.norm(factor)
    return solution, misfit


def _mean_objectives(model: Model, prior: Prior, likelihood: Likelihood, X, targets, guards, shift, budget: float):
    """The training objective of both means, its norm taken at points that are not context points."""
    objectives = {}
    for name, move in (("network", None), ("refined", shift)):
        at_data, at_guards = (_mean(model, where, move, budget) for where in (X, guards))
        with jax.enable_x64(True):
            double = to_double((prior, guards, at_guards))
            objectives[name] = float(_objective(*double, likelihood, at_data, targets))
    return {name: value if value == value else float("inf") for name, value in objectives.items()}


@eqx.filter_jit
def _objective(prior, guards, at_guards, likelihood, at_data, targets):
    norm = prior.squared_norm(guards, at_guards - prior.mean_at(guards), jitter=_MEAN_JITTER)
    return 0.5 * norm - jnp.sum(likelihood.log_prob(at_data, targets))


def _mean(model: Model, x, shift, budget: float):
    values = model(x)
    return values if shift is None else values + push_forward(model, x, shift[None], budget=budget)[:, :, 0]


@eqx.filter_jit
def _posterior_scale(directions, precision, rank: int):
    """S^T: rows s_j with S S^T = S_0 A^{-1} S_0^T. Padded directions have no part in A and are dropped."""
    eigenvalues, eigenvectors = jnp.linalg.eigh(precision[:rank, :rank])
    return (eigenvectors / jnp.sqrt(eigenvalues)).T @ directions[:rank]
