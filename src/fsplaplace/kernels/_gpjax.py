"""GPJax's kernels, one entry each."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from gpjax.kernels import (
    RBF,
    ArcCosine,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    PoweredExponential,
    RationalQuadratic,
    White,
)
from gpjax.parameters import val
from jaxtyping import Array, Float

from . import _profiles as profiles
from ._arc_cosine import arc_cosine, arc_cosine_variance
from ._distance import squared_distance
from ._entry import STARTS, Circle, DataSummary, KernelEntry, Remarks, Start, around
from ._pairs import Pairs
from ._periodic import periodic_features


def radial_entry(
    profile: Callable[[Any, Float[Array, "n m"]], Float[Array, "n m"]], smoothness: Callable[[Any], float]
) -> KernelEntry:
    """The entry of a stationary kernel with `variance` and `lengthscale`, v ρ(s) with s = |x - y|² / ℓ².

    Args:
        profile: ρ, from the kernel and the squared distances in units of ℓ; one at zero.
        smoothness: ν of the kernel.
    """

    def covariance(kernel, pairs: Pairs):
        return _amplitude(kernel) * profile(kernel, pairs.scaled_distance(kernel))

    return KernelEntry(covariance, _constant_variance, lengthscales=own_lengthscales, smoothness=smoothness)


def own_lengthscales(kernel: Any, num_features: int) -> Float[Array, " d"]:
    """The kernel's `lengthscale` along its own columns, infinite along others."""
    return _along_columns(kernel, jnp.asarray(val(kernel.lengthscale)), num_features)


def _along_columns(kernel: Any, scale: Array, num_features: int) -> Float[Array, " d"]:
    columns = np.arange(num_features)[kernel.active_dims]
    return jnp.full(num_features, jnp.inf, scale.dtype).at[columns].set(scale)


def _amplitude(kernel: Any) -> Float[Array, ""]:
    return jnp.asarray(val(kernel.variance)).reshape(())


def _constant_variance(kernel: Any, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    return jnp.broadcast_to(_amplitude(kernel), x.shape[:1]).astype(x.dtype)


def _analytic(kernel: Any) -> float:
    return math.inf


def _power_smoothness(kernel: PoweredExponential) -> float:
    power = float(val(kernel.power))
    return power / 2 if power < 2 else math.inf


def _periodic_covariance(kernel: Periodic, pairs: Pairs) -> Float[Array, "n m"]:
    x, y = periodic_features(kernel, pairs.x, pairs.y)
    return _amplitude(kernel) * profiles.rbf(squared_distance(x, y))


def _periodic_lengthscales(kernel: Periodic, num_features: int) -> Float[Array, " d"]:
    """ℓ p / π, as the RBF with the same curvature at zero."""
    scale = jnp.asarray(val(kernel.lengthscale)) * val(kernel.period) / jnp.pi
    return _along_columns(kernel, scale, num_features)


def _periodic_circles(kernel: Periodic, num_features: int) -> Mapping[Circle, float]:
    """On circles of radius 1 it is an RBF of twice its length scale."""
    columns = np.arange(num_features)[kernel.active_dims]
    lengths = np.broadcast_to(2.0 * np.asarray(val(kernel.lengthscale), np.float64), columns.shape)
    period = float(val(kernel.period))
    return {Circle(int(column), period): float(length) for column, length in zip(columns, lengths, strict=True)}


def _periodic_remarks(kernel: Periodic, ranges: Float[np.ndarray, " d"] | None) -> Remarks:
    period = float(val(kernel.period))
    warnings = ()
    if ranges is not None and period > np.max(ranges):
        warnings = (
            f"the period {period:.3g} is longer than the data's range of {np.max(ranges):.3g}, which then shows no "
            "repetition",
        )
    return Remarks((f"functions repeat with period {period:.4g}.",), warnings)


def _constant(kernel: Constant) -> Float[Array, ""]:
    return jnp.asarray(val(kernel.constant)).reshape(())


def _slope_variance(data: DataSummary, shape: tuple[int, ...]) -> Start:
    """A variance per unit of |x|²."""
    return around(data.variance / max(data.mean_square, 1e-300))


ENTRIES: dict[type, KernelEntry] = {
    RBF: radial_entry(lambda kernel, s: profiles.rbf(s), _analytic),
    Matern12: radial_entry(lambda kernel, s: profiles.matern12(s), lambda kernel: 0.5),
    Matern32: radial_entry(lambda kernel, s: profiles.matern32(s), lambda kernel: 1.5),
    Matern52: radial_entry(lambda kernel, s: profiles.matern52(s), lambda kernel: 2.5),
    RationalQuadratic: radial_entry(lambda kernel, s: profiles.rational_quadratic(s, val(kernel.alpha)), _analytic),
    PoweredExponential: radial_entry(
        lambda kernel, s: profiles.powered_exponential(s, val(kernel.power)), _power_smoothness
    ),
    Periodic: KernelEntry(
        _periodic_covariance,
        _constant_variance,
        lengthscales=_periodic_lengthscales,
        circles=_periodic_circles,
        smoothness=_analytic,
        # Its length scale is in units of the period's phase, not of the inputs.
        starts={**STARTS, "lengthscale": lambda data, shape: Start(1.0, 0.05, 50.0)},
        remarks=_periodic_remarks,
    ),
    White: KernelEntry(
        lambda kernel, pairs: jnp.where(pairs.coincident(), _amplitude(kernel), 0.0),
        _constant_variance,
        kind="noise",
        starts={"variance": lambda data, shape: around(0.1 * data.variance)},
    ),
    Constant: KernelEntry(
        lambda kernel, pairs: jnp.broadcast_to(_constant(kernel), pairs.shape),
        lambda kernel, x: jnp.broadcast_to(_constant(kernel), x.shape[:1]).astype(x.dtype),
        kind="scale-free",
        starts={"constant": lambda data, shape: Start(data.variance, 0.0, 1e4 * data.variance)},
        scale="constant",
    ),
    Linear: KernelEntry(kind="scale-free", starts={"variance": _slope_variance}),
    Polynomial: KernelEntry(kind="scale-free", starts={"variance": _slope_variance}),
    ArcCosine: KernelEntry(
        lambda kernel, pairs: arc_cosine(kernel, pairs.x, pairs.y),
        arc_cosine_variance,
        # J_n differs from a polynomial in |x - y|² by a multiple of |x - y|^(2n + 1).
        smoothness=lambda kernel: kernel.order + 0.5,
    ),
}
