"""A fully connected network, and a draw of one whose features match the prior."""

import itertools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike
from paramax import NonTrainable, unwrap

from fsplaplace.context import Sampler
from fsplaplace.host import check_fits, host_generator
from fsplaplace.networks._circles import circles_in
from fsplaplace.networks._first_layer import draw_units, pool_of, with_arrays
from fsplaplace.networks._units import Units, units_of
from fsplaplace.prior import Prior


class MLP(eqx.Module):
    """A fully connected network.

    Attributes:
        layers: from input to output.
        activation: the non-linearity between them.
        units: location and scale of inputs and outputs, and the prior's mean function, which is added; all held fixed.
            None: inputs and outputs as they are.
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable[[Array], Array]
    units: NonTrainable[Units] | Units | None = None

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " q"]:
        units = Units() if self.units is None else unwrap(self.units)
        inner = units.inputs(x[None])[0]
        for layer in self.layers[:-1]:
            inner = self.activation(layer(inner))
        return units.outputs(x[None], self.layers[-1](inner)[None])[0]


def fully_connected(
    hidden: Sequence[int],
    prior: Prior,
    context: Sampler,
    activation: Callable[[Array], Array],
    num_outputs: int | None,
    *,
    key: PRNGKeyArray,
    output_scale: ArrayLike | None = None,
) -> MLP:
    """See `mlp`."""
    check_fits(max(hidden), 16, "mlp: a width of hidden", power=2)
    _check_activation(activation, hidden[0])
    generator = host_generator(key)
    pool = pool_of(context, hidden[0], key)
    width = num_outputs or prior.num_outputs
    circles = circles_in(prior, pool)
    inputs = pool.shape[1] + 2 * len(circles)
    layers = tuple(_linear(*size, generator) for size in itertools.pairwise((inputs, *hidden, width)))
    units = units_of(prior, pool, width, layers[0].weight.dtype, output_scale, circles)
    first = draw_units(prior, pool, hidden[0], generator, circles)
    weight, bias = first.seen(centre=units.centre, scale=units.scale)
    return MLP((with_arrays(layers[0], weight, bias), *layers[1:]), activation, NonTrainable(units))


def _check_activation(activation: Callable[[Array], Array], width: int) -> None:
    """One number for each unit; tried without computing."""
    wanted = jax.ShapeDtypeStruct((width,), jnp.float32)
    try:
        found = eqx.filter_eval_shape(activation, wanted)
    except (TypeError, jax.errors.JAXTypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TypeError(
            f"mlp: activation cannot be computed by JAX ({reason}); pass a function such as jax.nn.tanh"
        ) from error
    if getattr(found, "shape", None) != wanted.shape:
        seen = f"shape {found.shape}" if hasattr(found, "shape") else f"a {type(found).__name__}"
        raise ValueError(f"mlp: activation returned {seen} for {width} units; make it return one number for each")


def _linear(num_inputs: int, num_outputs: int, generator: np.random.Generator) -> eqx.nn.Linear:
    """Equinox's layer and initial distribution, drawn on the host."""
    empty = eqx.filter_eval_shape(eqx.nn.Linear, num_inputs, num_outputs, key=jr.key(0))
    bound = num_inputs**-0.5
    return with_arrays(empty, *(generator.uniform(-bound, bound, part.shape) for part in (empty.weight, empty.bias)))
