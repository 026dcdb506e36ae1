"""Scores of Gaussian predictions."""

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from scipy.special import ndtri

from fsplaplace.arguments import checked
from fsplaplace.metrics._average import average


@checked(traceable=True)
def expected_log_likelihood(
    y: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    *,
    noise_variance: ArrayLike,
    per_point: bool = False,
) -> Float[Array, ""] | Float[Array, " n"]:
    """Expected log-likelihood of a Gaussian posterior under Gaussian noise, E_q log p(y|f).

    With q(f) = N(mean, variance) and noise variance s2 it is, summed over outputs,
    `log N(y; mean, s2) - variance / (2 s2)`. The sum is exact even if the posterior correlates outputs.

    **Arguments:**

    - `y`, `mean`, `variance`: targets, predictive means and epistemic variances, (n,) or (n, q).
    - `noise_variance`: a scalar, (q,) for one per output, or (n, q) for one per point ((n,) when q = 1).
    - `per_point`: return the n terms instead of their mean.

    **Returns:** the average over points; O(n q).

    Examples:
        >>> round(float(fsp.metrics.expected_log_likelihood([0.0], [0.0], [0.0], noise_variance=1.0)), 4)
        -0.9189
    """
    y, mean, variance = _regression_arrays(y=y, mean=mean, variance=variance)
    noise = _noise_variance(noise_variance, y)
    terms = norm.logpdf(y, mean, jnp.sqrt(noise)) - 0.5 * variance / noise
    return average(terms.sum(axis=1), per_point)


@checked(traceable=True)
def log_predictive_density(
    y: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    *,
    noise_variance: ArrayLike,
    per_point: bool = False,
) -> Float[Array, ""] | Float[Array, " n"]:
    """Log predictive density of a Gaussian posterior under Gaussian noise, log E_q p(y|f).

    Equals `log N(y; mean, variance + noise_variance)`, summed over outputs: the joint density of a point's
    outputs when the posterior treats them as independent, the product of their marginals otherwise.

    Arguments, return value and cost as in `expected_log_likelihood`.

    Examples:
        >>> round(float(fsp.metrics.log_predictive_density([0.0], [0.0], [0.5], noise_variance=0.5)), 4)
        -0.9189
    """
    y, mean, variance = _regression_arrays(y=y, mean=mean, variance=variance)
    noise = _noise_variance(noise_variance, y)
    terms = norm.logpdf(y, mean, jnp.sqrt(variance + noise))
    return average(terms.sum(axis=1), per_point)


@checked(traceable=True)
def mse(y: ArrayLike, mean: ArrayLike) -> Float[Array, ""]:
    """Mean squared error, averaged over points and outputs; O(n q).

    Examples:
        >>> float(fsp.metrics.mse([1.0, 3.0], [1.0, 1.0]))
        2.0
    """
    y, mean = _regression_arrays(y=y, mean=mean)
    return jnp.mean((y - mean) ** 2)


@checked(traceable=True)
def rmse(y: ArrayLike, mean: ArrayLike) -> Float[Array, ""]:
    """Root of the mean squared error over points and outputs; O(n q).

    Examples:
        >>> float(fsp.metrics.rmse([4.0, 2.0], [1.0, -1.0]))
        3.0
    """
    return jnp.sqrt(mse(y, mean))


@checked(traceable=True)
def crps(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    per_point: bool = False,
) -> Float[Array, ""] | Float[Array, " n"]:
    """Continuous ranked probability score of N(mean, std^2); smaller is better.

    `CRPS = (y - mean) (2 Phi(z) - 1) + 2 std phi(z) - std / sqrt(pi)`, z = (y - mean) / std, averaged over
    points and outputs. Pass the total standard deviation (noise included). O(n q).
    Gneiting and Raftery (2007), eq. 21.

    Examples:
        >>> round(float(fsp.metrics.crps([0.0], [0.0], [1.0])), 4)
        0.2337
    """
    y, mean, std = _regression_arrays(y=y, mean=mean, std=std)
    residual = y - mean
    z = residual / std
    terms = residual * jax.lax.erf(z / jnp.sqrt(2.0).astype(z.dtype)) + 2 * std * norm.pdf(z) - std / jnp.sqrt(jnp.pi)
    return average(terms.mean(axis=1), per_point)


