"""Scores of class probabilities, and of the logits of posterior functions."""

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import entr, logsumexp, xlog1py
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.metrics._average import average

# How far rounding may take probabilities from adding up to one.
_ROUNDED = 1e-3


@checked(traceable=True)
def expected_log_likelihood_from_logits(
    labels: ArrayLike, logits: ArrayLike, *, per_point: bool = False
) -> Float[Array, ""] | Float[Array, " n"]:
    """Expected log-likelihood of a categorical model, `1/s sum_s log softmax(f_s)[label]`.

    `logits` are posterior samples (s, n, c); a point estimate has s = 1. `per_point` returns the n terms
    instead of their mean. O(s n c).

    Examples:
        >>> round(float(fsp.metrics.expected_log_likelihood_from_logits([0], np.zeros((1, 1, 2)))), 4)
        -0.6931
    """
    return average(_sample_log_likelihoods(labels, logits).mean(axis=0), per_point)


@checked(traceable=True)
def log_predictive_density_from_logits(
    labels: ArrayLike, logits: ArrayLike, *, per_point: bool = False
) -> Float[Array, ""] | Float[Array, " n"]:
    """Log predictive density of a categorical model, `log 1/s sum_s softmax(f_s)[label]`, by log-sum-exp.

    Arguments, return value and cost as in `expected_log_likelihood_from_logits`.

    Examples:
        >>> round(float(fsp.metrics.log_predictive_density_from_logits([0], np.zeros((5, 1, 2)))), 4)
        -0.6931
    """
    log_likelihoods = _sample_log_likelihoods(labels, logits)
    return average(logsumexp(log_likelihoods, axis=0) - jnp.log(log_likelihoods.shape[0]), per_point)


@checked(traceable=True)
def log_predictive_density_from_probabilities(
    labels: ArrayLike, probabilities: ArrayLike, *, per_point: bool = False
) -> Float[Array, ""] | Float[Array, " n"]:
    """Log predictive density `log p[label]` when only the averaged probabilities (n, c) are at hand; O(n).

    Examples:
        >>> round(float(fsp.metrics.log_predictive_density_from_probabilities([1], [[0.5, 0.5]])), 4)
        -0.6931
    """
    return average(jnp.log(_label_entries(labels, _probabilities(probabilities))), per_point)


@checked(traceable=True)
def predictive_probabilities(logits: ArrayLike) -> Float[Array, "n c"]:
    """Monte-Carlo class probabilities `1/s sum_s softmax(f_s)`; O(s n c).

    Examples:
        >>> fsp.metrics.predictive_probabilities(np.zeros((5, 1, 2))).tolist()
        [[0.5, 0.5]]
    """
    return jax.nn.softmax(_class_array("logits", logits, 3), axis=-1).mean(axis=0)


@checked(traceable=True)
def accuracy(labels: ArrayLike, probabilities: ArrayLike) -> Float[Array, ""]:
    """Fraction of points whose most probable class is the label (first of tied classes counts); O(n c).

    Examples:
        >>> float(fsp.metrics.accuracy([0, 1], [[0.9, 0.1], [0.6, 0.4]]))
        0.5
    """
    probabilities = _probabilities(probabilities)
    return jnp.mean(_hits(_labels(labels, probabilities), probabilities))


@checked(traceable=True)
def expected_calibration_error(labels: ArrayLike, probabilities: ArrayLike, *, num_bins: int = 15) -> Float[Array, ""]:
    """Expected calibration error of the most probable class over equal-width confidence bins.

    `ECE = sum_b n_b / n |accuracy_b - confidence_b|`, bin b holding the points with confidence in
    (b/B, (b+1)/B]. O(n c). Guo et al. (2017).

    Examples:
        >>> round(float(fsp.metrics.expected_calibration_error([0, 1], [[0.8, 0.2], [0.2, 0.8]])), 2)
        0.2
    """
    probabilities = _probabilities(probabilities)
    hits = _hits(_labels(labels, probabilities), probabilities)
    confidence = probabilities.max(axis=-1)
    # Inner edges only: a confidence that rounding put above 1 still falls into the last bin.
    edges = jnp.arange(1, num_bins, dtype=confidence.dtype) / num_bins
    bins = jnp.searchsorted(edges, confidence, side="left")
    gaps = jax.ops.segment_sum(hits - confidence, bins, num_segments=num_bins)
    return jnp.abs(gaps).sum() / hits.size


@checked(traceable=True)
def brier_score(labels: ArrayLike, probabilities: ArrayLike) -> Float[Array, ""]:
    """Brier score `1/n sum_i sum_c (p_ic - 1[c = label_i])^2`, between 0 and 2; O(n c).

    Examples:
        >>> float(fsp.metrics.brier_score([0], [[0.5, 0.5]]))
        0.5
    """
    probabilities = _probabilities(probabilities)
    at_label = _label_entries(labels, probabilities)
    return jnp.mean((probabilities**2).sum(axis=-1) - at_label**2 + (1 - at_label) ** 2)


