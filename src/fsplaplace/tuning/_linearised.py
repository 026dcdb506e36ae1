r"""The linearised network as a Gaussian model in r coordinates whose prior depends on the kernel, and its evidence.

With the network fixed, outputs at the training inputs are $\mu(X) + \Psi (u - \mu(C))$, where u are the values at the
context points, $u \sim \mathcal N(\mu(C), \Sigma_\theta(C, C))$, and
$\Psi = J_X J_C^\top (J_C J_C^\top + \delta \lVert J_C \rVert^2 I)^{-1}$ does not depend on the kernel. With
$\Psi = U T$, U orthonormal, everything the kernel decides happens in the r coordinates $g = T (u - \mu(C))$.

The mean is the prior's own, not that of the linearised network, $f(X) + \Psi (\mu(C) - f(C))$: at training inputs that are not
among the context points the latter keeps some of what the network learnt from the same targets, and the evidence would
count them twice.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, Shaped

from fsplaplace.host import format_bytes, in_float64, itemsize
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.linalg import damped_newton
from fsplaplace.networks import Model, jacobian_matrix
from fsplaplace.prior import Prior

# Directions of the data that the context points move less than this, relative to the most, say nothing in float64.
_RELATIVE_RANK = 1e-9
_NUGGET = 1e-10


class LinearisedModel(eqx.Module):
    """The network seen from its context points: what stays fixed while kernel and noise are tuned.

    Attributes:
        coordinates: T, (r, m, q).
        features: U, (n, q, r).
        points: C.
        targets: y, as the likelihood wants them.
        inputs: X.
        missed_as_noise: whether prior variance that the features miss at X counts as Gaussian noise there.
    """

    coordinates: Float[Array, "r m q"]
    features: Float[Array, "n q r"]
    points: Float[Array, "m ..."]
    targets: Shaped[Array, "n ..."]
    inputs: Float[Array, "n ..."]
    missed_as_noise: bool = eqx.field(static=True)

    @property
    def rank(self) -> int:
        """r."""
        return self.coordinates.shape[0]

    def covariance(self, prior: Prior) -> Float[Array, "r r"]:
        r"""$T \Sigma T^\top$, the prior covariance of the coordinates. Time $O(m^2 q r)$."""
        blocks = prior.to_blocks(jnp.moveaxis(self.coordinates, 0, 2))
        products = prior.from_blocks(prior.gram(self.points) @ blocks)
        return jnp.einsum("rmq,mqs->rs", self.coordinates, products)


def linearise(
    model: Model, points: Float[Array, "m ..."], X: Float[Array, "n ..."], targets, *,
    delta: float, missed_as_noise: bool, budget: float,
) -> LinearisedModel:  # fmt: skip
    """The linearised model in float64. Time $O((N + n q) N p)$, memory $O((N + n q) p)$ for N context rows."""
    n, m, q = X.shape[0], points.shape[0], model.num_outputs(X)
    needed = (n + m) * q * model.num_params * (8 + itemsize(model.dtype))
    if needed > budget:
        raise MemoryError(
            f"tune: the Jacobians at {m} context points and {n} rows need {format_bytes(needed)}, but "
            f"memory_budget is {format_bytes(budget)}; pass fewer context_points to laplace, or fewer rows"
        )
    rows, columns = jacobian_matrix(model, X), jacobian_matrix(model, points)
    return _from_jacobians(rows, columns, points, X, targets, delta=delta, missed_as_noise=missed_as_noise)


@in_float64
def _from_jacobians(
    rows: Float[Array, "nq p"],
    columns: Float[Array, "mq p"],
    points,
    X,
    targets,
    *,
    delta: float,
    missed_as_noise: bool,
) -> LinearisedModel:
    own, cross = (np.asarray(part) for part in _tangent_kernels(rows, columns))
    eigenvalues, eigenvectors = np.linalg.eigh(own)
    inverse = 1 / (np.maximum(eigenvalues, 0.0) + delta * eigenvalues[-1])
    moved = (cross @ eigenvectors * inverse) @ eigenvectors.T
    left, singular, right = np.linalg.svd(moved, full_matrices=False)
    rank = int(np.sum(singular > _RELATIVE_RANK * singular[0]))
    return LinearisedModel(
        coordinates=jnp.asarray((singular[:rank, None] * right[:rank]).reshape(rank, points.shape[0], -1)),
        features=jnp.asarray(left[:, :rank].reshape(X.shape[0], -1, rank)),
        points=points,
        targets=targets,
        inputs=X,
        missed_as_noise=missed_as_noise,
    )


class _Features(NamedTuple):
    r"""What the network carries of a prior at the data, as `fsplaplace.laplace` has it.

    Attributes:
        normalised: $a \Phi$, features whose prior variance is at most the stated one, (n, q, r).
        implied: $\lVert \Phi \rVert^2$ before that, (n, q).
        stated: $k(x_i, x_i)$, (n, q).
    """

    normalised: Float[Array, "n q r"]
    implied: Float[Array, "n q"]
    stated: Float[Array, "n q"]


def log_evidence(linearised: LinearisedModel, prior: Prior, likelihood: Likelihood) -> Float[Array, ""]:
    r"""The Laplace approximation of $\log p(y)$, exact for a Gaussian likelihood; differentiable.

    Time $O(m^2 q r + n q r^2 + r^3)$.
    """
    return _evidence(linearised, prior, likelihood, _features(linearised, prior))


def log_evidence_and_misfit(
    linearised: LinearisedModel, prior: Prior, likelihood: Gaussian
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""The log evidence, and the mean over the data of $|k(x_i, x_i) - \lVert \Phi_i \rVert^2| / \sigma_i^2$: how far the
    linearised network is from the prior whose evidence it stands for."""
    features = _features(linearised, prior)
    gap = jnp.abs(features.stated - features.implied)
    misfit = jnp.mean(gap / jnp.broadcast_to(likelihood.scale**2, gap.shape))
    return _evidence(linearised, prior, likelihood, features), misfit


