"""Train, choose context points, approximate: the one way from a network and data to a posterior."""

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from numpy.typing import ArrayLike

from fsplaplace.context import Sampler, throughout
from fsplaplace.host import host_generator, phase
from fsplaplace.laplace import _choices
from fsplaplace.laplace._choices import Options
from fsplaplace.laplace._diagnostics import VerdictWarning
from fsplaplace.laplace._held_out import HeldOut, LabelledRows, judge
from fsplaplace.laplace._laplace import laplace
from fsplaplace.laplace._posterior import Posterior
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.networks import Model
from fsplaplace.prior import Prior
from fsplaplace.training import Trained, train

# Whether the noise may change; upwards only if it was fitted to all the rows already.
FitNoise = bool | Literal["upwards"]


class Fitted(eqx.Module):
    """A network after training, and its posterior.

    Attributes:
        trained: what `fsplaplace.train` returned.
        posterior: what `fsplaplace.laplace` returned.
        context_points: those that were passed to it.
        held: rows held out of the training, as a posterior of other rows predicts them; None if there were none.
    """

    trained: Trained
    posterior: Posterior
    context_points: Float[np.ndarray, "m ..."]
    held: HeldOut | None = None


def fit_posterior(
    model: Model,
    prior: Prior,
    likelihood: Likelihood,
    context: Sampler,
    X: ArrayLike,
    y: ArrayLike,
    *,
    key: PRNGKeyArray,
    context_points: ArrayLike | None = None,
    num_points: int = 1000,
    cover: Sampler | None = None,
    fit_noise: FitNoise = True,
    hold_out: bool = True,
    training: Mapping[str, Any] | None = None,
    approximation: Mapping[str, Any] | None = None,
) -> Fitted:
    """`fsplaplace.train`, `choose_context_points` and `fsplaplace.laplace`, one after the other.

    Args:
        model: the network; not changed.
        prior: the Gaussian-process prior.
        likelihood: of the targets given the outputs.
        context: where the prior is enforced in training.
        X: inputs.
        y: targets.
        key: for all three; `training` and `approximation` may hold their own.
        context_points: of the posterior, instead of those chosen here; `laplace` adds training inputs to them.
        num_points: see `choose_context_points`.
        cover: see `choose_context_points`.
        fit_noise: take the Gaussian noise that the evidence of the features prefers if it differs by a tenth or more:
            features that miss some of the kernel cannot follow the data as closely as the kernel's own evidence says, and a
            kernel that was fitted to a part of many rows can have too much noise. "upwards" for noise that was fitted to all
            rows: those features that call for less of it than the exact process only follow the rows more closely. With rows held
            out (see `hold_out`) these choose it.
        hold_out: of more than 2,000 targets with Gaussian noise, hold a tenth of the rows (at most 500) out of the training
            and let their log predictive density choose the mean, the treatment of missed variance and the noise, unless
            they are given in `approximation`. The posterior is then that of all rows.
        training: options of `fsplaplace.train`.
        approximation: options of `fsplaplace.laplace`.

    Time: that of the two; the approximation is made twice if the noise changes, three to five times with rows held out.
    """
    train_key, points_key, laplace_key = jr.split(key, 3)
    options = dict(approximation or {})
    everything = LabelledRows(X, y, likelihood)
    hold_out = hold_out and options.get("form", "covariance") == "covariance"
    parts = everything.parts(host_generator(points_key)) if hold_out else None
    rows = everything if parts is None else parts.kept
    if context_points is None:
        # The prior is enforced at these: at a row held out, too, that row would be easier to predict than new ones are.
        context_points = choose_context_points(rows.X, num_points, key=points_key, cover=cover)
        options = {"include_training": False, **options}
    with phase("training") as chose:
        trained = train(
            model, prior, rows.likelihood, context, rows.X, rows.y, **{"key": train_key, **(training or {})}
        )
        chose(trained.history.summary)

    def approximate(rows: LabelledRows, noise_factor: float = 1.0, **more) -> Posterior:
        likelihood = rows.with_scale_of(trained.likelihood)
        if noise_factor != 1.0 and isinstance(likelihood, Gaussian):
            likelihood = likelihood.scaled(noise_factor)
        return laplace(
            trained.model, prior, likelihood, rows.X, rows.y,
            **{"context_points": context_points, "key": laplace_key, **options, **more},
        )  # fmt: skip

    judged = None
    with phase("posterior") as chose:
        with warnings.catch_warnings():
            # It is said once, about the posterior that is returned.
            warnings.simplefilter("ignore", VerdictWarning)
            if parts is None:
                posterior = approximate(everything)
                found = posterior.diagnostics
                factor = _allowed(found.noise_factor, fit_noise)
                if factor != 1.0:
                    posterior = approximate(everything, factor, missed_as_noise=found.missed_as_noise)
            else:
                judged = judge(
                    lambda missed, factor: approximate(parts.some, factor, mean="refined", missed_as_noise=missed),
                    LabelledRows(parts.held.X, parts.held.y, parts.held.with_scale_of(trained.likelihood)),
                    Options(options.get("mean", "auto"), missed_as_noise=options.get("missed_as_noise")),
                    fit_noise=fit_noise,
                )
                best = judged.best
                posterior = approximate(
                    everything, best.noise_factor, mean=best.mean, missed_as_noise=best.missed_as_noise
                )
        posterior.verdict.warn()
        chose(posterior.diagnostics.summary)
    return Fitted(trained, posterior, np.asarray(context_points), None if judged is None else judged.held)


def _allowed(factor: float | None, fit_noise: FitNoise) -> float:
    """The factor of the noise that the evidence prefers, if it is far enough from 1 and in a direction that is allowed; else 1."""
    if factor is None or not fit_noise:
        return 1.0
    more, less = factor > _choices.OTHER_NOISE, factor < 1 / _choices.OTHER_NOISE
    return float(factor) if more or (less and fit_noise != "upwards") else 1.0


def choose_context_points(
    X: ArrayLike, num_points: int, *, key: PRNGKeyArray, cover: Sampler | None = None
) -> Float[np.ndarray, "m ..."]:
    """Training inputs and points between and around them, in one array with a round number of rows.

    Args:
        X: training inputs; rows that repeat count once.
        num_points: m. At most one and a half times as many are training inputs; where these would leave less than half
            of `num_points` for others, there are more points than that.
        key: for the choice.
        cover: where the other points are drawn; `fsplaplace.context.throughout(X)` by default.

    Time: one sort of the rows, and the nearest neighbours of each for the default cover.
    """
    if num_points < 1:
        raise ValueError(f"choose_context_points: num_points is {num_points}; pass 1 or more")
    distinct = np.unique(np.asarray(X), axis=0)
    chosen = host_generator(key).permutation(distinct.shape[0])[: 3 * num_points // 2]
    unit = max(1, num_points // _choices.CONTEXT_UNITS)
    total = max(num_points, -(-(chosen.size + num_points // 2) // unit) * unit)
    sampled = np.asarray((cover or throughout(distinct)).sample(total, key=key), np.float64)
    # Every share of a mixture, whatever the number of training inputs.
    kept = np.linspace(0, total - 1, total - chosen.size).astype(int)
    return np.concatenate([distinct[chosen], sampled[kept]])
