r"""Repeated inputs as one row each: the sufficient statistics of a Gaussian likelihood."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

# Repeated inputs whose targets differ in fewer than a tenth of all pairs are copies of records, not observations.
_LEAST_DISAGREEMENT = 0.1
# Observations agree by chance as often as the targets' resolution allows. Below a quarter of what is seen, the rest are copies.
_LEAST_CHANCE = 0.25


class DistinctRows(NamedTuple):
    r"""Rows of distinct inputs with all that their targets say.

    Targets $y_i$ of relative precision $p_i$ (the number of observations over a known variance, if there is one) at one
    input x have the likelihood of their mean $\bar y$ with noise $\sigma^2 / P$, $P = \sum p_i$, times a factor of σ alone:

    $$\prod_i \mathcal N(y_i;\, f,\, \sigma^2 / p_i) \propto \mathcal N(\bar y;\, f,\, \sigma^2 / P)\;
        \sigma^{-(K - 1)} \exp(-S / 2 \sigma^2).$$

    Attributes:
        X: distinct inputs.
        y: means of their targets.
        precision: P, for all outputs or for each.
        number: K, the number of observations at each input, in the shape of `precision`.
        scatter: S, the weighted sum of squared distances to the mean.
        constant: logarithm of what else is left of the likelihood; it depends on no parameter.
    """

    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, "n q"]
    precision: Float[np.ndarray, "n p"]
    number: Float[np.ndarray, "n p"]
    scatter: Float[np.ndarray, "n q"]
    constant: Float[np.ndarray, "n q"]

    def log_within(self, noise_variance: float | Float[np.ndarray, "..."]) -> Float[np.ndarray, "n q"]:
        r"""What the distances of the targets to their mean say about $\sigma^2$, (), or (q,)."""
        return self.constant - 0.5 * ((self.number - 1) * np.log(noise_variance) + self.scatter / noise_variance)

    def log_within_slope(self, noise_variance: float | Float[np.ndarray, "..."]) -> Float[np.ndarray, "n q"]:
        r"""The derivative of `log_within` in $\log \sigma$."""
        return self.scatter / noise_variance - (self.number - 1)


def distinct_rows(
    X: Float[np.ndarray, "m d"],
    y: Float[np.ndarray, "m q"],
    weights: Float[np.ndarray, " m"],
    variance: Float[np.ndarray, "m q"] | None = None,
) -> DistinctRows:
    r"""Merge rows of equal inputs.

    Args:
        X: inputs.
        y: targets.
        weights: number of observations that each row stands for, above zero.
        variance: of each target if it is known; else all have the same.

    Cost $O(m \log m)$.
    """
    inputs, first, group = np.unique(X, axis=0, return_index=True, return_inverse=True)
    # In the order of the data, so that rows without repetitions stay as they are.
    order = np.argsort(first)
    group = np.argsort(order)[np.ravel(group)]
    total = lambda values: np.stack([np.bincount(group, part, len(inputs)) for part in values.T], axis=1)  # noqa: E731
    weights = weights[:, None]
    each = weights if variance is None else weights / variance
    precision = total(each)
    mean = total(each * y) / precision
    scatter = total(each * (y - mean[group]) ** 2)
    log_variance = np.zeros_like(each) if variance is None else np.log(variance)
    constant = -0.5 * total(weights * (math.log(2 * math.pi) + log_variance))
    constant = constant + 0.5 * (math.log(2 * math.pi) - np.log(precision))
    count = np.broadcast_to(total(weights), precision.shape)
    return DistinctRows(inputs[order], mean, precision, count, scatter, np.broadcast_to(constant, y[first].shape))


def observation_weights(
    X: Float[np.ndarray, "m d"], y: Float[np.ndarray, "m q"], weights: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " m"]:
    """How often each row counts as an observation of its own: zero for further copies of a record.

    Two rows with the same input and the same target are two observations if targets at one input agree and differ as
    observations do: often different, and equal as often as their resolution makes them by chance (counts, ratings, whole
    degrees). Else they are one record that occurs twice (a fifth of the wine table) and says nothing about the noise: the
    first row counts once, whatever its weight, and the others not at all.
    """
    table = np.column_stack([X, y])
    _, first, merged = np.unique(table, axis=0, return_index=True, return_inverse=True)
    if np.all(weights == 1) and first.size == len(table):
        return weights
    number = np.bincount(np.ravel(merged), weights)
    if _are_observations(X[first], y[first], number):
        return weights
    once = np.zeros(len(table))
    once[first] = 1.0
    return once


def _are_observations(X, y, number: Float[np.ndarray, " n"]) -> bool:
    """Whether rows (x, y), each distinct, occur as often as independent observations would."""
    group = np.ravel(np.unique(X, axis=0, return_inverse=True)[1])
    size, squares = np.bincount(group, number), np.bincount(group, number**2)
    repeated = size > 1
    if not np.any(repeated):
        return False
    # Of two observations at one input, averaged over inputs by the number of repetitions.
    differ = (size - squares / size)[repeated] / (size - 1)[repeated]
    disagreement = float(np.average(differ, weights=size[repeated] - 1))
    if disagreement < _LEAST_DISAGREEMENT:
        return False
    return _chance_agreement(y, group, number) >= _LEAST_CHANCE * (1 - disagreement)


def _chance_agreement(y: Float[np.ndarray, "n q"], group: Int[np.ndarray, " n"], number) -> float:
    """How often two targets at one input would be equal, from how often any two are and how much narrower these lie."""
    values = np.ravel(np.unique(y, axis=0, return_inverse=True)[1])
    share = np.bincount(values, number) / number.sum()
    # Each distinct target once: copies are what is in question.
    count = np.bincount(group)
    inside = np.stack([np.bincount(group, part) / count for part in y.T], axis=1)[group]
    within = np.sum((y - inside) ** 2, axis=0) / max(1, len(y) - count.size)
    narrower = np.var(y, axis=0) / np.maximum(within, 1e-300)
    return float(np.sum(share**2) * np.sqrt(np.prod(np.maximum(narrower, 1.0))))
