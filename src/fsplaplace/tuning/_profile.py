"""A Gaussian log density on the host, with its mean's coefficients in closed form, and its derivatives."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri  # pyright: ignore[reportAttributeAccessIssue] - compiled, without stubs

# Keeps the Cholesky factor real when the noise is at its smallest; far below any noise that data can show.
NUGGET = 1e-10


class Profile(NamedTuple):
    r"""The log density at the best coefficients, $\hat\beta$, by generalised least squares.

    Its derivatives need none of $\hat\beta$, because there the density is flat in β.

    Attributes:
        value: the log density; NaN if a covariance is not positive definite.
        beta: $\hat\beta$.
        beta_covariance: $(H^\top C^{-1} H)^{-1}$.
        slope: lower triangles with $\mathrm{d}\,\text{value} = \sum_{i \ge j} G_{ij}\, \mathrm{d}\Sigma_{ij}$; None if not asked for.
        noise_slope: derivative in each noise variance; None likewise.
        weights: $C^{-1} (y - H \hat\beta)$, the derivative in the mean; None likewise.
    """

    value: float
    beta: Float[np.ndarray, " k"]
    beta_covariance: Float[np.ndarray, "k k"]
    slope: Float[np.ndarray, "b N N"] | None = None
    noise_slope: Float[np.ndarray, "b N"] | None = None
    weights: Float[np.ndarray, "b N c"] | None = None


def profile(
    covariance: Float[np.ndarray, "b N N"],
    noise: Float[np.ndarray, "b N"],
    residual: Float[np.ndarray, "b N c"],
    design: Float[np.ndarray, "b N c k"],
    *,
    derivatives: bool,
) -> Profile:
    r"""$\log \mathcal N(y;\, H \beta,\, \Sigma + \mathrm{diag}\,\sigma^2)$ of independent blocks, maximised over β.

    Args:
        covariance: lower triangles of Σ; overwritten.
        noise: $\sigma^2$ of each row.
        residual: y, c columns for each block.
        design: H.
        derivatives: whether to compute them, for one more inverse.

    Time $O(b N^3)$, in LAPACK: nothing is compiled for a number of rows.
    """
    (_, size, c), num_coefficients = residual.shape, design.shape[3]
    diagonal = np.einsum("bii->bi", covariance)
    diagonal += noise + NUGGET * np.mean(diagonal, axis=1, keepdims=True)
    # LAPACK's upper triangle by columns is the lower one by rows.
    failed = [dpotrf(block.T, lower=0, overwrite_a=1)[1] for block in covariance]
    if any(failed) or not np.all(np.isfinite(diagonal)):
        unknown = np.full(num_coefficients, np.nan)
        return Profile(math.nan, unknown, np.full((num_coefficients, num_coefficients), np.nan))
    white = np.stack([_solved(*pair) for pair in zip(covariance, residual, strict=True)])
    columns = np.stack(
        [_solved(*pair) for pair in zip(covariance, design.reshape(*residual.shape[:2], -1), strict=True)]
    ).reshape(design.shape)
    beta_covariance = _inverse(np.einsum("bnck,bncl->kl", columns, columns))
    beta = beta_covariance @ np.einsum("bnck,bnc->k", columns, white)
    white = white - columns @ beta
    log_determinant = 2 * c * np.sum(np.log(diagonal))
    value = -0.5 * float(np.sum(white**2) + log_determinant + residual.size * math.log(2 * math.pi))
    if not derivatives:
        return Profile(value, beta, beta_covariance)
    weights = np.stack([_solved(*pair, transposed=True) for pair in zip(covariance, white, strict=True)])
    for block in covariance:
        dpotri(block.T, lower=0, overwrite_c=1)
    slope = np.tril(weights @ weights.transpose(0, 2, 1) - c * covariance)
    on_diagonal = np.einsum("bii->bi", slope)
    on_diagonal *= 0.5
    noise_slope = on_diagonal.copy()
    on_diagonal += NUGGET / size * np.sum(noise_slope, axis=1, keepdims=True)
    return Profile(value, beta, beta_covariance, slope, noise_slope, weights)


def _solved(lower: Float[np.ndarray, "N N"], right: Float[np.ndarray, "N k"], *, transposed: bool = False):
    if right.shape[1] == 0:
        return right
    # As the transpose of a matrix by columns, which is what LAPACK takes without a copy.
    return solve_triangular(lower.T, right, trans=0 if transposed else 1, lower=False, check_finite=False)


def _inverse(matrix: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """Pseudo-inverse on a unit diagonal, so that columns of any scale, or that repeat each other, do no harm."""
    if matrix.shape[0] == 0:
        return matrix
    size = np.sqrt(np.diagonal(matrix))
    size = np.where(size > 0, size, 1.0)
    return np.linalg.pinv(matrix / size / size[:, None], rcond=1e-13, hermitian=True) / size / size[:, None]
