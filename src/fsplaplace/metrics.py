"""Scores of predictions: Gaussian regression, classification, out-of-distribution detection.

Two likelihood scores are kept apart by name everywhere. The *expected log-likelihood* `E_q log p(y|f)` is
what the FSP-Laplace paper reports; in it the posterior variance is a penalty. The *log predictive density*
`log E_q p(y|f)` is the proper score. Jensen's inequality puts the first below the second.

Every function is pure and traceable. Nothing is clipped: a label of probability zero scores `-inf`, and
predictions of NaN give NaN, never a score. Regression arrays are (n,) or (n, q); (n,) and (n, 1) mean the
same. In the shapes, q counts outputs, s posterior samples and c classes.
"""

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import entr, logsumexp, xlog1py
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike
from scipy.special import ndtri

from fsplaplace.arguments import checked

# How far rounding may take probabilities from adding up to one.
_ROUNDED = 1e-3

# --- Gaussian regression ------------------------------------------------------------------------------------


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
    return _average(terms.sum(axis=1), per_point)


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
    return _average(terms.sum(axis=1), per_point)


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
    return _average(terms.mean(axis=1), per_point)


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


# --- Classification -----------------------------------------------------------------------------------------
# A Bernoulli model with logit f is the two-class case with logits (0, f).


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
    return _average(_sample_log_likelihoods(labels, logits).mean(axis=0), per_point)


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
    return _average(logsumexp(log_likelihoods, axis=0) - jnp.log(log_likelihoods.shape[0]), per_point)


@checked(traceable=True)
def log_predictive_density_from_probabilities(
    labels: ArrayLike, probabilities: ArrayLike, *, per_point: bool = False
) -> Float[Array, ""] | Float[Array, " n"]:
    """Log predictive density `log p[label]` when only the averaged probabilities (n, c) are at hand; O(n).

    Examples:
        >>> round(float(fsp.metrics.log_predictive_density_from_probabilities([1], [[0.5, 0.5]])), 4)
        -0.6931
    """
    return _average(jnp.log(_label_entries(labels, _probabilities(probabilities))), per_point)


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


# --- Out-of-distribution detection --------------------------------------------------------------------------


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


# --- Shapes and shared terms --------------------------------------------------------------------------------


def _average(terms: Float[Array, " n"], per_point: bool) -> Array:
    return terms if per_point else terms.mean()


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


def _scores(**named: ArrayLike) -> tuple[Array, ...]:
    arrays = {name: jnp.asarray(value) for name, value in named.items()}
    for name, array in arrays.items():
        if array.ndim != 1 or array.size == 0:
            raise ValueError(f"{name} has shape {array.shape}; pass one score per point, (n,) with n > 0")
    dtype = jnp.result_type(float, *arrays.values())
    return tuple(array.astype(dtype) for array in arrays.values())
