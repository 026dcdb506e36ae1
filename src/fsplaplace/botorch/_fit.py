"""From data to the posterior of a surrogate: prior, features, approximation, in programs that the next data set shares."""

import dataclasses
import itertools
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from gpjax.kernels import AbstractKernel
from jaxtyping import Bool, Float

from fsplaplace.context import Faces, Halton, Mixture
from fsplaplace.estimators import WeightedRows, kernel_by_name, weighted
from fsplaplace.host import padded_size, to_device
from fsplaplace.laplace import Posterior, laplace
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.networks import Model, as_model, mlp
from fsplaplace.prior import Prior
from fsplaplace.training import train
from fsplaplace.tuning import fit_prior

# The share of context and guard points on faces and corners of the box, where acquisition functions have their optima.
_SHARE_ON_FACES = 0.25
# All corners of the box are context points if they are at most this share of them.
_SHARE_OF_CORNERS = 0.25
# The share of context points around the best rows: candidates are looked for there.
_SHARE_NEAR_BEST = 0.25
# Weights of the last layer are uniform up to this, so that those of all layers move the function about as much. With the usual
# ones, 1 / sqrt(width), the last layer does nearly all of it, and the features of 400 units are too few for 6 inputs (Hartmann,
# 40 rows, prior as given: mean off by .05 of its standard deviation at candidates, not .14).
_OUTPUT_WEIGHTS = 0.5
# Numbers of context points that have programs of their own are multiples of this; there are as many directions.
_ROUND = 128
# Numbers of rows that have programs of their own are powers of two from the first to the second of these.
_FEWEST_ROWS, _MOST_ROWS = 16, 512
# Guard points: with 512, 640 or 896 context points, and 150 to 200 inputs like those to come (fewer for fewer rows), their number is
# rounded to one size for all data sets from 4 rows on that have as many context points.
_NUM_GUARDS = 160
# Noise that is looked for if it is unknown, in units of the targets: the start of `fit_prior`.
_NOISE = 0.1


class Settings(NamedTuple):
    """How a surrogate is fitted.

    Attributes:
        kernel: a name, or a kernel of GPJax; each output gets its own copy.
        network: widths of the hidden layers.
        prior: given, it is kept as it is, and `noise` with it.
        noise: standard deviation of the noise that belongs to `prior`.
        bounds: (2, d), the box in which the function is looked at.
        steps: of training; none by default, because the refined mean needs features only.
        num_context: context points besides the training inputs, at least.
        seed: decides network and points.
    """

    kernel: str | AbstractKernel = "matern52"
    network: Sequence[int] = (400,)
    prior: Prior | None = None
    noise: float | None = None
    bounds: Float[np.ndarray, "2 d"] | None = None
    steps: int = 0
    num_context: int = 384
    seed: int = 0


class Data(NamedTuple):
    """What a surrogate is fitted to.

    Attributes:
        X: inputs.
        Y: targets, about standardised.
        variance: of each target's noise if it is known.
    """

    X: Float[np.ndarray, "n d"]
    Y: Float[np.ndarray, "n m"]
    variance: Float[np.ndarray, "n m"] | None = None


class Last(NamedTuple):
    """An earlier fit of the same problem, and what of it is kept.

    Attributes:
        posterior: of fewer data, in the same units.
        delta: ridge of `laplace`; compared with others if None.
        apart: whether its length scales were told apart, and stay so.
    """

    posterior: Posterior
    delta: float | None = None
    apart: bool = False


class Surrogate(NamedTuple):
    """What a surrogate is fitted to be.

    Attributes:
        posterior: the process.
        apart: whether the data told the length scales of several columns apart.
    """

    posterior: Posterior
    apart: bool


class _FittedPrior(NamedTuple):
    prior: Prior
    likelihood: Gaussian
    apart: bool = False


def fit_surrogate(data: Data, settings: Settings, last: Last | None = None) -> Surrogate:
    """The posterior of a surrogate in the dtype of X.

    Rows are padded with copies of no weight, and points come in round numbers, so that data sets of similar size share
    compiled programs.

    Args:
        data: see there.
        settings: see there.
        last: an earlier fit: the search for the prior starts from its prior and nowhere else, and training from its weights.

    Time: `fit_prior` and `laplace`; with `last` a third to a half of the former.
    """
    with jax.enable_x64(data.X.dtype == np.float64):
        prior, likelihood, apart = _prior(data, settings, last)
        cover = _cover(data.X, settings)
        if not settings.network or min(settings.network) < 1:
            raise ValueError(f"FSPModel: network is {list(settings.network)}; pass at least one width, each 1 or more")
        network_key, train_key = _keys(settings)[:2]
        network = mlp(list(settings.network), prior=prior, context=cover, key=network_key)
        model = as_model(network if settings.steps else _balanced(network))
        if settings.steps:
            rows = _padded_rows(data.X, data.Y)
            model = train(
                model if last is None else last.posterior.model, prior, _observed(likelihood, rows), cover, rows.X, rows.y, key=train_key,
                steps=settings.steps, progress=False,
            ).model  # fmt: skip
        delta = None if last is None else last.delta
        return Surrogate(_approximation(data, settings, model, prior, likelihood, delta=delta), apart)


