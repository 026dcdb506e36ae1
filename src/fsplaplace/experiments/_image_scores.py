"""Scores of a posterior over classes of images, and what the figures show of it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from scipy.ndimage import rotate

from fsplaplace import metrics
from fsplaplace.experiments._experiment import Outcome, Row
from fsplaplace.experiments._image_data import Images
from fsplaplace.experiments._image_pixels import packed
from fsplaplace.experiments._methods import rounded

NUM_CLASSES = 10
# Angles at which test images are turned.
_ANGLES = tuple(range(0, 181, 15))

Draw = Callable[[Float[np.ndarray, "n h w c"], Any], Any]


def score(
    name: str, draw: Draw, images: Images, *, key: PRNGKeyArray, kmnist: bool = True, probabilistic: bool = True
) -> Outcome:
    """The row of one posterior, and what the figures show of it.

    Args:
        name: of the row.
        draw: from images and a key to logits of functions drawn from the posterior, (s, n, k).
        images: to be asked about.
        key: for the draws.
        kmnist: whether images of KMNIST are foreign, too: not if the prior was enforced at some of them.
        probabilistic: whether draws differ.
    """

    def logits(x: Float[np.ndarray, "n h w c"]) -> Float[np.ndarray, "s n k"]:
        parts = [np.asarray(draw(x[start : start + 500], key), np.float32) for start in range(0, len(x), 500)]
        return np.concatenate(parts, axis=1)

    test, other = logits(images.X_test), logits(images.X_other)
    probabilities, foreign = (np.asarray(metrics.predictive_probabilities(each)) for each in (test, other))
    mean_entropy = [np.asarray(metrics.expected_entropy(each[:10])) for each in (test, other)]
    entropy = [np.asarray(metrics.predictive_entropy(each)) for each in (probabilities, foreign)]
    scores: dict[str, float | None] = {
        "expected_log_likelihood": float(metrics.expected_log_likelihood_from_logits(images.y_test, test[:10])),
        "log_predictive_density": float(metrics.log_predictive_density_from_logits(images.y_test, test)),
        "accuracy": float(metrics.accuracy(images.y_test, probabilities)),
        "ece": float(metrics.expected_calibration_error(images.y_test, probabilities)),
        "ood_accuracy": float(metrics.ood_accuracy(*mean_entropy)),
        "auroc_mean_entropy": float(metrics.auroc(*mean_entropy)),
        "auroc_entropy": float(metrics.auroc(*entropy)),
    }
    if probabilistic:
        spread = [np.sqrt(np.mean(np.var(each, axis=0), axis=1)) for each in (test, other)]
        scores |= {
            "auroc_variance": float(metrics.auroc(*spread)),
            "std_test": float(np.mean(spread[0])),
            "std_other": float(np.mean(spread[1])),
        }
    if kmnist:
        entropy_of_kmnist = np.asarray(
            metrics.predictive_entropy(metrics.predictive_probabilities(logits(images.kmnist_test)))
        )
        scores["auroc_kmnist"] = float(metrics.auroc(entropy[0], entropy_of_kmnist))
    curves = {
        "entropy": {"test": _histogram(entropy[0]), "other": _histogram(entropy[1])},
        "rotation": _rotation(images, logits),
        "reliability": _reliability(images.y_test, probabilities),
        "images": _extremes(images, *entropy),
    }
    return Outcome((Row(name, scores, f"{len(images.X_test):,} test images"),), curves={name: curves})


def _histogram(entropy: Float[np.ndarray, " n"]) -> list:
    shares, _ = np.histogram(entropy, bins=40, range=(0.0, float(np.log(NUM_CLASSES))))
    return rounded(shares / len(entropy), 3)


def _rotation(images: Images, logits) -> dict[str, Any]:
    """Mean entropy at each angle, over the first 50 test images."""
    some = _squares(images.X_test[:50])
    turned = [np.clip(rotate(some, angle, axes=(1, 2), reshape=False, order=1), 0, 1) for angle in _ANGLES]
    stacked = np.concatenate(turned).astype(np.float32).reshape(-1, *images.X_test.shape[1:])
    found = np.asarray(metrics.predictive_entropy(metrics.predictive_probabilities(logits(stacked))))
    entropy = found.reshape(len(_ANGLES), -1)
    example = np.stack([each[0, ..., 0] for each in turned])
    return {
        "angles": list(_ANGLES),
        "entropy": rounded(entropy.mean(axis=1), 4),
        "example": packed(example),
        "example_entropy": rounded(entropy[:, 0], 3),
    }


def _squares(x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n h h c"]:
    """Images, which methods for tables are given as rows."""
    side = math.isqrt(math.prod(x.shape[1:3] if x.ndim == 4 else x.shape[1:]))
    return x.reshape(len(x), side, side, -1)


def _reliability(labels, probabilities: Float[np.ndarray, "n c"]) -> dict[str, list]:
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    index = np.clip((15 * confidence).astype(int), 0, 14)
    count = np.bincount(index, minlength=15)
    used = count > 0
    mean = [np.bincount(index, values, minlength=15)[used] / count[used] for values in (confidence, right)]
    return {"confidence": rounded(mean[0], 4), "right": rounded(mean[1], 4), "count": count[used].tolist()}


def _extremes(images: Images, test: Float[np.ndarray, " n"], other: Float[np.ndarray, " m"]) -> dict[str, Any]:
    """Eight images each: surest and least sure of the test images, surest of the foreign ones."""

    def page(x, order, entropy):
        return {"pixels": packed(_squares(x[order])[..., 0]), "entropy": rounded(entropy[order], 3)}

    return {
        "most certain": page(images.X_test, np.argsort(test)[:8], test),
        "least certain": page(images.X_test, np.argsort(test)[-8:], test),
        "foreign, most certain": page(images.X_other, np.argsort(other)[:8], other),
    }
