r"""Kinds of observations: values of the function, and what operators make of it, each as rows with a likelihood.

An operator L that is not linear stands here as its tangent at a function g, $L[f] \approx L[g] + L'_g[f - g]$: everything else
in this room sees operators that are linear or affine.
"""

import dataclasses
import functools
import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from fsplaplace.host import in_float64, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._data import Part, Rows, read_rows
from fsplaplace.laplace._linear_model import sees_outside
from fsplaplace.likelihoods import Likelihood, Noise
from fsplaplace.networks import Model, PointFunction
from fsplaplace.observations import Observation
from fsplaplace.operators import Operator, Tangent, Value, value
from fsplaplace.prior import Prior, moments
from fsplaplace.training import check_widths, is_stated, settle


@dataclasses.dataclass(frozen=True)
class Observed:
    """Rows of one kind.

    Attributes:
        operator: what is observed of the function; linear, or a tangent.
        network: the network, whose weights the features belong to.
        model: the network seen through the operator.
        prior: of the function.
        likelihood: of the targets.
        data: inputs and targets.
        stated: whether the prior variance of what is observed can be computed from the kernel.
        name: for messages.
        weight: rows that each of these stands for.
    """

    operator: Operator
    network: Model
    model: Model
    prior: Prior
    likelihood: Likelihood
    data: Rows
    stated: bool
    name: str
    weight: float = 1.0

    @functools.cached_property
    def of_values(self) -> bool:
        """Whether these are values of the function."""
        return isinstance(self.operator, Value)

    @functools.cached_property
    def tangent(self) -> bool:
        """Whether the operator stands for one that is not linear."""
        return isinstance(self.operator, Tangent)

    @functools.cached_property
    def num_outputs(self) -> int:
        """Numbers that are observed at each input."""
        return self.prior.num_outputs if self.of_values else self.model.num_outputs(self._example)

    @functools.cached_property
    def _example(self):
        return self.data.take(np.arange(1)).inputs

    @functools.cached_property
    def num_targets(self) -> int:
        """Numbers that are observed in all."""
        return self.data.num_rows * self.num_outputs

    @functools.cached_property
    def noise(self) -> Noise | None:
        """Gaussian noise of all targets, or None for other likelihoods."""
        return self.likelihood.noise((self.data.num_rows, self.num_outputs))

    def mean(self, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n k"]:
        r"""$L[\mu](x)$: what is observed of the prior mean."""
        if self.of_values:
            return moments.mean(self.prior, x)
        return moments.mean_of(self.prior, self.operator, x)

    def variance(self, x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n k"] | None:
        """Prior variance of what is observed, or None if the kernel does not say."""
        if self.of_values:
            return moments.variance(self.prior, x)
        return moments.variance_of(self.prior, self.operator, x) if self.stated else None

    def share(self, share: float) -> "Observed":
        """A random share of the rows, at least two of them, each of which stands for several."""
        count = max(min(2, self.data.num_rows), round(share * self.data.num_rows))
        if count >= self.data.num_rows:
            return self
        index = np.random.default_rng(0).permutation(self.data.num_rows)[:count]
        return dataclasses.replace(
            self, likelihood=self.likelihood.rows(index), data=self.data.some(index), weight=self.data.num_rows / count
        )

    def around(self, base: Model) -> "Observed":
        """The same with the tangent at another function."""
        if not isinstance(self.operator, Tangent):
            return self
        operator = Tangent(self.operator.inner, PointFunction(base))
        return dataclasses.replace(self, operator=operator, model=self.network.through(operator))


def observe(
    model: Model, prior: Prior, likelihood: Likelihood, values: Rows | None, also: Sequence[Observation]
) -> tuple[Observed, ...]:
    """All kinds of observations, values first, checked; operators that are not linear by their tangent at the network."""
    kinds = [] if values is None else [Observed(value, model, model, prior, likelihood, values, True, "y")]
    for number, each in enumerate(also):
        kinds.append(_observed(model, prior, each, f"also[{number}]", None if values is None else values.row_shape))
    if not kinds:
        raise ValueError("laplace: X is None and there are no observations; pass X and y, or also=[Observation(...)]")
    # Values first, also those among `also`: the reference and the features that it judges are stacked in this order.
    return tuple(sorted(kinds, key=lambda kind: not kind.of_values))


def _observed(
    model: Model, prior: Prior, observation: Observation, name: str, row_shape: tuple[int, ...] | None
) -> Observed:
    try:
        data = read_rows(model, observation.likelihood, observation.X, observation.y)
        if row_shape is not None and data.row_shape != row_shape:
            raise ValueError(f"X has rows of shape {data.row_shape}, but those of the values have {row_shape}")
        points = data.spread(64).inputs
        operator = settle(observation.of, model, prior, points)
        if not operator.linear:
            operator = Tangent(operator, PointFunction(model))
        seen = model if isinstance(operator, Value) else model.through(operator)
        few = data.take(np.arange(min(3, data.num_rows)))
        check_widths(seen, None, observation.likelihood, to_device(few.inputs), few.targets)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} ({observation.of.name}): {error}") from error
    stated = isinstance(operator, Value) or is_stated(prior, operator, few.inputs)
    return Observed(operator, model, seen, prior, observation.likelihood, data, stated, f"{name} ({operator.name})")


def warn_if_outside(kind: Observed, points: Float[np.ndarray, "m ..."]) -> None:
    """Say if an operator looks outside the box of the context points, where the prior is not enforced."""
    if kind.of_values:
        return
    say_outside(np.asarray(_outside(kind, points)), f"laplace: {kind.name}")


def say_outside(outside: Bool[np.ndarray, "n 1"], where: str) -> None:
    """The warning of `warn_if_outside`, if any of the inputs is outside."""
    if np.any(outside):
        warnings.warn(
            f"{where}: {int(np.sum(outside))} of {len(outside)} inputs lie, or reach, outside the context region, where the prior is "
            "not enforced; give laplace context_points that cover them",
            UserWarning,
            stacklevel=5,
        )


def hardly_noisy(kind: Observed) -> bool:
    """Whether some rows are stated to be exact, or nearly: with a twentieth of the prior's standard deviation as noise."""
    if kind.noise is None:
        return False
    stated = kind.variance(kind.data.take(np.arange(1)).inputs)
    return stated is not None and bool(np.min(kind.noise.variance) <= _choices.NEAR_ZERO_NOISE**2 * np.max(stated))


def warn_if_contradictory(kind: Observed) -> bool:
    """Say if targets of one input differ by more than their noise explains: the posterior is sure of their mean, which no datum has.

    Returns whether it was said.
    """
    part = kind.data.held()
    if kind.noise is None or part.inputs.shape[0] < kind.data.num_rows:
        return False
    inputs, targets = part.inputs.reshape(len(part.inputs), -1), np.asarray(part.targets, np.float64)
    variance = np.broadcast_to(kind.noise.variance, (len(inputs), kind.num_outputs))
    order = np.lexsort(inputs.T)
    same = np.all(inputs[order[1:]] == inputs[order[:-1]], axis=1)
    if not np.any(same):
        return False
    one, other = order[:-1][same], order[1:][same]
    apart = np.abs(targets[one] - targets[other]).reshape(len(one), -1)
    expected = np.sqrt(variance[one] + variance[other])
    clash = apart > _choices.CONTRADICTION * expected
    if not np.any(clash):
        return False
    worst = int(np.argmax(np.max(np.where(clash, apart / expected, 0.0), axis=1)))
    first, second = sorted((int(one[worst]), int(other[worst])))
    warnings.warn(
        f"laplace: {kind.name}: rows {first} and {second} have the same input, but targets {np.max(apart[worst]):.3g} apart with "
        f"noise of standard deviation {np.sqrt(np.min(variance[first])):.3g}: they contradict each other; remove one, or state "
        "the noise that they have",
        UserWarning,
        stacklevel=4,
    )
    return True


@in_float64
def _outside(kind: Observed, points: Float[Array | np.ndarray, "m ..."]) -> Bool[Array, "n 1"]:
    inputs, flat = jnp.asarray(kind.data.held().inputs, float), jnp.asarray(points.reshape(len(points), -1), float)
    return jax.jit(lambda x: sees_outside(kind.prior.through(kind.operator), x, flat))(inputs)


def all_inputs(kinds: Sequence[Observed]) -> Rows:
    """The inputs of all kinds as one set of rows; with targets if there is only one kind."""
    if len(kinds) == 1:
        return kinds[0].data

    def parts():
        for kind in kinds:
            for part in kind.data.parts():
                yield _without_targets(part.inputs)

    starts = np.cumsum([0, *(kind.data.num_rows for kind in kinds)])

    def take(index):
        found = np.empty((len(index), *kinds[0].data.row_shape), kinds[0].data.take(np.arange(1)).inputs.dtype)
        for kind, start, stop in zip(kinds, starts[:-1], starts[1:], strict=True):
            here = (index >= start) & (index < stop)
            if np.any(here):
                found[here] = kind.data.take(index[here] - start).inputs
        return _without_targets(found)

    return Rows(parts, take)


def _without_targets(inputs) -> Part:
    return Part(inputs, np.zeros((len(inputs), 0), inputs.dtype))
