"""What the evidence says about the size of Gaussian noise, the features staying as they are."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.optimize import fminbound

from fsplaplace.laplace._mode import Block, Blocks
from fsplaplace.likelihoods import Gaussian

# Factors of the noise variance to look at: from a hundredth to ten thousand times.
_LOG_FACTORS = np.linspace(np.log(1e-2), np.log(1e4), 80)


class NoiseEvidence:
    r"""The evidence as a function of a factor c of all noise variances, from sums over one pass through the data.

    With targets whitened by their noise, $\lambda_j$ the eigenvalues of $\sum_i \Phi_i^\top H_i \Phi_i$ and $b_j$ the
    components of $\sum_i \Phi_i^\top H_i (y_i - \mu(x_i))$ along its eigenvectors,

    $$-2 \log p(y \mid c) = \frac{s}{c} - \sum_j \frac{b_j^2}{c\,(c + \lambda_j)} + \sum_j \log\Bigl(1 + \frac{\lambda_j}{c}\Bigr)
    + n \log c + \mathrm{const}, \qquad s = \sum_i (y_i - \mu(x_i))^\top H_i\, (y_i - \mu(x_i)).$$

    The mean is the prior's own: the network's has learnt from the same targets, which would count twice.
    """

    def __init__(self):
        self.slope, self.square, self.count = np.zeros(1), 0.0, 0.0

    def watch(self, blocks: Blocks) -> Blocks:
        """The same blocks, summed up as they pass; for a single pass."""

        def passing() -> Iterator[Block]:
            for block in blocks():
                self._add(block)
                yield block

        return passing

    def _add(self, block: Block) -> None:
        assert isinstance(block.likelihood, Gaussian)
        assert block.variance is not None
        residual = block.targets - block.prior_mean
        weighted = (residual / block.variance).ravel()
        self.slope = self.slope + weighted @ block.features.reshape(weighted.size, -1)
        self.square += float(np.sum(residual**2 / block.variance))
        self.count += block.likelihood.num_observations(residual.shape)

    def best_factor(self, eigenvalues: Float[np.ndarray, " r"], eigenvectors: Float[np.ndarray, "r r"]) -> float:
        """The factor of the noise's standard deviation at which the evidence is highest, between 0.1 and 100.

        Given the eigenpairs of the posterior's precision, I more than the matrix above. Time $O(r^2)$.
        """
        information = np.maximum(eigenvalues - 1.0, 0.0)
        squares = (self.slope[: eigenvectors.shape[0]] @ eigenvectors) ** 2

        def loss(log_factor: float) -> float:
            factor = np.exp(log_factor)
            explained = np.sum(squares / (factor + information))
            return (self.square - explained) / factor + np.sum(np.log1p(information / factor)) + self.count * log_factor

        nearest = int(np.argmin([loss(value) for value in _LOG_FACTORS]))
        between = _LOG_FACTORS[max(0, nearest - 1)], _LOG_FACTORS[min(_LOG_FACTORS.size - 1, nearest + 1)]
        best, *_ = fminbound(loss, *between, full_output=True)
        return float(np.exp(0.5 * best))