def refit_with(data: Data, settings: Settings, other: Posterior) -> Posterior:
    """The posterior given these data with the prior, noise and network of another one. Time: that of `laplace`."""
    with jax.enable_x64(data.X.dtype == np.float64):
        likelihood = other.likelihood if data.variance is None else Gaussian(np.sqrt(data.variance))
        assert isinstance(likelihood, Gaussian)
        delta = other.diagnostics.delta
        return _approximation(data, settings, other.model, other.prior, likelihood, delta=delta, like=other)


def _approximation(
    data: Data,
    settings: Settings,
    model: Model,
    prior: Prior,
    likelihood: Gaussian,
    *,
    delta: float | None,
    like: Posterior | None = None,
) -> Posterior:
    """`laplace` on padded rows, its rank padded; with the context points of `like`, and as many more as are missing."""
    X, (points_key, guard_key) = data.X, _keys(settings)[2:]
    box, rows = _box(X, settings.bounds), _padded_rows(X, data.Y)
    count = -(-(rows.X.shape[0] + settings.num_context) // _ROUND) * _ROUND
    drawn = np.asarray(_cover(X, settings).sample(2 * (count + _NUM_GUARDS), key=points_key))
    near = _near_best(X, data.Y, box, int(_SHARE_NEAR_BEST * settings.num_context), settings.seed)
    known = X[:0] if like is None else np.asarray(like.context_points)
    points = _distinct_points(X, known, _corners(box, settings.num_context), near, drawn, count=count + _NUM_GUARDS)
    posterior = laplace(
        model, prior, _observed(likelihood, rows), rows.X, rows.y, context_points=points[:count], include_training=False,
        mean="refined", guard_points=points[count:], missed_as_noise=True, key=guard_key,
        delta=delta,
    )  # fmt: skip
    return dataclasses.replace(_padded(posterior, count * data.Y.shape[1]), likelihood=likelihood)


def _keys(settings: Settings):
    """For the network, training, context points and guard points."""
    network, points, guard, training = jr.split(jr.key(settings.seed), 4)
    return network, training, points, guard


def _cover(X: Float[np.ndarray, "n d"], settings: Settings) -> Mixture:
    """The inside of the box and its faces."""
    box = _box(X, settings.bounds)
    return Mixture([Halton(*box), Faces(*box)], weights=[1 - _SHARE_ON_FACES, _SHARE_ON_FACES])


def _observed(likelihood: Gaussian, rows: WeightedRows) -> Likelihood:
    """The likelihood of padded rows."""
    scale = np.asarray(likelihood.scale)
    padded = Gaussian(_repeated(scale, rows.X.shape[0])) if likelihood.per_row else likelihood
    return weighted(padded, rows.weights)


def _padded_rows(X: Float[np.ndarray, "n d"], Y: Float[np.ndarray, "n m"]) -> WeightedRows:
    """With copies that count for nothing: few numbers of rows, so that a loop compiles seldom.

    Copies of all rows in turn: `laplace` is judged at inputs between rows, and between copies of a single one there are none.
    """
    n = X.shape[0]
    size = max(_FEWEST_ROWS, 1 << (n - 1).bit_length()) if n <= _MOST_ROWS else padded_size(n)
    return WeightedRows(_repeated(X, size), _repeated(Y, size), np.concatenate([np.ones(n), np.zeros(size - n)]))


def _balanced(network: eqx.Module) -> eqx.Module:
    """The network with a last layer as large as `_OUTPUT_WEIGHTS` says."""
    weight = network.layers[-1].weight  # pyright: ignore[reportAttributeAccessIssue] - an MLP of `mlp`
    larger = _OUTPUT_WEIGHTS * weight.shape[1] ** 0.5 * weight
    return eqx.tree_at(lambda tree: tree.layers[-1].weight, network, larger)


def _corners(box: tuple[np.ndarray, np.ndarray], num_context: int) -> Float[np.ndarray, "c d"]:
    """All corners, or none if there are too many of them."""
    lower, upper = box
    if 2.0 ** len(lower) > _SHARE_OF_CORNERS * num_context:
        return lower[None][:0]
    return np.array(list(itertools.product(*zip(lower, upper, strict=True))), lower.dtype)


def _near_best(
    X: Float[np.ndarray, "n d"], Y: Float[np.ndarray, "n m"], box: tuple[np.ndarray, np.ndarray], count: int, seed: int
) -> Float[np.ndarray, "k d"]:
    """Points around the best quarter of the rows in each output, at distances from a hundredth to a third of the box."""
    generator, (lower, upper) = np.random.default_rng(seed), box
    best = np.unique(np.argsort(-Y, axis=0, kind="stable")[: -(-len(Y) // 4)])
    size = 10.0 ** generator.uniform(-2, -0.5, (count, 1))
    moved = X[generator.choice(best, count)] + size * (upper - lower) * generator.standard_normal((count, X.shape[1]))
    return np.clip(moved, lower, upper).astype(X.dtype)


def _distinct_points(*parts: Float[np.ndarray, "_ d"], count: int) -> Float[np.ndarray, "m d"]:
    """The points of all parts, of the last in random order, `count` in all and none of them twice."""
    *first, drawn = parts
    shuffled = drawn[np.random.default_rng(0).permutation(drawn.shape[0])]
    every = np.concatenate([*first, shuffled.astype(first[0].dtype)])
    first = np.sort(np.unique(every, axis=0, return_index=True)[1])
    return every[first[:count]]


def _padded(posterior: Posterior, most: int) -> Posterior:
    """With rows of zeros up to the largest rank there can be: the rank changes from fit to fit, the shapes do not."""
    more = max(0, most - posterior.scale.shape[0])
    assert posterior.information is not None
    return dataclasses.replace(
        posterior,
        scale=to_device(np.pad(np.asarray(posterior.scale), ((0, more), (0, 0)))),
        information=to_device(np.pad(np.asarray(posterior.information), (0, more), constant_values=1.0)),
    )


def _prior(data: Data, settings: Settings, last: Last | None) -> _FittedPrior:
    """Prior and noise: given, or those of the highest evidence under weak hyper-priors."""
    X, Y, variance = data
    m = Y.shape[1]
    scale = np.full(m, _NOISE if settings.noise is None else settings.noise) if variance is None else np.sqrt(variance)
    likelihood = Gaussian(scale)
    if settings.prior is not None:
        return _FittedPrior(settings.prior, likelihood)
    kernel = kernel_by_name(settings.kernel, X.shape[1], ard=True)
    prior = _as_fitted(Prior(kernel if m == 1 else [kernel] * m, num_outputs=m))
    last = None if last is None or last.posterior.prior.num_outputs != m else last
    if last is not None:
        prior, known = last.posterior.prior, last.posterior.likelihood
        fitted_noise = variance is None and settings.noise is None
        if fitted_noise and isinstance(known, Gaussian) and not known.per_row:
            likelihood = known
    varying = np.ptp(Y, axis=0) > 0
    if not np.any(varying):
        return _FittedPrior(prior, likelihood)
    if not np.any(np.ptp(X, axis=0)):
        # One place says nothing of how the function varies; what differs there is noise.
        unknown = variance is None and settings.noise is None
        return _FittedPrior(prior, Gaussian(np.maximum(np.std(Y, axis=0), _NOISE)) if unknown else likelihood)
    if not np.all(varying):
        return _prior_of_some(data, settings, varying, kernel, scale)
    # What fewer rows told apart more rows do, too: a trial would take half of the search.
    apart = last is not None and last.apart
    with warnings.catch_warnings():
        # An input that does not matter has a length scale at its bound, which is what separate ones are for.
        warnings.filterwarnings(
            "ignore",
            message="fit_prior: (these parameters ended at a bound|the targets look free of noise)",
            category=UserWarning,
        )
        fitted = fit_prior(
            prior, X, Y, likelihood, key=jr.key(settings.seed), ard=not apart, standard_errors=False,
            fit_noise=variance is None and settings.noise is None, restarts=3 if last is None else 1,
            start="data" if last is None else "prior",
        )  # fmt: skip
    assert isinstance(fitted.likelihood, Gaussian)
    return _FittedPrior(fitted.prior, fitted.likelihood, not fitted.report.tied)


def _as_fitted(prior: Prior) -> Prior:
    """With parameters of the very types that fitted ones have: JAX compiles again for a number that came as a Python float."""
    return jax.tree.map(lambda leaf: to_device(np.asarray(leaf)) if eqx.is_array(leaf) else leaf, prior)


def _prior_of_some(
    data: Data, settings: Settings, varying: Bool[np.ndarray, " m"], kernel: AbstractKernel, scale: np.ndarray
) -> _FittedPrior:
    """Fitted for outputs that vary; one that does not (a constraint that no row violates) keeps the kernel and noise given."""
    variance = None if data.variance is None else data.variance[:, varying]
    part, noise, _ = _prior(Data(data.X, data.Y[:, varying], variance), settings, None)
    fitted, scale = iter(part.blocks.kernels), scale.copy()
    scale[..., varying] = np.asarray(noise.scale)
    kernels = [next(fitted) if each else kernel for each in varying]
    return _FittedPrior(Prior(kernels, num_outputs=len(kernels)), Gaussian(scale))


def _box(X: Float[np.ndarray, "n d"], bounds: Float[np.ndarray, "2 d"] | None):
    """The bounds and at least the data; by default the unit cube, which BoTorch's users work in.

    A column without any row in the unit interval has other units: its box is the range of the data, 1 wide if that is a point.
    """
    lower, upper = X.min(axis=0), X.max(axis=0)
    if bounds is None:
        elsewhere, alone = (lower > 1) | (upper < 0), 0.5 * (lower == upper)
        bounds = np.where(elsewhere, [lower - alone, upper + alone], [np.zeros_like(lower), np.ones_like(lower)])
    return np.minimum(bounds[0], lower).astype(X.dtype), np.maximum(bounds[1], upper).astype(X.dtype)


def _repeated(values: np.ndarray, count: int) -> np.ndarray:
    return np.resize(values, (count, *values.shape[1:]))
