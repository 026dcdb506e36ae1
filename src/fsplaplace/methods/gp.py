"""The Gaussian process itself: exact for Gaussian noise, Laplace-approximated for labels and counts."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.host import cast, check_fits, format_bytes, one_blas_thread, resolve_budget, rows_that_fit, to_double
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.linalg import psd_factor
from fsplaplace.methods._gp_laplace import laplace_mode, tune_by_laplace_evidence
from fsplaplace.methods._method import Method, check_function_prior, has_learnable_scale
from fsplaplace.methods._posterior import FunctionPosterior, draw_gaussian
from fsplaplace.networks import map_rows
from fsplaplace.prior import Prior
from fsplaplace.tuning import fit_prior, log_marginal_likelihood

_MOST_ROWS = 2000


class ExactGP(Method):
    r"""$f \sim \mathcal{GP}(\mu, \Sigma)$ conditioned on the data; the network is not used.

    With a `Gaussian` likelihood everything is in closed form; with any other the posterior is Gaussian around its mode with
    precision $\Sigma^{-1} + W$, W the curvature of the likelihood there (Rasmussen and Williams 2006, Section 3.4).

    Args:
        tune: maximise the log marginal likelihood over the parameters of the prior and, where learnable, the noise;
            False keeps the prior as given.
        memory_budget: bytes; a quarter of RAM by default.

    Time $O(n^3)$ and memory $O(n^2)$, with nq in place of n for labels and for multi-output kernels.
    """

    tune: bool = True
    memory_budget: float | None = None

    @checked
    def fit(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> "GPPosterior":
        self._check_memory(prior, likelihood, X)
        prior, X, targets = check_function_prior(self, model, prior, likelihood, X, y)
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
        with jax.enable_x64(True), one_blas_thread():
            problem: Any = to_double((prior, likelihood, X.reshape(X.shape[0], -1), targets))
            if isinstance(likelihood, Gaussian):
                coefficients, precision_root, log_evidence = _condition(*problem)
            else:
                if self.tune:
                    prior = tune_by_laplace_evidence(prior, *problem[1:])
                    problem = (to_double(prior), *problem[1:])
                coefficients, precision_root, log_evidence = laplace_mode(*problem)
            return GPPosterior(
                prior=problem[0],
                likelihood=likelihood,
                X=problem[2],
                coefficients=jnp.asarray(coefficients),
                precision_root=jnp.asarray(precision_root),
                log_evidence=jnp.asarray(np.asarray(log_evidence), model.dtype),
                dtype=str(model.dtype),
            )

    def _check_memory(self, prior: Prior | None, likelihood: Likelihood, X: ArrayLike) -> None:
        shape = np.shape(X)
        if prior is None or len(shape) < 2:
            return
        separated = prior.blocks.separated()
        size, blocks = shape[0] * separated.rows_per_point, separated.num_blocks
        if not isinstance(likelihood, Gaussian):
            size, blocks = shape[0] * prior.num_outputs, 1
        # The covariance, its factor, the inverse of that, and a temporary of their size.
        needed, budget = 4 * 8 * blocks * size**2, resolve_budget(self.memory_budget)
        if needed > budget:
            raise MemoryError(
                f"ExactGP: {shape[0]} rows need {format_bytes(needed)} for covariances of size {size}, but memory_budget is "
                f"{format_bytes(budget)}; use SparseGP"
            )


class GPPosterior(FunctionPosterior):
    r"""A Gaussian process given data: mean $\mu(x) + \Sigma(x, X) a$, covariance $\Sigma(x, x') - \Sigma(x, X) P^\top P \Sigma(X, x')$.

    Attributes:
        prior: with its fitted parameters.
        likelihood: with its fitted parameters.
        X: training inputs, (n, d).
        coefficients: a, in the blocks of `precision_root`: (b, N, c).
        precision_root: P, (b, N, N): one block for outputs that share a kernel and a noise, one per output, or one of
            size N = nq for outputs that depend on each other.
        log_evidence: the log marginal likelihood, or its Laplace approximation.
        dtype: of the predictions; the arrays here are float64.
    """

    prior: Prior
    likelihood: Likelihood
    X: Float[Array, "n d"]
    coefficients: Float[Array, "b N c"]
    precision_root: Float[Array, "b N N"]
    log_evidence: Float[Array, ""]
    dtype: str = eqx.field(static=True)

    @property
    def coupled(self) -> bool:
        """Whether outputs depend on each other, so that there is one block for all points and outputs."""
        return self.precision_root.shape[1] != self.X.shape[0]

    @checked(traceable=True)
    def predict(self, x):
        mean, covariance = self._moments(x)
        variance = jnp.maximum(jnp.diagonal(covariance, axis1=1, axis2=2), 0)
        return self.prediction(mean, mean, variance)

    @checked(traceable=True)
    def sample(self, x, *, key, num_samples=1):
        """Functions at these inputs together. Time cubic in their number."""
        x = np.asarray(check_points(x, self.X.shape[1]))
        check_fits(num_samples, 32 * x.shape[0] * self.prior.num_outputs, f"{type(self).__name__}.sample: num_samples")
        with jax.enable_x64(True), one_blas_thread():
            mean, blocks = _joint(self, jnp.asarray(x, jnp.float64))
            roots = np.stack([psd_factor(np.asarray(block))[0] for block in blocks])
            noise = np.asarray(jr.normal(key, (num_samples, roots.shape[0], roots.shape[2]), jnp.float64))
            moves = np.einsum("bnr,sbr->snb", roots, noise).reshape(num_samples, *mean.shape)
        return jnp.asarray(np.asarray(mean) + moves, self.dtype)

    def draw_outputs(self, x, *, key, num_samples):
        mean, covariance = self._moments(x)
        return draw_gaussian(mean, covariance, key, num_samples)

    def _moments(self, x):
        if isinstance(x, Tracer):
            return _marginal(cast(self, x.dtype), x)
        x = np.asarray(check_points(x, self.X.shape[1]))
        # A block of cross-covariances and its product with the root.
        per_row = 4 * 8 * self.precision_root.shape[0] * self.precision_root.shape[1] * self.prior.num_outputs
        rows = rows_that_fit(per_row, resolve_budget(None) / 8, most=min(_MOST_ROWS, x.shape[0]))
        with jax.enable_x64(True):
            core: Any = functools.partial(_marginal, self)
            mean, covariance = map_rows(core, jnp.asarray(x, jnp.float64), rows=rows)
            return cast((mean, covariance), jnp.dtype(self.dtype))


def check_points(x: ArrayLike, width: int) -> Float[np.ndarray, "n d"]:
    """Test inputs as rows, or an error that says what is wrong with them."""
    points = np.asarray(x, dtype=float)
    if points.ndim < 2 or points[0].size != width:
        raise ValueError(f"x has shape {points.shape}, but the training inputs have {width} columns; pass (n, {width})")
    if not np.all(np.isfinite(points)):
        raise ValueError("x has NaN or infinite values; remove those rows")
    return points.reshape(points.shape[0], -1)


@eqx.filter_jit
def _condition(prior: Prior, likelihood: Gaussian, X, targets):
    """Coefficients, precision root and log marginal likelihood under Gaussian noise."""
    # Outputs share a block only if they share the noise, too.
    blocks = prior.blocks if jnp.ndim(likelihood.scale) == 0 else prior.blocks.separated()
    gram = blocks.gram(X, X)
    noise = blocks.to_blocks(jnp.broadcast_to(likelihood.scale**2, targets.shape)[:, :, None])[:, :, 0]
    residual = blocks.to_blocks((targets - prior.mean_at(X))[:, :, None])

    def one(block, diagonal, right):
        lower = jnp.linalg.cholesky(block + jnp.diag(diagonal))
        return jsl.cho_solve((lower, True), right), jsl.solve_triangular(lower, jnp.eye(lower.shape[0]), lower=True)

    coefficients, precision_root = jax.vmap(one)(gram, noise, residual)
    log_evidence = log_marginal_likelihood(prior, likelihood.scale**2, X, targets)
    return coefficients, precision_root, log_evidence


@eqx.filter_jit
def _marginal(posterior: GPPosterior, x):
    """Mean (n, q) and covariance between outputs (n, q, q) at each point."""
    mean, cross = _mean_and_cross(posterior, x)
    features = jnp.einsum("bnk,bjk->bnj", cross, posterior.precision_root)
    prior, (n, q) = posterior.prior, mean.shape
    if posterior.coupled:
        own = jax.vmap(lambda row: prior.covariance(row[None], row[None])[0, :, 0])(x)
        features = features.reshape(n, q, -1)
        return mean, own - jnp.einsum("nqr,npr->nqp", features, features)
    explained = jnp.broadcast_to(jnp.sum(features**2, axis=2).T, (n, q))
    return mean, (prior.variance(x) - explained)[:, :, None] * jnp.eye(q, dtype=x.dtype)


@eqx.filter_jit
def _joint(posterior: GPPosterior, x):
    """Mean (n, q), and the covariance over points and outputs in blocks: one, or one per output."""
    mean, cross = _mean_and_cross(posterior, x)
    features = jnp.einsum("bnk,bjk->bnj", cross, posterior.precision_root)
    prior, (n, q) = posterior.prior, mean.shape
    if posterior.coupled:
        return mean, prior.covariance(x, x).reshape(1, n * q, n * q) - features @ features.mT
    return mean, jnp.broadcast_to(prior.gram(x) - features @ features.mT, (q, n, n))


def _mean_and_cross(posterior: GPPosterior, x):
    prior = posterior.prior
    q = prior.num_outputs
    if posterior.coupled:
        cross = prior.covariance(x, posterior.X).reshape(1, x.shape[0] * q, -1)
        moves = (cross @ posterior.coefficients).reshape(x.shape[0], q)
    else:
        cross = prior.gram(x, posterior.X)
        cross = jnp.broadcast_to(cross, (posterior.precision_root.shape[0], *cross.shape[1:]))
        moves = jnp.moveaxis(cross @ posterior.coefficients, 0, 1).reshape(x.shape[0], q)
    return prior.mean_at(x) + moves, cross
