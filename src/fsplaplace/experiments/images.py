"""Images: the paper's classification table on MNIST and FashionMNIST, foreign images and rotated ones."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from gpjax.kernels import RBF
from jaxtyping import Array, Float

import fsplaplace as fsp
from fsplaplace import metrics
from fsplaplace.experiments import _image_figures
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Published
from fsplaplace.experiments._image_data import Images, context_of, corrupted, load_images
from fsplaplace.experiments._image_network import ConvolutionalNetwork
from fsplaplace.experiments._image_scores import NUM_CLASSES, Draw, score
from fsplaplace.experiments._methods import keys
from fsplaplace.experiments._records import fingerprint
from fsplaplace.kernels import OnFeatures, RandomConvolutions
from fsplaplace.methods import FVI, MAP, SparseGP, WeightLaplace, last_layer
from fsplaplace.tuning import fit_prior

_LIKELIHOOD = fsp.likelihoods.Categorical(NUM_CLASSES)
# Where the prior is enforced -> how rows are named.
_CONTEXTS = {"KMNIST": "KMNIST", "RND": "RND", "own": "no auxiliary images"}
# Settings that a training depends on; the name of its file says the rest.
_OF_TRAINING = (
    "num_train", "epochs", "choice_steps", "learning_rate", "num_context", "num_corrupted", "channels", "width",
)  # fmt: skip
# Rows of the paper's table, and the columns of it.
_COLUMNS = (
    "FSP-Laplace (KMNIST)", "FSP-Laplace (RND)", "FVI (KMNIST)", "FVI (RND)", "Laplace", "MAP", "Sparse GP",
)  # fmt: skip


def ours(context: str, variant: str, *, features: bool = False) -> str:
    """The name of a row: "network alone", "all weights", "last layer" or "precision form" after training with a context."""
    return f"FSP-Laplace ({_CONTEXTS[context]}{', random features' * features}), {variant}"


class ImageTable(Experiment):
    """The image table of Section 4 for one data set, and the figures of Appendix C."""

    dataset: ClassVar[str]
    printed: ClassVar[dict[str, tuple[tuple[float, float], ...]]]

    place = "Section 4 and Appendix C, image classification"
    presets = {  # noqa: RUF012 - constants of the class
        "quick": {
            "seeds": 1, "num_train": 2000, "num_test": 200, "epochs": 8, "choice_steps": 0, "variances": [2.0],
            "learning_rate": 5e-3, "num_context": 20, "num_corrupted": 400, "posterior_images": 40, "rank": 5, "num_asked": 100,
            "data_share": 0.2, "samples": 20, "prior_images": 200, "channels": [4, 8, 8], "width": 32,
            "methods": ["FSP-Laplace, KMNIST", "MAP"],
        },
        "cpu": {
            "seeds": 1, "num_train": None, "num_test": None, "epochs": 5, "choice_steps": 150,
            "variances": [0.1, 0.5, 2.0], "learning_rate": 2e-3, "num_context": 50, "num_corrupted": 10_000,
            "posterior_images": 250, "rank": 20, "data_share": 0.05, "num_asked": 1000, "samples": 100, "prior_images": 1000,
            "channels": [16, 32, 64], "width": 128,
            "methods": [
                "FSP-Laplace, KMNIST", "FSP-Laplace, own", "MAP", "Ensemble", "FSP-Laplace, RND",
                "FSP-Laplace, own, random features", "FSP-Laplace, KMNIST, precision form",
            ],
        },
        "paper": {
            "seeds": 5, "num_train": None, "num_test": None, "epochs": 40, "choice_steps": 2700,
            "variances": [0.25, 0.5, 1.0, 2.0, 4.0, 8.0], "learning_rate": 1e-3, "num_context": 100,
            "num_corrupted": 50_000, "posterior_images": 2000, "rank": 50, "data_share": 1.0, "num_asked": None, "samples": 100,
            "prior_images": 5000, "channels": [16, 32, 64], "width": 128,
            "methods": [
                "FSP-Laplace, KMNIST", "FSP-Laplace, RND", "FSP-Laplace, own", "FSP-Laplace, KMNIST, random features",
                "FSP-Laplace, own, random features", "FSP-Laplace, KMNIST, precision form", "MAP", "Ensemble", "FVI, KMNIST",
                "FVI, RND", "Sparse GP",
            ],
        },
    }  # fmt: skip
    scores = {  # noqa: RUF012
        "expected_log_likelihood": ("expected log-likelihood", "{:.3f}", "higher"),
        "log_predictive_density": ("log predictive density", "{:.3f}", "higher"),
        "accuracy": ("accuracy", "{:.4f}", "higher"),
        "ece": ("ECE, 15 bins", "{:.4f}", "lower"),
        "ood_accuracy": ("OOD accuracy", "{:.3f}", "higher"),
        "auroc_mean_entropy": ("AUROC, mean entropy", "{:.3f}", "higher"),
        "auroc_entropy": ("AUROC, entropy of the mean", "{:.3f}", "higher"),
        "auroc_variance": ("AUROC, variance", "{:.3f}", "higher"),
        "auroc_kmnist": ("AUROC, KMNIST", "{:.3f}", "higher"),
        "std_test": ("std, test images", "{:.2f}", ""),
        "std_other": ("std, foreign images", "{:.2f}", ""),
    }
    counterparts = {
        ours("KMNIST", "all weights"): "FSP-Laplace (KMNIST)",
        ours("RND", "all weights"): "FSP-Laplace (RND)",
    } | {name: name for name in _COLUMNS[2:]}
    notes = (
        "The expected log-likelihood and the mean entropy are over 10 posterior functions, as in the paper; densities and "
        "calibration over all samples of the preset.",
        "OOD: test images of the other data set against all test images; the accuracy is that of the best threshold on the mean "
        "entropy. The column KMNIST is left out where KMNIST images were context.",
        "Context from KMNIST is 6,000 of its 10,000 test images, because its training images are not in the data sets here; 2,000 "
        "others are what choices look at, and 2,000 are for the table.",
        "Posteriors are at the network's own mean. In the preset `cpu` 5 % of the training images stand for all in the curvature, "
        "and the posterior of all weights is asked about the first 1,000 test images and as many foreign ones; its rank is 20 for "
        "each class. The paper has 40 epochs or more, rank 50, all images and 5 seeds: the preset `paper`.",
    )
    captions = {  # noqa: RUF012
        "entropy": "Entropy of the mean prediction for test images and for images of the other data set.",
        "rotation": "Entropy of the mean prediction for test images turned by 0 to 180 degrees.",
        "certainty": "The test images with the lowest and the highest entropy, and the foreign images with the lowest.",
        "reliability": "Share of right labels against the confidence in them; below the diagonal is overconfident.",
    }

    def __init__(self):
        type(self).published = tuple(
            Published(self.dataset, method, score, *value)
            for score, values in self.printed.items()
            for method, value in zip(_COLUMNS, values, strict=True)
        )

    def cells(self, settings, seeds):
        return [Cell(self.dataset, method, seed) for seed in range(seeds) for method in settings["methods"]]

    def run(self, cell, settings):
        images = load_images(self.dataset, cell.seed, num_train=settings["num_train"], num_test=settings["num_test"])
        kind, context, variant = (*cell.method.split(", "), "", "")[:3]
        run = {"FSP-Laplace": _fsp, "FVI": _fvi, "MAP": _map, "Ensemble": _ensemble, "Sparse GP": _sparse_gp}[kind]
        return run(_Work(cell, settings, images, context, variant))

    def figures(self, outcomes, settings):
        return _image_figures.draw({cell: outcome for cell, outcome in outcomes.items() if cell.seed == 0})

    def verdict(self, summary):
        task, sentences = self.dataset, []
        paper = {score: dict(zip(_COLUMNS, values, strict=True)) for score, values in self.printed.items()}
        for context in _CONTEXTS:
            variants = ("all weights", "last layer", "network alone")
            rows = [ours(context, each, features=features) for features in (False, True) for each in variants]
            shown = [row for row in rows if (task, row) in summary.entries]
            for row in shown:
                found = {score: summary.mean(task, row, score) for score in (*self.printed, "log_predictive_density")}
                sentences.append(
                    f"{row}: accuracy {found['accuracy']:.4f}, expected log-likelihood {found['expected_log_likelihood']:.3f}, "
                    f"density {found['log_predictive_density']:.3f}, ECE {found['ece']:.4f}, OOD {found['ood_accuracy']:.3f}"
                )
            printed = f"FSP-Laplace ({context})"
            if shown and printed in _COLUMNS:
                numbers = {score: values[printed][0] for score, values in paper.items()}
                sentences.append(
                    f"the paper's FSP-Laplace ({context}): {numbers['accuracy']:.3f}, "
                    f"{numbers['expected_log_likelihood']:.3f}, ECE {numbers['ece']:.3f}, OOD {numbers['ood_accuracy']:.3f}"
                )
        return "; ".join(sentences) + "."


class _Work(NamedTuple):
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

    def asked(self, count: int | None) -> "_Work":
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


def _fsp(work: _Work) -> Outcome:
    """One training with a prior over functions: the network alone, its last layer's posterior, and that of all weights."""
    settings, images, context = work.settings, work.images, work.context
    sampler = context_of(context, images, work.cell.seed, num_corrupted=int(settings["num_corrupted"]))
    choice = _choose_prior(work, sampler)
    name = f"fsp-{context}" + "-features" * work.features
    prior, trained = choice.prior, _train(work, choice.prior, sampler, work.steps, name)
    model, choices = trained.model, dict(choice.record)
    names = {
        variant: ours(context, variant, features=work.features)
        for variant in ("network alone", "last layer", "all weights", "precision form")
    }
    options = {"mean": "network", "key": work.keys[2], "data_share": float(settings["data_share"])}
    points = _posterior_images(work, sampler)
    if work.variant == "precision form":
        outcome, parts = Outcome(()), {"precision form": model}
        options["form"] = "precision"
    else:
        outcome = work.score(names["network alone"], lambda x, key: model(x)[None], probabilistic=False)
        parts = {"last layer": last_layer(model, images.X[:1]), "all weights": model}
    for variant, part in parts.items():
        posterior = fsp.laplace(
            part, prior, _LIKELIHOOD, images.X, images.y, context_points=points,
            rank=NUM_CLASSES * int(settings["rank"]), **options,
        )  # fmt: skip
        draw = functools.partial(_draws, posterior, int(settings["samples"]))
        asked = work if variant == "last layer" else work.asked(settings["num_asked"])
        outcome = _joined(outcome, asked.score(names[variant], draw))
        choices[variant] = _told(posterior)
    return dataclasses.replace(outcome, choices=choices)


