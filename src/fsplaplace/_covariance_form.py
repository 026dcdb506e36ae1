"""The covariance form: pull the prior's covariance back to the weights, then condition on the data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace import _glm
from fsplaplace._data import data_blocks
from fsplaplace._diagnostics import Diagnostics, Stages, stack, subset, variance_ratios
from fsplaplace._jacobian import jacobian_matrix, pull_back, push_forward
from fsplaplace._memory import format_bytes, itemsize
from fsplaplace._model import Model
from fsplaplace._posterior import Posterior
from fsplaplace._precision import to_double
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
    residual = np.asarray(model(points), dtype=np.float64) - np.asarray(_prior_mean(prior, points), dtype=np.float64)
    directions, misfit = _pull_back_prior(model, points, factor, -residual.ravel(), solver, delta, passes, budget)
    stages.finish(f"pull-back ({solver})", _pull_back_bytes(factor, directions, solver, passes))

    blocks = data_blocks(model, likelihood, X, targets, directions, num_outputs=prior.num_outputs, budget=budget)
    with jax.enable_x64(True):
        mode = _glm.posterior_mode(blocks, directions.shape[0] - 1)
    log_evidence = -mode.value - 0.5 * np.linalg.slogdet(mode.precision)[1]
    stages.finish("data", X.shape[0] * prior.num_outputs * directions.shape[0] * 8)

    # The shift to the mode takes the place of the shift to the prior mean, in the last row.
    directions = _replace_last(directions, jnp.asarray(np.append(mode.z, 1.0), directions.dtype))
    places = {"context": subset(points), "training": subset(X), "guard": subset(guards)}
    features = np.asarray(push_forward(model, stack(places), directions, budget=budget))
    ratios = variance_ratios(prior, places, features[:, :, :-1])
    objectives = _mean_objectives(model, prior, blocks, mode, guards, features[-guards.shape[0] :, :, -1])
    chosen = mean if mean != "auto" else min(objectives, key=lambda name: objectives[name])
    stages.finish("diagnostics", features.nbytes)

    precision = mode.precision
    if chosen == "network":
        # The curvature belongs where the mean is: at the network's own outputs.
        with jax.enable_x64(True):
            precision = _glm.posterior_precision(_at_network(blocks), np.zeros_like(mode.z))
    scale, shift = _posterior_scale(directions, precision, factor.rank)
    stages.finish("posterior", 2 * scale.nbytes)
    return Posterior(
        model=model,
        prior=prior,
        likelihood=likelihood,
        scale=scale,
        shift=shift if chosen == "refined" else jnp.zeros_like(shift),
        context_points=points,
        log_evidence=jnp.asarray(log_evidence, model.dtype),
        diagnostics=Diagnostics(
            form="covariance", solver=solver, factorisation=factor.method, mean=chosen, rank=factor.rank,
            captured=factor.captured, pull_back_residual=misfit, ratios=ratios, objectives=objectives,
            jitter=_MEAN_JITTER, delta=delta, stages=stages.records,
        ),
    )  # fmt: skip


@eqx.filter_jit
def _prior_mean(prior: Prior, points):
    return prior.mean_at(points)


def _choose_solver(model: Model, factor: PriorFactor, solver: str, budget: float) -> str:
    size = factor.matrix.shape[0]
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
    model: Model, points, factor: PriorFactor, residual: Float[np.ndarray, " N"], solver: str,
    delta: float, passes: int, budget: float,
) -> tuple[Float[Array, "r+1 p"], float]:  # fmt: skip
    """Rows of S_0 (their number rounded up with zeros), last the shift that moves the network to the prior mean at the
    context points; and how far the network's features miss the prior factor."""
    m, q, rank = factor.columns.shape
    columns = np.asarray(factor.matrix)
    if solver == "dense":
        rows = jacobian_matrix(model, points)
        targets = np.column_stack([columns, np.zeros((m * q, -rank % _RANK_MULTIPLE)), residual])
        solution, reached = minimum_norm_solve(rows, targets, delta=delta)
        misfit = np.linalg.norm(np.asarray(reached)[:, :rank] - columns) / np.linalg.norm(columns)
        return solution, float(misfit)
    # The residual rides along as one more target, on the scale of the others.
    norm, size = float(np.linalg.norm(residual)), float(np.linalg.norm(columns[:, 0]))
    unit = residual * (size / norm) if norm > 0 else residual
    targets = jnp.asarray(np.column_stack([columns, unit]), model.dtype)
    passes = max(1, min(passes, model.num_params // (rank + 1), m * q // (rank + 1)))
    solution, misfit = block_golub_kahan(
        lambda rows: push_forward(model, points, rows, budget=budget).reshape(m * q, -1),
        lambda columns: pull_back(model, points, columns.reshape(m, q, -1), budget=budget),
        targets,
        passes=passes,
        delta=delta,
    )
    return _pad_rank(solution, norm / size), misfit


@eqx.filter_jit
def _pad_rank(solution, last: float):
    """Zero rows before the last, up to a round number of rows; the last one rescaled."""
    rank = solution.shape[0] - 1
    return jnp.pad(solution[:-1], ((0, -rank % _RANK_MULTIPLE + 1), (0, 0))).at[-1].set(last * solution[-1])


def _pull_back_bytes(factor: PriorFactor, directions, solver: str, passes: int) -> int:
    if solver == "golub-kahan":
        return (passes + 2) * directions.nbytes
    return factor.matrix.shape[0] * directions.shape[1] * (8 + directions.dtype.itemsize) + 2 * directions.nbytes


@eqx.filter_jit
def _replace_last(directions, weights):
    return directions.at[-1].set(weights @ directions)


def _at_network(blocks: _glm.Blocks) -> _glm.Blocks:
    """The same data with the network's own outputs as offsets."""
    return lambda: (eqx.tree_at(lambda block: block.offset, block, block.network) for block in blocks())


def _mean_objectives(
    model: Model, prior: Prior, blocks: _glm.Blocks, mode: _glm.Mode, guards, shift_at_guards
) -> dict[str, float]:
    """The training objective of both means, its norm taken at points that are not context points."""
    network = model(guards)
    with jax.enable_x64(True):
        double = to_double((prior, guards, network, jnp.asarray(shift_at_guards)))
        norms = np.asarray(_half_squared_norms(*double))
        network_loss = _glm.objective(_at_network(blocks), np.zeros_like(mode.z))
    losses = np.array([network_loss, mode.value - 0.5 * mode.z @ mode.z])
    values = np.nan_to_num(norms + losses, nan=np.inf)
    return {"network": float(values[0]), "refined": float(values[1])}


@eqx.filter_jit
def _half_squared_norms(prior, guards, network, shift):
    residual = jnp.stack([network, network + shift]) - prior.mean_at(guards)
    return 0.5 * jax.vmap(lambda values: prior.squared_norm(guards, values, jitter=_MEAN_JITTER))(residual)


def _posterior_scale(directions, precision: Float[np.ndarray, "k k"], rank: int):
    """S^T, rows s_j with S S^T = S_0 A^{-1} S_0^T, and the shift. Padded directions have no part in A and are dropped."""
    eigenvalues, eigenvectors = np.linalg.eigh(precision[:rank, :rank])
    rotation = jnp.asarray((eigenvectors / np.sqrt(eigenvalues)).T, directions.dtype)
    return _rotate(directions, rotation)


@eqx.filter_jit
def _rotate(directions, rotation):
    return rotation @ directions[: rotation.shape[0]], directions[-1]
