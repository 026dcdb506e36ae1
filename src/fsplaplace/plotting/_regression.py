"""Functions of one input: mean, two-standard-deviation band, samples and data."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, Range, as_key, checked
from fsplaplace.operators import Operator, as_operator, partial, value
from fsplaplace.plotting._axes import BLACK, GREEN, GREY, VERMILLION, data_of, inputs_of, many_axes, one_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_RESOLUTION = 300
_SLOPE = partial(0)
# None are drawn of zero.
_SAMPLES = {"num_samples": Range("0 or more", least=0, most=1000)}


@checked(finite=True, ranges=_SAMPLES)
def plot_regression(
    posterior: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    x: ArrayLike | None = None,
    output: int = 0,
    num_samples: int = 5,
    key: KeyLike | None = None,
    reference: Any = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """The posterior of a function of one input: mean, band of two epistemic standard deviations, samples and data.

    Args:
        posterior: from `fsplaplace.laplace` or a baseline: anything with `predict` and `sample`.
        X: training inputs.
        y: targets, drawn as circles.
        x: where to evaluate; 300 points across the context points by default.
        output: which output to draw.
        num_samples: how many sampled functions to draw.
        key: for the samples; a fixed key by default.
        reference: drawn dashed, mean and two standard deviations: a posterior with `predict`, such as the exact
            Gaussian process, or a pair (mean, std) at `x`.
        ax: the axes; a new figure by default.

    Returns the axes.

    Examples:
        >>> from fsplaplace import plotting
        >>> plotting.plot_regression(posterior, X, y).get_figure().savefig(directory / "fit.png")
    """
    X, y = data_of(X, y, 1, "plot_regression")
    ax = one_axes(ax)
    x = _grid(posterior, X, x, "plot_regression")
    prediction = posterior.predict(x)
    _check_output(output, prediction.mean.shape[1], "plot_regression")
    samples = posterior.sample(x, key=_key(key), num_samples=num_samples) if num_samples else np.zeros((0, len(x), 1))
    column = slice(None), output
    _draw_band(ax, x, np.asarray(prediction.mean)[column], np.asarray(prediction.std)[column])
    _draw_samples(ax, x, np.asarray(samples)[..., min(output, np.shape(samples)[2] - 1)])
    if reference is not None:
        _draw_reference(ax, x, reference, output)
    _draw_data(ax, X, y, output)
    _finish(ax, x)
    return ax


@checked(finite=True, ranges=_SAMPLES)
def plot_prior_and_posterior(
    posterior: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    x: ArrayLike | None = None,
    output: int = 0,
    num_samples: int = 5,
    key: KeyLike | None = None,
    ax: "Sequence[Axes] | None" = None,
) -> "list[Axes]":
    """The Gaussian-process prior on the left, what the data made of it on the right, on one scale.

    Args: as for `plot_regression`; `ax` is a pair of axes.
    """
    left, right = many_axes(ax, 2, "ax", sharey=True)
    X, y = data_of(X, y, 1, "plot_prior_and_posterior")
    x = _grid(posterior, X, x, "plot_prior_and_posterior")
    points = jnp.asarray(x, dtype=posterior.model.dtype)
    _check_output(output, posterior.prior.num_outputs, "plot_prior_and_posterior")
    mean = np.asarray(posterior.prior.mean_at(points))[:, output]
    std = np.sqrt(np.asarray(posterior.prior.variance(points)))[:, output]
    _draw_band(left, x, mean, std)
    if num_samples:
        samples = posterior.prior.sample(points, key=_key(key), num_samples=num_samples)
        _draw_samples(left, x, np.asarray(samples)[:, :, output])
    _finish(left, x)
    left.set_title("prior")
    plot_regression(posterior, X, y, x=x, output=output, num_samples=num_samples, key=key, ax=right)
    right.set_title("posterior")
    low, high = zip(left.get_ylim(), right.get_ylim(), strict=True)
    left.set_ylim(min(low), max(high))
    right.set_ylim(min(low), max(high))
    return [left, right]


@checked(finite=True, ranges=_SAMPLES)
def plot_derivative(
    posterior: Any,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    of: Operator | Callable = _SLOPE,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    x: ArrayLike | None = None,
    output: int = 0,
    num_samples: int = 5,
    key: KeyLike | None = None,
    ax: "Sequence[Axes] | None" = None,
) -> "list[Axes]":
    """A function of one input on the left, its derivative on the right: means, bands, data; samples are the same functions.

    Args:
        posterior: from `fsplaplace.laplace`: anything whose `predict` and `sample` take `of`.
        X: inputs of observed values, if there are any.
        y: these values.
        of: what the right side shows of the function: its slope, or any other operator with one value for each output.
        observed: inputs and targets of observations of it, drawn on the right.
        x: where to evaluate; 300 points across the context points by default.
        output: which output to draw.
        num_samples: how many sampled functions to draw.
        key: for the samples; a fixed key by default.
        ax: a pair of axes; a new figure by default.

    Returns both axes.
    """
    axes = many_axes(ax, 2, "ax")
    x = _grid(posterior, X, x, "plot_derivative")
    operator = as_operator(of)
    if (X is None) != (y is None):
        raise ValueError("plot_derivative: X and y belong together; pass both, or neither")
    for place, seen, data in zip(axes, (value, operator), ((X, y), observed or (None, None)), strict=True):
        prediction = posterior.predict(x, of=seen)
        _check_output(output, prediction.mean.shape[1], "plot_derivative")
        _draw_band(place, x, np.asarray(prediction.mean)[:, output], np.asarray(prediction.std)[:, output])
        if num_samples:
            samples = posterior.sample(x, key=_key(key), num_samples=num_samples, of=seen)
            _draw_samples(place, x, np.asarray(samples)[..., output])
        if data[0] is not None:
            _draw_data(place, *data_of(*data, 1, "plot_derivative"), output)
        _finish(place, x)
    axes[1].set_ylabel("f'(x)" if operator.name == "partial(0)" else f"{operator.name} of f")
    return axes


def _grid(posterior: Any, X: Any, x: Any, name: str) -> np.ndarray:
    if x is not None:
        places = np.asarray(x, dtype=float)
        if places.ndim > 2 or places.shape[1:] not in ((), (1,)):
            raise ValueError(f"{name}: x has shape {places.shape}; pass places on a line, (n,) or (n, 1)")
        return np.sort(places.reshape(-1, 1), axis=0)
    points = inputs_of(posterior, X, 1, name)
    return np.linspace(points.min(), points.max(), _RESOLUTION)[:, None]


def _key(key: KeyLike | None) -> PRNGKeyArray:
    return jr.key(0) if key is None else as_key(key)


def _draw_band(ax: "Axes", x: np.ndarray, mean: np.ndarray, std: np.ndarray) -> None:
    low, high = mean - 2 * std, mean + 2 * std
    ax.fill_between(x[:, 0], low, high, color=GREEN, alpha=0.2, linewidth=0, label="mean ± 2 std")
    ax.plot(x[:, 0], mean, color=VERMILLION, linewidth=2, label="mean", zorder=3)


def _draw_samples(ax: "Axes", x: np.ndarray, samples: np.ndarray) -> None:
    for i, sample in enumerate(samples):
        ax.plot(x[:, 0], sample, color=GREEN, linewidth=0.8, alpha=0.7, label="samples" if i == 0 else None)


def _check_output(output: int, count: int, caller: str) -> None:
    if not output < count:
        raise ValueError(f"{caller}: output is {output}, but there are {count}; they count from 0")


def _draw_reference(ax: "Axes", x: np.ndarray, reference: Any, output: int) -> None:
    if hasattr(reference, "predict"):
        prediction = reference.predict(x)
        reference = prediction.mean, prediction.std
    mean, std = (np.asarray(part).reshape(len(x), -1)[:, output] for part in reference)
    ax.plot(x[:, 0], mean, color=BLACK, linestyle="--", linewidth=1, label="reference ± 2 std", zorder=4)
    for edge in (mean - 2 * std, mean + 2 * std):
        ax.plot(x[:, 0], edge, color=BLACK, linestyle=":", linewidth=1, zorder=4)


def _draw_data(ax: "Axes", X: Any, y: Any, output: int) -> None:
    inputs, targets = np.asarray(X).reshape(-1), np.asarray(y).reshape(len(np.asarray(X)), -1)[:, output]
    ax.plot(inputs, targets, "o", color=GREY, markersize=4, markerfacecolor="none", label="data", zorder=2)


def _finish(ax: "Axes", x: np.ndarray) -> None:
    ax.set_xlim(x[0, 0], x[-1, 0])
    ax.set_xlabel("x")
    ax.set_ylabel("f(x)")
    ax.legend(fontsize="small", framealpha=0.8)
