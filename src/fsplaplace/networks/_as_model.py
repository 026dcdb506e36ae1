"""From a network of any library to a `Model`."""

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.networks import adapters
from fsplaplace.networks._fully_connected import MLP
from fsplaplace.networks._model import Mask, Model
from fsplaplace.networks._units import in_units


@checked
def as_model(
    network: Any,
    *,
    mask: Mask | None = None,
    mean: Callable | ArrayLike | None = None,
    centre: ArrayLike | None = None,
    scale: ArrayLike | None = None,
    output_scale: ArrayLike | None = None,
) -> Model:
    r"""A network from any of the libraries people use, as one pure function $f(w, x)$.

    Args:
        network: an Equinox module (called on one example, as is its convention) or a pair of it and its state; a Flax NNX
            module; a pair of a Flax Linen module and its variables; a pair of a Haiku transform and its parameters; a
            `torch.nn.Module` in evaluation mode; or a pair `(apply, params)` with `apply(params, x)`. All but Equinox
            modules are called on batches. A `Model` is returned as it is.
        mask: which weights are Bayesian: a pytree of booleans like the parameters, or a function of a weight's path
            (for instance `lambda path: "layers[2]" in path` for the last of three layers). All by default; the others
            are held fixed. So are arrays inside `paramax.non_trainable`.
        mean: $\mu$, added to the outputs and held fixed: pass `prior.mean` if the prior has one, so that the network need not
            learn it. A number, an array of shape (q,), or a function from inputs (n, d) to (n,), (n, 1) or (n, q).
        centre: subtracted from the inputs, for instance `X.mean(axis=0)`; zero by default.
        scale: divides the centred inputs, for instance `X.std(axis=0)`; one by default. Training takes steps of one size,
            so a network wants inputs of order one.
        output_scale: multiplies the outputs, a number or one for each: the prior's standard deviation, so that the network's
            own outputs are of order one, too; one by default.

    With these four the model is $\mu(x) + s\, g((x - c) / \ell)$ for the network $g$. What `fsplaplace.mlp` builds has
    them already. Outputs of any trailing shape are accepted and flattened to (n, q). Networks that depend on the whole batch
    (BatchNorm in training mode) are refused by name.

    Examples:
        >>> model = fsp.as_model(network)
        >>> model(X).shape, model.num_params
        ((20, 1), 61)
    """
    units = {"mean": mean, "centre": centre, "scale": scale, "output_scale": output_scale}
    if isinstance(network, Model):
        for name, value in {"mask": mask, **units}.items():
            if value is not None:
                raise ValueError(
                    f"as_model: {name} has no effect on a Model; pass it where the network is first wrapped"
                )
        return network
    model = adapters.adapt(network, mask)
    if all(value is None for value in units.values()):
        return model
    if isinstance(network, MLP) and network.units is not None:
        raise ValueError(
            "as_model: fsplaplace.mlp built this network with a mean and scales of its own; leave them out here"
        )
    return in_units(model, mean=mean, centre=centre, scale=scale, output_scale=output_scale)
