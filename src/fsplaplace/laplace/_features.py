r"""What the linearised network sees at inputs: its outputs $f(x)$ and its features $\phi(x) = J(x) S_0$."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from fsplaplace.host import pad_rows, rows_of_data
from fsplaplace.laplace import _choices
from fsplaplace.laplace._choices import Treatment
from fsplaplace.laplace._data import Part
from fsplaplace.laplace._observed import Observed
from fsplaplace.laplace._problem import Places, Problem
from fsplaplace.likelihoods import Likelihood, Noise
from fsplaplace.networks import (
    Model,
    linearisation,
    map_rows,
    outputs_and_products,
    push_forward_block,
    route,
    rows_per_block,
)
from fsplaplace.networks import Normalised as Normalised
from fsplaplace.networks import normalise as normalise
from fsplaplace.prior import Prior, moments

Directions = Float[Array, "r p"] | Float[np.ndarray, "r p"]


class View(NamedTuple):
    """Outputs and features at some inputs, in float64 on the host.

    Attributes:
        outputs: f(x), (n, q).
        features: J(x) V, (n, q, r).
    """

    outputs: Float[np.ndarray, "n q"]
    features: Float[np.ndarray, "n q r"]

    def rows(self, part: slice | Shaped[np.ndarray, " k"]) -> "View":
        """The view of some of the inputs."""
        return View(self.outputs[part], self.features[part])


class Known(NamedTuple):
    r"""What the network, the prior and the features say at some inputs.

    Attributes:
        outputs: the network's, (n, q).
        mean: $\mu(x)$, (n, q).
        stated: $k(x)$, (n, q).
        features: normalised, $a(x) \phi(x)$, (n, q, r).
        unexplained: $b(x)$, (n, q).
    """

    outputs: Float[np.ndarray, "n q"]
    mean: Float[np.ndarray, "n q"]
    stated: Float[np.ndarray, "n q"]
    features: Float[np.ndarray, "n q r"]
    unexplained: Float[np.ndarray, "n q"]

    def rows(self, part: slice | Shaped[np.ndarray, " k"]) -> "Known":
        """The same of some of the inputs."""
        return Known(*(each[part] for each in self))


def known_at(prior: Prior, x: Float[np.ndarray, "n ..."], seen: View) -> Known:
    """With the prior's marginals at inputs where the network has been seen."""
    mean, stated = moments.marginals(prior, x)
    return Known(seen.outputs, mean, stated, *normalise(seen.features, stated))


def view(model: Model, x: Float[np.ndarray, "n ..."], directions: Directions, *, budget: float) -> View:
    """Outputs and features in blocks of rows that fit the budget. The products are in the weights' dtype."""
    rank = directions.shape[0]
    if route(model, x, rank) == "convolutions":
        parts = outputs_and_products(model, x, jnp.asarray(directions), budget=budget)
        return View(*(np.asarray(part, dtype=np.float64) for part in parts))
    if (stored := _choices.rounded_rank(rank, directions.nbytes / rank)) > rank:
        directions = np.pad(np.asarray(directions), ((0, stored - rank), (0, 0)))
    rows = rows_per_block(model, x, directions.shape[0], budget)
    padded = pad_rows(np.asarray(x), max(rows, x.shape[0]))
    outputs, features = map_rows(functools.partial(_view_block, model, directions=directions), padded, rows=rows)
    count = x.shape[0]
    return View(np.asarray(outputs[:count], np.float64), np.asarray(features[:count, :, :rank], np.float64))


@eqx.filter_jit
def _view_block(model: Model, x, directions):
    return model(x), push_forward_block(model, x, directions)


class Block(eqx.Module):
    r"""Some rows of the data as the linear model $f_i(z) = \mu(x_i) + \Phi_i z$ sees them, on the host.

    Attributes:
        network: the network's own outputs, (b, q).
        offset: $\mu(x_i)$, (b, q).
        features: $\Phi_i$, (b, q, r).
        targets: of these rows.
        likelihood: of these rows.
        noise: Gaussian noise of these targets, with what the features miss if that counts as noise; None for other
            likelihoods.
        weight: rows that each of these stands for.
    """

    network: Float[np.ndarray, "b q"]
    offset: Float[np.ndarray, "b q"]
    features: Float[np.ndarray, "b q r"]
    targets: Shaped[np.ndarray, "b ..."]
    likelihood: Likelihood
    noise: Noise | None
    weight: float = eqx.field(static=True, default=1.0)

    def outputs(self, z):
        """$f_i(z)$."""
        return self.offset + self.features @ z


Blocks = Callable[[], Iterator[Block]]


