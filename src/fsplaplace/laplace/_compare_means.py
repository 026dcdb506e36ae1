"""Step 4: the network's mean and the refined one, compared by their distance to the exact process."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from fsplaplace.host import in_float64
from fsplaplace.laplace import _choices
from fsplaplace.laplace._features import Blocks, Known
from fsplaplace.laplace._mode import Mode, at_network, objective
from fsplaplace.laplace._problem import Problem
from fsplaplace.laplace._reference import Reference
from fsplaplace.prior import Prior

_TO_EXACT = "distance to the exact GP"


class MeanScores(NamedTuple):
    """How good the "network" and the "refined" mean are.

    Attributes:
        criterion: how they were compared; empty if they were not.
        scores: of each, the lower the better; none if they were not compared.
    """

    criterion: str
    scores: dict[str, float]

    @property
    def against_exact(self) -> bool:
        """Whether scores are distances to the exact process, in standard deviations of a new target."""
        return self.criterion == _TO_EXACT

    @property
    def best(self) -> str:
        """The name of the mean with the lowest score."""
        return min(self.scores, key=lambda name: self.scores[name])


NOT_COMPARED = MeanScores("", {})


def means_at(known: Known, mode: Mode) -> dict[str, Float[np.ndarray, "k q"]]:
    r"""The network's mean and the refined one, $\mu + a \Phi z^\star$."""
    return {"network": known.outputs, "refined": known.mean + known.features @ mode.z}


def compare_means(problem: Problem, reference: Reference, known: Known, blocks: Blocks, mode: Mode) -> MeanScores:
    """Step 4: which of the means is closer to the exact process; no comparison if only the network's mean is there.

    Args:
        problem: the problem.
        reference: the exact process, if there is one.
        known: features and outputs at its compared rows.
        blocks: the data.
        mode: of the linear model.
    """
    if not mode.searched:
        return NOT_COMPARED
    means, losses = means_at(known, mode), {}
    if reference.exact is None:
        losses = {"network": objective(at_network(blocks), np.zeros_like(mode.z)), "refined": -mode.log_likelihood}
    return score_means(problem.prior, reference, means, losses)


def score_means(
    prior: Prior, reference: Reference, means: dict[str, Float[np.ndarray, "k q"]], losses: dict[str, float]
) -> MeanScores:
    """Scores of means at the judged points and then at the witnesses.

    The root-mean-square distance to the exact Gaussian process, which both means approximate, in standard deviations of a
    new target; without one, the training objective with its norm taken at the judged points. Points between others may lie
    where no input can be (features on a circle): there both means are wrong, and the context decides.

    Args:
        prior: for the norm.
        reference: the exact process, if there is one.
        means: values by name, at the judged points and then at the witnesses.
        losses: the negative log-likelihood of the data under each mean; read if there is no exact process.
    """
    if (exact := reference.exact) is not None:
        distances = {
            name: float(np.sqrt(np.mean((values.ravel() - exact.mean) ** 2 / exact.variance)))
            for name, values in means.items()
        }
        return MeanScores(_TO_EXACT, distances)
    count = reference.points.shape[0]
    values = np.stack([values[:count] for values in means.values()])
    norms = np.asarray(in_float64(_half_squared_norms)(prior, reference.points, values))
    totals = np.nan_to_num(norms + np.array([losses[name] for name in means]), nan=np.inf).tolist()
    return MeanScores("training objective", dict(zip(means, totals, strict=True)))


@eqx.filter_jit
def _half_squared_norms(prior: Prior, points, means):
    residual = means - prior.mean_at(points)
    jitter = _choices.MEAN_JITTER
    return 0.5 * jax.vmap(lambda values: prior.squared_norm(points, values, jitter=jitter))(residual)
