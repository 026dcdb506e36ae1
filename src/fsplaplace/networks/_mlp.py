"""Networks whose features match the prior."""

import warnings
from collections.abc import Callable, Sequence
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, as_key, checked
from fsplaplace.context import Sampler
from fsplaplace.networks._fully_connected import MLP, fully_connected
from fsplaplace.networks._held import CapacityWarning
from fsplaplace.networks._width import choose_width
from fsplaplace.prior import Prior


@checked
def mlp(
    hidden: Sequence[int] | Literal["auto"],
    *,
    prior: Prior,
    context: Sampler,
    key: KeyLike,
    activation: Callable[[Array], Array] = jnp.tanh,
    num_outputs: int | None = None,
    max_weights: int = 200_000,
    noise: float = 0.1,
    output_scale: ArrayLike | None = None,
) -> MLP:
    r"""A fully connected network whose first layer has the prior's length scales and covers the context region.

    With the usual initialisation the features of a small network are too smooth and too central for short length
    scales, and no posterior over its weights can then look like the prior. The network is

    $$f(x) = \mu(x) + s\, g\bigl((x - c) / \ell\bigr)$$

    with centre c and spread $\ell$ of the context region, mean $\mu$ and standard deviation s of the prior, all held
    fixed: shifting or scaling inputs and targets, with the prior, changes nothing. If the prior repeats along a column more
    than six times within the region, g also gets the sine and cosine of the column's phase: few units then hold any number
    of periods.

    Args:
        hidden: widths of the hidden layers, or "auto": two layers of 50, 100, 150, 200 or 400, the narrowest that loses less
            than 0.01 nats for a new target against the exact process (`fsplaplace.holds`), or about as little as the best of
            them; a `CapacityWarning` says so if none is large enough.
        prior: the prior whose length scales the first layer gets (see `matched_first_layer`), and whose mean and
            standard deviation the outputs get.
        context: where the units are centred.
        key: decides the weights.
        activation: the non-linearity.
        num_outputs: width of the output; the prior's by default.
        max_weights: the most weights of a network chosen by "auto".
        noise: standard deviation of the targets' noise, in standard deviations of the prior, for "auto".
        output_scale: s, one number or one for each output; the prior's standard deviation by default. If the targets vary far less
            than a fitted prior says, their own standard deviation trains better, as the estimators do.

    Time: $O(w^2 d)$ for width w; with "auto" about a third of a second for each width that is tried.

    Examples:
        >>> network = fsp.mlp([20], prior=prior, context=context, key=jr.key(0))
        >>> network(jnp.zeros(1)).shape
        (1,)
    """
    if isinstance(hidden, str):
        return _auto(prior, context, activation, num_outputs, max_weights, noise, key=key, output_scale=output_scale)
    if not hidden or any(width < 1 for width in hidden):
        raise ValueError(f"mlp: hidden is {list(hidden)}; pass at least one width, each 1 or more")
    return fully_connected(hidden, prior, context, activation, num_outputs, key=as_key(key), output_scale=output_scale)


def _auto(prior, context, activation, num_outputs, max_weights, noise, *, key, output_scale) -> MLP:
    if num_outputs not in (None, prior.num_outputs):
        raise ValueError(
            f"mlp: hidden is 'auto' and num_outputs is {num_outputs}, but the prior has {prior.num_outputs} outputs; leave "
            "num_outputs out, or pass widths"
        )
    network, held = choose_width(prior, context, activation, max_weights, noise, key=key, output_scale=output_scale)
    for warning in held.remarks.warnings:
        warnings.warn(f"mlp: {warning}", CapacityWarning, stacklevel=3)
    return network
