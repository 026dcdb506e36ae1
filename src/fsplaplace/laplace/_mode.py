r"""The linearised model as a Bayesian generalised linear model in the whitened coordinates z.

Outputs are $f_i(z) = \mu(x_i) + \Phi_i z$ with a standard normal prior on z; rows of data stream through in blocks.
"""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.optimize import fminbound

from fsplaplace.host import in_float64
from fsplaplace.laplace import _choices
from fsplaplace.laplace._features import Block, Blocks


class LocalModel(NamedTuple):
    r"""The objective $-\sum_i \log p(y_i \mid f_i(z)) + \frac12 \lVert z \rVert^2$ to second order around a point.

    Attributes:
        value: the objective there.
        gradient: its slope.
        precision: $A = I + \sum_i \Phi_i^\top H_i \Phi_i$.
        square: $\sum_i (y_i - f_i)^\top H_i (y_i - f_i)$ for Gaussian noise, else NaN.
        num_observations: how many targets there are, for Gaussian noise, else NaN.
        sampling_error: of the curvature from a share of the rows, relative and estimated from two halves of them; NaN for
            all rows.
    """

    value: float
    gradient: Float[np.ndarray, " r"]
    precision: Float[np.ndarray, "r r"]
    square: float
    num_observations: float
    sampling_error: float = math.nan

    @property
    def gaussian(self) -> bool:
        """Whether there is nothing beyond second order."""
        return not math.isnan(self.square)


class Mode(NamedTuple):
    """The posterior over z.

    Attributes:
        z: its mode.
        value: the objective there.
        precision: A, the posterior's precision there.
        at_prior_mean: the objective to second order around z = 0, the prior mean.
        sampling_error: see `LocalModel`.
        searched: whether it was searched for; else z is the network's own function.
    """

    z: Float[np.ndarray, " r"]
    value: float
    precision: Float[np.ndarray, "r r"]
    at_prior_mean: LocalModel
    sampling_error: float = math.nan
    searched: bool = True

    @property
    def log_evidence(self) -> float:
        r"""$\sum_i \log p(y_i \mid f_i(z^\star)) - \frac12 \lVert z^\star \rVert^2 - \frac12 \log\det A$."""
        return -self.value - 0.5 * float(np.linalg.slogdet(self.precision)[1])

    @property
    def log_likelihood(self) -> float:
        """Of the targets at the mode."""
        return 0.5 * float(self.z @ self.z) - self.value


def posterior_mode(blocks: Blocks, rank: int) -> Mode:
    r"""$\arg\min_z -\sum_i \log p(y_i \mid \mu(x_i) + \Phi_i z) + \frac12 \lVert z \rVert^2$ by damped Newton steps.

    One step for Gaussian noise, whose objective is a parabola. Time per step $O(n q r^2 + r^3)$.
    """
    z = np.zeros(rank)
    first = local = local_model(blocks, z)
    if first.gaussian:
        z = -np.linalg.solve(first.precision, first.gradient)
        value = first.value + 0.5 * float(first.gradient @ z)
        return _finite(Mode(z, value, first.precision, first, first.sampling_error))
    for _ in range(_choices.NEWTON_STEPS):
        direction = -np.linalg.solve(local.precision, local.gradient)
        decrement = float(-local.gradient @ direction)
        if decrement <= _choices.NEWTON_TOLERANCE * (1.0 + abs(local.value)):
            break
        size = 1.0
        while size > 1e-8 and not objective(blocks, z + size * direction) <= local.value - 1e-4 * size * decrement:
            size /= 2
        z = z + size * direction
        local = local_model(blocks, z)
    return _finite(Mode(z, local.value, local.precision, first, local.sampling_error))


def mode_at_network(blocks: Blocks, coordinates: Float[np.ndarray, " r"]) -> Mode:
    r"""The network's own function taken for the mode: one pass over the data instead of Newton's.

    Args:
        blocks: the data.
        coordinates: z of the network's function, as far as the features hold it.

    The evidence is that of the mode of the objective to second order around the network: training need not have arrived.
    """
    local = local_model(at_network(blocks), np.zeros_like(coordinates))
    slope = local.gradient + coordinates
    to_mode = 0.5 * float(slope @ np.linalg.solve(local.precision, slope))
    value = local.value + 0.5 * float(coordinates @ coordinates) - to_mode
    return _finite(Mode(coordinates, value, local.precision, local, local.sampling_error, searched=False))


def objective(blocks: Blocks, z: Float[np.ndarray, " r"]) -> float:
    r"""$-\sum_i \log p(y_i \mid f_i(z)) + \frac12 \lVert z \rVert^2$."""
    return float(0.5 * z @ z - sum(block.weight * _log_likelihood(block, z) for block in blocks()))


