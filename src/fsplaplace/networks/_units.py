"""The units that a network works in: shifts and units of inputs, outputs and prior then change nothing about training."""

import dataclasses
from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from gpjax.mean_functions import Constant, Zero
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike
from paramax import NonTrainable, unwrap

from fsplaplace.arguments import check_finite
from fsplaplace.host import to_device
from fsplaplace.kernels import Circle
from fsplaplace.networks._circles import beside_circles, frequencies_of
from fsplaplace.networks._model import Model, hold_code
from fsplaplace.prior import Prior, moments

# Points of the context region at which the prior's standard deviation is looked up: one tile of its compiled program.
_MOST_POINTS = 256


class Units(eqx.Module):
    r"""$f(x) = \mu(x) + s\, g\bigl((x - c) / \ell\bigr)$ around a network $g$.

    Training moves the weights of $g$ in steps of one size. They keep the features that they start with only if inputs
    and outputs of $g$ are of order one.

    Attributes:
        centre: c, one number for each input; None for zero.
        scale: $\ell$, one number for each input; None for one.
        output_scale: s, one number for each output; None for one.
        mean: $\mu$, a function from (n, d) to (n,), (n, 1) or (n, q); None for zero.
        origin: added to the inputs of $\mu$, if it was subtracted from x before; None for zero.
        frequencies: F, a row for each circle on which the inputs are wound up as well: $g$ is given $z = (x - c) / \ell$, and
            $\sin 2 \pi F_k z$ and $\cos 2 \pi F_k z$ for each row; None for z alone.
    """

    centre: Float[Array, "..."] | None = None
    scale: Float[Array, "..."] | None = None
    output_scale: Float[Array, "..."] | None = None
    mean: Callable | None = None
    origin: Float[Array, " d"] | None = None
    frequencies: Float[Array, "c d"] | None = None

    def inputs(self, x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """What the network is given."""
        x = x if self.centre is None else x - self.centre.astype(x.dtype)
        x = x if self.scale is None else x / self.scale.astype(x.dtype)
        return x if self.frequencies is None else beside_circles(x, self.frequencies.astype(x.dtype))

    def outputs(self, x: Float[Array, "n ..."], values: Float[Array, "n ..."]) -> Float[Array, "n q"]:
        """What its outputs stand for."""
        values = values.reshape(values.shape[0], -1)
        if self.output_scale is not None:
            values = values * self.output_scale.astype(values.dtype)
        if self.mean is None:
            return values
        at = x.reshape(x.shape[0], -1)
        at = at if self.origin is None else at + self.origin.astype(x.dtype)
        mean = jnp.asarray(self.mean(at)).reshape(x.shape[0], -1)
        if mean.shape[1] not in (1, values.shape[1]):
            raise ValueError(f"mean has {mean.shape[1]} outputs, but the network has {values.shape[1]}")
        return values + mean.astype(values.dtype)


def units_of(
    prior: Prior,
    pool: Float[np.ndarray, "k d"],
    num_outputs: int,
    dtype,
    output_scale: ArrayLike | None = None,
    circles: Sequence[Circle] = (),
) -> Units:
    """Centre and spread of a region, and mean function and standard deviation of the prior there.

    Args:
        prior: whose mean and standard deviation the outputs get.
        pool: points of the region, in float64.
        num_outputs: q; the outputs share one scale if the prior has another number of them.
        dtype: of the network's weights.
        output_scale: instead of the prior's standard deviation, a number or one for each output.
        circles: on which inputs are wound up.
    """
    spread = np.std(pool, axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    scale = _prior_std(prior, pool, num_outputs)
    if output_scale is not None:
        wanted = _positive(output_scale, "output_scale", "mlp")
        if wanted.shape not in ((), (1,), scale.shape):
            raise ValueError(f"mlp: output_scale has shape {wanted.shape}; pass a number, or {scale.size} of them")
        scale = np.broadcast_to(wanted, scale.shape)
    return Units(
        to_device(np.mean(pool, axis=0), dtype),
        to_device(spread, dtype),
        to_device(scale, dtype),
        None if isinstance(prior.mean, Zero) else prior.mean,
        frequencies=to_device(frequencies_of(circles, spread), dtype) if circles else None,
    )


def _prior_std(prior: Prior, pool: Float[np.ndarray, "k d"], num_outputs: int) -> Float[np.ndarray, " q"]:
    """Over the region, of each output; 1 where it is zero."""
    variance = np.mean(moments.variance(prior, pool[:_MOST_POINTS]), axis=0)
    if num_outputs != prior.num_outputs:
        variance = np.full(num_outputs, np.mean(variance))
    return np.sqrt(np.where(variance > 0, variance, 1.0))


def in_units(
    model: Model,
    *,
    mean: Callable | ArrayLike | None,
    centre: ArrayLike | None,
    scale: ArrayLike | None,
    output_scale: ArrayLike | None,
) -> Model:
    """The model on centred and scaled inputs, with its outputs scaled and the mean added; see `as_model`."""
    units = Units(
        _checked(centre, "centre", model.dtype),
        _checked(scale, "scale", model.dtype),
        _checked(output_scale, "output_scale", model.dtype),
        mean if mean is None or callable(mean) else Constant(jnp.asarray(mean, dtype=float)),
    )
    return Model(model.params, (model.frozen, hold_code(NonTrainable(units))), InUnits(model.call), model.name)


@dataclasses.dataclass(frozen=True)
class InUnits:
    """`call` of a network that works in other units than its inputs and outputs."""

    call: Callable[[PyTree, PyTree, Array], Array]

    def __call__(self, params: PyTree, frozen: PyTree, x: Float[Array, "n ..."]) -> Float[Array, "n q"]:
        inner, units = frozen[0], unwrap(frozen[1])
        return units.outputs(x, self.call(params, inner, units.inputs(x)))


def _checked(value: ArrayLike | None, name: str, dtype) -> Array | None:
    if value is None:
        return None
    if name != "centre":
        return to_device(_positive(value, name, "as_model"), dtype)
    numbers = np.asarray(value, dtype=float)
    check_finite(numbers, f"as_model: {name}")
    return to_device(numbers, dtype)


def _positive(value: ArrayLike, name: str, caller: str) -> Float[np.ndarray, "..."]:
    numbers = np.asarray(value, dtype=float)
    check_finite(numbers, f"{caller}: {name}")
    if not np.all(numbers > 0):
        raise ValueError(f"{caller}: {name} is {numbers}; pass positive numbers; 1 for a column that never changes")
    return numbers
