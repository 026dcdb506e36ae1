"""Features whose prior variance nowhere exceeds the stated one."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Normalised(NamedTuple):
    r"""Features whose prior variance nowhere exceeds the stated one, and what is then missing to it.

    Attributes:
        features: $a(x) \phi(x)$ with $a(x) = \min(1, \sqrt{k(x) / \lVert \phi(x) \rVert^2})$.
        unexplained: $b(x) = \max(0, k(x) - \lVert \phi(x) \rVert^2)$, one dimension less.
    """

    features: Float[np.ndarray, "... r"]
    unexplained: Float[np.ndarray, "..."]


def normalise(features: Float[np.ndarray, "... r"], stated: Float[np.ndarray, "..."]) -> Normalised:
    r"""Features $\phi$ for a prior of variance k: then $\lVert a \phi \rVert^2 + b = k$ at every input, whatever the network.

    Each output has its own factor: the marginals are exact, and the covariance stays positive semi-definite, as it would with
    a matrix for each block of correlated outputs, which would cost an eigendecomposition for every input.
    """
    implied = np.sum(features**2, axis=-1)
    shrink = np.sqrt(np.divide(stated, implied, out=np.ones(implied.shape), where=implied > stated))
    return Normalised(features * shrink[..., None], np.maximum(stated - implied, 0.0))
