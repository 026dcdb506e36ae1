"""The sparse variational Gaussian process."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.cluster import KMeans

from fsplaplace.arguments import checked
from fsplaplace.host import cast, check_fits, host_generator, one_blas_thread, to_double
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.linalg import psd_factor
from fsplaplace.methods._expected_log_likelihood import expected_log_likelihood
from fsplaplace.methods._method import Method, check_function_prior, has_learnable_scale
from fsplaplace.methods._posterior import FunctionPosterior, draw_gaussian
from fsplaplace.methods._sparse_process import SparseProcess
from fsplaplace.methods.gp import check_points
from fsplaplace.methods.map import draw_batch
from fsplaplace.networks import map_rows
from fsplaplace.prior import Prior
from fsplaplace.training import OneTerm, adam, combine, minimise, partition
from fsplaplace.tuning import fit_prior

_BLOCK_ROWS = 2000


class SparseGP(Method):
    r"""SVGP (Hensman et al. 2013): maximise $\sum_i E_q \log p(y_i \mid f_i) - \mathrm{KL}(q(u) \Vert p(u))$.

    Works with minibatches and any likelihood (softmax with one process per class). Under Gaussian noise q(u) is set to
    its optimum in closed form, before and after the steps that tune everything else.

    Args:
        num_inducing: inducing inputs, started at cluster centres of the training inputs and moved along; all training
            inputs, held fixed, where there are no more than that.
        tune: fit the kernel (and a learnable noise), from the marginal likelihood of a subset; False keeps the prior.
        steps: of the ascent.
        learning_rate: of the default optimiser.
        optimizer: Adam with a cosine schedule by default.
        batch_size: rows of each step; None for all.

    Time per step $O(b k^2 + k^3)$ per output, for b rows and k inducing inputs; memory $O(b k + q k^2)$.
    """

    num_inducing: int = 100
    tune: bool = True
    steps: int = 3000
    learning_rate: float = 1e-2
    optimizer: optax.GradientTransformation | None = None
    batch_size: int | None = 500

    @checked
    def fit(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> "SparseGPPosterior":
        prior, X, targets = check_function_prior(self, model, prior, likelihood, X, y)
        if prior.structure == "joint":
            raise ValueError(
                "SparseGP: the kernel couples its outputs, but the sparse process has one independent process per "
                "output; use ExactGP, or one kernel per output"
            )
        if self.tune:
            fitted = fit_prior(
                prior,
                X,
                y,
                likelihood,
                key=key,
                standard_errors=False,
                hyperpriors=False,
                fit_noise=has_learnable_scale(likelihood),
            )
            prior, likelihood = fitted.prior, fitted.likelihood
        learnable = has_learnable_scale(likelihood)
        with jax.enable_x64(True), one_blas_thread():
            double = to_double((prior, likelihood, X.reshape(X.shape[0], -1), targets))
            process, likelihood64, bound = self._ascend(*double, key=key, progress=progress)
            prior64 = double[0]
            likelihood = cast(likelihood64, model.dtype) if learnable else likelihood
        return SparseGPPosterior(
            process=process,
            prior=prior64,
            likelihood=likelihood,
            log_evidence=jnp.asarray(np.asarray(bound), model.dtype),
            dtype=str(model.dtype),
        )

    def _ascend(self, prior: Prior, likelihood: Likelihood, X, targets, *, key: PRNGKeyArray, progress: bool):
        """The process and likelihood at the maximum of the bound, and the bound over all rows."""
        all_rows = X.shape[0] <= self.num_inducing
        inducing = X if all_rows else jnp.asarray(_cluster_centres(np.asarray(X), self.num_inducing, key))
        process = _with_best_posterior(
            SparseProcess.at_prior(prior.blocks.kernels, inducing, prior.num_outputs), prior, likelihood, X, targets
        )
        kept = [process.kernels] * (not self.tune) + [process.inducing_inputs] * all_rows
        frozen = {id(leaf) for leaf in jax.tree.leaves(kept)}
        trainable, fixed = partition((process, likelihood), lambda leaf: id(leaf) not in frozen)
        best = minimise(
            _NegativeBound(fixed, prior, X, targets, self.batch_size),
            trainable,
            optimizer=self.optimizer or adam(self.learning_rate, self.steps),
            steps=self.steps,
            key=key,
            title="SparseGP",
            progress=progress,
        ).parameters
        process, likelihood = combine(best, fixed)
        process = _with_best_posterior(process, prior, likelihood, X, targets)
        rows = range(0, X.shape[0], _BLOCK_ROWS)
        expected = sum(
            _expected(process, prior, likelihood.rows(slice(start, start + _BLOCK_ROWS)),
                      X[start : start + _BLOCK_ROWS], targets[start : start + _BLOCK_ROWS], key)
            for start in rows
        )  # fmt: skip
        return process, likelihood, expected - eqx.filter_jit(SparseProcess.divergence)(process)


class SparseGPPosterior(FunctionPosterior):
    """The sparse process after fitting.

    Attributes:
        process: kernels, inducing inputs and q(u), float64.
        prior: for its mean.
        likelihood: with its fitted parameters.
        log_evidence: the bound on it, over all rows.
        dtype: of the predictions.
    """

    process: SparseProcess
    prior: Prior
    likelihood: Likelihood
    log_evidence: Float[Array, ""]
    dtype: str = eqx.field(static=True)

    @checked(traceable=True)
    def predict(self, x):
        mean, variance = self._moments(x)
        return self.prediction(mean, mean, variance)

    @checked(traceable=True)
    def sample(self, x, *, key, num_samples=1):
        """Functions at these inputs together. Time cubic in their number."""
        x = check_points(x, self.process.inducing_inputs.shape[1])
        check_fits(num_samples, 32 * x.shape[0] * self.prior.num_outputs, f"{type(self).__name__}.sample: num_samples")
        with jax.enable_x64(True), one_blas_thread():
            mean, blocks = _joint(self, jnp.asarray(x, jnp.float64))
            roots = np.stack([psd_factor(np.asarray(block))[0] for block in blocks])
            noise = np.asarray(jr.normal(key, (num_samples, roots.shape[0], roots.shape[2]), jnp.float64))
        return jnp.asarray(np.asarray(mean) + np.einsum("bnr,sbr->snb", roots, noise), self.dtype)

    def draw_outputs(self, x, *, key, num_samples):
        mean, variance = self._moments(x)
        return draw_gaussian(mean, variance[:, :, None] * jnp.eye(mean.shape[1], dtype=mean.dtype), key, num_samples)

    def _moments(self, x):
        if isinstance(x, Tracer):
            return _marginal(cast(self, x.dtype), x)
        x = check_points(x, self.process.inducing_inputs.shape[1])
        with jax.enable_x64(True):
            core: Any = functools.partial(_marginal, self)
            moments = map_rows(core, jnp.asarray(x, jnp.float64), rows=min(_BLOCK_ROWS, x.shape[0]))
            return cast(moments, jnp.dtype(self.dtype))


class _NegativeBound(OneTerm):
    fixed: tuple
    prior: Prior
    X: Float[Array, "n d"]
    targets: Array
    batch_size: int | None = eqx.field(static=True)

    def __call__(self, trainable, key):
        process, likelihood = combine(trainable, self.fixed)
        batch_key, sample_key = jr.split(key)
        X, targets, likelihood, weight = draw_batch(self.X, self.targets, likelihood, self.batch_size, batch_key)
        return process.divergence() - weight * _expected(process, self.prior, likelihood, X, targets, sample_key)


@eqx.filter_jit
def _expected(process: SparseProcess, prior: Prior, likelihood, X, targets, key):
    mean, variance = process.moments(X)
    root = jnp.sqrt(variance)[:, :, None] * jnp.eye(mean.shape[1], dtype=mean.dtype)
    return jnp.sum(expected_log_likelihood(likelihood, targets, prior.mean_at(X) + mean, root, key=key))


@eqx.filter_jit
def _with_best_posterior(process: SparseProcess, prior: Prior, likelihood: Likelihood, X, targets):
    if not isinstance(likelihood, Gaussian):
        return process
    noise = jnp.broadcast_to(likelihood.scale**2, targets.shape)
    return process.with_best_posterior(X, targets - prior.mean_at(X), noise)


@eqx.filter_jit
def _marginal(posterior: SparseGPPosterior, x):
    mean, variance = posterior.process.moments(x)
    return posterior.prior.mean_at(x) + mean, variance


@eqx.filter_jit
def _joint(posterior: SparseGPPosterior, x):
    mean, covariance = posterior.process.joint(x)
    return posterior.prior.mean_at(x) + mean, covariance


def _cluster_centres(X: Float[np.ndarray, "n d"], count: int, key: PRNGKeyArray) -> Float[np.ndarray, "k d"]:
    generator = host_generator(key)
    some = X[generator.permutation(X.shape[0])[: 20 * count]]
    # Columns in units of their spread, so that none dominates the distance.
    spread = np.where(some.std(axis=0) > 0, some.std(axis=0), 1.0)
    options: dict[str, Any] = {"init": some[:count] / spread, "n_init": 1, "max_iter": 20}
    centres = KMeans(count, **options).fit(some / spread).cluster_centers_
    return centres * spread