def _features(linearised: LinearisedModel, prior: Prior) -> _Features:
    covariance = linearised.covariance(prior)
    nugget = _NUGGET * jnp.mean(jnp.diagonal(covariance))
    lower = jnp.linalg.cholesky(covariance + nugget * jnp.eye(linearised.rank, dtype=covariance.dtype))
    features, stated = linearised.features @ lower, prior.variance(linearised.inputs)
    implied = jnp.sum(features**2, axis=2)
    shrink = jnp.sqrt(jnp.where(implied > stated, stated / jnp.where(implied > stated, implied, 1.0), 1.0))
    return _Features(shrink[:, :, None] * features, implied, stated)


def _evidence(linearised: LinearisedModel, prior: Prior, likelihood: Likelihood, features: _Features):
    mean = prior.mean_at(linearised.inputs)
    if isinstance(likelihood, Gaussian):
        return _gaussian(linearised, likelihood, mean, features)
    return _laplace(linearised, likelihood, mean, features.normalised)


def _gaussian(linearised: LinearisedModel, likelihood: Gaussian, mean, features: _Features):
    n, q = mean.shape
    variance = jnp.broadcast_to(likelihood.scale**2, (n, q))
    if linearised.missed_as_noise:
        variance = variance + jnp.maximum(features.stated - features.implied, 0.0)
    residual = linearised.targets - mean
    weighted = features.normalised / variance[:, :, None]
    gram = jnp.einsum("nqr,nqs->rs", weighted, features.normalised)
    factor = jnp.linalg.cholesky(jnp.eye(linearised.rank) + gram)
    explained = jsl.solve_triangular(factor, jnp.einsum("nqr,nq->r", weighted, residual), lower=True)
    quadratic = jnp.sum(residual**2 / variance) - explained @ explained
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factor))) + jnp.sum(jnp.log(variance))
    return -0.5 * (quadratic + log_determinant + n * q * math.log(2 * math.pi))


def _laplace(linearised: LinearisedModel, likelihood: Likelihood, mean, features):
    """At the mode, whose derivative is that of one more Newton step (the implicit function theorem)."""

    def outputs(z, mean, features):
        return mean + features @ z

    def objective(z, mean, features):
        log_likelihood = jnp.sum(likelihood.log_prob(outputs(z, mean, features), linearised.targets))
        return 0.5 * z @ z - log_likelihood

    def precision(z, mean, features):
        weighted = likelihood.curvature_product(outputs(z, mean, features), linearised.targets, features)
        data = jnp.einsum("nqr,nqs->rs", features, weighted)
        return jnp.eye(z.shape[0]) + data

    fixed = jax.lax.stop_gradient((mean, features))
    z = damped_newton(
        lambda z: objective(z, *fixed),
        lambda z: z - jsl.solve(precision(z, *fixed), jax.grad(objective)(z, *fixed), assume_a="pos"),
        jnp.zeros(linearised.rank),
    )
    frozen = jax.lax.stop_gradient(precision(z, mean, features))
    z = z - jsl.solve(frozen, jax.grad(objective)(z, mean, features), assume_a="pos")
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(precision(z, mean, features)))))
    return -objective(z, mean, features) - 0.5 * log_determinant


@eqx.filter_jit
def _tangent_kernels(rows, columns):
    return columns @ columns.T, rows @ columns.T
