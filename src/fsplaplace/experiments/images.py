"""Images: the paper's classification table on MNIST and FashionMNIST, foreign images and rotated ones."""

import dataclasses
import functools
from typing import ClassVar

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

import fsplaplace as fsp
from fsplaplace.experiments import _image_figures
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Published, Summary
from fsplaplace.experiments._image_data import context_of, load_images
from fsplaplace.experiments._image_posterior import posterior_of
from fsplaplace.experiments._image_scores import NUM_CLASSES
from fsplaplace.experiments._image_work import LIKELIHOOD, Work, choose_prior, fitted_prior, rbf, train
from fsplaplace.methods import FVI, MAP, SparseGP, WeightLaplace, last_layer
from fsplaplace.tuning import fit_prior

# Where the prior is enforced -> how rows are named.
_CONTEXTS = {"KMNIST": "KMNIST", "RND": "RND", "own": "no auxiliary images"}
# Rows of the paper's table, and the columns of it.
_COLUMNS = (
    "FSP-Laplace (KMNIST)", "FSP-Laplace (RND)", "FVI (KMNIST)", "FVI (RND)", "Laplace", "MAP", "Sparse GP",
)  # fmt: skip
# The last layer of a network that was trained with a prior on pixels, under a prior on random features.
ON_FEATURES = "last layer, prior on random features"
# The network beside a posterior of all weights, which is asked about fewer images.
AT_SAME = "network alone, as few images"
# What the verdict says of each posterior: score, word, format.
_SAID = (
    ("accuracy", "accuracy", ".4f"), ("expected_log_likelihood", "expected log-likelihood", ".4f"),
    ("log_predictive_density", "density", ".4f"), ("ece", "ECE", ".4f"), ("ood_accuracy", "OOD", ".3f"),
    ("auroc_entropy", "AUROC", ".4f"),
)  # fmt: skip


def ours(context: str, variant: str, *, features: bool = False) -> str:
    """The name of a row: "network alone", "all weights", "last layer" or "precision form" after training with a context."""
    return f"FSP-Laplace ({_CONTEXTS[context]}{', random features' * features}), {variant}"


