"""Networks whose features match the prior."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from fsplaplace import kernels
from fsplaplace._prior import Prior
from fsplaplace.context import Sampler

# Context points drawn for each unit's centre; the best spread of them are taken.
_POOL = 10


class MLP(eqx.Module):
    """A fully connected network; `layers` are `equinox.nn.Linear`."""

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable[[Array], Array]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " q"]:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


def mlp(
    hidden: Sequence[int],
    *,
    prior: Prior,
    context: Sampler,
    key: PRNGKeyArray,
    activation: Callable[[Array], Array] = jnp.tanh,
    num_outputs: int | None = None,
) -> MLP:
    """A fully connected network whose first layer has the prior's length scales and covers the context region.

    With the usual initialisation the features of a small network are too smooth and too central for short length
    scales, and no posterior over its weights can then look like the prior.

    Args:
        hidden: widths of the hidden layers.
        prior: the prior whose length scales the first layer gets (see `matched_first_layer`).
        context: where the units are centred.
        activation: the non-linearity.
        num_outputs: width of the output; the prior's by default.
    """
    if not hidden or any(width < 1 for width in hidden):
        raise ValueError(f"mlp: hidden is {list(hidden)}; pass at least one width, each 1 or more")
    usual, matched = jr.split(key)
    num_inputs = context.sample(1, key=key).reshape(-1).shape[0]
    widths = (num_inputs, *hidden, num_outputs or prior.num_outputs)
    network = MLP(_linear_layers(widths, usual), activation)
    return match_first_layer(network, prior=prior, context=context, key=matched)


@eqx.filter_jit
def _linear_layers(widths: tuple[int, ...], key: PRNGKeyArray) -> tuple[eqx.nn.Linear, ...]:
    sizes = zip(widths[:-1], widths[1:], jr.split(key, len(widths) - 1), strict=True)
    return tuple(eqx.nn.Linear(size_in, size_out, key=k) for size_in, size_out, k in sizes)


def match_first_layer(network: eqx.Module, *, prior: Prior, context: Sampler, key: PRNGKeyArray):
    """The Equinox network with its first `Linear` layer re-drawn by `matched_first_layer`."""

    def first(tree):
        is_linear = lambda node: isinstance(node, eqx.nn.Linear)  # noqa: E731
        found = [node for node in jax.tree.leaves(tree, is_leaf=is_linear) if is_linear(node)]
        if not found:
            raise ValueError(f"match_first_layer: {type(network).__name__} has no equinox.nn.Linear layer")
        return found[0]

    layer = first(network)
    if layer.bias is None:
        raise ValueError("match_first_layer: the first Linear layer has no bias, so its units cannot be centred")
    weight, bias = matched_first_layer(layer.weight.shape[0], prior=prior, context=context, key=key)
    if weight.shape != layer.weight.shape:
        raise ValueError(
            f"match_first_layer: context points have {weight.shape[1]} columns, but the first layer takes "
            f"{layer.weight.shape[1]}"
        )
    dtype = layer.weight.dtype
    return eqx.tree_at(
        lambda tree: (first(tree).weight, first(tree).bias),
        network,
        (weight.astype(dtype), bias.astype(dtype)),
    )


def matched_first_layer(
    num_units: int, *, prior: Prior, context: Sampler, key: PRNGKeyArray
) -> tuple[Float[Array, "h d"], Float[Array, " h"]]:
    r"""Weights and biases of a first layer whose units vary on the prior's length scales, centred on context points.

    Unit u is $\phi(w_u^\top (x - c_u))$ with $c_u$ context points spread evenly, and

    $$w_{ui} \sim \frac{2}{\ell_i \sqrt d} \Bigl(1 + \frac{1.75}{\nu^2 d^2}\Bigr)\, \mathcal N(0, 1)$$

    for length scales $\ell_i$ and smoothness $\nu$: rough functions of few inputs need steep units. A kernel that is a
    sum gives each of its terms an equal share of the units.

    Returns weights (h, d) and biases (h,), for use in a network of any library.
    """
    place, draw = jr.split(key)
    pool = context.sample(_POOL * num_units, key=place)
    return _draw_units(prior, pool.reshape(pool.shape[0], -1), num_units, draw)


@eqx.filter_jit
def _draw_units(prior: Prior, pool, num_units: int, key):
    share, scale = jr.split(key)
    parts = prior.kernel if isinstance(prior.kernel, tuple) else (prior.kernel,)
    dimension = pool.shape[1]
    lengths = jnp.concatenate([kernels.lengthscales(part, dimension) for part in parts])
    smoothness = jnp.asarray([nu for part in parts for nu in kernels.smoothness(part)])
    steepness = 2.0 / dimension**0.5 * (1.0 + 1.75 / (smoothness * dimension) ** 2)
    component = jr.permutation(share, jnp.arange(num_units) % lengths.shape[0])
    centres = _spread(pool, num_units)
    weight = (steepness[:, None] / lengths)[component] * jr.normal(scale, centres.shape, centres.dtype)
    return weight, -jnp.sum(weight * centres, axis=1)


def _spread(pool: Float[Array, "k d"], count: int) -> Float[Array, "h d"]:
    """Points of the pool, each the farthest from those before it: evenly spread where random ones leave gaps."""
    scaled = pool / jnp.maximum(jnp.std(pool, axis=0), jnp.finfo(pool.dtype).tiny)

    def step(nearest, _):
        chosen = jnp.argmax(nearest)
        return jnp.minimum(nearest, jnp.sum((scaled - scaled[chosen]) ** 2, axis=1)), chosen

    start = jnp.sum((scaled - jnp.mean(scaled, axis=0)) ** 2, axis=1)
    return pool[jax.lax.scan(step, start, length=count)[1]]
