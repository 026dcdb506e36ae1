r"""The prior's mean at rows and its derivatives in its parameters, in blocks of one shape: programs serve any number of rows."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from gpjax.mean_functions import Zero
from jaxtyping import Array, Float

from fsplaplace.host import pad_rows
from fsplaplace.prior import Prior
from fsplaplace.tuning._parameters import ParameterSpace

# Rows of a block.
_ROWS = 256


def mean_design(
    space: ParameterSpace, X: Float[np.ndarray, "n d"]
) -> tuple[Prior, Float[np.ndarray, "n q"], Float[np.ndarray, "n q k"]]:
    r"""The prior with its mean's linear parameters at zero, its mean there, and $H = \partial \mu(X) / \partial \beta$.

    Nothing is compiled for a mean of zero.
    """
    prior = space.prior
    if isinstance(prior.mean, Zero):
        none = np.zeros((X.shape[0], prior.num_outputs))
        return prior, none, none[:, :, None][:, :, :0]
    parts = [_design(space, block) for block in _blocks(X)]
    return parts[0][0], _rows([mean for _, mean, _ in parts], X), _rows([design for _, _, design in parts], X)


def mean_of(space: ParameterSpace, vector: Float[Array, " P"], X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n q"]:
    """The mean with these parameters."""
    return _rows([_mean(vector, space, block) for block in _blocks(X)], X)


def mean_pull_back(
    space: ParameterSpace, vector: Float[Array, " P"], X: Float[np.ndarray, "n d"], weights: Float[np.ndarray, "n q"]
) -> Float[np.ndarray, " P"]:
    r"""$\sum_i w_i\, \partial \mu(x_i) / \partial \theta$."""
    total = np.zeros(vector.shape)
    for start, block in zip(range(0, X.shape[0], _ROWS), _blocks(X), strict=True):
        part = weights[start : start + _ROWS]
        total += np.asarray(_pulled_back(vector, space, block, np.pad(part, ((0, _ROWS - len(part)), (0, 0)))))
    return total


def _blocks(X: Float[np.ndarray, "n d"]) -> Iterator[Float[np.ndarray, "r d"]]:
    return (pad_rows(X[start : start + _ROWS], _ROWS) for start in range(0, X.shape[0], _ROWS))


def _rows(parts: list[Any], X: Float[np.ndarray, "n d"]) -> np.ndarray:
    return np.concatenate([np.asarray(part) for part in parts])[: X.shape[0]]


@eqx.filter_jit
def _design(space: ParameterSpace, x):
    origin, design = space.mean_design(x)
    return origin, origin.mean_at(x), design


def _at(space: ParameterSpace, x) -> Callable:
    return lambda vector: space.to_prior(vector).mean_at(x)


@eqx.filter_jit
def _mean(vector, space: ParameterSpace, x):
    return _at(space, x)(vector)


@eqx.filter_jit
def _pulled_back(vector, space: ParameterSpace, x, weights):
    return jax.vjp(_at(space, x), vector)[1](weights)[0]
