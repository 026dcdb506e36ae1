"""FSP-Laplace in the call shape of the methods it is compared with."""

from typing import Literal

import jax.numpy as jnp
import jax.random as jr
import optax
from numpy.typing import ArrayLike

from fsplaplace.laplace import Posterior, laplace
from fsplaplace.methods._method import Method, check_function_prior, default_context
from fsplaplace.training import train


class FSPLaplace(Method):
    """`fsplaplace.train` and then `fsplaplace.laplace`, under their own defaults.

    Args:
        steps, optimizer, batch_size, num_context, validation: see `fsplaplace.train`.
        context_points: see `fsplaplace.laplace`; by default `num_posterior_context` points of the context and up to as many
            training inputs.
        form, mean, rank: see `fsplaplace.laplace`.
    """

    steps: int = 5000
    optimizer: optax.GradientTransformation | None = None
    batch_size: int | None = None
    num_context: int = 100
    validation: float | tuple[ArrayLike, ArrayLike] | None = None
    context_points: ArrayLike | None = None
    num_posterior_context: int = 500
    form: Literal["covariance", "precision"] = "covariance"
    mean: Literal["auto", "network", "refined"] = "auto"
    rank: int | None = None

    def fit(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> Posterior:
        prior, X, _ = check_function_prior(self, model, prior, likelihood, X, y)
        context = default_context(self, context, X)
        train_key, context_key, laplace_key = jr.split(key, 3)
        trained = train(
            model, prior, likelihood, context, X, y,
            key=train_key, steps=self.steps, optimizer=self.optimizer, batch_size=self.batch_size,
            num_context=self.num_context, validation=self.validation, progress=progress,
        )  # fmt: skip
        points = self.context_points
        if points is None:
            sampled = context.sample(self.num_posterior_context, key=context_key).astype(X.dtype)
            rows = jr.permutation(laplace_key, X.shape[0])[: self.num_posterior_context]
            points = jnp.concatenate([sampled, X[rows]])
        return laplace(
            trained.model, prior, trained.likelihood, X, y,
            context_points=points, form=self.form, mean=self.mean, rank=self.rank, key=laplace_key,
        )  # fmt: skip
