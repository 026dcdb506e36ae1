"""The precision form: Algorithm 2 of the paper, on the inverse of the prior's covariance."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.host import in_float64, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._diagnostics import Clock, Diagnostics, misfit_to_noise, variance_ratios
from fsplaplace.laplace._exact_process import Moments
from fsplaplace.laplace._features import data_blocks
from fsplaplace.laplace._loss import loss_to_exact
from fsplaplace.laplace._mode import at_network, local_model
from fsplaplace.laplace._posterior import Posterior
from fsplaplace.laplace._problem import Places, Problem
from fsplaplace.laplace._reference import reference_at
from fsplaplace.laplace._verdict import verdict_of
from fsplaplace.linalg import lanczos_inverse_factor
from fsplaplace.networks import pull_back, push_forward
from fsplaplace.prior import Prior, moments


def precision_form(problem: Problem, rank: int | None) -> Posterior:
    """Lines 2 to 10 of Algorithm 2; see `fsplaplace.laplace`."""
    model, prior, budget = problem.model, problem.prior, problem.budget
    points, guards = to_device(problem.context), to_device(problem.guards)
    clock = Clock()
    ones = jnp.ones((1, model.num_params), model.dtype)
    start = push_forward(model, points, ones, budget=budget)[:, :, 0]
    inverse_factor = _inverse_factor(prior, points, start, rank or _choices.LANCZOS_RANK, budget)
    clock.finish("Lanczos")

    pulled = pull_back(model, points, jnp.asarray(inverse_factor, model.dtype), budget=budget)
    left, singular, basis = _thin_svd(pulled)
    keep = int(jnp.sum(singular > jnp.sqrt(jnp.finfo(model.dtype).eps) * singular[0]))
    left, singular, basis = left[:, :keep], singular[:keep], basis[:keep]
    clock.finish("pull-back (lanczos)")

    # The curvature belongs where the mean is: at the network's own outputs.
    around = local_model(at_network(data_blocks(problem, basis)), np.zeros(keep))
    prior_precision = np.asarray(singular, dtype=np.float64) ** 2
    precision = np.diag(prior_precision) + around.precision - np.eye(keep)
    eigenvalues, eigenvectors = np.linalg.eigh(precision)
    inverse_root = np.sqrt(np.divide(1.0, eigenvalues, out=np.zeros(keep), where=eigenvalues > 0))
    scale = jnp.asarray((eigenvectors * inverse_root).T, model.dtype) @ basis
    residual = np.asarray(model(points) - prior.mean_at(points), dtype=np.float64)
    # The part of the whitened residual that weights can move: the rest grows with every direction that Lanczos adds.
    reached = np.asarray(left, np.float64).T @ np.einsum("mqr,mq->r", inverse_factor, residual)
    slope = around.gradient + np.asarray(singular, np.float64) * reached
    log_determinants = np.sum(np.log(prior_precision)) - np.linalg.slogdet(precision)[1]
    # At the mode of the linearised model, as in the covariance form: training need not have arrived there.
    to_mode = 0.5 * float(slope @ np.linalg.solve(precision, slope))
    log_evidence = -around.value - 0.5 * float(reached @ reached) + to_mode + 0.5 * log_determinants
    where = jnp.concatenate([points, guards]) if problem.guards_given else points
    drop = _truncation(push_forward(model, where, scale, budget=budget), prior.variance(where))
    if drop == keep:
        raise FloatingPointError(
            "laplace: every direction of the precision form exceeds the prior's variance at some context point, so nothing is left; "
            "use form='covariance', or context points that cover the guard points"
        )
    scale = scale[drop:]
    clock.finish("posterior")
    places = Places.of(problem)
    implied = push_forward(model, to_device(places.stacked), basis / singular[:, None], budget=budget)
    stated = moments.variance(prior, places.stacked)
    ratios = variance_ratios(stated, places, np.asarray(implied, dtype=np.float64))
    reference = reference_at(problem, places)
    new, at_guards = (_posterior_at(problem, x, scale) for x in (places.new, reference.points))
    loss = loss_to_exact(problem, problem.observed, places, reference, new, at_guards)
    clock.finish("diagnostics")
    sizes = {
        "Lanczos": 3.0 * inverse_factor.nbytes,
        "pull-back (lanczos)": 3.0 * pulled.nbytes,
        "posterior": 2.0 * scale.nbytes,
    }
    return Posterior(
        model=model,
        prior=prior,
        likelihood=problem.likelihood,
        scale=scale,
        shift=jnp.zeros_like(model.weights),
        information=None,
        context_points=points,
        log_evidence=jnp.asarray(log_evidence, model.dtype),
        diagnostics=Diagnostics(
            form="precision", solver="lanczos", factorisation="Lanczos", mean="network", rank=keep - drop,
            captured=jnp.asarray(jnp.nan), pull_back_residual=float("nan"), ratios=ratios, criterion="", objectives={},
            jitter=0.0, delta=0.0, missed_as_noise=False, noise_factor=None, misfit_to_noise=misfit_to_noise(ratios, stated, problem.noise),
            verdict=verdict_of(problem, places, loss, ratios), stages=clock.stages(sizes),
        ),
    )  # fmt: skip


def _posterior_at(problem: Problem, x: Float[np.ndarray, "k ..."], scale: Float[Array, "r p"]) -> Moments:
    """The posterior of the function at some inputs."""
    inputs = to_device(x)
    features = np.asarray(push_forward(problem.model, inputs, scale, budget=problem.budget), np.float64)
    outputs = np.asarray(problem.model(inputs), np.float64)
    return Moments(outputs.ravel(), np.sum(features**2, axis=2).ravel())


@in_float64
def _inverse_factor(
    prior: Prior, points, start: Float[Array, "m q"], rank: int, budget: float
) -> Float[np.ndarray, "m q r"]:
    """L with L L^T ~ Sigma(C, C)^+, one Lanczos run per output where outputs are independent."""
    blocks, independent = prior.blocks.separated(), prior.independent_parts()
    starts = blocks.to_blocks(start[:, :, None])[:, :, 0]
    per_block = min(max(1, rank // len(independent)), starts.shape[1])
    runs = zip(independent, starts, strict=True)
    return blocks.place_columns([_run(single, points, first, per_block, budget) for single, first in runs])


def _run(prior: Prior, points, start, rank: int, budget: float) -> Float[np.ndarray, "N k"]:
    columns, used = _lanczos(prior, points, start, rank, 8 * start.size**2 <= budget / 4)
    return np.asarray(columns)[:, : max(1, int(used))]


@eqx.filter_jit
def _lanczos(prior: Prior, points, start, rank: int, dense: bool):
    tolerance = float(jnp.finfo(start.dtype).eps) ** 0.5
    if dense:
        matrix = prior.gram(points)[0]
        return lanczos_inverse_factor(lambda v: matrix @ v, start, rank=rank, tolerance=tolerance)

    def matvec(vector):
        return prior.gram_product(points, vector.reshape(points.shape[0], -1, 1)).ravel()

    return lanczos_inverse_factor(matvec, start, rank=rank, tolerance=tolerance)


@eqx.filter_jit
def _thin_svd(rows: Float[Array, "r p"]) -> tuple[Array, Array, Array]:
    return tuple(jnp.linalg.svd(rows, full_matrices=False))


@eqx.filter_jit
def _tail_variance(features):
    """Variance from directions k, ..., r for every k; directions come with their variance falling."""
    return jnp.cumsum(features[:, :, ::-1] ** 2, axis=2)[:, :, ::-1]


def _truncation(features: Float[Array, "n q r"], bound: Float[Array, "n q"]) -> int:
    """The fewest leading directions to drop so that no point's variance exceeds the prior's."""
    # Away from the data the two are equal but for rounding, which must not cost a direction.
    allowed = (1 + float(jnp.finfo(features.dtype).eps) ** 0.5) * bound
    within = jnp.all(_tail_variance(features) <= allowed[:, :, None], axis=(0, 1))
    return int(jnp.argmax(within)) if bool(jnp.any(within)) else within.size
