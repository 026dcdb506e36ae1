r"""More data for a posterior, and one datum less: both in the r coordinates of its directions.

A posterior's function is $m(x) + F(x)\,\epsilon$ with $\epsilon \sim \mathcal N(0, I)$ and F the normalised features. New data with
curvature H turn this into $\epsilon \sim \mathcal N(e, A^{-1})$ with $A = I + \sum_i F_i^\top H_i F_i$: no training, no new
features. With $\Lambda$ the information so far, $\Lambda^{1/2} A \Lambda^{1/2} = Q \Lambda' Q^\top$ gives the new
information $\Lambda'$ and the new directions $S' = S \Lambda^{1/2} Q \Lambda'^{-1/2}$, which again carry prior and posterior at once.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Shaped

from fsplaplace.host import in_float64, one_blas_thread, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._features import Block, with_missed
from fsplaplace.laplace._linear_model import LinearModel, Local
from fsplaplace.laplace._mode import posterior_mode
from fsplaplace.likelihoods import Gaussian, Likelihood


class Conditioned(NamedTuple):
    """What changes in a posterior that is given more data.

    Attributes:
        scale: the new directions, (r, p).
        shift: the new shift, (p,).
        information: along the new directions, (r,); None in the precision form.
        log_evidence: of the new data given the old, to be added.
    """

    scale: Float[Array, "r p"]
    shift: Float[Array, " p"]
    information: Float[Array, " r"] | None
    log_evidence: Float[Array, ""]


def condition(
    linear: LinearModel, local: Local, targets: Shaped[Array | np.ndarray, "n ..."], likelihood: Likelihood
) -> Conditioned:
    """The posterior given more data; in float64 on the host unless something is traced.

    Args:
        linear: the posterior so far.
        local: its process at the new inputs.
        targets: the new targets, checked.
        likelihood: of these targets.

    Time $O(n q r^2 + r^3 + r^2 p)$ for one Newton step, and one is enough for Gaussian noise.
    """
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((linear, local, targets, likelihood)))
    if traced:
        return _condition_traced(linear, local, targets, likelihood, linear.scale.dtype)
    block = data_block(linear, local, np.asarray(targets), likelihood)
    with one_blas_thread():
        mode = posterior_mode(lambda: iter([block]), linear.scale.shape[0])
        eigenvalues, rotation = _diagonalise(np, mode.precision, _information(np, linear))
    turned = turn(linear.scale, rotation, mode.z)
    dtype = linear.scale.dtype
    return Conditioned(
        turned.scale,
        to_device(np.asarray(linear.shift) + np.asarray(turned.shift)),
        None if linear.information is None else to_device(eigenvalues, dtype),
        to_device(mode.log_evidence, dtype),
    )


def data_block(
    linear: LinearModel, local: Local, targets: Shaped[np.ndarray, "n ..."], likelihood: Likelihood
) -> Block:
    r"""The data as the model $m(x_i) + F_i \epsilon$ sees them, in float64 on the host."""
    mean, features, unexplained = (np.asarray(part, dtype=np.float64) for part in local)
    noise = likelihood.noise(mean.shape)
    if noise is not None and linear.missed_as_noise:
        noise = with_missed(noise, unexplained)
    return Block(mean, mean, features, targets, likelihood, noise)


class Turned(NamedTuple):
    """Combinations of directions.

    Attributes:
        scale: the rotation times the directions, (r, p).
        shift: the coordinates times the directions, (p,).
    """

    scale: Float[Array, "r p"]
    shift: Float[Array, " p"]


def turn(
    directions: Float[Array | np.ndarray, "r p"],
    rotation: Float[np.ndarray, "k r"],
    coordinates: Float[np.ndarray, " r"],
) -> Turned:
    """Rows of weights combined: by BLAS on the host if they are few, where XLA would first compile the product."""
    rotation, coordinates = rotation.astype(directions.dtype), coordinates.astype(directions.dtype)
    if directions.nbytes > _choices.LARGEST_ON_HOST:
        return Turned(*_turn(directions, to_device(rotation), to_device(coordinates)))
    rows = np.asarray(directions)
    return Turned(to_device(rotation @ rows), to_device(coordinates @ rows))


@eqx.filter_jit
def _turn(directions, rotation, coordinates):
    return rotation @ directions, coordinates @ directions


def _information(numpy, linear: LinearModel):
    if linear.information is None:
        return numpy.ones(linear.scale.shape[0])
    return numpy.asarray(linear.information, dtype=numpy.float64)


def _diagonalise(numpy, precision, information):
    r"""$\Lambda'$, and $\Lambda'^{-1/2} Q^\top \Lambda^{1/2}$, which turns the directions (stored as rows)."""
    root = numpy.sqrt(information)
    eigenvalues, eigenvectors = numpy.linalg.eigh(root[:, None] * precision * root)
    return eigenvalues, (eigenvectors / numpy.sqrt(eigenvalues)).T * root


@in_float64
def _condition_traced(linear: LinearModel, local: Local, targets, likelihood: Likelihood, dtype) -> Conditioned:
    """The same inside `jax.jit` and `jax.vmap`: in float64 there as well, because precisions span many orders."""
    if isinstance(likelihood, Gaussian):
        step, precision, log_evidence = gaussian_step(linear, local, targets, likelihood)
    else:
        step, precision, log_evidence = _newton_step(local, targets, likelihood)
    eigenvalues, rotation = _diagonalise(jnp, precision, _information(jnp, linear))
    return Conditioned(
        (rotation @ linear.scale).astype(dtype),
        (linear.shift + step @ linear.scale).astype(dtype),
        None if linear.information is None else eigenvalues.astype(dtype),
        log_evidence.astype(dtype),
    )


def gaussian_step(linear: LinearModel, local: Local, targets, likelihood: Gaussian) -> tuple[Array, Array, Array]:
    r"""Mode e, precision A and log evidence for Gaussian noise, in closed form."""
    targets = jnp.asarray(targets, local.mean.dtype).reshape(local.mean.shape)
    variance = jnp.broadcast_to(likelihood.scale.astype(local.mean.dtype) ** 2, local.mean.shape)
    added = local.unexplained if linear.missed_as_noise else jnp.zeros_like(variance)
    log_normaliser = jnp.sum(likelihood.log_prob(targets, targets)) - 0.5 * jnp.sum(jnp.log1p(added / variance))
    features = local.features.reshape(-1, local.features.shape[2])
    weighted = features / (variance + added).reshape(-1, 1)
    residual = (targets - local.mean).ravel()
    precision = jnp.eye(features.shape[1], dtype=features.dtype) + weighted.T @ features
    slope = weighted.T @ residual
    step = jnp.linalg.solve(precision, slope)
    explained = jnp.sum(residual**2 / (variance + added).ravel()) - step @ slope
    return step, precision, log_normaliser - 0.5 * explained - 0.5 * jnp.linalg.slogdet(precision)[1]


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
    precision = curvature(step)
    return step, precision, -objective(step) - 0.5 * jnp.linalg.slogdet(precision)[1]
