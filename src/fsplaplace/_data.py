"""What the linearised network sees at inputs: its outputs, and their change along directions in weight space."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from fsplaplace._glm import Block, Blocks
from fsplaplace._jacobian import map_rows, pad_rows, push_forward_block, rows_per_block
from fsplaplace._memory import rows_that_fit
from fsplaplace._model import Model
from fsplaplace.likelihoods import Gaussian, Likelihood


class View(NamedTuple):
    """Outputs f(x) and features J(x) V at some inputs, in float64 on the host."""

    outputs: Float[np.ndarray, "n q"]
    features: Float[np.ndarray, "n q r"]

    def rows(self, part: slice) -> "View":
        """The view of some of the inputs."""
        return View(self.outputs[part], self.features[part])


def view(model: Model, x: Float[Array, "n ..."], directions: Float[Array, "r p"], *, budget: float) -> View:
    """Outputs and features in blocks of rows that fit the budget. The products are in the weights' dtype."""
    rows = rows_per_block(model, x, directions.shape[0], budget)
    padded = pad_rows(np.asarray(x), max(rows, x.shape[0]))
    parts = map_rows(functools.partial(_view_block, model, directions=directions), padded, rows=rows)
    return View(*(np.asarray(part[: x.shape[0]], dtype=np.float64) for part in parts))


def data_blocks(
    model: Model, likelihood: Likelihood, X, targets, directions: Float[Array, "r+1 p"], *,
    num_outputs: int, budget: float, missed: Callable | None = None, known: View | None = None,
) -> Blocks:  # fmt: skip
    """Blocks of data with their features; the last direction is a shift that is part of the offset.

    `missed(x, features)` is variance that joins that of Gaussian noise. Blocks are kept if all fit a quarter of the
    budget, else computed anew in each pass; `known` is the view of all rows where there already is one.
    """
    rows = rows_that_fit(2 * num_outputs * directions.shape[0] * 8, budget / 4, most=X.shape[0])

    def compute(start: int) -> Block:
        whole = rows >= X.shape[0]
        part = slice(start, start + rows)
        inputs, labels, noise = (X, targets, likelihood) if whole else (X[part], targets[part], likelihood.rows(part))
        seen = known.rows(part) if known is not None else view(model, inputs, directions, budget=budget)
        features = seen.features[:, :, :-1]
        variance, log_normaliser = None, 0.0
        if isinstance(noise, Gaussian):
            variance = np.broadcast_to(np.asarray(noise.scale, dtype=np.float64) ** 2, seen.outputs.shape)
            log_normaliser = noise.log_normaliser(seen.outputs.shape)
            if missed is not None:
                added = missed(inputs, features) / variance
                variance, log_normaliser = variance * (1 + added), log_normaliser - 0.5 * float(np.sum(np.log1p(added)))
        offset = seen.outputs + seen.features[:, :, -1]
        return Block(seen.outputs, offset, features, np.asarray(labels), noise, variance, log_normaliser)

    starts = range(0, X.shape[0], rows)
    if len(starts) == 1:
        only = compute(0)
        return lambda: iter([only])
    return lambda: map(compute, starts)


@eqx.filter_jit
def _view_block(model: Model, x, directions):
    return model(x), push_forward_block(model, x, directions)
