"""Low-rank factor of a small symmetric matrix by its eigendecomposition."""

import numpy as np
from jaxtyping import Float


def psd_factor(
    matrix: Float[np.ndarray, "n n"],
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, " n"]]:
    r"""Columns $B = V \lambda_+^{1/2}$ with $B B^\top$ equal to the positive part of a symmetric matrix.

    Returns the columns ordered from the largest eigenvalue down, and the eigenvalues with their signs, so
    that the caller can see how negative the matrix is before it drops a column. In float64, on the host.

    Time $O(n^3)$, memory $O(n^2)$.
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    eigenvalues, eigenvectors = np.linalg.eigh((matrix + matrix.T) / 2)
    eigenvalues, eigenvectors = eigenvalues[::-1], eigenvectors[:, ::-1]
    return eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0)), eigenvalues
