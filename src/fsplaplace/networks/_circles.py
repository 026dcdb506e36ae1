"""Inputs wound up on circles: a function that repeats along a column is a smooth one of a point on a circle."""

from collections.abc import Sequence
from typing import overload

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.kernels import Circle, circles
from fsplaplace.prior import Prior

# Inputs are wound up where a region is longer than this many periods: up to there 2 x 50 units hold a periodic kernel of length
# scale 1 (`fsplaplace.holds` without circles: .004 nats lost at 8 periods, .11 at 16, 1.6 at 100).
_MOST_PERIODS = 6.0
# Circles of one network; a prior with more periods keeps the shortest ones as length scales.
_MOST_CIRCLES = 8


def circles_in(prior: Prior, pool: Float[np.ndarray, "k d"]) -> tuple[Circle, ...]:
    """The circles on which a prior repeats more often within a region than units along a line can follow, longest first."""
    found = {circle for part in prior.blocks.kernels for circle in circles(part, pool.shape[1])}
    ranges = np.ptp(pool, axis=0)
    many = [circle for circle in found if ranges[circle.column] > _MOST_PERIODS * circle.period]
    return tuple(sorted(many, key=lambda circle: (-circle.period, circle.column))[:_MOST_CIRCLES])


def frequencies_of(wound: Sequence[Circle], scale: Float[np.ndarray, " d"]) -> Float[np.ndarray, "c d"]:
    """Turns for each unit of each column, for columns that were divided by `scale`; one row for each circle."""
    found = np.zeros((len(wound), scale.size))
    for row, circle in zip(found, wound, strict=True):
        row[circle.column] = scale[circle.column] / circle.period
    return found


@overload
def beside_circles(z: Float[np.ndarray, "n d"], frequencies: Float[np.ndarray, "c d"]) -> Float[np.ndarray, "n w"]: ...


@overload
def beside_circles(z: Float[Array, "n d"], frequencies: Float[Array, "c d"]) -> Float[Array, "n w"]: ...


def beside_circles(z, frequencies):
    r"""$(z, \sin 2 \pi F_1 z, \cos 2 \pi F_1 z, \sin 2 \pi F_2 z, \dots)$ for rows z and frequencies F: (n, d) -> (n, d + 2 c)."""
    library = np if isinstance(z, np.ndarray) else jnp
    phase = 2 * np.pi * (z @ frequencies.T)
    wound = library.stack([library.sin(phase), library.cos(phase)], axis=-1)
    return library.concatenate([z, wound.reshape(z.shape[0], -1)], axis=1)
