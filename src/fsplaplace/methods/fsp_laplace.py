"""FSP-Laplace in the call shape of the methods it is compared with."""

from typing import Literal

import numpy as np
import optax
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.context import Sampler
from fsplaplace.laplace import FitNoise, Fitted, Posterior, fit_posterior
from fsplaplace.methods._method import Method, check_function_prior, default_context


class FSPLaplace(Method):
    """`fsplaplace.train` and then `fsplaplace.laplace`: what `FSPRegressor` and `FSPClassifier` do by default.

    Args:
        steps: see `fsplaplace.train`.
        optimizer: see `fsplaplace.train`.
        batch_size: see `fsplaplace.train`.
        num_context: see `fsplaplace.train`.
        validation: see `fsplaplace.train`.
        context_points: see `fsplaplace.laplace`; by default training inputs and points of `cover`, about
            `num_posterior_context` in all.
        num_posterior_context: see `context_points`.
        cover: see `context_points`; by default the context passed to `fit`, or `fsplaplace.context.throughout(X)` without one.
        fit_noise: take the Gaussian noise that the evidence of the features prefers if it differs by a tenth or more from
            the likelihood's; "upwards" for no less than that.
        hold_out: of more than 2,000 targets with Gaussian noise, let a tenth of the rows (at most 500), held out of the
            training, choose the mean, the treatment of missed variance and the noise.
        form: see `fsplaplace.laplace`.
        mean: see `fsplaplace.laplace`.
        rank: see `fsplaplace.laplace`.
    """

    steps: int = 5000
    optimizer: optax.GradientTransformation | None = None
    batch_size: int | None = None
    num_context: int = 100
    validation: float | tuple[ArrayLike, ArrayLike] | None = None
    context_points: ArrayLike | None = None
    num_posterior_context: int = 1000
    cover: Sampler | None = None
    fit_noise: FitNoise = True
    hold_out: bool = True
    form: Literal["covariance", "precision"] = "covariance"
    mean: Literal["auto", "network", "refined"] = "auto"
    rank: int | None = None

    @checked
    def fit(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> Posterior:
        return self.fitted(model, X, y, likelihood, key=key, prior=prior, context=context, progress=progress).posterior

    @checked
    def fitted(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> Fitted:
        """`fit` with the trained network, the context points and the rows held out."""
        prior, checked, _ = check_function_prior(self, model, prior, likelihood, X, y)
        return fit_posterior(
            model, prior, likelihood, default_context(self, context, checked), np.asarray(X), y,
            key=key, context_points=self.context_points, num_points=self.num_posterior_context,
            cover=self.cover or context, fit_noise=self.fit_noise, hold_out=self.hold_out,
            training={
                "steps": self.steps, "optimizer": self.optimizer, "batch_size": self.batch_size,
                "num_context": self.num_context, "validation": self.validation, "progress": progress,
            },
            approximation={"form": self.form, "mean": self.mean, "rank": self.rank},
        )  # fmt: skip
