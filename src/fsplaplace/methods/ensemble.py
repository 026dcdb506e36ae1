"""A small ensemble of MAP networks."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from fsplaplace.arguments import checked
from fsplaplace.host import host_generator
from fsplaplace.methods._method import Method
from fsplaplace.methods._posterior import WeightSamples
from fsplaplace.methods.map import MAP
from fsplaplace.networks import Model


class Ensemble(Method):
    """MAP networks from different initial weights; their spread is the epistemic variance.

    Args:
        size: number of networks.
        member: how each is trained.
        initialise: a network with fresh weights from a key. By default every array of weights is drawn anew with the mean and
            standard deviation it has in the model given, which keeps the scales of whatever initialisation that was.

    Time: `size` times that of one network.
    """

    size: int = 5
    member: MAP = MAP()
    initialise: Callable[[PRNGKeyArray], Model] | None = None

    @checked
    def fit(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> WeightSamples:
        members = []
        for member_key in jr.split(key, self.size):
            start_key, fit_key = jr.split(member_key)
            start = redrawn(model, start_key) if self.initialise is None else self.initialise(start_key)
            members.append(self.member.fit(start, X, y, likelihood, key=fit_key, progress=progress))
        weights = jnp.stack([member.model.weights for member in members])
        # The members' fitted noise, averaged in the scale it is parametrised in.
        fitted = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *[member.likelihood for member in members])
        return WeightSamples(model=members[0].model, likelihood=fitted, weights=weights)


def redrawn(model: Model, key: PRNGKeyArray) -> Model:
    """The network with every array of weights drawn anew from a Gaussian with that array's mean and spread."""
    leaves, structure = jax.tree.flatten(model.params)
    generator = host_generator(key)
    drawn = [jnp.asarray(generator.normal(np.mean(leaf), np.std(leaf), leaf.shape), model.dtype) for leaf in leaves]
    return model.with_params(jax.tree.unflatten(structure, drawn))
