"""A marginal likelihood to maximise: its data, the vector of its parameters, where they start and their bounds."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.prior import Prior
from fsplaplace.tuning._marginal_likelihood import profile_likelihood
from fsplaplace.tuning._optimize import Box
from fsplaplace.tuning._parameters import ParameterSpace
from fsplaplace.tuning._starts import redundant_parameters, starts_from_data

# Noise as a fraction of the targets' standard deviation: first value and bounds. Below the lower one (the paper's floor)
# repeated rows with repeated targets make the likelihood grow without limit, and the posterior ill-conditioned.
NOISE = (0.3, 1e-2, 3.0)


class MarginalLikelihood(eqx.Module):
    """The log marginal likelihood as a function of one vector: the prior's parameters, then logarithms of the noise.

    `noise_variance` is fixed and per row and output where given; else the noise has `noise_shape`, () or (q,).
    `design` holds the columns of the mean whose coefficients have a closed form.
    """

    space: ParameterSpace
    X: Float[Array, "n d"]
    y: Float[Array, "n q"]
    noise_variance: Float[Array, "n q"] | None
    design: Float[Array, "n q k"]
    noise_shape: tuple[int, ...] | None = eqx.field(static=True)

    def __call__(self, vector: Float[np.ndarray, " P"]) -> tuple[float, Float[np.ndarray, " P"]]:
        """Value and gradient."""
        value, gradient = _value_and_gradient(jnp.asarray(vector), self)
        return float(value), np.asarray(gradient)

    def mean_parameters(self, vector: Float[np.ndarray, " P"]) -> tuple[np.ndarray, np.ndarray]:
        """The closed-form coefficients of the mean at these parameters, and their standard errors."""
        _, beta, covariance = _evaluate(jnp.asarray(vector), self)
        return np.asarray(beta), np.sqrt(np.maximum(np.diagonal(covariance), 0.0))

    def take(self, rows: np.ndarray) -> "MarginalLikelihood":
        """The marginal likelihood of some of the rows."""
        noise = None if self.noise_variance is None else self.noise_variance[rows]
        where = lambda tree: (tree.X, tree.y, tree.noise_variance, tree.design)  # noqa: E731
        parts = (self.X[rows], self.y[rows], noise, self.design[rows])
        return eqx.tree_at(where, self, parts, is_leaf=lambda node: node is None)


class SetUp(NamedTuple):
    """The problem, the start from the data and the caller's values (both inside the box), and notes."""

    problem: MarginalLikelihood
    start: Float[np.ndarray, " P"]
    given: Float[np.ndarray, " P"]
    box: Box
    notes: list[str]


def set_up(
    prior: Prior,
    X: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n q"],
    *,
    noise_variance: Float[np.ndarray, "n q"] | None,
    noise_scale: Float[np.ndarray, "..."] | None,
    shared_constant: bool,
) -> SetUp:
    """The problem in float64; call it inside `in_float64`.

    Args:
        prior: in float64.
        X: inputs.
        y: targets.
        noise_variance: known variances, or None.
        noise_scale: the caller's scale where the noise is to be fitted, else None.
        shared_constant: take a constant out of the targets of all outputs, beyond the prior's mean.
    """
    space = ParameterSpace(prior, skip=redundant_parameters(prior))
    origin, design, mean = _mean_design(space, jnp.asarray(X))
    if shared_constant:
        design = jnp.concatenate([design, jnp.ones((*y.shape, 1))], axis=2)
    residual = _least_squares_residual(y - np.asarray(mean), np.asarray(design))
    found = starts_from_data(prior, X, residual)
    start, given, box = _ranges(space, found.by_id, residual, noise_scale)
    space = eqx.tree_at(lambda tree: tree.prior, space, origin)
    shape = None if noise_scale is None else np.shape(noise_scale)
    problem = MarginalLikelihood(
        space,
        jnp.asarray(X),
        jnp.asarray(y),
        None if noise_variance is None else jnp.asarray(noise_variance),
        design,
        shape,
    )
    return SetUp(problem, start, given, box, _notes(found.constant_columns, start.size, design.shape[2], y))


def _ranges(space: ParameterSpace, by_id, y, noise_scale) -> tuple[np.ndarray, np.ndarray, Box]:
    values, first, lower, upper = space.values(space.prior), [], [], []
    for place, value, node in zip(space.places, values, space.nodes(), strict=True):
        found = by_id.get(id(node))
        if found is None and place.positive:
            found = (value, 1e-4 * value, 1e4 * value)
        elif found is None:
            reach = 10.0 * (1.0 + np.abs(value))
            found = (value, value - reach, value + reach)
        for part, number in zip((first, lower, upper), found, strict=True):
            part.append(np.broadcast_to(number, place.shape))
    vectors = [space.to_vector(part) for part in (first, values, lower, upper)]
    logarithmic = np.concatenate([np.zeros(0, bool), *[np.full(place.size, place.positive) for place in space.places]])
    if noise_scale is not None:
        spread = np.std(y) if np.ndim(noise_scale) == 0 else np.maximum(np.std(y, axis=0), 1e-3 * np.std(y))
        ends = [np.ravel(np.log(fraction * spread)) for fraction in NOISE]
        given = np.ravel(np.log(noise_scale))
        vectors = [np.append(*pair) for pair in zip(vectors, (ends[0], given, ends[1], ends[2]), strict=True)]
        logarithmic = np.append(logarithmic, np.full(given.size, True))
    start, given, lower, upper = vectors
    # Logarithms move in their own unit; anything else in a tenth of what it may move at all.
    unit = np.where(logarithmic, 1.0, np.maximum(0.1 * (upper - lower), 1e-300))
    box = Box(lower, upper, unit)
    return box.clip(start), box.clip(given), box


def _notes(constant_columns: list[int], count: int, mean_count: int, y: np.ndarray) -> list[str]:
    notes = []
    if constant_columns:
        columns = ", ".join(map(str, constant_columns))
        notes.append(f"column {columns} of X is constant, so the data says nothing about its length scale; drop it")
    if y.size < count + mean_count:
        notes.append(
            f"y has {y.size} values for {count + mean_count} parameters, which they cannot determine; use a simpler "
            "kernel, or fix some parameters with paramax.non_trainable"
        )
    return notes


@eqx.filter_jit
def _mean_design(space: ParameterSpace, X):
    origin, design = space.mean_design(X)
    return origin, design, origin.mean_at(X)


def _least_squares_residual(
    y: Float[np.ndarray, "n q"], design: Float[np.ndarray, "n q k"]
) -> Float[np.ndarray, "n q"]:
    """What a kernel has to explain: the targets without the best linear mean."""
    if design.shape[2] == 0:
        return y
    columns = design.reshape(y.size, -1)
    residual = y - (columns @ np.linalg.lstsq(columns, y.ravel(), rcond=None)[0]).reshape(y.shape)
    # A mean that explains the targets to rounding leaves no scale to start from.
    return residual if np.std(residual) > 1e-8 * np.std(y) else y


@eqx.filter_jit
def _evaluate(vector, problem: MarginalLikelihood):
    prior = problem.space.to_prior(vector[: problem.space.size])
    noise = problem.noise_variance
    if noise is None:
        noise = jnp.exp(2 * vector[problem.space.size :].reshape(problem.noise_shape or ()))
    return profile_likelihood(prior, noise, problem.X, problem.y, problem.design)


@eqx.filter_jit
def _value_and_gradient(vector, problem: MarginalLikelihood):
    return eqx.filter_value_and_grad(lambda at: _evaluate(at, problem)[0])(vector)
