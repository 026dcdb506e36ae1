r"""The linearised network as a function of its own: $\mu(x) + J(x) s$."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from fsplaplace.networks._model import Model
from fsplaplace.prior import Prior


def linear_model(model: Model, prior: Prior | None, shift: Float[Array, " p"]) -> Model:
    r"""$\mu(x) + J(x) s$, J the Jacobian of `model` at its weights, as a model whose weights are s; $f(x) + J(x) s$ without
    a prior."""
    return Model(
        model.unravel(shift), (model.params, model.frozen, prior), _AtWeights(model.call), model.name, model.origin
    )


class PointFunction(eqx.Module):
    """A model as a function of one point: what operators act on.

    Attributes:
        model: the network.
    """

    model: Model

    def __call__(self, point: Float[Array, "..."]) -> Float[Array, " q"]:
        return self.model.evaluate(self.model.params, point[None])[0]


@dataclasses.dataclass(frozen=True)
class _AtWeights:
    """`call` of the linearised network."""

    call: Callable[[PyTree, PyTree, Array], Array]

    def __call__(self, params: PyTree, frozen: PyTree, x: Float[Array, "n ..."]) -> Float[Array, "n q"]:
        weights, inner, prior = frozen
        outputs, moved = jax.jvp(lambda at: self.call(at, inner, x), (weights,), (params,))
        start = outputs.reshape(x.shape[0], -1) if prior is None else prior.mean_at(jnp.asarray(x))
        return start + moved.reshape(x.shape[0], -1)
