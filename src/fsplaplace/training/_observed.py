"""Operators on their way to a network and a prior: settled, and refused by name where they cannot work."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike

from fsplaplace import kernels
from fsplaplace.arguments import check_readable
from fsplaplace.host import cast, in_float64, to_device
from fsplaplace.networks import Model, Near, bring_near, warn_if_coarse
from fsplaplace.observations import Observation
from fsplaplace.operators import Operator, follows_shifts, settled
from fsplaplace.prior import Prior, moments
from fsplaplace.training._problem import check_widths

# Inputs at which an operator is tried.
_TRIED = 8
# The step, in spreads of the inputs, over which the covariance of an observation with itself must not jump.
_STEP, _JUMP = 1e-4, 0.5


class TrainingRows(eqx.Module):
    """Inputs and targets of one kind of observation.

    Attributes:
        operator: what is observed of the function.
        X: where.
        targets: what was observed.
    """

    operator: Operator
    X: Float[Array, "n ..."]
    targets: Shaped[Array, "n ..."]

    def rows(self, index) -> tuple[Float[Array, "b ..."], Shaped[Array, "b ..."]]:
        """Inputs and targets of some rows; of all for None."""
        return (self.X, self.targets) if index is None else (self.X[index], self.targets[index])


def bring_all_near(model: Model, prior: Prior, X: ArrayLike | None, also: Sequence[Observation]) -> Near:
    """`bring_near` for values and observations together: as they are unless all operators follow a shift of the inputs.

    Args:
        model: the network.
        prior: the prior.
        X: inputs of values, or some of them; None without values.
        also: what else was observed.
    """
    if not also:
        return Near(model, prior) if X is None else bring_near(model, prior, X)
    parts = [check_readable(each, "X") for each in ([] if X is None else [X]) + [each.X for each in also]]
    if len({part.shape[1:] for part in parts}) > 1 or any(part.ndim != 2 for part in parts):
        return Near(model, prior)  # refused where the rows are checked
    near = bring_near(model, prior, np.concatenate(parts))
    if near.model.origin is None:
        return near
    origin = np.asarray(near.model.origin)
    for each in also:
        scales = _lengthscales(prior, origin.size)
        resolved = each.of.resolve(scales, np.asarray(each.X, np.float64))
        if not follows_shifts(resolved, np.asarray(each.X, np.float64), prior.num_outputs, origin):
            if model.origin is not None:
                raise ValueError(not_shifted(each.of, origin))
            return Near(model, prior)
    return near


def not_shifted(operator: Operator, origin: Float[np.ndarray, " d"]) -> str:
    """What is said of an operator that depends on where x is, if the network works with moved inputs."""
    return (
        f"operator {operator.name} depends on where x is, but the inputs lie so far from zero that the network works with inputs "
        f"minus {np.asarray(origin)}; subtract that from all inputs before train and laplace, and in the operator"
    )


def observed_rows(model: Model, prior: Prior, observation: Observation, name: str) -> TrainingRows:
    """An observation, checked, with its operator settled."""
    try:
        inputs = model.check_inputs(observation.X)
        warn_if_coarse(np.asarray(observation.X), model.dtype, origin=model.origin)
        targets = observation.likelihood.check_targets(observation.y, num_rows=inputs.shape[0])
        operator = settle(observation.of, model, prior, np.asarray(inputs))
        targets = cast(to_device(targets), model.dtype)
        check_widths(model.through(operator), None, observation.likelihood, inputs, targets)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} ({observation.of.name}): {error}") from error
    return TrainingRows(operator, inputs, targets)


def settle(operator: Operator, model: Model, prior: Prior | None, points: Float[np.ndarray, "n ..."]) -> Operator:
    """The operator with all that it leaves open, checked on a network and a prior at some inputs.

    Args:
        operator: what is observed.
        model: the network.
        prior: over its function; without one there is no length scale, and roughness is not checked.
        points: inputs of the observations.

    Raises `ValueError` with the operator's name if it cannot be applied to the network, gives NaN, does not depend on the
    weights, needs derivatives that the network or the prior does not have.
    """
    some = np.asarray(points[:: -(-len(points) // _TRIED)])
    if prior is None:
        found = settled(operator, some, model.num_outputs(some), np.full(int(np.prod(some.shape[1:])), np.inf))
    else:
        found = settle_under(operator, prior, some)
    _check_network(found, model, some)
    return found


def settle_under(operator: Operator, prior: Prior, points: Float[np.ndarray, "n ..."]) -> Operator:
    """`settle` without a network: the operator with all that it leaves open, refused if the prior lacks its derivatives."""
    some = np.asarray(points[:: -(-len(points) // _TRIED)])
    found = settled(operator, some, prior.num_outputs, _lengthscales(prior, int(np.prod(some.shape[1:]))))
    if found.linear:
        check_finite_variance(found, prior, some)
    return found


def is_stated(prior: Prior, operator: Operator, points: Float[np.ndarray, "n ..."]) -> bool:
    """Whether JAX can take the kernel through a linear operator, or the linear part of an affine one."""
    try:
        variance = moments.variance_of(prior, operator, points[:_TRIED])
    except (TypeError, ValueError, NotImplementedError):
        return False
    return bool(np.all(np.isfinite(variance) & (variance >= 0)))


def check_finite_variance(operator: Operator, prior: Prior, points: Float[np.ndarray, "k ..."]) -> None:
    """Refuse derivatives that functions of the prior do not have.

    Their covariance, $L_x \\Sigma(x, y) L_y$, jumps where y reaches x: the variance is infinite, and what automatic
    differentiation returns at y = x is what is left of it.
    """
    smoothness = _smoothness(prior)
    if operator.order < smoothness:
        return
    at, near = map(np.asarray, _near_covariances(prior, operator, points))
    if not np.all(np.isfinite(at) & np.isfinite(near)):
        return
    if np.any(at + 1e-300 < np.abs(near)) or np.any(np.abs(at - near) > _JUMP * np.abs(at)):
        raise ValueError(
            f"operator {operator.name} takes {operator.order} derivatives, but functions of this prior have smoothness "
            f"{smoothness:g}, so that the observation would have infinite variance; use a kernel of smoothness above "
            f"{operator.order} (Matern-5/2 has 2.5, RBF infinitely many)"
        )


@in_float64
def _near_covariances(prior: Prior, operator: Operator, points):
    flat = points.reshape(len(points), -1)
    spread = np.ptp(flat, axis=0)
    step = (_STEP * np.where(spread > 0, spread, 1.0) * _lengthscale_fraction(prior, flat)).reshape(
        1, *points.shape[1:]
    )
    return _covariances(prior.through(operator), jnp.asarray(points), jnp.asarray(points + step))


def _lengthscale_fraction(prior: Prior, flat):
    scales = _lengthscales(prior, flat.shape[1])
    spread = np.ptp(flat, axis=0)
    return np.where(
        np.isfinite(scales) & (spread > 0), np.minimum(1.0, scales / np.where(spread > 0, spread, 1.0)), 1.0
    )


@eqx.filter_jit
def _covariances(seen, x, y):
    def one(a, b):
        return jnp.diagonal(seen.covariance(a[None], b[None])[0, :, 0, :])

    return jax.vmap(one)(x, x), jax.vmap(one)(x, y)


def _check_network(operator: Operator, model: Model, points) -> None:
    seen = model.through(operator)
    try:
        outputs, moved, bent = map(np.asarray, _trial(seen, model, jnp.asarray(points, model.dtype)))
    except Exception as error:  # whatever the user's function raises, with its name
        raise ValueError(
            f"operator {operator.name} cannot be applied to {model.name} at inputs of shape {points.shape[1:]}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    if not (np.all(np.isfinite(outputs)) and np.all(np.isfinite(moved))):
        raise ValueError(
            f"operator {operator.name} gives NaN or infinite values, or derivatives, of {model.name} at some inputs; check its "
            "function there"
        )
    if operator.order >= 2 and not np.any(bent):
        raise ValueError(
            f"operator {operator.name} takes {operator.order} derivatives, but {model.name} is linear in its inputs between "
            "kinks, as with ReLU activations, so that all second derivatives are zero; use a smooth activation (tanh, gelu)"
        )
    if not np.any(moved):
        raise ValueError(
            f"operator {operator.name} does not depend on the weights of {model.name} in a way that can be differentiated: "
            "check it for rounding, signs, comparisons and stop_gradient"
        )


@eqx.filter_jit
def _trial(seen: Model, model: Model, x):
    """Outputs, their change along a direction in the weights, and the second derivative in x of that change of f."""
    leaves, structure = jax.tree.flatten(model.params)
    keys = jax.random.split(jax.random.key(0), len(leaves) + 1)
    drawn = [jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=False)]
    direction = jax.tree.unflatten(structure, drawn)
    outputs, moved = jax.jvp(lambda params: seen.evaluate(params, x), (model.params,), (direction,))

    def change(x):
        return jax.jvp(lambda params: model.evaluate(params, x), (model.params,), (direction,))[1]

    step = jax.random.normal(keys[-1], x.shape, x.dtype)
    return outputs, moved, jax.jvp(lambda at: jax.jvp(change, (at,), (step,))[1], (x,), (step,))[1]


def _kernels(prior: Prior):
    return prior.kernel if isinstance(prior.kernel, tuple) else (prior.kernel,)


def _smoothness(prior: Prior) -> float:
    return min((each for kernel in _kernels(prior) for each in kernels.smoothness(kernel)), default=np.inf)


def _lengthscales(prior: Prior, width: int) -> Float[np.ndarray, " d"]:
    rows = [np.asarray(kernels.lengthscales(kernel, width), np.float64) for kernel in _kernels(prior)]
    return np.min(np.concatenate([*rows, np.full((1, width), np.inf)]), axis=0)
