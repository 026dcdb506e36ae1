"""Posteriors of a trained network for images: of its last layer and of all weights, with a variance chosen on validation images."""

import dataclasses
import resource
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

import fsplaplace as fsp
from fsplaplace import metrics
from fsplaplace.experiments._image_scores import NUM_CLASSES
from fsplaplace.experiments._image_work import LIKELIHOOD, Choice, Work, in_blocks

# Functions of each posterior that a choice is made with: an average over 100 has a log density that is too low by as much
# as the posteriors differ.
_SAMPLES = 400


class Chosen(NamedTuple):
    """A posterior and how its variance was chosen.

    Attributes:
        posterior: at the network's own mean.
        record: for the result file.
    """

    posterior: fsp.Posterior
    record: dict[str, Any]


def posterior_of(
    work: Work, part: fsp.Model, choice: Choice, sampler: fsp.context.Sampler, how: str, *, form: str = "covariance"
) -> Chosen:
    """The posterior over some weights of a trained network, under the prior with the variance that validation labels prefer.

    The variance that makes a network uncertain outside its data is not the one that its posterior should have: hardly any label of
    a network that is right tells it anything (its curvature p (1 - p) is nearly zero), so that functions vary by nearly the prior's
    standard deviation wherever it is sure. One pass over the data serves all variances (`under_variance`), `most_cautious` says
    which. The precision form keeps the training's.

    Args:
        work: the cell.
        part: the network with the weights that are Bayesian.
        choice: the prior of its training.
        sampler: of images outside the data.
        how: the settings of this posterior, by their name in the preset.
        form: "covariance" or "precision".
    """
    settings, images = work.settings[how], work.images
    points = posterior_images(work, sampler, int(settings["images"]))
    posterior = fsp.laplace(
        part, choice.prior, LIKELIHOOD, images.X, images.y, context_points=points, form=form, mean="network",
        rank=NUM_CLASSES * int(settings["rank"]), data_share=float(settings["data_share"]), key=work.keys[2],
    )  # fmt: skip
    planned = fsp.plan(part, choice.prior, images.X, points, rank=NUM_CLASSES * int(settings["rank"]))
    record = _told(posterior, planned)
    used = float(choice.record["variance"]["value"])
    if form == "precision":
        return Chosen(posterior, record)
    under = {
        variance: under_variance(posterior, choice.with_variance(variance), variance / used)
        for variance in settings["variances"]
    }
    asked = slice(None, settings["num_valid"])
    scores = densities(under, images.X_valid[asked], images.y_valid[asked], key=work.keys[3])
    alone = in_blocks(part, images.X_valid[asked])
    of_network = float(metrics.log_predictive_density_from_logits(images.y_valid[asked], alone[None]))
    best = most_cautious(scores, of_network)
    record["variance of the posterior"] = {
        "value": best, "scores": scores, "network": of_network,
        "by": "the largest that keeps half of the best gain in log predictive density of validation labels over the network",
    }  # fmt: skip
    return Chosen(under[best], record)


def most_cautious(scores: Mapping[float, float], of_network: float) -> float:
    """The largest variance that keeps half of what the best one gains over the network; the best one if none gains.

    Densities of known labels hardly tell variances apart up to some size, and images that are foreign are told by large ones: as
    much doubt as the labels allow, and not so much that they gain nothing.
    """
    best = max(scores, key=lambda variance: scores[variance])
    if scores[best] <= of_network:
        return best
    wanted = (scores[best] + of_network) / 2
    return max(variance for variance, score in scores.items() if score >= wanted)


def densities(
    posteriors: Mapping[float, fsp.Posterior], X: Float[np.ndarray, "n h w c"], y: Int[np.ndarray, " n"], *, key
) -> dict[float, float]:
    """The log predictive density of labels under each posterior, by its variance."""
    return {
        variance: float(metrics.log_predictive_density_from_logits(y, samples(posterior, X, key=key, count=_SAMPLES)))
        for variance, posterior in posteriors.items()
    }


def under_variance(posterior: fsp.Posterior, prior: fsp.Prior, factor: float) -> fsp.Posterior:
    r"""The posterior under a prior with `factor` times the variance, without another pass over the data.

    The features are those of $\sqrt{c} S_0$, normalised alike, so that $A = I + c\,(A_1 - I)$ has the same eigenvectors: for labels
    at the network's own mean, whose curvature does not depend on the prior. The log evidence is not known.

    Args:
        posterior: of the covariance form, at the network's own mean.
        prior: its prior with `factor` times the variance.
        factor: c.
    """
    before = np.asarray(posterior.information, np.float64)
    information = 1 + factor * (before - 1)
    scale = np.asarray(posterior.scale) * np.sqrt(factor * before / information)[:, None].astype(posterior.scale.dtype)
    return dataclasses.replace(
        posterior, prior=prior, information=jnp.asarray(information, posterior.scale.dtype), scale=jnp.asarray(scale),
        log_evidence=jnp.full_like(posterior.log_evidence, jnp.nan),
    )  # fmt: skip


def samples(
    posterior: fsp.Posterior, x: Float[np.ndarray, "n h w c"], *, key, count: int
) -> Float[np.ndarray, "s n k"]:
    """Logits of functions from the posterior, 500 images at a time."""
    parts = [
        np.asarray(posterior.sample(x[start : start + 500], key=key, num_samples=count), np.float32)
        for start in range(0, len(x), 500)
    ]
    return np.concatenate(parts, axis=1)


def posterior_images(work: Work, sampler: fsp.context.Sampler, count: int) -> Float[np.ndarray, "m h w c"]:
    """Where the posterior's prior is enforced: half images of the context, half training images."""
    generator = np.random.default_rng(2000 + work.cell.seed)
    some = generator.permutation(len(work.images.X))[: count - count // 2]
    return np.concatenate([sampler.draw(count // 2, generator), work.images.X[some]]).astype(np.float32)


def _told(posterior: fsp.Posterior, planned: fsp.Plan) -> dict[str, Any]:
    """What a posterior says of itself, for the result file, and what its plan had said (for all rows)."""
    found = posterior.diagnostics
    return {
        "rank": found.rank,
        "captured": float(found.captured),
        "delta": float(found.delta),
        "implied_over_stated": {
            name: [float(ratio.smallest), float(ratio.median), float(ratio.largest)]
            for name, ratio in found.ratios.items()
        },
        "verdict": str(found.verdict),
        "stages": {
            name: {"seconds": round(float(stage.seconds), 1), "planned_bytes": float(stage.bytes)}
            for name, stage in found.stages.items()
        },
        "planned": {stage.name: {"bytes": stage.bytes, "flops": stage.flops} for stage in planned.stages},
        "peak_memory_of_process": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "sampling_error": None if found.sampling_error is None else float(found.sampling_error),
    }
