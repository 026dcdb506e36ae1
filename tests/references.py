"""Dense float64 references in NumPy: they share no code with the library."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Reference(NamedTuple):
    """Posterior mean and covariance of the function at test points, and the (approximate) log evidence."""

    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float

    @property
    def std(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))


def rbf(x: np.ndarray, y: np.ndarray, lengthscale: float, variance: float = 1.0) -> np.ndarray:
    squared = np.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=2)
    return variance * np.exp(-0.5 * squared / lengthscale**2)


def exact_gp(K: np.ndarray, cross: np.ndarray, test: np.ndarray, y: np.ndarray, noise: np.ndarray) -> Reference:
    """Gaussian-process regression with zero mean; `noise` is the standard deviation, one number or one per datum."""
    lower = np.linalg.cholesky(K + np.diag(np.broadcast_to(noise, y.shape) ** 2))
    whitened, half = np.linalg.solve(lower, y), np.linalg.solve(lower, cross.T)
    log_evidence = -0.5 * whitened @ whitened - np.log(np.diag(lower)).sum() - 0.5 * y.size * np.log(2 * np.pi)
    return Reference(half.T @ whitened, test - half.T @ half, float(log_evidence))


def bayesian_linear_regression(
    features: np.ndarray, test_features: np.ndarray, y: np.ndarray, noise: float
) -> Reference:
    """Weights with a standard normal prior: the textbook posterior N(A^-1 F^T y / s^2, A^-1), A = I + F^T F / s^2."""
    precision = np.eye(features.shape[1]) + features.T @ features / noise**2
    weights = np.linalg.solve(precision, features.T @ y) / noise**2
    residual = y - features @ weights
    log_evidence = (
        -0.5 * residual @ residual / noise**2
        - 0.5 * weights @ weights
        - 0.5 * np.linalg.slogdet(precision)[1]
        - 0.5 * y.size * np.log(2 * np.pi * noise**2)
    )
    covariance = test_features @ np.linalg.solve(precision, test_features.T)
    return Reference(test_features @ weights, covariance, float(log_evidence))


def gp_laplace(
    K: np.ndarray, cross: np.ndarray, test: np.ndarray, expansion: Callable[[np.ndarray], tuple], steps: int = 100
) -> Reference:
    """Laplace approximation of a latent Gaussian process, after Rasmussen and Williams (2006), Sections 3.4 and 3.5.

    Points and outputs are stacked; `expansion(f)` gives the log-likelihood of all data, its gradient and minus its
    Hessian W. Newton: f <- K (I + W K)^-1 (W f + gradient); covariance: test - cross W (I + K W)^-1 cross^T.
    """
    f, identity = np.zeros(K.shape[0]), np.eye(K.shape[0])
    for _ in range(steps):
        _, gradient, W = expansion(f)
        new = K @ np.linalg.solve(identity + W @ K, W @ f + gradient)
        done = np.max(np.abs(new - f)) < 1e-12
        f = new
        if done:
            break
    value, gradient, W = expansion(f)
    inner = W @ np.linalg.solve(identity + K @ W, cross.T)
    # At the mode K^-1 f equals the gradient, which is how an ill-conditioned K is never inverted.
    log_evidence = value - 0.5 * f @ gradient - 0.5 * np.linalg.slogdet(identity + W @ K)[1]
    return Reference(cross @ gradient, test - cross @ inner, float(log_evidence))


def bernoulli_expansion(y: np.ndarray) -> Callable[[np.ndarray], tuple]:
    def expansion(f):
        p = 1 / (1 + np.exp(-f))
        value = np.sum(y * f - np.logaddexp(0, f))
        return value, y - p, np.diag(p * (1 - p))

    return expansion


def poisson_expansion(y: np.ndarray) -> Callable[[np.ndarray], tuple]:
    log_factorial = sum(np.sum(np.log(np.arange(1, count + 1))) for count in y)

    def expansion(f):
        return np.sum(y * f - np.exp(f)) - log_factorial, y - np.exp(f), np.diag(np.exp(f))

    return expansion


def softmax_expansion(y: np.ndarray, num_classes: int) -> Callable[[np.ndarray], tuple]:
    """Points first: entry i * q + c is class c at point i."""
    one_hot = np.eye(num_classes)[y]

    def expansion(f):
        logits = f.reshape(-1, num_classes)
        log_p = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
        p = np.exp(log_p)
        W = np.zeros((f.size, f.size))
        for i, row in enumerate(p):
            block = slice(i * num_classes, (i + 1) * num_classes)
            W[block, block] = np.diag(row) - np.outer(row, row)
        return np.sum(one_hot * log_p), (one_hot - p).ravel(), W

    return expansion