class ImageTable(Experiment):
    """The image table of Section 4 for one data set, and the figures of Appendix C."""

    dataset: ClassVar[str]
    printed: ClassVar[dict[str, tuple[tuple[float, float], ...]]]
    # Log predictive density and accuracy of an ensemble of ten LeNets (google/uncertainty-baselines): beyond the paper.
    ensemble_of_ten: ClassVar[tuple[float, float]]

    place = "Section 4 and Appendix C, image classification"
    presets = {  # noqa: RUF012 - constants of the class
        "quick": {
            "seeds": 1, "num_train": 2000, "num_test": 200, "epochs": 8, "choice_steps": 0, "variances": [2.0],
            "learning_rate": 5e-3, "num_context": 20, "num_corrupted": 400, "samples": 50, "prior_images": 200,
            "channels": [4, 8, 8], "width": 32,
            "last_layer": {"images": 100, "rank": 20, "data_share": 1.0, "variances": [0.1, 0.5, 2.0], "num_valid": 200},
            "all_weights": {"images": 40, "rank": 5, "data_share": 0.2, "variances": [0.1, 0.5, 2.0], "num_valid": 100, "asked": 100},
            "methods": ["FSP-Laplace, KMNIST", "FSP-Laplace, KMNIST, all weights", "MAP", "Laplace"],
        },
        "cpu": {
            "seeds": 1, "num_train": None, "num_test": None, "epochs": 5, "choice_steps": 150,
            "variances": [0.1, 0.5, 2.0], "learning_rate": 2e-3, "num_context": 50, "num_corrupted": 10_000,
            "samples": 400, "prior_images": 500, "channels": [16, 32, 64], "width": 128,
            "last_layer": {
                "images": 2000, "rank": 50, "data_share": 1.0, "variances": [0.1, 0.3, 0.5, 1.0, 2.0, 4.0], "num_valid": 2000,
            },
            "all_weights": {
                "images": 200, "rank": 10, "data_share": 0.02, "variances": [0.1, 0.3, 0.5, 1.0, 2.0, 4.0], "num_valid": 500,
                "asked": 1000,
            },
            "methods": [
                "FSP-Laplace, KMNIST", "FSP-Laplace, own", "MAP", "FSP-Laplace, RND", "FSP-Laplace, KMNIST, random features",
                "FSP-Laplace, own, random features", "Ensemble", "Laplace", "Sparse GP", "FSP-Laplace, KMNIST, all weights",
                "FSP-Laplace, KMNIST, precision form",
            ],
        },
        "paper": {
            "seeds": 5, "num_train": None, "num_test": None, "epochs": 40, "choice_steps": 2700,
            "variances": [0.25, 0.5, 1.0, 2.0, 4.0, 8.0], "learning_rate": 1e-3, "num_context": 100,
            "num_corrupted": 50_000, "samples": 100, "prior_images": 5000, "channels": [16, 32, 64], "width": 128,
            "last_layer": {
                "images": 2000, "rank": 50, "data_share": 1.0, "variances": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
                "num_valid": None,
            },
            "all_weights": {
                "images": 2000, "rank": 50, "data_share": 1.0, "variances": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
                "num_valid": None, "asked": None,
            },
            "methods": [
                "FSP-Laplace, KMNIST", "FSP-Laplace, KMNIST, all weights", "FSP-Laplace, RND", "FSP-Laplace, own", "FSP-Laplace, KMNIST, random features",
                "FSP-Laplace, own, random features", "FSP-Laplace, KMNIST, precision form", "MAP", "Laplace", "Ensemble", "FVI, KMNIST",
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
        ours(context, variant): f"FSP-Laplace ({context})"
        for context in ("KMNIST", "RND")
        for variant in ("last layer", ON_FEATURES, "all weights")
    } | {name: name for name in _COLUMNS[2:]}  # fmt: skip
    notes = (
        "The expected log-likelihood and the mean entropy are over 10 posterior functions, as in the paper; densities and "
        "calibration over all samples of the preset.",
        "OOD: test images of the other data set against all test images; the accuracy is that of the best threshold on the mean "
        "entropy. The column KMNIST is left out where KMNIST images were context.",
        "Context from KMNIST is 6,000 of its 10,000 test images, because its training images are not in the data sets here; 2,000 "
        "others are what choices look at, and 2,000 are for the table.",
        "Posteriors are at the network's own mean. The variance of the training's prior is chosen by short trainings (validation "
        "labels and foreign validation images); that of the posterior's prior is the largest one that keeps half of what the best one gains "
        "over the network in log predictive density of validation labels.",
        "The last layer's posterior has 50 directions for each class, 2,000 images where the prior is enforced and all training "
        "images in the curvature. In the preset `cpu` FashionMNIST has 10 epochs and MNIST 5; the posterior of all weights has 10 directions, 200 images and the curvature of 2 % of "
        "the training images, and is asked about the first 1,000 test images and as many foreign ones, beside the network alone at "
        "the same images; so is the Laplace approximation with Kronecker factors, beside MAP. The paper has 40 epochs or more, rank 50, all images and 5 seeds: the preset `paper`.",
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
        run = {
            "FSP-Laplace": _fsp,
            "FVI": _fvi,
            "MAP": _map,
            "Laplace": _laplace,
            "Ensemble": _ensemble,
            "Sparse GP": _sparse_gp,
        }[kind]
        return run(Work(cell, settings, images, context, variant))

    def figures(self, outcomes, settings):
        return _image_figures.draw({cell: outcome for cell, outcome in outcomes.items() if cell.seed == 0})

    def verdict(self, summary):
        said = [
            sentence for context in _CONTEXTS for features in (False, True) for sentence in self._said(summary, context, features)
        ]  # fmt: skip
        density, accuracy = self.ensemble_of_ten
        said.append(
            f"beyond the paper, a published ensemble of ten LeNets: accuracy {accuracy:.3f}, log predictive density {density:.3f}"
        )
        return "; ".join(said) + "."

    def _said(self, summary: Summary, context: str, features: bool) -> list[str]:
        """Each posterior beside its own network, and the paper's beside both."""
        sentences = []
        for variant in ("last layer", ON_FEATURES, "all weights"):
            row = ours(context, variant, features=features)
            alone = ours(context, AT_SAME if variant == "all weights" else "network alone", features=features)
            if (self.dataset, row) not in summary.entries or (self.dataset, alone) not in summary.entries:
                continue
            found = [
                f"{word} {summary.mean(self.dataset, row, score):{form}} (network {summary.mean(self.dataset, alone, score):{form}})"
                for score, word, form in _SAID
            ]
            sentences.append(f"{row}: {', '.join(found)}")
        printed = f"FSP-Laplace ({context})"
        if sentences and printed in _COLUMNS:
            numbers = {score: values[_COLUMNS.index(printed)][0] for score, values in self.printed.items()}
            sentences.append(
                f"the paper's {printed}: accuracy {numbers['accuracy']:.3f}, expected log-likelihood "
                f"{numbers['expected_log_likelihood']:.3f}, ECE {numbers['ece']:.3f}, OOD {numbers['ood_accuracy']:.3f}"
            )
        return sentences


def _fsp(work: Work) -> Outcome:
    """One training with a prior over functions: the network alone and its last layer's posterior, or one of all weights."""
    settings, images, context = work.settings, work.images, work.context
    sampler = context_of(context, images, work.cell.seed, num_corrupted=int(settings["num_corrupted"]))
    choice = choose_prior(work, sampler)
    name = f"fsp-{context}" + "-features" * work.features
    model = train(work, choice.with_variance, choice.record["variance"]["value"], sampler, work.steps, name).model

    def alone(x, key):
        return model(x)[None]

    if work.variant in ("all weights", "precision form"):
        form = "precision" if work.variant == "precision form" else "covariance"
        name, part, asked, how = work.variant, model, work.asked(settings["all_weights"]["asked"]), "all_weights"
        outcome = asked.score(ours(context, AT_SAME), alone, probabilistic=False)
    else:
        form, name, part, asked, how = "covariance", "last layer", last_layer(model, images.X[:1]), work, "last_layer"
        outcome = work.score(ours(context, "network alone", features=work.features), alone, probabilistic=False)
    # The prior of the training, and (of the last layer, where it is cheap) that of random features as well.
    priors = {name: choice}
    if name == "last layer" and not work.features:
        priors[ON_FEATURES] = fitted_prior(work, features=True)
    records = dict(choice.record)
    for row, prior in priors.items():
        chosen = posterior_of(work, part, prior, sampler, how, form=form)
        draw = functools.partial(_draws, chosen.posterior, int(settings["samples"]))
        outcome = _joined(outcome, asked.score(ours(context, row, features=work.features), draw))
        records[row] = chosen.record | ({} if prior is choice else prior.record)
    return dataclasses.replace(outcome, choices=records)


def _draws(posterior, count: int, x, key) -> Float[Array, "s n k"]:
    return posterior.sample(x, key=key, num_samples=count)


def _map(work: Work) -> Outcome:
    """The network under a Gaussian prior over its weights."""
    found = _fit_map(work, 0)
    return work.score("MAP", lambda x, key: found.model(x)[None], probabilistic=False)


def _laplace(work: Work) -> Outcome:
    """The Laplace approximation around MAP (K-FAC), which is asked about fewer images, beside MAP at the same."""
    images, model = work.images, _fit_map(work, 0).model
    found = WeightLaplace(structure="kfac", train=None).fit(
        model, images.X, images.y, LIKELIHOOD, key=work.keys[2], progress=False
    )
    asked = work.asked(work.settings["all_weights"]["asked"])
    draw = functools.partial(_outputs, found, int(work.settings["samples"]))
    outcome = _joined(
        asked.score("MAP, as few images", lambda x, key: model(x)[None], probabilistic=False),
        asked.score("Laplace", draw),
    )
    precision = np.asarray(found.prior_precision, dtype=float)
    return dataclasses.replace(
        outcome, choices={"prior_precision_of_laplace": {"value": precision.tolist(), "by": "log evidence"}}
    )


def _outputs(posterior, count: int, x, key):
    return posterior.draw_outputs(x, key=key, num_samples=count)


def _fit_map(work: Work, member: int):
    images, key = work.images, jr.fold_in(work.keys[1], member)
    method = MAP(
        steps=work.steps, optimizer=work.optimizer(work.steps), batch_size=min(100, len(images.X)),
        checkpoint=work.checkpoint(f"map-{member}"),
    )  # fmt: skip
    return method.fit(work.network(member), images.X, images.y, LIKELIHOOD, key=key, progress=False)


def _ensemble(work: Work) -> Outcome:
    """Five networks as MAP has one; the first is that one."""
    models = [_fit_map(work, member).model for member in range(5)]
    return work.score("Ensemble of 5", lambda x, key: jnp.stack([model(x) for model in models]))


def _fvi(work: Work) -> Outcome:
    images, settings = work.images, work.settings
    sampler = context_of(work.context, images, work.cell.seed, num_corrupted=int(settings["num_corrupted"]))
    choice = choose_prior(work, sampler)
    method = FVI(steps=work.steps, batch_size=100, learning_rate=1e-3, likelihood_samples=10, num_context=20)
    found = method.fit(
        work.network(), images.X, images.y, LIKELIHOOD, key=work.keys[1], prior=choice.prior, context=sampler,
        progress=False,
    )  # fmt: skip
    draw = functools.partial(_outputs, found, int(settings["samples"]))
    outcome = work.score(f"FVI ({work.context})", draw)
    return dataclasses.replace(outcome, choices=choice.record)


def _sparse_gp(work: Work) -> Outcome:
    images, settings = work.images, work.settings
    few = slice(None, int(settings["prior_images"]))
    flat = images._replace(
        **{name: part.reshape(len(part), -1) for name, part in images._asdict().items() if not name.startswith("y")}
    )
    fitted = fit_prior(
        fsp.Prior(rbf(10.0, 4.0), num_outputs=NUM_CLASSES), flat.X[few], images.y[few], LIKELIHOOD,
        key=work.keys[1], restarts=1, standard_errors=False,
    )  # fmt: skip
    network = fsp.as_model((_linear, np.zeros((flat.X.shape[1], NUM_CLASSES), np.float32)))
    found = SparseGP(tune=False).fit(
        network, flat.X, images.y, LIKELIHOOD, key=work.keys[1], prior=fitted.prior, progress=False
    )
    draw = functools.partial(_outputs, found, int(settings["samples"]))
    return work._replace(images=flat).score("Sparse GP", draw)


def _linear(params, x):
    """A network for methods that only ask for its width."""
    return x @ params


def _joined(one: Outcome, other: Outcome) -> Outcome:
    return Outcome(one.rows + other.rows, one.choices | other.choices, one.curves | other.curves)
