"""The width of a network that is large enough for a prior."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.random as jr
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import ArrayLike

from fsplaplace.context import Sampler
from fsplaplace.host import resolve_budget
from fsplaplace.networks._as_model import as_model
from fsplaplace.networks._fully_connected import MLP, fully_connected
from fsplaplace.networks._held import Held, held_by
from fsplaplace.networks._region import Region
from fsplaplace.prior import Prior

# Widths of two hidden layers to choose from; 400 cost forty times as much as 50 in training.
LADDER = (50, 100, 150, 200, 400)
# If none of them is large enough, the narrowest whose loss is at most this many times the least is taken.
_AS_GOOD = 1.25


class Rung(NamedTuple):
    """A network, and what it holds."""

    network: MLP
    held: Held


def choose_width(
    prior: Prior,
    context: Sampler,
    activation: Callable[[Array], Array],
    max_weights: int,
    noise: float,
    *,
    key: PRNGKeyArray,
    output_scale: ArrayLike | None = None,
) -> Rung:
    """The network that `mlp` makes for "auto", whose arguments these are, and how much of the prior it holds."""
    if isinstance(max_weights, bool) or not max_weights >= 1:
        raise ValueError(f"mlp: max_weights is {max_weights!r}; pass the number of weights that the network may have")
    region = Region.of(prior, context, key=region_key(key), noise=noise, caller="mlp")
    if region.points.ndim != 2:
        raise ValueError(
            f"mlp: hidden is 'auto', but context points have shape {region.points.shape[1:]}; pass a sampler of rows (n, d), or "
            "build a network for such inputs"
        )
    sizes = {width: _num_weights(region.points.shape[1], width, width, prior.num_outputs) for width in LADDER}
    widths = [width for width in LADDER if sizes[width] <= max_weights]
    if not widths:
        raise ValueError(
            f"mlp: max_weights is {max_weights}, but the narrowest network to choose from, 2x{LADDER[0]}, has "
            f"{sizes[LADDER[0]]}; pass that or more, or the widths yourself"
        )
    return narrowest(widths, region, prior, context, activation, key=key, output_scale=output_scale)


def narrowest(
    widths: Sequence[int],
    region: Region,
    prior: Prior,
    context: Sampler,
    activation: Callable[[Array], Array],
    *,
    key: PRNGKeyArray,
    output_scale: ArrayLike | None = None,
) -> Rung:
    """The narrowest of these networks that is large enough; if none is, the narrowest that is about as good as the best.

    Args:
        widths: of both hidden layers, in rising order.
        region: where it is judged.
        prior: as for `mlp`.
        context: as for `mlp`.
        activation: as for `mlp`.
        key: as for `mlp`, which would draw the same network for these widths.
        output_scale: as for `mlp`.
    """
    rungs, budget = [], resolve_budget(None)
    for width in widths:
        network = fully_connected((width, width), prior, context, activation, None, key=key, output_scale=output_scale)
        rungs.append(Rung(network, held_by(as_model(network), region, budget=budget)))
        if rungs[-1].held.enough:
            return rungs[-1]
    least = min(rung.held.loss for rung in rungs)
    return next(rung for rung in rungs if rung.held.loss <= _AS_GOOD * least)


def region_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """A key for the points of a region: others than those that the network's units are centred at."""
    return jr.fold_in(key, 1)


def _num_weights(*sizes: int) -> int:
    return sum((before + 1) * after for before, after in itertools.pairwise(sizes))
