"""Whether a network is large enough for a prior, before it is trained."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from fsplaplace.arguments import KeyLike, as_key, checked
from fsplaplace.context import Sampler
from fsplaplace.host import resolve_budget
from fsplaplace.networks._as_model import as_model
from fsplaplace.networks._held import Held, held_by
from fsplaplace.networks._model import Model
from fsplaplace.networks._region import NUM_POINTS, Region
from fsplaplace.networks._width import LADDER, narrowest, region_key
from fsplaplace.prior import Prior


@checked
def holds(
    network: Model | Any,
    prior: Prior,
    context: Sampler,
    *,
    key: KeyLike,
    noise: float = 0.1,
    num_points: int = NUM_POINTS,
    compare: bool = True,
    memory_budget: float | None = None,
) -> Held:
    """How much of a prior the features of a network hold in a region: known before training, without data.

    Pulls the prior back through the Jacobian at some points of the region, as `fsplaplace.laplace` will, and looks at other
    points whether the functions that come out are the prior's (see `Held`).

    Args:
        network: a `Model`, or what `fsplaplace.as_model` accepts.
        prior: the prior.
        context: the region.
        key: for the points, and for wider networks.
        noise: standard deviation of the targets' noise, in standard deviations of the prior.
        num_points: points in all, five sevenths of which are context points; fewer with more than three outputs.
        compare: if the network is too small, look for one by `fsplaplace.mlp` that is not.
        memory_budget: bytes that the Jacobian of a network other than `MLP` may take; a quarter of RAM by default.

    Returns a `Held`: print it. Time: a fraction of a second for an `MLP` of any width, and for each wider one.

    Examples:
        >>> fsp.holds(network, prior, context, key=jr.key(0), compare=False).enough
        True
    """
    model, key = as_model(network), as_key(key)
    region = Region.of(prior, context, num_points, key=region_key(key), noise=noise, caller="holds")
    outputs = model.num_outputs(region.points)
    if outputs != prior.num_outputs:
        raise ValueError(f"holds: the network has {outputs} outputs, but the prior has {prior.num_outputs}")
    held = held_by(model, region, budget=resolve_budget(memory_budget))
    wider = [width for width in LADDER if width > max(held.hidden or (0,))]
    if held.enough or not compare or not wider or region.points.ndim != 2:
        return held
    found = narrowest(wider, region, prior, context, jnp.tanh, key=key).held
    return dataclasses.replace(held, wider=found) if found.loss < held.loss else held