def _draws(posterior, count: int, x, key) -> Float[Array, "s n k"]:
    return posterior.sample(x, key=key, num_samples=count)


def _told(posterior: fsp.Posterior) -> dict[str, Any]:
    """What a posterior says of itself, for the result file."""
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
        "stages": {name: [round(float(s.seconds), 1), float(s.bytes)] for name, s in found.stages.items()},
        "sampling_error": None if found.sampling_error is None else float(found.sampling_error),
    }


class _Choice(NamedTuple):
    """The prior that was chosen.

    Attributes:
        prior: the prior.
        record: how, for the result file.
    """

    prior: fsp.Prior
    record: dict[str, Any]


def _choose_prior(work: _Work, sampler: fsp.context.Sampler) -> _Choice:
    """The length scale by the evidence of Dirichlet labels, the variance by short trainings judged on validation images.

    A variance's score is the log-likelihood of validation labels less the entropy that is missing on foreign validation images
    (log 10 less their entropy): both in nats, and zero at best. Foreign are images like the context, none of them context.
    """
    settings, images = work.settings, work.images
    few = slice(None, int(settings["prior_images"]))
    network = RandomConvolutions(images.X.shape[1:], key=jr.key(0))

    def kernel(length: float, variance: float):
        return OnFeatures(network, _rbf(length, variance)) if work.features else _rbf(length, variance)

    fitted = fit_prior(
        fsp.Prior(kernel(0.4 if work.features else 10.0, 4.0), num_outputs=NUM_CLASSES), images.X[few], images.y[few], _LIKELIHOOD, key=work.keys[1],
        restarts=1, standard_errors=False,
    )  # fmt: skip
    found = fitted.prior.kernel.base if isinstance(fitted.prior.kernel, OnFeatures) else fitted.prior.kernel
    length = float(np.asarray(fsp.kernels.lengthscales(found, images.X[0].size))[0, 0])
    record: dict[str, Any] = {
        "length_scale": {"value": length, "by": "evidence of Dirichlet labels", "images": settings["prior_images"]}
    }

    def prior(variance: float) -> fsp.Prior:
        return fsp.Prior(kernel(length, variance), num_outputs=NUM_CLASSES)

    scores, steps = {}, int(settings["choice_steps"])
    for variance in settings["variances"] if len(settings["variances"]) > 1 else ():
        name = f"choice-{work.context}-{variance}" + "-features" * work.features
        model = _train(work, prior(variance), sampler, steps, name).model
        valid, foreign = (_in_blocks(model, x) for x in (images.X_valid, _foreign_valid(work)))
        log_likelihood = metrics.expected_log_likelihood_from_logits(images.y_valid, valid[None])
        entropy = metrics.predictive_entropy(jax.nn.softmax(foreign))
        scores[variance] = float(log_likelihood) - float(np.log(NUM_CLASSES) - np.mean(entropy))
    best = max(scores, key=lambda variance: scores[variance]) if scores else settings["variances"][0]
    record["variance"] = {
        "value": best, "scores": scores, "steps": steps,
        "by": "validation log-likelihood less the entropy missing on foreign validation images",
    }  # fmt: skip
    return _Choice(prior(best), record)


