"""What a linear model predicts at inputs: marginals, covariances, functions and what new data tell, each one program."""

import functools
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, UInt32

from fsplaplace.host import one_blas_thread, pad_rows, resolve_budget, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._conditioning import Conditioned, condition, condition_few
from fsplaplace.laplace._contradictions import warn_if_contradicted
from fsplaplace.laplace._linear_model import (
    LinearModel,
    Local,
    Seen,
    local_at,
    local_block,
    see_block,
    see_rows,
    sees_outside,
)
from fsplaplace.laplace._printed import prediction_table
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.networks import (
    linearisation,
    map_rows,
    outputs_and_products,
    push_forward,
    route,
    rows_per_block,
)
from fsplaplace.prior import SeenPrior


class Prediction(eqx.Module):
    """Predictive distribution at n inputs.

    Attributes:
        mean: the posterior mean of the function, (n, q): the network's or the refined one.
        map: the network's own output, (n, q).
        variance: epistemic variance of the function, (n, q); in the covariance form nowhere above the prior's.
        noise_variance: variance of a new target around the function, (n, t); None if the likelihood has none to give.
        unexplained: the part of `variance` that the network's features cannot carry, (n, q): unrelated between inputs; None
            for methods without such features.
        outside: whether an input lies outside the box of the context points, (n,), where the prior was not enforced and
            its own variance is all that is known; None for methods without context points.
    """

    mean: Float[Array, "n q"]
    map: Float[Array, "n q"]
    variance: Float[Array, "n q"]
    noise_variance: Float[Array, "n t"] | None
    unexplained: Float[Array, "n q"] | None = None
    outside: Bool[Array, " n"] | None = None

    @property
    def std(self) -> Float[Array, "n q"]:
        """Epistemic standard deviation of the function."""
        return jnp.sqrt(self.variance)

    @property
    def total_variance(self) -> Float[Array, "n t"]:
        """Variance of a new target: epistemic plus noise."""
        if self.noise_variance is None:
            raise ValueError(
                "total_variance: the likelihood has no noise variance at new inputs (labels, counts, or one scale per training "
                "row); use `variance` for the function, or `predict_proba` for labels"
            )
        return self.variance[:, : self.noise_variance.shape[1]] + self.noise_variance

    def __str__(self) -> str:
        """The first and last rows as a table."""
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self)):
            return repr(self)
        return prediction_table(self)


class PredictedMean(eqx.Module):
    """The posterior's mean at n inputs, without its variance.

    Attributes:
        mean: as `Prediction.mean`, (n, q).
        map: as `Prediction.map`, (n, q).
        outside: as `Prediction.outside`, (n,).
    """

    mean: Float[Array, "n q"]
    map: Float[Array, "n q"]
    outside: Bool[Array, " n"] | None = None


class Joint(eqx.Module):
    """Joint distribution of the function at sets of n inputs each.

    Attributes:
        mean: as `Prediction.mean`, (..., n, q).
        covariance: between all inputs of a set and all outputs, (..., n, q, n, q).
    """

    mean: Float[Array, "*sets n q"]
    covariance: Float[Array, "*sets n q n q"]


def by_convolutions(linear: LinearModel, x) -> bool:
    """Whether products are taken a few directions at a time, outside of `jax.jit`."""
    traced = isinstance(x, Tracer) or isinstance(linear.scale, Tracer)
    return not traced and route(linear.model, x, linear.scale.shape[0]) == "convolutions"


def see(linear: LinearModel, x, budget: float) -> Seen:
    """Outputs, shift and features at all rows."""
    if by_convolutions(linear, x):
        network, features = outputs_and_products(linear.model, x, linear.scale, budget=budget)
        return Seen(network, push_forward(linear.model, x, linear.shift[None], budget=budget)[:, :, 0], features)
    rows = rows_per_block(linear.model, x, linear.scale.shape[0], budget)
    return map_rows(functools.partial(see_block, linear), x, rows=rows)


def condition_on(linear: LinearModel, x, targets, likelihood: Likelihood) -> Conditioned:
    """The update by new data: few rows with one Gaussian noise by one program, without planning, which would take longer."""
    traced = any(isinstance(leaf, Tracer) for leaf in (x, targets, linear.scale, *jax.tree.leaves(likelihood)))
    if traced or type(likelihood) is not Gaussian or likelihood.per_row or not _few(linear, x):
        local = local_rows(linear, x if isinstance(x, Tracer) else to_device(x))
        if not traced:
            warn_if_contradicted(linear, x, local, targets, likelihood)
        return condition(linear, local, targets, likelihood)
    rows, count = _round_up(x.shape[0]), np.asarray(x.shape[0], np.int32)
    # One thread until the program has run: BLAS threads that wait for a busy core take ten times as long as ten rows.
    with one_blas_thread():
        found = condition_few(linear, pad_rows(x, rows), pad_rows(targets, rows), likelihood, count)
        finite, surprise = np.isfinite(found.log_evidence), float(found.surprise)
    if not finite:
        raise FloatingPointError("Posterior.condition: the log evidence is not finite; check y and the likelihood")
    if surprise > _choices.CONTRADICTION**2:
        warn_if_contradicted(linear, x, local_rows(linear, to_device(x)), targets, likelihood)
    return found


def _few(linear: LinearModel, x) -> bool:
    """Whether the Jacobian's rows at these inputs are few and small enough to be written down."""
    small = x.shape[0] * linear.shift.size <= _choices.LARGEST_FEW_ROWS
    return x.shape[0] <= _choices.FEW_ROWS and small and not linearisation(linear.model, x).convolutional