def data_blocks(
    problem: Problem, directions: Directions, *,
    missed: Treatment | None = None, places: Places | None = None, known: Known | None = None,
    observed: tuple[Observed, ...] | None = None,
) -> Blocks:  # fmt: skip
    """Passes over the data with their features, in blocks that fit the budget.

    A block that holds all rows is kept, and so are all blocks of a convolutional network whose features fit a quarter of the
    budget in single precision; others are computed anew in each pass.

    Args:
        problem: the data and the prior.
        directions: rows of $S_0$.
        missed: how prior variance that the features miss is treated; None for directions that do not carry the prior, whose
            products stay as they are.
        places: inputs that have been looked at already.
        known: what is known at all of them.
        observed: the kinds of observations; those of the problem by default.
    """
    observed = problem.observed if observed is None else observed
    if problem.data_share < 1:
        observed = tuple(kind.share(problem.data_share) for kind in observed)
    elif places is not None and known is not None and problem.of_values:
        block = _known_block(problem, directions, missed, places, known)
        if block is not None:
            return lambda: iter([block])
    streams = [_stream(problem, kind, directions, missed) for kind in observed]
    return lambda: itertools.chain.from_iterable(stream() for stream in streams)


def _known_block(
    problem: Problem, directions: Directions, missed: Treatment | None, places: Places, known: Known
) -> Block | None:
    """The one block of data whose features were computed with the pull-back, if there is such a block."""
    (kind,) = problem.observed
    rows = rows_of_data(2 * kind.num_outputs * directions.shape[0] * 8, problem.budget, num_rows=kind.data.num_rows)
    if not rows >= kind.data.num_rows == places.training.shape[0]:
        return None
    there, noise = known.rows(places.slice("training")), kind.noise
    if noise is not None and missed == "noise":
        noise = with_missed(noise, there.unexplained)
    targets = np.asarray(places.targets)
    return Block(there.outputs, there.mean, there.features, targets, kind.likelihood, noise)


def _stream(problem: Problem, kind: Observed, directions: Directions, missed: Treatment | None) -> Blocks:
    """Passes over the data of one kind."""
    data, q, budget = kind.data, kind.num_outputs, problem.budget / len(problem.observed)
    rows = rows_of_data(2 * q * directions.shape[0] * 8, budget, num_rows=data.num_rows)
    if kind.weight > 1:
        # Two blocks at least, which tell the error of a share of the rows.
        rows = min(rows, -(-data.num_rows // 2))

    def stream() -> Iterator[Block]:
        for part, block in data.blocks(rows):
            likelihood = kind.likelihood if rows >= data.num_rows else kind.likelihood.rows(part)
            found = view(kind.model, block.inputs, directions, budget=budget)
            _check_finite(kind, found, part)
            yield _block(kind, block, found, likelihood, missed)

    if rows >= data.num_rows:
        blocks = list(stream())
        return lambda: iter(blocks)
    # A pass through convolutions costs far more than memory that the caller allows anyway.
    kept = 4.0 * data.num_rows * q * directions.shape[0]
    if linearisation(kind.model, data.take(np.arange(1)).inputs).convolutional and kept <= budget / 4:
        return _Kept(stream)
    return stream


class _Kept:
    """Passes over blocks that are computed in the first pass and kept in single precision, which is what they come in."""

    def __init__(self, stream: Blocks):
        self._stream, self._blocks = stream, []
        self._complete = False

    def __call__(self) -> Iterator[Block]:
        if not self._complete:
            self._blocks.clear()
            for block in self._stream():
                self._blocks.append(dataclasses.replace(block, features=block.features.astype(np.float32)))
                yield block
            self._complete = True
            return
        for block in self._blocks:
            yield dataclasses.replace(block, features=block.features.astype(np.float64))


def _check_finite(kind: Observed, found: View, rows: slice) -> None:
    finite = np.isfinite(found.outputs).all(axis=1) & np.isfinite(found.features).all(axis=(1, 2))
    if not np.all(finite):
        raise FloatingPointError(
            f"laplace: {kind.name} is NaN or infinite for {kind.model.name} at row {rows.start + int(np.argmin(finite))}; check "
            "the operator there, or remove the row"
        )


def _block(kind: Observed, rows: Part, seen: View, likelihood: Likelihood, missed: Treatment | None) -> Block:
    noise, features = likelihood.noise(seen.outputs.shape), seen.features
    stated = kind.variance(rows.inputs) if missed is not None else None
    if stated is not None:
        features, unexplained = normalise(features, stated)
        if noise is not None and missed == "noise":
            noise = with_missed(noise, unexplained)
    return Block(
        seen.outputs, kind.mean(rows.inputs), features, np.asarray(rows.targets), likelihood, noise, kind.weight
    )


def with_missed(noise: Noise, unexplained: Float[np.ndarray, "n q"]) -> Noise:
    """Gaussian noise with the variance that the features miss added to it."""
    added = unexplained / noise.variance
    log_normaliser = noise.log_normaliser - 0.5 * float(np.sum(np.log1p(added)))
    return noise._replace(variance=noise.variance * (1 + added), log_normaliser=log_normaliser)
