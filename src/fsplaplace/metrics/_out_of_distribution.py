"""How well a score tells foreign inputs from those of the task."""

import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked


@checked(traceable=True)
def ood_accuracy(in_scores: ArrayLike, out_scores: ArrayLike) -> Float[Array, ""]:
    """Accuracy of the best single threshold that calls scores above it out-of-distribution.

    `max_t (#{in <= t} + #{out > t}) / (n + m)` over all t, infinite ones included, hence at least
    max(n, m) / (n + m). Scores are uncertainties: predictive or expected entropy for classes, predictive
    variance for regression. Exact, by sorting: O((n + m) log(n + m)). Set-up of Osawa et al. (2019).

    Examples:
        >>> float(fsp.metrics.ood_accuracy([0.1, 0.2], [0.8, 0.9]))
        1.0
    """
    in_scores, out_scores = _scores(in_scores=in_scores, out_scores=out_scores)
    thresholds = jnp.concatenate([in_scores, out_scores])
    accepted = jnp.searchsorted(jnp.sort(in_scores), thresholds, side="right")
    detected = out_scores.size - jnp.searchsorted(jnp.sort(out_scores), thresholds, side="right")
    best = jnp.maximum(jnp.max(accepted + detected), out_scores.size) / thresholds.size
    return jnp.where(jnp.isnan(thresholds).any(), jnp.nan, best)


@checked(traceable=True)
def auroc(in_scores: ArrayLike, out_scores: ArrayLike) -> Float[Array, ""]:
    """Area under the ROC curve, `P(out > in) + P(out = in) / 2`; by sorting, O((n + m) log n).

    Examples:
        >>> float(fsp.metrics.auroc([0.1, 0.4], [0.3, 0.9]))
        0.75
    """
    in_scores, out_scores = _scores(in_scores=in_scores, out_scores=out_scores)
    ordered = jnp.sort(in_scores)
    below = jnp.searchsorted(ordered, out_scores, side="left") / ordered.size
    not_above = jnp.searchsorted(ordered, out_scores, side="right") / ordered.size
    has_nan = jnp.isnan(in_scores).any() | jnp.isnan(out_scores).any()
    return jnp.where(has_nan, jnp.nan, jnp.mean(0.5 * (below + not_above)))


def _scores(**named: ArrayLike) -> tuple[Array, ...]:
    arrays = {name: jnp.asarray(value) for name, value in named.items()}
    for name, array in arrays.items():
        if array.ndim != 1 or array.size == 0:
            raise ValueError(f"{name} has shape {array.shape}; pass one score per point, (n,) with n > 0")
    dtype = jnp.result_type(float, *arrays.values())
    return tuple(array.astype(dtype) for array in arrays.values())
