r"""Observations, real or hypothetical, added to a process in closed form, with gradients in inputs and targets.

With features F and $\epsilon \sim \mathcal N(0, I)$ the process is $m(x) + F(x)\,\epsilon$. Observations leave $\epsilon$ with mean e
and covariance $P = I - W^\top W$; a row of W for each of them is all that is kept, so that a thousand hypothetical data sets take
little memory. New ones at features $F_f$ with noise N:
$L L^\top = F_f P F_f^\top + N$, $W_+ = L^{-1} F_f P$, $e_+ = e + W_+^\top L^{-1} (y - m - F_f e)$.
"""

from typing import NamedTuple

import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from fsplaplace.botorch._features import Process


class Observed(NamedTuple):
    """What observations since the fit say about the coordinates.

    Attributes:
        step: e, (..., r).
        told: W, (..., k, r).
    """

    step: Tensor
    told: Tensor

    @property
    def batch_shape(self) -> torch.Size:
        """One process for each."""
        return torch.broadcast_shapes(self.step.shape[:-1], self.told.shape[:-2])


def nothing_observed(rank: int, *, like: Tensor) -> Observed:
    """As it was fitted."""
    return Observed(like.new_zeros(rank), like.new_zeros(0, rank))


def observe(before: Observed, process: Process, Y: Tensor, noise: Tensor) -> Observed:
    """What is known after observations.

    Args:
        before: what is known before.
        process: as it was fitted, at the observed inputs, (..., k, m).
        Y: targets, (..., k, m); may have leading axes that the inputs have not.
        noise: their variances, (..., k, m).

    Time cubic in k m, and linear in r.
    """
    features = process.features.flatten(-3, -2)
    projected = features - (features @ before.told.mT) @ before.told
    covariance = projected @ features.mT
    noise = noise.expand(*noise.shape[:-2], *process.mean.shape[-2:]).flatten(-2)
    # A point observed twice without noise has a singular covariance.
    lower = psd_safe_cholesky(0.5 * (covariance + covariance.mT) + torch.diag_embed(noise))
    told = torch.linalg.solve_triangular(lower, projected, upper=False)
    expected = process.mean.flatten(-2) + (features @ before.step.unsqueeze(-1)).squeeze(-1)
    residual = Y.flatten(-2) - expected
    whitened = torch.linalg.solve_triangular(lower, residual.unsqueeze(-1), upper=False)
    step = before.step + (told.mT @ whitened).squeeze(-1)
    batch = torch.broadcast_shapes(before.told.shape[:-2], told.shape[:-2])
    both = [part.expand(*batch, *part.shape[-2:]) for part in (before.told, told)]
    return Observed(step, torch.cat(both, dim=-2))


class Moments(NamedTuple):
    """Mean and joint covariance.

    Attributes:
        mean: (..., q, m).
        covariance: (..., q m, q m), outputs of one point together.
    """

    mean: Tensor
    covariance: Tensor


def moments(process: Process, observed: Observed, X: Tensor, *, missed_as_noise: bool) -> Moments:
    """The process at X, (..., q, d), after observations."""
    features = process.features.flatten(-3, -2)
    change = (features @ observed.step.unsqueeze(-1)).squeeze(-1)
    mean = process.mean.flatten(-2) + change
    seen = features @ observed.told.mT
    covariance = features @ features.mT - seen @ seen.mT
    missed = process.unexplained.flatten(-2)
    if not missed_as_noise:
        # Data say as much about what the features miss as about what they carry.
        carried = features.square().sum(dim=-1)
        left = 1 - seen.square().sum(dim=-1) / torch.where(carried > 0, carried, torch.ones_like(carried))
        missed = missed * left.clamp(0.0, 1.0)
    same = (X.unsqueeze(-2) == X.unsqueeze(-3)).all(dim=-1).to(missed)
    # What the features miss is unrelated between inputs and outputs.
    blocks = torch.kron(same, torch.eye(process.mean.shape[-1]).to(missed))
    covariance = covariance + missed.unsqueeze(-1) * blocks
    return Moments(mean.unflatten(-1, process.mean.shape[-2:]), covariance)
