r"""Inputs far from zero for their range: network and prior as functions of $x - o$, subtracted in float64 before the cast.

At $x = 10^6$ neighbouring numbers of float32 are 0.06 apart. A network that centres its inputs and a prior that does not change
under shifts are the same functions of $x - o$, for which float32 has all its digits.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gpjax.mean_functions import AbstractMeanFunction, Constant, Zero
from gpjax.parameters import val
from gpjax.typing import Array as AnyArray
from jax.core import Tracer
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from paramax import NonTrainable, unwrap

from fsplaplace.arguments import check_readable
from fsplaplace.context import Sampler
from fsplaplace.host import to_device
from fsplaplace.means import Linear
from fsplaplace.networks._model import Model, hold_code, release_code
from fsplaplace.networks._precision import Extent
from fsplaplace.networks._units import Units
from fsplaplace.prior import Prior, moments

# Points at which a prior is compared with itself, moved; equal covariances differ by rounding of float64 numbers of 1e9 times
# their range.
_COMPARED, _TOLERANCE = 8, 1e-6
# Rows that are looked at: their extent decides, not each of them.
_MOST_ROWS = 10_000
# The largest share of a column's range between neighbouring numbers: 1e6 ranges from zero in float32.
_FEWEST_STEPS = 0.15
# Numbers that hold more digits than float32.
_EXACT = ("float64", "int32", "int64", "uint32", "uint64")


class Moved(AbstractMeanFunction):
    r"""$\mu(x + o)$: a mean function of inputs from which $o$ was subtracted.

    Attributes:
        mean: $\mu$.
        origin: $o$, (d,), held fixed.
    """

    mean: Callable
    origin: NonTrainable[Float[Array, " d"]]

    def __init__(self, mean: Callable, origin: ArrayLike):
        self.mean = mean
        self.origin = NonTrainable(jnp.asarray(origin))

    def __call__(self, x: Float[AnyArray, "n d"]) -> Float[Array, "n ..."]:
        return self.mean(x + unwrap(self.origin).astype(x.dtype))


class Near(NamedTuple):
    """A network and a prior as functions of inputs near zero.

    Attributes:
        model: the network; `model.check_inputs` subtracts its origin, if it has one.
        prior: the prior.
    """

    model: Model
    prior: Prior

    def sampler(self, context: Sampler) -> Sampler:
        """A sampler of the points that the model's origin was subtracted from."""
        return context if self.model.origin is None else context.minus(self.model.origin)


def bring_near(model: Model, prior: Prior, rows: ArrayLike) -> Near:
    """The network and the prior as functions of $x - o$ if the rows are coarse in the network's dtype, else as they are.

    As they are also if the network does not centre its inputs (`fsplaplace.mlp` does, and `as_model(centre=)`), if the prior's
    covariance changes under shifts (linear, polynomial kernels), if the rows themselves come in such a dtype, or if even their range
    is a few steps of its numbers (context points are made of those): a `PrecisionWarning` then says so.

    Args:
        model: the network.
        prior: the prior.
        rows: some or all inputs, as the caller gave them.

    Time: that of the rows' extent; if they are coarse, a covariance of eight points.
    """
    if model.origin is not None:
        return Near(model, moved_prior(prior, np.asarray(model.origin)))
    if isinstance(rows, Tracer):
        return Near(model, prior)
    values = check_readable(rows, "X")
    if values.ndim != 2 or values.dtype.name not in _EXACT:
        return Near(model, prior)
    values = values[:: -(-values.shape[0] // _MOST_ROWS) or 1].astype(np.float64)
    if values.shape[0] == 0 or not np.all(np.isfinite(values)):
        return Near(model, prior)
    extent = Extent()
    extent.include(values)
    steps = extent.steps(model.dtype)
    if not np.any(steps.coarse) or np.max(steps.share) > _FEWEST_STEPS:
        return Near(model, prior)
    middle = 0.5 * (values.min(axis=0) + values.max(axis=0))
    # A number of the network's dtype, so that differences to numbers of that dtype are exact, too.
    origin = np.where(steps.coarse, middle, 0.0).astype(model.dtype)
    moved = moved_model(model, origin)
    if moved is None or not _is_stationary(prior, values, origin):
        return Near(model, prior)
    return Near(moved, moved_prior(prior, origin))


def moved_model(model: Model, origin: Float[np.ndarray, " d"]) -> Model | None:
    """The network as a function of $x - o$; None if it does not centre its inputs."""
    frozen = release_code(model.frozen)
    is_units = lambda node: isinstance(node, Units)  # noqa: E731
    units = [node for node in jax.tree.leaves(frozen, is_leaf=is_units) if is_units(node)]
    if len(units) != 1 or units[0].centre is None:
        return None
    mean, linear = units[0].mean, isinstance(units[0].mean, Linear)
    # The tree keeps its structure, so that weights fit both.
    near = dataclasses.replace(
        units[0],
        centre=to_device(np.asarray(units[0].centre, np.float64) - origin, model.dtype),
        mean=_moved_line(mean, origin) if linear else mean,
        origin=None if linear else to_device(origin),
    )
    # Code is held one leaf at a time: what was no array stays none.
    frozen = jax.tree.map(lambda node: near if is_units(node) else node, frozen, is_leaf=is_units)
    return eqx.tree_at(
        lambda tree: (tree.frozen, tree.origin), model, (hold_code(frozen), to_device(origin)),
        is_leaf=lambda node: node is None,
    )  # fmt: skip


def moved_prior(prior: Prior, origin: Float[np.ndarray, " d"]) -> Prior:
    """The prior as a function of $x - o$, for a kernel that does not change under shifts."""
    mean = moved_mean(prior.mean, origin)
    return prior if mean is prior.mean else eqx.tree_at(lambda tree: tree.mean, prior, mean)


def moved_mean(mean: Callable, origin: Float[np.ndarray, " d"]) -> Callable:
    r"""$\mu(\cdot + o)$; a mean that was moved already, and one that is the same everywhere, as they are."""
    if isinstance(mean, Zero | Constant | Moved):
        return mean
    if isinstance(mean, Linear):
        return Moved(_moved_line(mean, origin), np.zeros_like(origin))
    return Moved(mean, origin)


def _moved_line(line: Linear, origin: Float[np.ndarray, " d"]) -> Linear:
    """In float64, because slope times origin and the intercept may be large and cancel."""
    slope, intercept = (np.asarray(val(part), np.float64) for part in (line.slope, line.intercept))
    moved = jnp.asarray(intercept + origin.astype(np.float64) @ slope, val(line.intercept).dtype)
    return eqx.tree_at(lambda tree: val(tree.intercept), line, moved)


def _is_stationary(prior: Prior, values: Float[np.ndarray, "n d"], origin: Float[np.ndarray, " d"]) -> bool:
    few = values[np.linspace(0, values.shape[0] - 1, min(_COMPARED, values.shape[0])).astype(int)]
    far, near = (moments.covariance(prior, points) for points in (few, few - origin))
    return bool(np.all(np.abs(far - near) <= _TOLERANCE * np.max(np.abs(near))))