@checked(traceable=True)
def predictive_entropy(probabilities: ArrayLike) -> Float[Array, " n"]:
    """Entropy of the averaged prediction, `-sum_c p_c log p_c`, nats per point (total part); O(n c).

    Examples:
        >>> round(float(fsp.metrics.predictive_entropy([[0.5, 0.5]])[0]), 4)
        0.6931
    """
    return entr(_probabilities(probabilities)).sum(axis=-1)


@checked(traceable=True)
def expected_entropy(logits: ArrayLike) -> Float[Array, " n"]:
    """Average over samples of each sample's entropy, nats per point (aleatoric part); O(s n c).

    Examples:
        >>> round(float(fsp.metrics.expected_entropy(np.zeros((5, 1, 2)))[0]), 4)
        0.6931
    """
    probabilities = jax.nn.softmax(_class_array("logits", logits, 3), axis=-1)
    return entr(probabilities).sum(axis=-1).mean(axis=0)


@checked(traceable=True)
def mutual_information(logits: ArrayLike) -> Float[Array, " n"]:
    """Mutual information of label and function, in nats, per point (epistemic part).

    `I = H[p] - mean_s H[p_s] = mean_s sum_c p_c phi(p_sc / p_c)` with p = mean_s p_s and
    `phi(1 + u) = (1 + u) log(1 + u) - u`: where samples agree, the first form is rounding error, the second
    keeps its digits. O(s n c).

    Examples:
        Samples that agree have nothing to tell each other:

        >>> float(fsp.metrics.mutual_information(np.zeros((5, 1, 2)))[0])
        0.0
    """
    probabilities = jax.nn.softmax(_class_array("logits", logits, 3), axis=-1)
    average = probabilities.mean(axis=0)
    possible = average > 0
    u = (probabilities - average) / jnp.where(possible, average, 1)
    terms = jnp.where(possible, average * (xlog1py(1 + u, u) - u), average)
    return terms.sum(axis=-1).mean(axis=0)


def _class_array(name: str, value: ArrayLike, ndim: int) -> Array:
    array = jnp.asarray(value)
    wanted = {2: "(n, c)", 3: "(s, n, c), a point estimate with s = 1"}[ndim]
    if array.ndim != ndim:
        raise ValueError(f"{name} has shape {array.shape}; pass {wanted}")
    if array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}, which is empty; pass {wanted} with at least one point")
    return array.astype(jnp.result_type(float, array))


def _probabilities(values: ArrayLike) -> Array:
    array = _class_array("probabilities", values, 2)
    if isinstance(array, Tracer):
        return array
    # NaN compares as false, and stays.
    total = array.sum(axis=-1)
    if jnp.any(array < -_ROUNDED) or jnp.any(jnp.abs(total - 1) > _ROUNDED):
        raise ValueError(
            f"probabilities run from {array.min():.3g} to {array.max():.3g}, and their rows add up to {total.min():.3g} to "
            f"{total.max():.3g}, not to 1; pass probabilities (softmax of logits)"
        )
    return array


def _labels(labels: ArrayLike, classes: Float[Array, "*s n c"]) -> Int[Array, " n"]:
    labels = jnp.asarray(labels)
    num_points, num_classes = classes.shape[-2:]
    if labels.shape != (num_points,):
        raise ValueError(f"labels has shape {labels.shape}; pass ({num_points},), one label per row of the predictions")
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(f"labels has dtype {labels.dtype}; pass integer class indices")
    # Under jit the values are not known yet, so only shape and dtype can be checked there.
    if not isinstance(labels, Tracer) and not (labels.min() >= 0 and labels.max() < num_classes):
        raise ValueError(
            f"labels run from {labels.min()} to {labels.max()}, but the predictions (probabilities or logits) have {num_classes} "
            f"classes; pass indices 0 to {num_classes - 1}"
        )
    return labels


def _label_entries(labels: ArrayLike, classes: Float[Array, "*s n c"]) -> Float[Array, "*s n"]:
    """The entry of each row at its label."""
    labels = _labels(labels, classes)
    index = jnp.broadcast_to(labels[:, None], (*classes.shape[:-1], 1))
    return jnp.take_along_axis(classes, index, axis=-1, mode="fill")[..., 0]


def _sample_log_likelihoods(labels: ArrayLike, logits: ArrayLike) -> Float[Array, "s n"]:
    return _label_entries(labels, jax.nn.log_softmax(_class_array("logits", logits, 3), axis=-1))


def _hits(labels: Int[Array, " n"], probabilities: Float[Array, "n c"]) -> Float[Array, " n"]:
    """One where the most probable class is the label, zero where not, NaN where a probability is NaN."""
    hits = (probabilities.argmax(axis=-1) == labels).astype(probabilities.dtype)
    return jnp.where(jnp.isnan(probabilities).any(axis=-1), jnp.nan, hits)
