"""What the linearised network sees at inputs: its outputs, and their change along directions in weight space."""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.host import pad_rows, rows_of_data
from fsplaplace.laplace._data import Rows
from fsplaplace.laplace._mode import Block, Blocks
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.networks import Model, map_rows, outputs_and_products, push_forward_block, route, rows_per_block
from fsplaplace.prior import Prior
from fsplaplace.prior import moments as _prior_moments


class View(NamedTuple):
    """Outputs f(x) and features J(x) V at some inputs, in float64 on the host."""

    outputs: Float[np.ndarray, "n q"]
    features: Float[np.ndarray, "n q r"]

    def rows(self, part: slice) -> "View":
        """The view of some of the inputs."""
        return View(self.outputs[part], self.features[part])


def join(views: list[View]) -> View:
    """Views of some inputs after those of others."""
    return View(*(np.concatenate(parts) for parts in zip(*views, strict=True)))


def view(model: Model, x: Float[Array, "n ..."], directions: Float[Array, "r p"], *, budget: float) -> View:
    """Outputs and features in blocks of rows that fit the budget. The products are in the weights' dtype."""
    if route(model, x, directions.shape[0]) == "convolutions":
        parts = outputs_and_products(model, x, directions, budget=budget)
        return View(*(np.asarray(part, dtype=np.float64) for part in parts))
    rows = rows_per_block(model, x, directions.shape[0], budget)
    padded = pad_rows(np.asarray(x), max(rows, x.shape[0]))
    parts = map_rows(functools.partial(_view_block, model, directions=directions), padded, rows=rows)
    return View(*(np.asarray(part[: x.shape[0]], dtype=np.float64) for part in parts))


def data_blocks(
    model: Model, likelihood: Likelihood, data: Rows, directions: Float[Array, "r+1 p"], *,
    prior: Prior, budget: float, missed: Callable | None = None, known: View | None = None,
) -> Blocks:  # fmt: skip
    """Blocks of data with their features; the last direction is a shift that is part of the offset.

    `missed(x, features)` is variance that joins that of Gaussian noise. A block that holds all rows is kept, others are
    computed anew in each pass; `known` is the view of all rows where there already is one.
    """
    rows = rows_of_data(2 * prior.num_outputs * directions.shape[0] * 8, budget, num_rows=data.num_rows)

    def compute(part: slice, inputs, labels) -> Block:
        noise = likelihood if rows >= data.num_rows else likelihood.rows(part)
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
        prior_mean, targets = _prior_moments.mean(prior, inputs), np.asarray(labels)
        return Block(seen.outputs, prior_mean, offset, features, targets, noise, variance, log_normaliser)

    def stream() -> Iterator[Block]:
        return (compute(part, *block) for part, block in data.blocks(rows))

    if rows < data.num_rows:
        return stream
    kept_blocks = list(stream())
    return lambda: iter(kept_blocks)


@eqx.filter_jit
def _view_block(model: Model, x, directions):
    return model(x), push_forward_block(model, x, directions)
