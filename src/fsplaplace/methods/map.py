"""The maximum a-posteriori network: a point estimate under a Gaussian prior on the weights."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import check_fields, checked
from fsplaplace.host import host_generator
from fsplaplace.likelihoods import Likelihood
from fsplaplace.methods._method import Method
from fsplaplace.methods._posterior import LinearisedPosterior
from fsplaplace.networks import Model, linearisation
from fsplaplace.training import HeldOutLoss, OneTerm, adam, check_problem, combine, hold_out, minimise, partition


class MAP(Method):
    r"""$\arg\min_w -\sum_i \log p(y_i \mid f(x_i, w)) + \tfrac{\delta}{2} \lVert w \rVert^2$: no epistemic variance.

    Args:
        prior_precision: $\delta$: a number, or an array of p numbers with one for each weight.
        steps: optimiser steps.
        learning_rate: of Adam, falling to 0 along a cosine.
        optimizer: any Optax optimiser, instead.
        batch_size: rows per step, drawn anew at each; all rows by default.
        validation: a fraction of the rows to hold out, or (X, y): the weights with the lowest held-out negative
            log-likelihood are kept, and training ends after `patience` looks (one every 100 steps) without a better one.
            Worth its rows where the noise scale is learnable: a network that interpolates lets it collapse.
        checkpoint: a file, as in `fsplaplace.train`: a run that finds its own goes on from it. `fit` refuses a place that cannot be
            written, before it trains.
    """

    prior_precision: float | Float[Array, " p"] = 1.0
    steps: int = 5000
    learning_rate: float = 1e-2
    optimizer: optax.GradientTransformation | None = None
    batch_size: int | None = None
    validation: float | tuple[ArrayLike, ArrayLike] | None = None
    patience: int = 20
    checkpoint: str | Path | None = None

    def __check_init__(self):
        check_fields(self)
        if not np.all(np.asarray(self.prior_precision) > 0):
            raise ValueError(f"MAP: prior_precision is {self.prior_precision}; pass positive numbers")

    @checked
    def fit(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> LinearisedPosterior:
        X, targets = check_problem(model, None, likelihood, X, y)
        split_key, key = jr.split(key)
        (rows, labels), held_out = hold_out(model, likelihood, self.validation, X, targets, host_generator(split_key))
        trainable, fixed = partition((model.params, likelihood))
        precision = jnp.asarray(self.prior_precision, model.dtype)
        best = minimise(
            _NegativeLogPosterior(model, fixed, rows, jnp.asarray(labels), precision, self.batch_size),
            trainable,
            optimizer=self.optimizer or adam(self.learning_rate, self.steps),
            steps=self.steps,
            key=key,
            title="MAP",
            progress=progress,
            in_loop=not linearisation(model, X).convolutional,
            validate=None if held_out is None else HeldOutLoss(model, fixed, held_out[0], jnp.asarray(held_out[1])),
            patience=self.patience,
            checkpoint=self.checkpoint,
        ).parameters
        params, fitted = combine(best, fixed)
        return LinearisedPosterior(
            model=model.with_params(params),
            likelihood=fitted,
            weight_covariance=None,
            log_evidence=jnp.full((), jnp.nan, model.dtype),
            prior_precision=jnp.atleast_1d(precision),
        )


class _NegativeLogPosterior(OneTerm):
    model: Model
    fixed: tuple
    X: Float[Array, "n ..."]
    targets: Array
    precision: Float[Array, "..."]
    batch_size: int | None = eqx.field(static=True)

    def __call__(self, trainable, key):
        params, likelihood = combine(trainable, self.fixed)
        X, targets, likelihood, weight = draw_batch(self.X, self.targets, likelihood, self.batch_size, key)
        log_likelihood = weight * jnp.sum(likelihood.log_prob(self.model.evaluate(params, X), targets))
        return 0.5 * jnp.sum(self.precision * ravel_pytree(params)[0] ** 2) - log_likelihood


def draw_batch(X, targets, likelihood: Likelihood, batch_size: int | None, key):
    """Rows for one step, their likelihood, and the weight that makes their sum an estimate of the sum over all."""
    count = X.shape[0]
    if batch_size is None or batch_size >= count:
        return X, targets, likelihood, 1.0
    rows = jax.random.choice(key, count, (batch_size,), replace=False)
    return X[rows], targets[rows], likelihood.rows(rows), count / batch_size
