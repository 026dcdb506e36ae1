"""What a prior believes, in words and numbers, and where that contradicts the data."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gpjax.kernels import AbstractKernel, SumKernel
from jaxtyping import Float
from numpy.typing import ArrayLike

from fsplaplace import kernels
from fsplaplace.arguments import checked
from fsplaplace.prior._prior import Prior

# A length scale this many times the data's range makes functions that are straight lines over it.
_LONG = 3.0
# A length scale below this fraction of the distance between neighbours leaves every input on its own.
_SHORT = 0.5
# A standard deviation this many times below the data's (or twice that above) contradicts it.
_FAR = 5.0


class Description(eqx.Module):
    """Sentences about a prior. Prints as text.

    Attributes:
        sentences: what the prior believes.
        warnings: where that contradicts the data.
    """

    sentences: tuple[str, ...] = eqx.field(static=True)
    warnings: tuple[str, ...] = eqx.field(static=True)

    def __str__(self) -> str:
        return "\n".join([*self.sentences, *(f"WARNING: {warning}" for warning in self.warnings)])

    def __repr__(self) -> str:
        return str(self)


@checked(finite=True)
def describe(
    prior: Prior,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    num_features: int = 1,
    remarks: kernels.Remarks | None = None,
) -> Description:
    """Length scales, periods, smoothness and size of the functions a prior draws, compared with data where given.

    Args:
        prior: the prior.
        X: inputs, (n, ...): length scales and periods are compared with their range and spacing.
        y: targets in the space of the outputs, (n,) or (n, q): the prior's standard deviation is compared with theirs.
        num_features: number of input dimensions, where X is not given.
        remarks: what else to say, for instance `fsplaplace.holds(network, prior, context, key=key).remarks`: how much of the
            prior a network holds.

    Returns a `Description`: print it. Time $O(n d)$ and a few kernel values.

    Examples:
        >>> print(fsp.describe(fsp.Prior(RBF(lengthscale=0.5))))
        Gaussian-process prior, RBF; one output.
        functions change over a distance of about 0.5; they are infinitely smooth.
        the mean is zero; 95 % of values lie within 2 of it.
    """
    inputs = None if X is None else _rows(X, "X")
    targets = None if y is None else _rows(np.asarray(y)[:, None] if np.ndim(y) == 1 else y, "y")
    if inputs is not None and targets is not None and inputs.shape[0] != targets.shape[0]:
        raise ValueError(f"describe: y has {targets.shape[0]} rows, but X has {inputs.shape[0]}; pass as many")
    width = inputs.shape[1] if inputs is not None else num_features
    prior.check_columns(width)
    parts = prior.blocks.kernels
    sentences, warnings = [_outline(prior)], []
    for output, kernel in enumerate(parts):
        label = f"output {output}: " if len(parts) > 1 else ""
        said, warned = _describe_kernel(kernel, width, inputs)
        sentences += [label + text for text in said]
        warnings += [label + text for text in warned]
    said, warned = _describe_size(prior, inputs, targets, width)
    more = remarks or kernels.Remarks()
    return Description((*sentences, *said, *more.sentences), (*warnings, *warned, *more.warnings))


def _outline(prior: Prior) -> str:
    blocks = prior.blocks
    return f"Gaussian-process prior, {', '.join(_name(kernel) for kernel in blocks.kernels)}; {blocks.describe()}."


def _describe_kernel(kernel: AbstractKernel, width: int, inputs) -> tuple[list[str], list[str]]:
    sentences, warnings = [], []
    ranges = None if inputs is None else np.ptp(inputs, axis=0)
    scales = np.asarray(kernels.lengthscales(kernel, width), dtype=float)
    for component, (row, order) in enumerate(zip(scales, kernels.smoothness(kernel), strict=True)):
        label = f"component {component + 1}: " if len(scales) > 1 else ""
        sentences.append(
            f"{label}functions change over a distance of about {_numbers(row)}; they are {_smooth(order)}."
        )
        if ranges is None or inputs is None:
            continue
        varying = (ranges > 0) & np.isfinite(row)
        spacing = np.array([_spacing(column) for column in inputs.T])
        for column in np.flatnonzero(varying & (row > _LONG * ranges)):
            warnings.append(
                f"{label}the length scale {row[column]:.3g} along column {column} is {row[column] / ranges[column]:.3g} "
                f"times the data's range of {ranges[column]:.3g}: there functions are almost straight lines"
            )
        if width == 1 and varying[0] and row[0] < _SHORT * spacing[0]:
            warnings.append(
                f"{label}the length scale {row[0]:.3g} is shorter than the distance between neighbouring inputs, about "
                f"{spacing[0]:.3g}: data cannot tell functions from noise"
            )
        if width > 1 and np.any(varying) and np.all(row[varying] < 0.02 * ranges[varying]):
            warnings.append(
                f"{label}every length scale is below 2 % of the data's range: most pairs of inputs are uncorrelated"
            )
    for remarks in _remarks(kernel, ranges):
        sentences += remarks.sentences
        warnings += remarks.warnings
    return sentences, warnings


def _describe_size(prior: Prior, inputs, targets, width: int) -> tuple[list[str], list[str]]:
    points = np.zeros((1, width)) if inputs is None else inputs
    variance, mean = (np.asarray(part, dtype=float) for part in _moments(prior, jnp.asarray(points)))
    std = np.sqrt(np.mean(variance, axis=0))
    centre = f"the mean is about {_numbers(np.mean(mean, axis=0))}" if np.any(mean) else "the mean is zero"
    sentences = [f"{centre}; 95 % of values lie within {_numbers(2 * std)} of it."]
    if targets is None:
        return sentences, []
    if targets.shape[1] != prior.num_outputs:
        raise ValueError(f"describe: y has {targets.shape[1]} outputs, but the prior has {prior.num_outputs}")
    spread = np.std(targets, axis=0)
    sentences.append(f"prior standard deviation {_numbers(std)}, the data's {_numbers(spread)}.")
    warnings = []
    for output, (own, data, gap) in enumerate(zip(std, spread, np.abs(np.mean(targets - mean, axis=0)), strict=True)):
        label = f"output {output}: " if spread.size > 1 else ""
        if own < data / _FAR:
            warnings.append(f"{label}the prior's standard deviation {own:.3g} is far below the data's {data:.3g}")
        if own > 2 * _FAR * data:
            warnings.append(f"{label}the prior's standard deviation {own:.3g} is far above the data's {data:.3g}")
        if gap > 2 * own:
            warnings.append(
                f"{label}the data's mean is {gap:.3g} away from the prior's, {gap / own:.2g} prior standard deviations: "
                "centre y, or give the prior a mean"
            )
    return sentences, warnings


@eqx.filter_jit
def _moments(prior: Prior, points):
    return prior.variance(points), prior.mean_at(points)


def _rows(values: ArrayLike, name: str) -> Float[np.ndarray, "n d"]:
    array = np.asarray(values, dtype=float)
    if array.ndim < 2 or array.shape[0] < 2:
        raise ValueError(f"describe: {name} has shape {array.shape}; pass at least two rows, as (n, d)")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"describe: {name} has NaN or infinite values; remove those rows")
    return array.reshape(array.shape[0], -1)


def _name(kernel: Any) -> str:
    parts = getattr(kernel, "kernels", None)
    if parts is None:
        return type(kernel).__name__
    sign = " + " if isinstance(kernel, SumKernel) else " x "
    return "(" + sign.join(_name(part) for part in parts) + ")"


def _smooth(order: float) -> str:
    if math.isinf(order):
        return "infinitely smooth"
    times = math.ceil(order) - 1
    words = {0: "continuous but rough (no derivative)", 1: "once differentiable", 2: "twice differentiable"}
    return words.get(times, f"{times} times differentiable") if times >= 0 else "not continuous"


def _remarks(kernel: AbstractKernel, ranges: Float[np.ndarray, " d"] | None) -> list[kernels.Remarks]:
    """What the registry says about each kernel in the tree of sums, products and latent kernels."""

    def says_something(node: Any) -> bool:
        return isinstance(node, AbstractKernel) and kernels.nearest_entry(node).remarks is not None

    found = [node for node in jax.tree.leaves(kernel, is_leaf=says_something) if says_something(node)]
    entries = [kernels.nearest_entry(node).remarks for node in found]
    return [remarks(node, ranges) for node, remarks in zip(found, entries, strict=True) if remarks is not None]


def _spacing(column: Float[np.ndarray, " n"]) -> float:
    """The median distance between neighbours."""
    gaps = np.diff(np.unique(column))
    return float(np.median(gaps)) if gaps.size else 0.0


def _numbers(values: np.ndarray) -> str:
    """One number, a few, or their range."""
    values = np.atleast_1d(values)
    if np.allclose(values, values[0]):
        return f"{values[0]:.3g}"
    if values.size <= 4:
        return "(" + ", ".join(f"{value:.3g}" for value in values) + ")"
    return f"{values.min():.3g} to {values.max():.3g} (median {np.median(values):.3g})"
