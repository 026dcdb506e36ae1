r"""More data for a posterior: in the r coordinates of its directions.

A posterior's function is $m(x) + F(x)\,\epsilon$ with $\epsilon \sim \mathcal N(0, I)$ and F the normalised features. New data with
curvature H turn this into $\epsilon \sim \mathcal N(e, A^{-1})$ with $A = I + \sum_i F_i^\top H_i F_i = R R^\top$: no training, no new
features, and directions in the space of weights that stay as they are. Only e and $T = R^{-\top}$ are kept (`Later`); data
that come still later find features $F T$ and add to both.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, Int, Shaped

from fsplaplace.host import in_float64, one_blas_thread, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._features import Block, with_missed
from fsplaplace.laplace._linear_model import Later, LinearModel, Local, see_rows
from fsplaplace.laplace._mode import posterior_mode
from fsplaplace.likelihoods import Gaussian, Likelihood

_ARRAYS = (jax.Array, np.ndarray)


class Conditioned(NamedTuple):
    """What changes in a posterior that is given more data.

    Attributes:
        later: what all data since the fit say about the coordinates.
        log_evidence: of the new data given the old, to be added.
        surprise: squared distance of the new targets from what the posterior says, in standard deviations; infinite if it was not
            computed.
    """

    later: Later
    log_evidence: Float[Array, ""]
    surprise: Float[Array | np.ndarray, ""]


def condition(
    linear: LinearModel, local: Local, targets: Shaped[Array | np.ndarray, "n ..."], likelihood: Likelihood
) -> Conditioned:
    """The posterior given more data; in float64 on the host unless something is traced.

    Args:
        linear: the posterior so far.
        local: its process at the new inputs.
        targets: the new targets, checked.
        likelihood: of these targets.

    Time $O(n q r^2 + r^3)$ for one Newton step, and one is enough for Gaussian noise.
    """
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((linear, local, targets, likelihood)))
    rank, dtype, before = linear.scale.shape[0], linear.scale.dtype, _so_far(linear)
    if traced:
        return _condition_traced(
            before, local, targets, likelihood, None, missed_as_noise=linear.missed_as_noise, dtype=dtype
        )
    block = data_block(linear, local, np.asarray(targets), likelihood)
    with one_blas_thread():
        mode = posterior_mode(lambda: iter([block]), rank)
        first = np.asarray(before.turn, np.float64)
        turn = first @ np.linalg.inv(np.linalg.cholesky(mode.precision)).T
    step = np.asarray(before.step, np.float64) + first @ mode.z
    num_rows = np.asarray(before.num_rows) + np.int32(local.mean.shape[0])
    return Conditioned(
        Later(to_device(step, dtype), to_device(turn, dtype), to_device(num_rows)),
        to_device(mode.log_evidence, dtype),
        np.asarray(np.inf),
    )


def condition_few(
    linear: LinearModel,
    x: Float[Array | np.ndarray, "n ..."],
    targets: Float[Array | np.ndarray, "n q"],
    likelihood: Gaussian,
    num_rows: Int[Array | np.ndarray, ""],
) -> Conditioned:
    """`condition` on few rows with Gaussian noise, from the inputs on: one program. Rows after the first `num_rows` fill up."""
    # What `equinox.filter_jit` does, without the quarter of a millisecond that its generality takes.
    leaves, structure = jax.tree.flatten((linear, likelihood))
    arrays = [leaf if isinstance(leaf, _ARRAYS) else None for leaf in leaves]
    others = tuple(None if isinstance(leaf, _ARRAYS) else leaf for leaf in leaves)
    return _condition_few(arrays, x, targets, num_rows, others, structure)


@functools.partial(jax.jit, static_argnums=(4, 5))
def _condition_few(arrays: list, x, targets, num_rows, others: tuple, structure) -> Conditioned:
    leaves = [other if array is None else array for array, other in zip(arrays, others, strict=True)]
    linear, likelihood = jax.tree.unflatten(structure, leaves)
    return _condition_traced(
        _so_far(linear), linear.at(x, see_rows(linear, x)), targets, likelihood, num_rows,
        missed_as_noise=linear.missed_as_noise, dtype=linear.scale.dtype,
    )  # fmt: skip


def _so_far(linear: LinearModel) -> Later:
    """What data since the fit say, if there are none so far nothing."""
    if linear.later is not None:
        return linear.later
    rank, dtype = linear.scale.shape[0], linear.scale.dtype
    return Later(np.zeros(rank, dtype), np.eye(rank, dtype=dtype), np.zeros((), np.int32))


def data_block(
    linear: LinearModel, local: Local, targets: Shaped[np.ndarray, "n ..."], likelihood: Likelihood
) -> Block:
    r"""The data as the model $m(x_i) + F_i \epsilon$ sees them, in float64 on the host."""
    mean, features, unexplained = (np.asarray(part, dtype=np.float64) for part in local)
    noise = likelihood.noise(mean.shape)
    if noise is not None and linear.missed_as_noise:
        noise = with_missed(noise, unexplained)
    return Block(mean, mean, features, targets, likelihood, noise)


@in_float64
def _condition_traced(
    before: Later, local: Local, targets, likelihood: Likelihood, num_rows, *, missed_as_noise: bool, dtype
) -> Conditioned:
    """The same inside `jax.jit` and `jax.vmap`: in float64 there as well, because precisions span many orders."""
    count = local.mean.shape[0] if num_rows is None else num_rows
    if isinstance(likelihood, Gaussian):
        counted = jnp.arange(local.mean.shape[0]) < count
        white = _whitened(local, targets, likelihood, counted, missed_as_noise)
        update = _few_step if white.features.shape[0] < white.features.shape[1] else _many_step
        step, turn, log_evidence, surprise = update(white, before.turn)
    else:
        step, root, log_evidence = _newton_step(local, targets, likelihood)
        turn, surprise = _turned(before.turn, root), jnp.asarray(jnp.inf)
    return Conditioned(
        Later(
            (before.step + before.turn @ step).astype(dtype),
            turn.astype(dtype),
            jnp.asarray(before.num_rows + count, jnp.int32),
        ),
        log_evidence.astype(dtype),
        surprise.astype(dtype),
    )


class _Whitened(NamedTuple):
    r"""Targets with Gaussian noise in units of that noise, $\rho_i = g_i^\top \epsilon$ + a standard normal.

    Attributes:
        features: g, zero where a row only fills up, (n q, r).
        residual: $\rho$, (n q,).
        log_normaliser: of the noise's density.
    """

    features: Float[Array, "nq r"]
    residual: Float[Array, " nq"]
    log_normaliser: Float[Array, ""]


def _whitened(local: Local, targets, likelihood: Gaussian, counted, missed_as_noise: bool) -> _Whitened:
    targets = jnp.asarray(targets, local.mean.dtype).reshape(local.mean.shape)
    weight = counted.astype(targets.dtype)
    variance = jnp.broadcast_to(likelihood.scale.astype(local.mean.dtype) ** 2, local.mean.shape)
    added = local.unexplained if missed_as_noise else jnp.zeros_like(variance)
    log_normaliser = likelihood.log_prob(targets, targets) - 0.5 * jnp.sum(jnp.log1p(added / variance), axis=1)
    root = weight[:, None] / jnp.sqrt(variance + added)
    features = (root[:, :, None] * local.features).reshape(-1, local.features.shape[2])
    return _Whitened(features, (root * (targets - local.mean)).ravel(), weight @ log_normaliser)


def _few_step(data: _Whitened, before: Float[Array | np.ndarray, "r r"]) -> tuple[Array, Array, Array, Array]:
    r"""Mode e, $T R^{-\top}$, log evidence and surprise in the space of the data, which are fewer than the directions.

    With $I + G G^\top = L L^\top$ the matrix $I - G^\top L^{-\top} (I + L)^{-1} G$ times its transpose is $A^{-1}$ (Andrews 1968):
    nothing of size r is factored. Time $O(n q r (n q + r))$.
    """
    features = data.features
    identity = jnp.eye(features.shape[0], dtype=features.dtype)
    root = jnp.linalg.cholesky(identity + features @ features.T)
    half = solve_triangular(root, data.residual, lower=True)
    step = solve_triangular(root, half, lower=True, trans=1) @ features
    inner = solve_triangular(root, solve_triangular(root + identity, features, lower=True), lower=True, trans=1)
    turn = jnp.asarray(before) - (before @ features.T) @ inner
    surprise = half @ half
    return step, turn, data.log_normaliser - 0.5 * surprise - _half_log_determinant(root), surprise


def _many_step(data: _Whitened, before: Float[Array | np.ndarray, "r r"]) -> tuple[Array, Array, Array, Array]:
    """The same in the space of the directions, for more data than there are of them."""
    features = data.features
    root = jnp.linalg.cholesky(jnp.eye(features.shape[1], dtype=features.dtype) + features.T @ features)
    slope = data.residual @ features
    step = cho_solve((root, True), slope)
    surprise = jnp.sum(data.residual**2) - step @ slope
    log_evidence = data.log_normaliser - 0.5 * surprise - _half_log_determinant(root)
    return step, _turned(before, root), log_evidence, surprise


def _turned(before: Float[Array | np.ndarray, "r r"], root: Float[Array, "r r"]) -> Float[Array, "r r"]:
    r"""$T R^{-\top}$, by one triangular solve."""
    return solve_triangular(root, jnp.asarray(before).T, lower=True).T


def _half_log_determinant(root):
    return jnp.sum(jnp.log(jnp.diagonal(root)))


def _newton_step(local: Local, targets, likelihood: Likelihood) -> tuple[Array, Array, Array]:
    """The same for other likelihoods, by damped Newton steps as in `posterior_mode`."""
    features, dtype = local.features, local.features.dtype
    # All halvings of a step at once: there are few data.
    sizes = jnp.asarray(0.5 ** np.arange(20), dtype)

    def objective(step):
        return 0.5 * step @ step - jnp.sum(likelihood.log_prob(local.mean + features @ step, targets))

    def curvature(step):
        weighted = likelihood.curvature_product(local.mean + features @ step, targets, features)
        return jnp.eye(features.shape[2], dtype=dtype) + jnp.tensordot(features, weighted, axes=((0, 1), (0, 1)))

    def advance(state):
        step, _, count = state
        value, slope = jax.value_and_grad(objective)(step)
        direction = -jnp.linalg.solve(curvature(step), slope)
        decrement = -slope @ direction
        lower = jax.vmap(objective)(step + sizes[:, None] * direction) <= value - 1e-4 * sizes * decrement
        size = jnp.where(jnp.any(lower), sizes[jnp.argmax(lower)], 0.0)
        return step + size * direction, decrement > _choices.NEWTON_TOLERANCE * (1 + jnp.abs(value)), count + 1

    def unfinished(state):
        return state[1] & (state[2] < _choices.NEWTON_STEPS)

    start = (jnp.zeros(features.shape[2], dtype), jnp.asarray(True), jnp.asarray(0))
    step = jax.lax.while_loop(unfinished, advance, start)[0]
    root = jnp.linalg.cholesky(curvature(step))
    return step, root, -objective(step) - _half_log_determinant(root)
