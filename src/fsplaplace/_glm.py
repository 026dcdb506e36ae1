r"""The linearised model as a Bayesian generalised linear model in the whitened coordinates z.

Outputs are $f_i(z) = o_i + \Phi_i z$ with a standard normal prior on z; rows of data stream through in blocks.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from fsplaplace.likelihoods import Likelihood

_NEWTON_STEPS = 50
_NEWTON_TOLERANCE = 1e-8


class Block(eqx.Module):
    """Some rows of the data: the network's outputs, offsets $o_i$, features $\\Phi_i$, targets and their likelihood."""

    network: Float[Array, "b q"]
    offset: Float[Array, "b q"]
    features: Float[Array, "b q r"]
    targets: Shaped[Array, "b ..."]
    likelihood: Likelihood

    def outputs(self, z: Float[Array, " r"]) -> Float[Array, "b q"]:
        return self.offset + self.features @ z


Blocks = Callable[[], Iterator[Block]]


class Mode(NamedTuple):
    """The mode of the posterior over z, the objective there, and the posterior's precision A."""

    z: Float[np.ndarray, " r"]
    value: float
    precision: Float[np.ndarray, "r r"]


def posterior_mode(blocks: Blocks, rank: int) -> Mode:
    r"""$\arg\min_z -\sum_i \log p(y_i \mid o_i + \Phi_i z) + \frac12 \lVert z \rVert^2$ by damped Newton steps.

    Exact after one step for a Gaussian likelihood. Time per step $O(n q r^2 + r^3)$.
    """
    z = np.zeros(rank)
    value, gradient, precision = _local_model(blocks, z)
    for _ in range(_NEWTON_STEPS):
        direction = -np.linalg.solve(precision, gradient)
        decrement = float(-gradient @ direction)
        if decrement <= _NEWTON_TOLERANCE * (1.0 + abs(value)):
            break
        size, wanted = 1.0, lambda size, value=value, decrement=decrement: value - 1e-4 * size * decrement
        while size > 1e-8 and not objective(blocks, z + size * direction) <= wanted(size):
            size /= 2
        z = z + size * direction
        value, gradient, precision = _local_model(blocks, z)
    if not math.isfinite(value):
        raise FloatingPointError(
            "laplace: the log-likelihood of the linearised model is not finite; check y and the likelihood"
        )
    return Mode(z, value, precision)


def objective(blocks: Blocks, z: Float[np.ndarray, " r"]) -> float:
    r"""$-\sum_i \log p(y_i \mid f_i(z)) + \frac12 \lVert z \rVert^2$."""
    return float(0.5 * z @ z - sum(_log_likelihood(block, z) for block in blocks()))


def posterior_precision(blocks: Blocks, z: Float[np.ndarray, " r"]) -> Float[np.ndarray, "r r"]:
    r"""$A = I + \sum_i \Phi_i^\top H_i \Phi_i$, the curvature taken at $f_i(z)$."""
    return np.eye(z.shape[0]) + sum(np.asarray(_curvature(block, z)) for block in blocks())


def at_network(blocks: Blocks) -> Blocks:
    """The same data with the network's own outputs as offsets."""
    return lambda: (eqx.tree_at(lambda block: block.offset, block, block.network) for block in blocks())


def _local_model(blocks: Blocks, z):
    value, gradient, precision = 0.5 * z @ z, z, np.eye(z.shape[0])
    for block in blocks():
        log_likelihood, slope, curvature = map(np.asarray, _expansion(block, z))
        value, gradient, precision = value - log_likelihood, gradient - slope, precision + curvature
    return float(value), gradient, precision


@eqx.filter_jit
def _log_likelihood(block: Block, z):
    return jnp.sum(block.likelihood.log_prob(block.outputs(z), block.targets))


@eqx.filter_jit
def _expansion(block: Block, z):
    """Log-likelihood, its slope and its curvature in z."""
    value, slope = jax.value_and_grad(lambda at: _log_likelihood(block, at))(z)
    return value, slope, _curvature(block, z)


@eqx.filter_jit
def _curvature(block: Block, z):
    weighted = block.likelihood.curvature_product(block.outputs(z), block.targets, block.features)
    return jnp.tensordot(block.features, weighted, axes=((0, 1), (0, 1)))