def local_model(blocks: Blocks, z: Float[np.ndarray, " r"]) -> LocalModel:
    """The objective to second order around z. One pass over the data."""
    value, gradient, precision = 0.5 * float(z @ z), z, np.eye(z.shape[0])
    square: float = 0.0
    count: float = 0.0
    weight, difference = 1.0, np.zeros_like(precision)
    for number, block in enumerate(blocks()):
        weight = block.weight
        log_likelihood, slope, curvature = _expansion(block, z)
        value, gradient = value - weight * log_likelihood, gradient - weight * slope
        precision = precision + weight * curvature
        if weight > 1:
            difference += (-1) ** number * weight * curvature
        if block.noise is None:
            square = count = math.nan
        else:
            square += 2 * weight * float(block.noise.log_normaliser - log_likelihood)
            count += weight * block.noise.num_observations
    error = math.nan
    if weight > 1:
        # Two halves of independent rows differ by as much as their sum errs.
        error = float(np.linalg.norm(difference) / np.linalg.norm(precision - np.eye(z.shape[0])))
    return LocalModel(float(value), gradient, precision, square, count, error)


def at_network(blocks: Blocks) -> Blocks:
    """The same data with the network's own outputs as offsets."""
    return lambda: (dataclasses.replace(block, offset=block.network) for block in blocks())


def best_noise_factor(
    around: LocalModel, eigenvalues: Float[np.ndarray, " r"], eigenvectors: Float[np.ndarray, "r r"]
) -> float:
    r"""The factor of the noise's standard deviation at which the evidence is highest, between 0.1 and 100.

    With targets whitened by their noise, $\lambda_j$ the eigenvalues of $A - I$ and $b_j$ the components of
    $\sum_i \Phi_i^\top H_i (y_i - \mu(x_i))$ along its eigenvectors, a factor c of all noise variances has

    $$-2 \log p(y \mid c) = \frac{s}{c} - \sum_j \frac{b_j^2}{c\,(c + \lambda_j)} + \sum_j \log\Bigl(1 + \frac{\lambda_j}{c}\Bigr)
    + n \log c + \mathrm{const}, \qquad s = \sum_i (y_i - \mu(x_i))^\top H_i\, (y_i - \mu(x_i)).$$

    Args:
        around: the objective around the prior mean, for Gaussian noise.
        eigenvalues: of A.
        eigenvectors: of A, in columns.

    Time $O(r^2)$: the sums of the first pass over the data are all it needs.
    """
    information = np.maximum(eigenvalues - 1.0, 0.0)
    squares = (around.gradient @ eigenvectors) ** 2

    def losses(log_factors: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        factors = np.exp(log_factors)[:, None]
        explained = np.sum(squares / (factors + information), axis=1)
        log_determinant = np.sum(np.log1p(information / factors), axis=1)
        return (around.square - explained) / factors[:, 0] + log_determinant + around.num_observations * log_factors

    lowest, highest = np.log(_choices.NOISE_FACTORS)
    grid = np.linspace(lowest, highest, 80)
    nearest = int(np.argmin(losses(grid)))
    between = grid[max(0, nearest - 1)], grid[min(grid.size - 1, nearest + 1)]
    best, *_ = fminbound(lambda at: losses(np.array([at]))[0], *between, full_output=True)
    return float(np.exp(0.5 * best))


def _finite(mode: Mode) -> Mode:
    if not math.isfinite(mode.value):
        raise FloatingPointError(
            "laplace: the log-likelihood of the linearised model is not finite; check y and the likelihood"
        )
    return mode


def _expansion(block: Block, z):
    """Log-likelihood, its slope and the negative of its curvature in z."""
    if block.noise is None:
        padded, rank = _padded(block), z.shape[0]
        added = padded.features.shape[2] - rank
        value, slope, curvature = map(np.asarray, in_float64(_differentiate)(padded, np.pad(z, (0, added))))
        return value, slope[:rank], curvature[:rank, :rank]
    features = block.features.reshape(-1, block.features.shape[2])
    weighted = features / block.noise.variance.reshape(-1, 1)
    residual = (block.targets - block.outputs(z)).ravel()
    return _log_likelihood(block, z), weighted.T @ residual, weighted.T @ features


def _log_likelihood(block: Block, z) -> float:
    if block.noise is None:
        padded = _padded(block)
        return float(in_float64(_sum_log_prob)(padded, np.pad(z, (0, padded.features.shape[2] - z.shape[0]))))
    residual = block.targets - block.outputs(z)
    return block.noise.log_normaliser - 0.5 * float(np.sum(residual**2 / block.noise.variance))


def _padded(block: Block) -> Block:
    """Zeros up to a round number of directions, so that posteriors of similar rank share compiled programs."""
    added = -block.features.shape[2] % _choices.MODE_MULTIPLE
    if block.features.nbytes > _choices.LARGEST_PADDED or not added:
        return block
    return dataclasses.replace(block, features=np.pad(block.features, ((0, 0), (0, 0), (0, added))))


@eqx.filter_jit
def _sum_log_prob(block: Block, z):
    return jnp.sum(block.likelihood.log_prob(block.outputs(z), jnp.asarray(block.targets)))


@eqx.filter_jit
def _differentiate(block: Block, z):
    value, slope = jax.value_and_grad(lambda at: _sum_log_prob(block, at))(z)
    features = jnp.asarray(block.features)
    weighted = block.likelihood.curvature_product(block.outputs(z), jnp.asarray(block.targets), features)
    return value, slope, jnp.tensordot(features, weighted, axes=((0, 1), (0, 1)))
