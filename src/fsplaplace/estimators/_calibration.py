r"""How much of a posterior's variance the probabilities of classes are averaged over, chosen by leaving single labels out.

Laplace's Gaussian has the mode and the curvature of a posterior that is skewed: where labels separate, its mean is too near to zero and
its variance too large, and probabilities averaged over it are far too cautious (wine: log loss .18 where the mode alone has .07).
Each label is predicted from all others in closed form: with covariance S of the outputs and curvature W of the likelihood,

$$S_{-i} = (S^{-1} - W)^{-1}, \qquad f_{-i} = f - S_{-i}\, \nabla \log p(y_i \mid f).$$
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, softmax

# Shares of the variance to choose from. Some is always kept: far from the data nothing else says that the classes are unknown.
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
# Draws of the outputs: the error of an averaged probability is below 0.02, and alike for all shares.
_DRAWS = 1000
# Rows whose draws are held at once.
_ROWS = 256
# What one label may say of the outputs, of all that is known about them. A posterior that has seen the label stays below 1; above, its
# variance is the prior's own, which the network's features miss and no label has reduced, and there is nothing to take back.
_MOST_LEVERAGE = 0.95


def averaged_probabilities(
    mean: Float[np.ndarray, "n q"], covariance: Float[np.ndarray, "n q q"]
) -> Float[np.ndarray, "n c"]:
    """Probabilities of the classes, averaged over Gaussian outputs; one output is the logit of the second of two classes.

    The draws are the same for every row, so that a probability does not depend on the other rows. Time $O(n q (q + 1000))$.
    """
    eigenvalues, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))[:, None, :]
    normal = np.random.default_rng(0).normal(size=(_DRAWS // 2, mean.shape[1]))
    normal = np.concatenate([normal, -normal])
    parts = []
    for start in range(0, len(mean), _ROWS):
        part = slice(start, start + _ROWS)
        outputs = mean[part] + np.einsum("nab,sb->sna", root[part], normal, optimize=True)
        found = (
            softmax(outputs, axis=2) if mean.shape[1] > 1 else np.concatenate([expit(-outputs), expit(outputs)], axis=2)
        )
        parts.append(found.mean(axis=0))
    return np.concatenate(parts)


def without_own_label(
    mean: Float[np.ndarray, "n q"],
    covariance: Float[np.ndarray, "n q q"],
    labels: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, "n q"], Float[np.ndarray, "n q q"]]:
    """Means and covariances of the outputs at training rows, each without what the row's own labels said.

    Args:
        mean: the mode of the outputs.
        covariance: of the outputs of each row.
        labels: numbers of the classes.
        weights: how often each label was seen.
    """
    q = mean.shape[1]
    p = softmax(mean, axis=1) if q > 1 else expit(mean)
    target = np.eye(q)[labels] if q > 1 else labels[:, None].astype(float)
    slope = weights[:, None] * (target - p)
    curvature = weights[:, None, None] * (p[:, :, None] * np.eye(q) - p[:, :, None] * p[:, None, :])
    eigenvalues, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(eigenvalues, 0.0))[:, None, :]) @ vectors.transpose(0, 2, 1)
    leverage, directions = np.linalg.eigh(root @ curvature @ root)
    known = leverage < _MOST_LEVERAGE
    widened = root @ directions / np.sqrt(1 - np.where(known, np.maximum(leverage, 0.0), 0.0))[:, None, :]
    moved = root @ directions / np.sqrt(np.where(known, 1 - leverage, np.inf))[:, None, :]
    step = np.einsum("nac,nbc,nb->na", moved, moved, slope, optimize=True)
    return mean - step, widened @ widened.transpose(0, 2, 1)


def variance_share(
    mean: Float[np.ndarray, "n q"],
    covariance: Float[np.ndarray, "n q q"],
    labels: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
) -> float:
    """The share with the highest log score of labels that are left out one by one; arguments as in `without_own_label`."""
    left, spread = without_own_label(mean, covariance, labels, weights)
    rows, scores = np.arange(len(labels)), []
    for share in SHARES:
        probabilities = averaged_probabilities(left, share * spread)[rows, labels]
        scores.append(float(np.sum(weights * np.log(np.maximum(probabilities, 1e-300)))))
    return SHARES[int(np.argmax(scores))]
