"""One cell of an image table: what is trained, with which images and settings, and how the prior is chosen."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
import optax
from gpjax.kernels import RBF
from jaxtyping import Float

import fsplaplace as fsp
from fsplaplace import metrics
from fsplaplace.experiments._experiment import Cell, Outcome
from fsplaplace.experiments._image_data import Images, context_of, corrupted
from fsplaplace.experiments._image_network import ConvolutionalNetwork
from fsplaplace.experiments._image_scores import NUM_CLASSES, Draw, score
from fsplaplace.experiments._methods import keys
from fsplaplace.experiments._records import fingerprint
from fsplaplace.kernels import OnFeatures, RandomConvolutions
from fsplaplace.tuning import fit_prior

LIKELIHOOD = fsp.likelihoods.Categorical(NUM_CLASSES)
# Settings that a training depends on; the name of its file says the rest.
_OF_TRAINING = (
    "num_train", "epochs", "choice_steps", "learning_rate", "num_context", "num_corrupted", "channels", "width",
)  # fmt: skip


class Work(NamedTuple):
    """One cell: what to do, how, and with which images.

    Attributes:
        cell: the cell.
        settings: of the preset.
        images: of the seed.
        context: where a prior over functions is enforced; empty for methods without one.
        variant: "random features" for a kernel on them instead of pixels, "precision form" for that of the posterior, or empty.
    """

    cell: Cell
    settings: Mapping[str, Any]
    images: Images
    context: str
    variant: str = ""

    @property
    def features(self) -> bool:
        """Whether the kernel is on random features."""
        return self.variant == "random features"

    @property
    def keys(self):
        """Of the network, of training, of the posterior and of samples."""
        return keys(self.cell.seed, 4)

    @property
    def steps(self) -> int:
        """Optimiser steps of a whole training, with 100 images in each."""
        return int(self.settings["epochs"] * (len(self.images.X) // 100))

    def asked(self, count: int | None) -> "Work":
        """The same with fewer images to be asked about: features of all weights take long."""
        names = ("X_test", "y_test", "X_other", "kmnist_test")
        return self._replace(
            images=self.images._replace(**{name: getattr(self.images, name)[:count] for name in names})
        )

    def score(self, name: str, draw: Draw, *, probabilistic: bool = True) -> Outcome:
        """The row of one posterior, from functions that `draw` gives at images."""
        key, kmnist = self.keys[3], self.context != "KMNIST"
        return score(name, draw, self.images, key=key, kmnist=kmnist, probabilistic=probabilistic)

    def network(self, member: int = 0) -> fsp.Model:
        """The untrained network."""
        key = jr.fold_in(self.keys[0], member) if member else self.keys[0]
        sizes = {"channels": tuple(self.settings["channels"]), "width": int(self.settings["width"])}
        return fsp.as_model(ConvolutionalNetwork(key=key, **sizes))

    def optimizer(self, steps: int) -> optax.GradientTransformation:
        """Adam with a step size that falls to zero along a cosine."""
        return optax.adam(optax.cosine_decay_schedule(float(self.settings["learning_rate"]), steps))

    def checkpoint(self, name: str) -> Path | None:
        """Where a training is kept, so that a cell that was interrupted goes on, if the runner has a place for it."""
        directory = self.settings.get("directory")
        if directory is None:
            return None
        # By all that training depends on: other settings do not find it.
        mark = fingerprint(name, self.cell.seed, {each: self.settings[each] for each in _OF_TRAINING})[:12]
        path = Path(directory) / "trainings" / f"{name}-{mark}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class Choice(NamedTuple):
    """The prior that was chosen.

    Attributes:
        prior: the prior.
        record: how, for the result file.
        with_variance: the same prior with another variance.
    """

    prior: fsp.Prior
    record: dict[str, Any]
    with_variance: Callable[[float], fsp.Prior]


def choose_prior(work: Work, sampler: fsp.context.Sampler) -> Choice:
    """The length scale by the evidence of Dirichlet labels, the variance by short trainings judged on validation images.

    A variance's score is the log-likelihood of validation labels less the entropy that is missing on foreign validation images
    (log 10 less their entropy): both in nats, and zero at best. Foreign are images like the context, none of them context.
    """
    settings, images = work.settings, work.images
    start = fitted_prior(work, features=work.features)
    scores, steps = {}, int(settings["choice_steps"])
    for variance in settings["variances"] if len(settings["variances"]) > 1 else ():
        name = f"choice-{work.context}-{variance}" + "-features" * work.features
        model = train(work, start.with_variance, variance, sampler, steps, name).model
        valid, foreign = (in_blocks(model, x) for x in (images.X_valid, _foreign_valid(work)))
        log_likelihood = metrics.expected_log_likelihood_from_logits(images.y_valid, valid[None])
        entropy = metrics.predictive_entropy(jax.nn.softmax(foreign))
        scores[variance] = float(log_likelihood) - float(np.log(NUM_CLASSES) - np.mean(entropy))
    best = max(scores, key=lambda variance: scores[variance]) if scores else settings["variances"][0]
    record = start.record | {
        "variance": {
            "value": best, "scores": scores, "steps": steps,
            "by": "validation log-likelihood less the entropy missing on foreign validation images",
        }
    }  # fmt: skip
    return Choice(start.with_variance(best), record, start.with_variance)


def fitted_prior(work: Work, *, features: bool) -> Choice:
    """A kernel on pixels or on random features, with the length scale of the highest evidence and variance 1."""
    settings, images = work.settings, work.images
    few = slice(None, int(settings["prior_images"]))
    network = RandomConvolutions(images.X.shape[1:], key=jr.key(0))

    def kernel(length: float, variance: float):
        return OnFeatures(network, rbf(length, variance)) if features else rbf(length, variance)

    fitted = fit_prior(
        fsp.Prior(kernel(0.4 if features else 10.0, 4.0), num_outputs=NUM_CLASSES), images.X[few], images.y[few], LIKELIHOOD,
        key=work.keys[1], restarts=1, standard_errors=False,
    )  # fmt: skip
    found = fitted.prior.kernel.base if isinstance(fitted.prior.kernel, OnFeatures) else fitted.prior.kernel
    length = float(np.asarray(fsp.kernels.lengthscales(found, images.X[0].size))[0, 0])
    record: dict[str, Any] = {
        "length_scale": {
            "value": length, "by": "evidence of Dirichlet labels", "images": settings["prior_images"],
            "evidence": float(fitted.report.value) / len(images.X[few]),
        },
        "variance": {"value": 1.0},
    }  # fmt: skip

    def prior(variance: float) -> fsp.Prior:
        return fsp.Prior(kernel(length, variance), num_outputs=NUM_CLASSES)

    return Choice(prior(1.0), record, prior)


def rbf(lengthscale: Any, variance: Any) -> RBF:
    return RBF(lengthscale=lengthscale, variance=variance)


def _foreign_valid(work: Work) -> Float[np.ndarray, "k h w c"]:
    images, generator = work.images, np.random.default_rng(1000 + work.cell.seed)
    if work.context == "KMNIST":
        return images.kmnist_valid
    if work.context == "RND":
        sampler = context_of("RND", images, work.cell.seed, num_corrupted=0)
        return sampler.draw(len(images.kmnist_valid), generator).astype(np.float32)
    return corrupted(images.X_valid, len(images.kmnist_valid), generator)


def train(
    work: Work, with_variance: Callable[[float], fsp.Prior], variance: float, sampler: fsp.context.Sampler, steps: int, name: str
) -> fsp.Trained:  # fmt: skip
    """The network trained under a prior with a variance; in single precision, as `fsplaplace.train` does unless told otherwise."""
    settings, images = work.settings, work.images
    with jax.enable_x64(False):
        return fsp.train(
            work.network(), with_variance(variance), LIKELIHOOD, sampler, images.X, images.y, key=work.keys[1], steps=steps,
            optimizer=work.optimizer(steps), batch_size=min(100, len(images.X)), num_context=int(settings["num_context"]),
            jitter=(1e-2, 1e-3), checkpoint=work.checkpoint(name), progress=False,
        )  # fmt: skip


def in_blocks(model: fsp.Model, x: Float[np.ndarray, "n h w c"]) -> Float[np.ndarray, "n k"]:
    """Logits of the network, 500 images at a time."""
    return np.concatenate([np.asarray(model(x[start : start + 500])) for start in range(0, len(x), 500)])
