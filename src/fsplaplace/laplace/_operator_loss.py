"""What a posterior given observations through operators loses against the exact process, where that has only some of them."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fsplaplace.host import scattered
from fsplaplace.laplace import _choices
from fsplaplace.laplace._exact_process import Moments
from fsplaplace.laplace._features import Block, normalise, view
from fsplaplace.laplace._mode import posterior_mode
from fsplaplace.laplace._observed import Observed
from fsplaplace.laplace._problem import Problem, evenly
from fsplaplace.laplace._pull_back import PulledBack
from fsplaplace.laplace._reference import Reference, divergence
from fsplaplace.operators import Operator, value
from fsplaplace.prior import moments


def loss_on_sample(problem: Problem, observed: tuple[Observed, ...], reference: Reference, pulled: PulledBack) -> float:
    """The forward divergence from the exact process, both given the same few of the data, in nats.

    For a new target with Gaussian noise; else of the latent function, where the exact process is the linear model whose features
    are the Cholesky factor of the prior's covariance, so that one Newton iteration serves both. Time cubic in some hundred
    points. NaN if the kernel cannot be taken through an operator.
    """
    if reference.sample is not None:
        looks = [
            (problem.model, reference.points),
            *((part.kind.model, part.inputs) for part in reference.sample_parts),
        ]
        seen = [_flat(view(model, x, pulled.directions, budget=problem.budget).features) for model, x in looks]
        return reference.divergence(np.concatenate(seen), pulled.missed).forward
    if not all(kind.stated for kind in observed):
        return math.nan
    few = _few(problem, observed, reference, pulled)
    stated = np.diagonal(few.covariance)
    exact = np.linalg.cholesky(few.covariance + np.diag(_choices.LATENT_JITTER * stated))
    features, unexplained = normalise(few.features, stated)
    wanted, found = few.given(exact, np.zeros_like(stated)), few.given(features, unexplained)
    return divergence(wanted, found, _choices.LATENT_NOISE * float(np.mean(stated[: few.num_judged]))).forward


class _Few(NamedTuple):
    """A few judged points and a few of the data.

    Attributes:
        num_judged: numbers at the judged points, which come first.
        covariance: the prior's, of the function there and of what was observed.
        features: of the network, of the same.
        blocks: the data, kind by kind; their features are those above.
    """

    num_judged: int
    covariance: Float[np.ndarray, "K K"]
    features: Float[np.ndarray, "K r"]
    blocks: list[Block]

    def given(self, columns: Float[np.ndarray, "K c"], missed: Float[np.ndarray, " K"]) -> Moments:
        """The function at the judged points given the data, by a linear model with these features and what they miss."""
        blocks, start = [], self.num_judged
        for block in self.blocks:
            stop = start + block.offset.size
            shaped = columns[start:stop].reshape(*block.offset.shape, -1)
            blocks.append(dataclasses.replace(block, features=shaped))
            start = stop
        mode = posterior_mode(lambda: iter(blocks), columns.shape[1])
        flat = columns[: self.num_judged]
        carried = np.sum(flat * np.linalg.solve(mode.precision, flat.T).T, axis=1)
        before = np.sum(flat**2, axis=1)
        told = np.divide(carried, before, out=np.ones_like(carried), where=before > 0)
        return Moments(flat @ mode.z, carried + told * missed[: self.num_judged])


def _few(problem: Problem, observed: tuple[Observed, ...], reference: Reference, pulled: PulledBack) -> _Few:
    """In general: each kind seen through its operator."""
    q = problem.prior.num_outputs
    judged = evenly(reference.points, max(1, _choices.LATENT_TARGETS // q))
    parts: list[tuple[Operator, Float[np.ndarray, "n ..."]]] = [(value, judged)]
    blocks = []
    features = [view(problem.model, judged, pulled.directions, budget=problem.budget).features]
    for kind in observed:
        most = max(1, _choices.LATENT_TARGETS // (kind.num_outputs * len(observed)))
        rows = scattered(kind.data.num_rows, most)
        part = kind.data.take(rows)
        there = view(kind.model, part.inputs, pulled.directions, budget=problem.budget)
        likelihood, targets = kind.likelihood.rows(rows), np.asarray(part.targets)
        blocks.append(Block(there.outputs, kind.mean(part.inputs), there.features, targets, likelihood, None))
        parts.append((kind.operator, part.inputs))
        features.append(there.features)
    covariance = moments.covariance_of(problem.prior, parts)
    return _Few(judged.shape[0] * q, covariance, np.concatenate([_flat(each) for each in features]), blocks)


def _flat(features: Float[np.ndarray, "n q r"]) -> Float[np.ndarray, "nq r"]:
    return features.reshape(-1, features.shape[2])
