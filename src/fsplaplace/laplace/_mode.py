r"""The linearised model as a Bayesian generalised linear model in the whitened coordinates z.

Outputs are $f_i(z) = o_i + \Phi_i z$ with a standard normal prior on z; rows of data stream through in blocks.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from fsplaplace.host import to_double
from fsplaplace.likelihoods import Likelihood

_NEWTON_STEPS = 50
_NEWTON_TOLERANCE = 1e-8


class Block(eqx.Module):
    """Some rows of the data, on the host: the network's outputs, the prior's mean, offsets $o_i$, features $\\Phi_i$, targets
    and their likelihood, with the variances of its noise and its normaliser where it is Gaussian (then everything below has a closed
    form)."""

    network: Float[np.ndarray, "b q"]
    prior_mean: Float[np.ndarray, "b q"]
    offset: Float[np.ndarray, "b q"]
    features: Float[np.ndarray, "b q r"]
    targets: Shaped[np.ndarray, "b ..."]
    likelihood: Likelihood
    variance: Float[np.ndarray, "b q"] | None
    log_normaliser: float

    def outputs(self, z):
        return self.offset + self.features @ z


Blocks = Callable[[], Iterator[Block]]


class Mode(NamedTuple):
    """The mode of the posterior over z, the objective there, the posterior's precision A, and the negative log-likelihood of
    the network's own outputs."""

    z: Float[np.ndarray, " r"]
    value: float
    precision: Float[np.ndarray, "r r"]
    network_loss: float


def posterior_mode(blocks: Blocks, rank: int) -> Mode:
    r"""$\arg\min_z -\sum_i \log p(y_i \mid o_i + \Phi_i z) + \frac12 \lVert z \rVert^2$ by damped Newton steps.

    One step for a Gaussian likelihood, whose objective is a parabola. Time per step $O(n q r^2 + r^3)$.
    """
    z, network = np.zeros(rank), []

    def first_pass():
        for block in blocks():
            network.append(_log_likelihood(dataclasses.replace(block, offset=block.network), z))
            yield block

    local = _local_model(first_pass, z)
    for _ in range(_NEWTON_STEPS):
        direction = -np.linalg.solve(local.precision, local.gradient)
        decrement = float(-local.gradient @ direction)
        if local.exact:
            z, local = z + direction, local._replace(value=local.value - 0.5 * decrement)
            break
        if decrement <= _NEWTON_TOLERANCE * (1.0 + abs(local.value)):
            break
        size = 1.0
        while size > 1e-8 and not objective(blocks, z + size * direction) <= local.value - 1e-4 * size * decrement:
            size /= 2
        z = z + size * direction
        local = _local_model(blocks, z)
    if not math.isfinite(local.value):
        raise FloatingPointError(
            "laplace: the log-likelihood of the linearised model is not finite; check y and the likelihood"
        )
    return Mode(z, local.value, local.precision, -float(sum(network)))


def objective(blocks: Blocks, z: Float[np.ndarray, " r"]) -> float:
    r"""$-\sum_i \log p(y_i \mid f_i(z)) + \frac12 \lVert z \rVert^2$."""
    return float(0.5 * z @ z - sum(_log_likelihood(block, z) for block in blocks()))


def posterior_precision(blocks: Blocks, z: Float[np.ndarray, " r"]) -> Float[np.ndarray, "r r"]:
    r"""$A = I + \sum_i \Phi_i^\top H_i \Phi_i$, the curvature taken at $f_i(z)$."""
    return np.eye(z.shape[0]) + sum(_expansion(block, z)[2] for block in blocks())


def at_network(blocks: Blocks) -> Blocks:
    """The same data with the network's own outputs as offsets."""
    return lambda: (dataclasses.replace(block, offset=block.network) for block in blocks())


class _Local(NamedTuple):
    """The objective to second order around a point, and whether there is nothing beyond second order."""

    value: float
    gradient: Float[np.ndarray, " r"]
    precision: Float[np.ndarray, "r r"]
    exact: bool


def _local_model(blocks: Blocks, z) -> _Local:
    value, gradient, precision, exact = 0.5 * z @ z, z, np.eye(z.shape[0]), True
    for block in blocks():
        log_likelihood, slope, curvature = _expansion(block, z)
        value, gradient, precision = value - log_likelihood, gradient - slope, precision + curvature
        exact = exact and block.variance is not None
    return _Local(float(value), gradient, precision, exact)


def _expansion(block: Block, z):
    """Log-likelihood, its slope and the negative of its curvature in z."""
    if block.variance is None:
        with jax.enable_x64(True):
            return tuple(map(np.asarray, _differentiate(to_double(block), z)))
    features = block.features.reshape(-1, block.features.shape[2])
    weighted = features / block.variance.reshape(-1, 1)
    residual = (block.targets - block.outputs(z)).ravel()
    return _log_likelihood(block, z), weighted.T @ residual, weighted.T @ features


def _log_likelihood(block: Block, z):
    if block.variance is None:
        with jax.enable_x64(True):
            return float(_sum_log_prob(to_double(block), z))
    residual = block.targets - block.outputs(z)
    return block.log_normaliser - 0.5 * float(np.sum(residual**2 / block.variance))


@eqx.filter_jit
def _sum_log_prob(block: Block, z):
    return jnp.sum(block.likelihood.log_prob(block.outputs(z), jnp.asarray(block.targets)))


@eqx.filter_jit
def _differentiate(block: Block, z):
    value, slope = jax.value_and_grad(lambda at: _sum_log_prob(block, at))(z)
    features = jnp.asarray(block.features)
    weighted = block.likelihood.curvature_product(block.outputs(z), jnp.asarray(block.targets), features)
    return value, slope, jnp.tensordot(features, weighted, axes=((0, 1), (0, 1)))
