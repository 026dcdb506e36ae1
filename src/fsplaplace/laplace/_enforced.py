r"""The prior enforced on what is observed, not on values alone: rows of L[J] beside those of J in the pull-back.

Features that hold the prior at context points need not hold that of a second derivative near the edge of the region. For
an observation of L[f] with $K_{LC}$ its prior covariance with the values at the context points, the prior's factor there is
$B_L = K_{LC} B (B^\top B)^{-1}$, since $B_L B^\top = K_{LC}$.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fsplaplace.host import itemsize
from fsplaplace.laplace import _choices
from fsplaplace.laplace._problem import Problem
from fsplaplace.networks import jacobian_matrix
from fsplaplace.operators import value
from fsplaplace.prior import moments


class Enforced(NamedTuple):
    """Rows that are solved for beside those of the context points, in units of the values.

    Attributes:
        jacobian: L[J], (k, p).
        columns: $B_L$, (k, r).
    """

    jacobian: Float[np.ndarray, "k p"]
    columns: Float[np.ndarray, "k r"]


def enforced(problem: Problem, columns: Float[np.ndarray, "m q r"], *, beside: int) -> Enforced | None:
    """The rows of what operators see, at most 500; None if none fit, or the kernel can be taken through none of them.

    Args:
        problem: the problem.
        columns: B, the prior's factor at the context points.
        beside: rows of the Jacobian that are in memory at the same time.
    """
    kinds = [kind for kind in problem.observed if kind.stated and not kind.of_values]
    if not kinds:
        return None
    factor = columns.reshape(-1, columns.shape[2])
    own = np.sqrt(np.mean(moments.variance(problem.prior, problem.context)))
    # In the weights' dtype and in float64.
    fits = problem.budget / (problem.model.num_params * (8 + itemsize(problem.model.dtype)))
    most = min(_choices.MOST_ENFORCED, int(fits) - beside) // sum(kind.num_outputs for kind in kinds)
    if most < 1:
        return None
    rows, targets = [], []
    for kind in kinds:
        share = max(1, min(most, _choices.MOST_EVALUATIONS // kind.operator.num_evaluations))
        points = kind.data.spread(share).inputs
        stated = kind.variance(points)
        assert stated is not None
        # As large as values, so that the ridge means the same to both; what never varies is left as it is.
        size = np.sqrt(np.where(stated > 0, stated, own**2)).reshape(-1, 1) / own
        cross = moments.cross_covariance(problem.prior, (kind.operator, points), (value, problem.context))
        inverse = np.linalg.pinv(factor.T @ factor, hermitian=True, rcond=1e-15)
        targets.append(cross @ factor @ inverse / size)
        rows.append(np.asarray(jacobian_matrix(kind.model, points)) / size.astype(problem.model.dtype))
    return Enforced(np.concatenate(rows), np.concatenate(targets))