def _rbf(lengthscale: Any, variance: Any) -> RBF:
    return RBF(lengthscale=lengthscale, variance=variance)


def _foreign_valid(work: _Work) -> Float[np.ndarray, "k h w c"]:
    images, generator = work.images, np.random.default_rng(1000 + work.cell.seed)
    if work.context == "KMNIST":
        return images.kmnist_valid
    if work.context == "RND":
        sampler = context_of("RND", images, work.cell.seed, num_corrupted=0)
        return sampler.draw(len(images.kmnist_valid), generator).astype(np.float32)
    return corrupted(images.X_valid, len(images.kmnist_valid), generator)


def _train(work: _Work, prior: fsp.Prior, sampler: fsp.context.Sampler, steps: int, name: str) -> fsp.Trained:
    settings, images = work.settings, work.images
    return fsp.train(
        work.network(), prior, _LIKELIHOOD, sampler, images.X, images.y, key=work.keys[1], steps=steps,
        optimizer=work.optimizer(steps), batch_size=min(100, len(images.X)), num_context=int(settings["num_context"]),
        jitter=(1e-2, 1e-3), checkpoint=work.checkpoint(name), progress=False,
    )  # fmt: skip


def _posterior_images(work: _Work, sampler: fsp.context.Sampler) -> Float[np.ndarray, "m h w c"]:
    """Where the posterior's prior is enforced: half images of the context, half training images."""
    generator, count = np.random.default_rng(2000 + work.cell.seed), int(work.settings["posterior_images"])
    some = generator.permutation(len(work.images.X))[: count - count // 2]
    return np.concatenate([sampler.draw(count // 2, generator), work.images.X[some]]).astype(np.float32)


def _map(work: _Work) -> Outcome:
    """The network under a Gaussian prior over its weights, and the Laplace approximation around it (K-FAC)."""
    images = work.images
    found = _fit_map(work, 0)
    outcome = work.score("MAP", lambda x, key: found.model(x)[None], probabilistic=False)
    laplace = WeightLaplace(structure="kfac", train=None).fit(
        found.model, images.X, images.y, _LIKELIHOOD, key=work.keys[2], progress=False
    )
    draw = functools.partial(_outputs, laplace, int(work.settings["samples"]))
    outcome = _joined(outcome, work.score("Laplace", draw))
    precision = np.asarray(laplace.prior_precision, dtype=float)
    return dataclasses.replace(
        outcome, choices={"prior_precision_of_laplace": {"value": precision.tolist(), "by": "log evidence"}}
    )


def _outputs(posterior, count: int, x, key):
    return posterior.draw_outputs(x, key=key, num_samples=count)


def _fit_map(work: _Work, member: int):
    images, key = work.images, jr.fold_in(work.keys[1], member)
    method = MAP(
        steps=work.steps, optimizer=work.optimizer(work.steps), batch_size=min(100, len(images.X)),
        checkpoint=work.checkpoint(f"map-{member}"),
    )  # fmt: skip
    return method.fit(work.network(member), images.X, images.y, _LIKELIHOOD, key=key, progress=False)


def _ensemble(work: _Work) -> Outcome:
    """Five networks as MAP has one; the first is that one."""
    models = [_fit_map(work, member).model for member in range(5)]
    return work.score("Ensemble of 5", lambda x, key: jnp.stack([model(x) for model in models]))


def _fvi(work: _Work) -> Outcome:
    images, settings = work.images, work.settings
    sampler = context_of(work.context, images, work.cell.seed, num_corrupted=int(settings["num_corrupted"]))
    choice = _choose_prior(work, sampler)
    method = FVI(steps=work.steps, batch_size=100, learning_rate=1e-3, likelihood_samples=10, num_context=20)
    found = method.fit(
        work.network(), images.X, images.y, _LIKELIHOOD, key=work.keys[1], prior=choice.prior, context=sampler,
        progress=False,
    )  # fmt: skip
    draw = functools.partial(_outputs, found, int(settings["samples"]))
    outcome = work.score(f"FVI ({work.context})", draw)
    return dataclasses.replace(outcome, choices=choice.record)


def _sparse_gp(work: _Work) -> Outcome:
    images, settings = work.images, work.settings
    few = slice(None, int(settings["prior_images"]))
    flat = images._replace(
        **{name: part.reshape(len(part), -1) for name, part in images._asdict().items() if not name.startswith("y")}
    )
    fitted = fit_prior(
        fsp.Prior(_rbf(10.0, 4.0), num_outputs=NUM_CLASSES), flat.X[few], images.y[few], _LIKELIHOOD,
        key=work.keys[1], restarts=1, standard_errors=False,
    )  # fmt: skip
    network = fsp.as_model((_linear, np.zeros((flat.X.shape[1], NUM_CLASSES), np.float32)))
    found = SparseGP(tune=False).fit(
        network, flat.X, images.y, _LIKELIHOOD, key=work.keys[1], prior=fitted.prior, progress=False
    )
    draw = functools.partial(_outputs, found, int(settings["samples"]))
    return work._replace(images=flat).score("Sparse GP", draw)


def _linear(params, x):
    """A network for methods that only ask for its width."""
    return x @ params


def _joined(one: Outcome, other: Outcome) -> Outcome:
    return Outcome(one.rows + other.rows, one.choices | other.choices, one.curves | other.curves)


def _in_blocks(model: fsp.Model, x: Float[np.ndarray, "n h w c"]) -> Float[np.ndarray, "n k"]:
    return np.concatenate([np.asarray(model(x[start : start + 500])) for start in range(0, len(x), 500)])