@checked(traceable=True)
def interval_coverage(
    y: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    *,
    level: float = 0.9,
) -> Float[Array, ""]:
    """Fraction of targets inside the central Gaussian interval `mean +- Phi^-1((1 + level) / 2) std`.

    Averaged over points and outputs (marginal intervals, not a joint region); a calibrated predictive covers
    `level`. Pass the total standard deviation, noise included. `level` is static under jit. O(n q).

    Examples:
        >>> float(fsp.metrics.interval_coverage([0.0, 5.0], [0.0, 0.0], [1.0, 1.0], level=0.9))
        0.5
    """
    y, mean, std = _regression_arrays(y=y, mean=mean, std=std)
    # The gap, and not two comparisons with bounds, keeps a NaN visible instead of counting it as a miss.
    gap = jnp.abs(y - mean) - _half_width(level) * std
    return jnp.mean(jnp.where(jnp.isnan(gap), gap, gap <= 0))


@checked(traceable=True)
def interval_width(std: ArrayLike, *, level: float = 0.9) -> Float[Array, ""]:
    """Average length `2 Phi^-1((1 + level) / 2) std` of the interval of `interval_coverage`; O(n q).

    Examples:
        >>> round(float(fsp.metrics.interval_width([1.0], level=0.95)), 2)
        3.92
    """
    (std,) = _regression_arrays(std=std)
    return 2 * _half_width(level) * jnp.mean(std)


def _regression_arrays(**named: ArrayLike) -> tuple[Array, ...]:
    """The arguments as (n, q) arrays of one floating dtype, or an error that names the one that differs."""
    arrays = {name: jnp.asarray(value) for name, value in named.items()}
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            raise ValueError(f"{name} has shape {array.shape}; pass (n,) or (n, q)")
        if array.size == 0:
            raise ValueError(f"{name} has shape {array.shape}, which is empty; pass at least one point")
    for name in ("variance", "std"):
        if name in arrays and not isinstance(arrays[name], Tracer) and bool(jnp.any(arrays[name] < 0)):
            raise ValueError(
                f"{name} has negative values, down to {float(jnp.min(arrays[name])):.3g}; pass {name}s of zero or more"
            )
    dtype = jnp.result_type(float, *arrays.values())
    columns = {name: array.reshape(array.shape[0], -1).astype(dtype) for name, array in arrays.items()}
    first, *others = columns
    for other in others:
        if columns[other].shape != columns[first].shape:
            raise ValueError(
                f"{other} has shape {arrays[other].shape}, but {first} has {arrays[first].shape}; "
                "pass one row per point and one column per output in both"
            )
    return tuple(columns.values())


def _noise_variance(noise_variance: ArrayLike, y: Float[Array, "n q"]) -> Array:
    noise = jnp.asarray(noise_variance, y.dtype)
    if not isinstance(noise, Tracer) and not bool(jnp.all((noise >= 0) & jnp.isfinite(noise))):
        raise ValueError(
            f"noise_variance has negative, infinite or NaN values, down to {float(jnp.min(noise)):.3g}; pass zero or more"
        )
    if noise.ndim == 1 and y.shape[1] == 1 and noise.shape[0] == y.shape[0]:
        noise = noise[:, None]
    if noise.shape not in ((), (1,), (y.shape[1],), y.shape):
        raise ValueError(
            f"noise_variance has shape {noise.shape}; pass a scalar, ({y.shape[1]},) for one per output, "
            f"or {y.shape} for one per point and output"
        )
    return noise


def _half_width(level: float) -> float:
    """Phi^-1((1 + level) / 2), on the host, so that float32 inputs get a quantile in full precision."""
    return float(ndtri(0.5 * (1 + level)))
