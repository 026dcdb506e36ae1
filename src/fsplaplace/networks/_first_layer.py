"""A first layer whose units vary on the prior's length scales and are centred in the context region."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace import kernels
from fsplaplace.arguments import KeyLike, checked
from fsplaplace.context import Sampler
from fsplaplace.host import check_fits, host_generator, to_device
from fsplaplace.networks._circles import beside_circles, frequencies_of
from fsplaplace.prior import Prior

# Context points drawn for each unit's centre; the best spread of them are taken.
_POOL = 10


@checked(finite=True)
def match_first_layer(
    network: eqx.Module,
    *,
    prior: Prior,
    context: Sampler,
    key: KeyLike,
    centre: ArrayLike | None = None,
    scale: ArrayLike | None = None,
):
    """An Equinox network with its first `Linear` layer drawn anew by `matched_first_layer`.

    Args:
        network: the network; it is not changed.
        prior: whose length scales the first layer gets.
        context: where the units are centred.
        key: decides the draw.
        centre: what `fsplaplace.as_model` will subtract from the inputs.
        scale: what it will divide them by.

    Examples:
        >>> plain = eqx.nn.MLP(1, 1, width_size=30, depth=1, key=jr.key(0))
        >>> matched = fsp.match_first_layer(plain, prior=prior, context=context, key=jr.key(1))
        >>> matched.layers[0].weight.shape, bool(jnp.all(matched.layers[1].weight == plain.layers[1].weight))
        ((30, 1), True)
    """

    def first(tree):
        is_linear = lambda node: isinstance(node, eqx.nn.Linear)  # noqa: E731
        found = [node for node in jax.tree.leaves(tree, is_leaf=is_linear) if is_linear(node)]
        if not found:
            raise ValueError(f"match_first_layer: {type(network).__name__} has no equinox.nn.Linear layer")
        return found[0]

    layer = first(network)
    if layer.bias is None:
        raise ValueError("match_first_layer: the first Linear layer has no bias, so its units cannot be centred")
    num_units = layer.weight.shape[0]
    weight, bias = matched_first_layer(num_units, prior=prior, context=context, key=key, centre=centre, scale=scale)
    if weight.shape != layer.weight.shape:
        raise ValueError(
            f"match_first_layer: context points have {weight.shape[1]} columns, but the first layer takes "
            f"{layer.weight.shape[1]}"
        )
    return eqx.tree_at(first, network, with_arrays(layer, weight, bias))


@checked(finite=True)
def matched_first_layer(
    num_units: int,
    *,
    prior: Prior,
    context: Sampler,
    key: KeyLike,
    centre: ArrayLike | None = None,
    scale: ArrayLike | None = None,
) -> tuple[Float[Array, "h d"], Float[Array, " h"]]:
    r"""Weights and biases of a first layer whose units vary on the prior's length scales, centred on context points.

    Unit u is $\phi(w_u^\top (x - c_u))$ with $c_u$ context points spread evenly, and

    $$w_{ui} \sim \frac{2}{\ell_i \sqrt d} \Bigl(1 + \frac{1.75}{\nu^2 d^2}\Bigr)\, \mathcal N(0, 1)$$

    for length scales $\ell_i$ and smoothness $\nu$: rough functions of few inputs need steep units. A kernel that is a
    sum gives each of its terms an equal share of the units. A kernel without any length scale (constant, linear,
    polynomial) gets the range of the context region as $\ell$, and $\nu = \infty$.

    Args:
        num_units: h.
        prior: whose length scales and smoothness the units get.
        context: where the units are centred.
        key: decides the draw.
        centre: what `fsplaplace.as_model` will subtract from the inputs, so that the units see $(x - c) / \ell$.
        scale: what it will divide them by.

    Returns:
        Weights (h, d) and biases (h,), for use in a network of any library. Time $O(h^2 d)$.

    Examples:
        >>> weights, biases = fsp.matched_first_layer(20, prior=prior, context=context, key=jr.key(0))
        >>> weights.shape, biases.shape
        ((20, 1), (20,))
    """
    # Distances between the units' centres are n x n.
    check_fits(num_units, 16, "matched_first_layer: num_units", power=2)
    pool = pool_of(context, num_units, key)
    weight, bias = draw_units(prior, pool, num_units, host_generator(key)).seen(centre=centre, scale=scale)
    return to_device(weight), to_device(bias)


def with_arrays(layer: eqx.nn.Linear, weight, bias) -> eqx.nn.Linear:
    """The layer with these weights and biases, in its own dtype."""
    arrays = (to_device(weight, layer.weight.dtype), to_device(bias, layer.weight.dtype))
    return eqx.tree_at(lambda tree: (tree.weight, tree.bias), layer, arrays)


def pool_of(context: Sampler, num_units: int, key) -> Float[np.ndarray, "k d"]:
    """Points of the context region, in float64: far from zero float32 loses the digits of sums and means."""
    points = np.asarray(context.sample(_POOL * num_units, key=key), np.float64)
    return points.reshape(points.shape[0], -1)


class FirstLayer(NamedTuple):
    r"""Units $w_u^\top (x - c_u)$.

    Attributes:
        weight: $w_u$, (h, d).
        centres: $c_u$, (h, d).
        num_wound: how many of the columns, the last ones, are of points on circles.
    """

    weight: Float[np.ndarray, "h d"]
    centres: Float[np.ndarray, "h d"]
    num_wound: int = 0

    def seen(
        self, *, centre: ArrayLike | None, scale: ArrayLike | None
    ) -> tuple[Float[np.ndarray, "h d"], Float[np.ndarray, " h"]]:
        """Weights and biases that act on centred and scaled inputs; points on circles are as they are."""
        columns = self.weight.shape[1] - self.num_wound
        middle = 0.0 if centre is None else np.asarray(centre, np.float64).reshape(-1)
        spread = 1.0 if scale is None else np.asarray(scale, np.float64).reshape(-1)
        for name, values in (("centre", middle), ("scale", spread)):
            if np.size(values) not in (1, columns):
                raise ValueError(
                    f"{name} has {np.size(values)} numbers, but the inputs have {columns} columns; pass as many"
                )
        middle = np.concatenate([np.broadcast_to(middle, columns), np.zeros(self.num_wound)])
        spread = np.concatenate([np.broadcast_to(spread, columns), np.ones(self.num_wound)])
        return self.weight * spread, -np.sum(self.weight * (self.centres - middle), axis=1)


def draw_units(
    prior: Prior,
    pool: Float[np.ndarray, "k d"],
    num_units: int,
    generator: np.random.Generator,
    circles: tuple[kernels.Circle, ...] = (),
) -> FirstLayer:
    """The units of `matched_first_layer`, on inputs followed by points on circles of radius 1 if there are any.

    Args:
        prior: whose length scales and smoothness the units get.
        pool: points of the region.
        num_units: h.
        generator: of the draw.
        circles: on which inputs are wound up, from the middle of the region on.
    """
    parts, columns = prior.blocks.kernels, pool.shape[1]
    # Compiled, but for circles, which are looked for by their periods.
    lengths = np.concatenate(
        [
            kernels.lengthscales_on_circles(part, columns, circles) if circles else _lengthscales(part, columns)
            for part in parts
        ]
    )
    smoothness = np.asarray([nu for part in parts for nu in kernels.smoothness(part)])
    if lengths.shape[0] == 0:
        lengths, smoothness = _ranges(pool)[None], np.array([np.inf])
    # A component has the columns of inputs, and of the circles those that it repeats on.
    dimension = columns + np.sum(np.isfinite(lengths[:, columns:]), axis=1)
    steepness = 2.0 / dimension**0.5 * (1.0 + 1.75 / (smoothness * dimension) ** 2)
    component = generator.permutation(np.arange(num_units) % lengths.shape[0])
    if circles:
        wound = beside_circles(pool - np.mean(pool, axis=0), frequencies_of(circles, np.ones(columns)))
        pool = np.concatenate([pool, wound[:, columns:]], axis=1)
    centres = _spread(pool, num_units)
    weight = (steepness[:, None] / lengths)[component] * generator.normal(size=centres.shape)
    return FirstLayer(weight, centres, 2 * len(circles))


_lengthscales = eqx.filter_jit(kernels.lengthscales)


def _ranges(pool: Float[np.ndarray, "k d"]) -> Float[np.ndarray, " d"]:
    """The range of each column; infinite for a column that never changes, so that units ignore it."""
    ranges = np.ptp(pool, axis=0)
    return np.where(ranges > 0, ranges, np.inf)


def _spread(pool: Float[np.ndarray, "k d"], count: int) -> Float[np.ndarray, "h d"]:
    """Points of the pool, each the farthest from those before it: evenly spread where random ones leave gaps."""
    spread = np.std(pool, axis=0)
    # A row for each column: sums over the columns of a point then run over whole rows.
    scaled = np.ascontiguousarray(((pool - np.mean(pool, axis=0)) / np.where(spread > 0, spread, 1.0)).T)
    nearest = np.sum(scaled**2, axis=0)
    chosen = []
    for _ in range(count):
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, np.sum((scaled - scaled[:, chosen[-1], None]) ** 2, axis=0))
    return pool[chosen]