def _round_up(count: int) -> int:
    step = _choices.SMALL_MULTIPLE if count <= _choices.ROWS_MULTIPLE else _choices.ROWS_MULTIPLE
    return -(-count // step) * step


def local_rows(linear: LinearModel, x) -> Local:
    """The process at all rows; their number is rounded up on the way, so that other data share the program."""
    traced, few = isinstance(x, Tracer) or isinstance(linear.scale, Tracer), _few(linear, x)
    if traced and few:
        return linear.at(x, see_rows(linear, x))
    if few:
        found = local_block(linear, pad_rows(np.asarray(x), _round_up(x.shape[0])))
        return Local(*(to_device(np.asarray(part)[: x.shape[0]]) for part in found))
    return local_at(linear, x, see(linear, x, resolve_budget(None)))


@eqx.filter_jit
def predict_seen(linear: LinearModel, x, seen: Seen) -> Prediction:
    local = linear.at(x, seen)
    noise = linear.noise_variance(local)
    return Prediction(local.mean, seen.network, local.variance, noise, local.unexplained, _outside(linear, x))


@eqx.filter_jit
def mean_block(linear: LinearModel, x) -> PredictedMean:
    return PredictedMean(linear.mean_at(x), linear.model(x), _outside(linear, x))


def _outside(linear: LinearModel, x) -> Bool[Array, " n"]:
    """Whether inputs lie outside the box of the context points."""
    points, flat = (values.reshape(values.shape[0], -1) for values in (linear.context_points, x))
    return jnp.any((flat < jnp.min(points, axis=0)) | (flat > jnp.max(points, axis=0)), axis=1)


@eqx.filter_jit
def predict_block(linear: LinearModel, x) -> Prediction:
    return predict_seen(linear, x, see_block(linear, x))


@eqx.filter_jit
def reaches_outside(linear: LinearModel, x) -> Bool[Array, "n 1"]:
    """Whether what an operator sees at inputs reaches outside the box of the context points, and not by a hair."""
    points = linear.context_points.reshape(len(linear.context_points), -1)
    lower, upper = jnp.min(points, axis=0), jnp.max(points, axis=0)
    margin = _choices.MARGIN * (upper - lower)
    return sees_outside(cast(SeenPrior, linear.prior), x, jnp.stack([lower - margin, upper + margin]))


@eqx.filter_jit
def covariance_of(linear: LinearModel, x, seen: Seen, joint: bool):
    local = linear.at(x, seen)
    outputs = jnp.eye(seen.network.shape[1], dtype=seen.network.dtype)
    if not joint:
        return jnp.einsum("nqr,npr->nqp", local.features, local.features) + local.unexplained[:, :, None] * outputs
    flat = x.reshape(x.shape[0], -1)
    same = jnp.all(flat[:, None] == flat[None], axis=2)
    unexplained = jnp.einsum("nq,nm,qp->nqmp", local.unexplained, same, outputs)
    return jnp.einsum("nqr,mpr->nqmp", local.features, local.features) + unexplained


@eqx.filter_jit
def joint_of(linear: LinearModel, x, seen: Seen, sets: tuple[int, ...]) -> Joint:
    size = x.shape[0] // int(np.prod(sets, dtype=int)) if 0 not in sets else 0
    local = linear.at(x, seen)
    each = Local(*(part.reshape(*sets, -1, *part.shape[1:]) for part in local))
    flat = x.reshape(*sets, size, -1)
    same = jnp.all(flat[..., :, None, :] == flat[..., None, :, :], axis=-1)
    outputs = jnp.eye(seen.network.shape[1], dtype=seen.network.dtype)
    unexplained = jnp.einsum("...nq,...nm,qp->...nqmp", each.unexplained, same, outputs)
    return Joint(each.mean, jnp.einsum("...nqr,...mpr->...nqmp", each.features, each.features) + unexplained)


@eqx.filter_jit
def sample_of(linear: LinearModel, x, seen: Seen, key, numbers) -> Float[Array, "n s q"]:
    """Functions by their numbers, at n inputs."""
    local = linear.at(x, seen)
    q, dtype = local.mean.shape[1], local.mean.dtype
    smooth_key, white_key = jr.split(key)

    def normal(key, numbers, size: int):
        return jax.vmap(lambda number: jr.normal(jr.fold_in(key, number), (size,), dtype))(numbers)

    noise = normal(smooth_key, numbers, linear.scale.shape[0])
    smooth = local.mean[:, None] + jnp.einsum("nqr,sr->nsq", local.features, noise)
    if linear.information is None:
        return smooth
    white = jax.vmap(lambda row: normal(jr.fold_in(white_key, row), numbers, q))(_row_numbers(x))
    some = local.unexplained > 0
    root = jnp.where(some, jnp.sqrt(jnp.where(some, local.unexplained, 1.0)), 0.0)
    return smooth + root[:, None] * white


def _row_numbers(x: Float[Array, "n ..."]) -> UInt32[Array, " n"]:
    """A number for each row that depends on its values alone, so that white noise is a function of the input."""
    flat = jax.lax.stop_gradient(x).reshape(x.shape[0], -1).astype(jnp.float32)
    # Adding zero makes -0 and 0 one number.
    bits = jax.lax.bitcast_convert_type(flat + 0.0, jnp.uint32)

    def mix(total, column):
        # Multiply and rotate (as MurmurHash does), so that equal numbers in other columns give another sum.
        column = column * jnp.uint32(0xCC9E2D51)
        total = total ^ (((column << 15) | (column >> 17)) * jnp.uint32(0x1B873593))
        return ((total << 13) | (total >> 19)) * jnp.uint32(5) + jnp.uint32(0xE6546B64), None

    return jax.lax.scan(mix, jnp.zeros(x.shape[0], jnp.uint32), bits.T)[0]
