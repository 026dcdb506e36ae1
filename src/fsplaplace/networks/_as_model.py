"""From a network of any library to a `Model`."""

from typing import Any

from fsplaplace.networks import adapters
from fsplaplace.networks._model import Mask, Model


def as_model(network: Any, *, mask: Mask | None = None) -> Model:
    r"""A network from any of the libraries people use, as one pure function $f(w, x)$.

    Args:
        network: an Equinox module (called on one example, as is its convention) or a pair of it and its state; a Flax NNX
            module; a pair of a Flax Linen module and its variables; a pair of a Haiku transform and its parameters; a
            `torch.nn.Module` in evaluation mode; or a pair `(apply, params)` with `apply(params, x)`. All but Equinox
            modules are called on batches. A `Model` is returned as it is.
        mask: which weights are Bayesian: a pytree of booleans like the parameters, or a function of a weight's path
            (for instance `lambda path: "layers[2]" in path` for the last of three layers). All by default; the others
            are held fixed.

    Outputs of any trailing shape are accepted and flattened to (n, q). Networks that depend on the whole batch
    (BatchNorm in training mode) are refused by name.
    """
    if isinstance(network, Model):
        if mask is not None:
            raise ValueError("as_model: mask has no effect on a Model; pass it where the network is first wrapped")
        return network
    return adapters.adapt(network, mask)
