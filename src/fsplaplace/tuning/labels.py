r"""Gaussian pseudo-targets for likelihoods that are not Gaussian, so that a prior can be fitted in closed form."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.likelihoods import Bernoulli, Categorical, Likelihood, Poisson


@checked
def dirichlet_labels(
    y: ArrayLike, num_classes: int, *, alpha_epsilon: float = 0.01
) -> tuple[Float[np.ndarray, "n c"], Float[np.ndarray, "n c"]]:
    r"""Class labels as Gaussian targets in logit space, one column per class.

    With $\alpha_{ic} = \alpha_\epsilon + [y_i = c]$ the class weights are Gamma variables, and the logarithm of each
    is matched by a Gaussian of variance $s^2_{ic} = \log(1 + 1/\alpha_{ic})$, mean $\log \alpha_{ic} - s^2_{ic} / 2$.
    Every label has its own variance: about 0.69 where it is the class, 4.6 where it is not.

    Args:
        y: labels 0, ..., `num_classes` - 1, shape (n,).
        num_classes: c.
        alpha_epsilon: the weight of the classes that were not seen; smaller trusts labels more.

    Returns:
        Targets and variances, both (n, c). Cost $O(n c)$.

    Reference: Milios et al. (2018), Dirichlet-based Gaussian processes for large-scale calibrated classification.

    Examples:
        >>> targets, variances = fsp.dirichlet_labels([0, 1], 2)
        >>> variances.round(2).tolist()
        [[0.69, 4.62], [4.62, 0.69]]
    """
    labels = np.asarray(Categorical(num_classes).check_targets(y, num_rows=len(np.asarray(y))))
    alpha = alpha_epsilon + np.eye(num_classes)[labels]
    variances = np.log1p(1 / alpha)
    return np.log(alpha) - variances / 2, variances


def gaussian_targets(
    likelihood: Likelihood, targets: np.ndarray, *, alpha_epsilon: float
) -> tuple[Float[np.ndarray, "n q"], Float[np.ndarray, "n q"]]:
    r"""Targets and variances in the space of the network's outputs.

    Categorical: `dirichlet_labels`. Bernoulli: the logit is the difference of two of them, so targets subtract and
    variances add. Poisson: $\log(y + 1/2)$ with variance $1 / (y + 1/2)$.
    """
    match likelihood:
        case Categorical():
            _check_classes(targets, "Categorical")
            return dirichlet_labels(targets, likelihood.num_classes, alpha_epsilon=alpha_epsilon)
        case Bernoulli():
            columns = []
            for column in targets.T:
                _check_classes(column, "Bernoulli")
                values, variances = dirichlet_labels(column, 2, alpha_epsilon=alpha_epsilon)
                columns.append((values[:, 1] - values[:, 0], variances.sum(axis=1)))
            return np.stack([values for values, _ in columns], axis=1), np.stack([part for _, part in columns], axis=1)
        case Poisson():
            counts = np.asarray(targets, dtype=float) + 0.5
            return np.log(counts), 1 / counts
    raise TypeError(
        f"fit_prior: no Gaussian approximation of {type(likelihood).__name__} is known; pass likelihood=Gaussian() (or "
        "Bernoulli, Categorical, Poisson) to fit the prior, and keep your own likelihood for training"
    )


def _check_classes(labels: np.ndarray, name: str) -> None:
    if np.unique(labels).size < 2:
        raise ValueError(
            f"fit_prior: y holds the single class {labels.flat[0]}, so nothing says how the function varies; pass rows "
            f"of at least two classes to fit a prior for {name}"
        )
