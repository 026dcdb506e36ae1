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
from collections.abc import Sequence
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
from fsplaplace.operators import Operator, Value
from fsplaplace.prior import Prior

# Directions of the data that the context points move less than this, relative to the most, say nothing in float64.
_RELATIVE_RANK = 1e-9
_NUGGET = 1e-10


class LinearisedRows(eqx.Module):
    """Data of one kind as the coordinates see them.

    Attributes:
        features: U, (n, k, r).
        targets: y, as the likelihood wants them.
        inputs: X.
        operator: what was observed of the function; linear, or a tangent.
    """

    features: Float[Array, "n k r"]
    targets: Shaped[Array, "n ..."]
    inputs: Float[Array, "n ..."]
    operator: Operator

    def mean(self, prior: Prior) -> Float[Array, "n k"]:
        """What is observed of the prior mean."""
        of_values = isinstance(self.operator, Value)
        return prior.mean_at(self.inputs) if of_values else prior.through(self.operator).mean_at(self.inputs)

    def variance(self, prior: Prior) -> Float[Array, "n k"]:
        """Prior variance of what is observed."""
        of_values = isinstance(self.operator, Value)
        return prior.variance(self.inputs) if of_values else prior.through(self.operator).variance(self.inputs)


class LinearisedModel(eqx.Module):
    """The network seen from its context points: what stays fixed while kernel and noise are tuned.

    Attributes:
        coordinates: T, (r, m, q).
        kinds: the data, kind by kind.
        points: C.
        missed_as_noise: whether prior variance that the features miss at X counts as Gaussian noise there.
    """

    coordinates: Float[Array, "r m q"]
    kinds: tuple[LinearisedRows, ...]
    points: Float[Array, "m ..."]
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


class Kind(NamedTuple):
    """Data of one kind, checked.

    Attributes:
        operator: what was observed of the function; linear, or a tangent.
        inputs: where.
        targets: what was observed.
    """

    operator: Operator
    inputs: Float[Array, "n ..."]
    targets: Shaped[Array, "n ..."]


def linearise(
    model: Model, points: Float[Array, "m ..."], kinds: Sequence[Kind], *,
    delta: float, missed_as_noise: bool, budget: float,
) -> LinearisedModel:  # fmt: skip
    """The linearised model in float64. Time $O((N + n q) N p)$, memory $O((N + n q) p)$ for N context rows."""
    seen = [model if isinstance(kind.operator, Value) else model.through(kind.operator) for kind in kinds]
    widths = [each.num_outputs(kind.inputs) for each, kind in zip(seen, kinds, strict=True)]
    n, m = sum(kind.inputs.shape[0] * width for kind, width in zip(kinds, widths, strict=True)), points.shape[0]
    needed = (n + m * model.num_outputs(points)) * model.num_params * (8 + itemsize(model.dtype))
    if needed > budget:
        raise MemoryError(
            f"tune: the Jacobians at {m} context points and {n} targets need {format_bytes(needed)}, but "
            f"memory_budget is {format_bytes(budget)}; pass fewer context_points to laplace, or fewer rows"
        )
    rows = [jacobian_matrix(each, kind.inputs) for each, kind in zip(seen, kinds, strict=True)]
    found = _from_jacobians(jnp.concatenate(rows), jacobian_matrix(model, points), points, delta=delta)
    coordinates, features = found
    parts = np.split(features, np.cumsum([len(each) for each in rows])[:-1])
    with jax.enable_x64(True):
        data = tuple(
            LinearisedRows(
                jnp.asarray(part.reshape(kind.inputs.shape[0], width, -1)), kind.targets, kind.inputs, kind.operator
            )
            for part, kind, width in zip(parts, kinds, widths, strict=True)
        )
        return LinearisedModel(jnp.asarray(coordinates), data, points, missed_as_noise)


@in_float64
def _from_jacobians(
    rows: Float[Array, "nq p"], columns: Float[Array, "mq p"], points, *, delta: float
) -> tuple[Float[np.ndarray, "r m q"], Float[np.ndarray, "nq r"]]:
    """T and U."""
    own, cross = (np.asarray(part) for part in _tangent_kernels(rows, columns))
    eigenvalues, eigenvectors = np.linalg.eigh(own)
    inverse = 1 / (np.maximum(eigenvalues, 0.0) + delta * eigenvalues[-1])
    moved = (cross @ eigenvectors * inverse) @ eigenvectors.T
    left, singular, right = np.linalg.svd(moved, full_matrices=False)
    rank = int(np.sum(singular > _RELATIVE_RANK * singular[0]))
    coordinates = (singular[:rank, None] * right[:rank]).reshape(rank, points.shape[0], -1)
    return coordinates, left[:, :rank]


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


def log_evidence(linearised: LinearisedModel, prior: Prior, likelihoods: Sequence[Likelihood]) -> Float[Array, ""]:
    r"""The Laplace approximation of $\log p(y)$, exact for Gaussian likelihoods; differentiable.

    Args:
        linearised: the network and the data.
        prior: whose evidence it is.
        likelihoods: one for each kind of data.

    Time $O(m^2 q r + n q r^2 + r^3)$.
    """
    return _evidence(linearised, prior, likelihoods, _features(linearised, prior))


def log_evidence_and_misfit(
    linearised: LinearisedModel, prior: Prior, likelihoods: Sequence[Likelihood]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""The log evidence, and the mean over targets with Gaussian noise of
    $|k(x_i, x_i) - \lVert \Phi_i \rVert^2| / \sigma_i^2$: how far the linearised network is from the prior whose evidence it
    stands for. Zero without Gaussian noise."""
    features, total, count = _features(linearised, prior), jnp.zeros(()), 0
    for seen, likelihood in zip(features, likelihoods, strict=True):
        if isinstance(likelihood, Gaussian):
            total += jnp.sum(jnp.abs(seen.stated - seen.implied) / likelihood.scale**2)
            count += seen.stated.size
    return _evidence(linearised, prior, likelihoods, features), total / max(count, 1)


def _features(linearised: LinearisedModel, prior: Prior) -> list[_Features]:
    covariance = linearised.covariance(prior)
    nugget = _NUGGET * jnp.mean(jnp.diagonal(covariance))
    lower = jnp.linalg.cholesky(covariance + nugget * jnp.eye(linearised.rank, dtype=covariance.dtype))
    found = []
    for kind in linearised.kinds:
        features, stated = kind.features @ lower, kind.variance(prior)
        implied = jnp.sum(features**2, axis=2)
        shrink = jnp.sqrt(jnp.where(implied > stated, stated / jnp.where(implied > stated, implied, 1.0), 1.0))
        found.append(_Features(shrink[:, :, None] * features, implied, stated))
    return found


def _evidence(linearised: LinearisedModel, prior: Prior, likelihoods, features: list[_Features]):
    means = [kind.mean(prior) for kind in linearised.kinds]
    if all(isinstance(likelihood, Gaussian) for likelihood in likelihoods):
        return _gaussian(linearised, likelihoods, means, features)
    return _laplace(linearised, likelihoods, means, [seen.normalised for seen in features])


def _gaussian(linearised: LinearisedModel, likelihoods: Sequence[Gaussian], means, features: list[_Features]):
    variances, residuals = [], []
    for kind, likelihood, mean, seen in zip(linearised.kinds, likelihoods, means, features, strict=True):
        variance = jnp.broadcast_to(likelihood.scale**2, mean.shape)
        if linearised.missed_as_noise:
            variance = variance + jnp.maximum(seen.stated - seen.implied, 0.0)
        variances.append(variance.ravel())
        residuals.append((kind.targets - mean).ravel())
    variance, residual = jnp.concatenate(variances), jnp.concatenate(residuals)
    rows = jnp.concatenate([seen.normalised.reshape(-1, linearised.rank) for seen in features])
    weighted = rows / variance[:, None]
    factor = jnp.linalg.cholesky(jnp.eye(linearised.rank) + weighted.T @ rows)
    explained = jsl.solve_triangular(factor, weighted.T @ residual, lower=True)
    quadratic = jnp.sum(residual**2 / variance) - explained @ explained
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factor))) + jnp.sum(jnp.log(variance))
    return -0.5 * (quadratic + log_determinant + residual.size * math.log(2 * math.pi))


def _laplace(linearised: LinearisedModel, likelihoods: Sequence[Likelihood], means, features):
    """At the mode, whose derivative is that of one more Newton step (the implicit function theorem)."""

    def each(z, means, features):
        for kind, likelihood, mean, rows in zip(linearised.kinds, likelihoods, means, features, strict=True):
            yield likelihood, mean + rows @ z, kind.targets, rows

    def objective(z, means, features):
        terms = (jnp.sum(one.log_prob(outputs, targets)) for one, outputs, targets, _ in each(z, means, features))
        return 0.5 * z @ z - sum(terms)

    def precision(z, means, features):
        total = jnp.eye(z.shape[0])
        for one, outputs, targets, rows in each(z, means, features):
            total += jnp.einsum("nqr,nqs->rs", rows, one.curvature_product(outputs, targets, rows))
        return total

    fixed = jax.lax.stop_gradient((means, features))
    z = damped_newton(
        lambda z: objective(z, *fixed),
        lambda z: z - jsl.solve(precision(z, *fixed), jax.grad(objective)(z, *fixed), assume_a="pos"),
        jnp.zeros(linearised.rank),
    )
    frozen = jax.lax.stop_gradient(precision(z, means, features))
    z = z - jsl.solve(frozen, jax.grad(objective)(z, means, features), assume_a="pos")
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(precision(z, means, features)))))
    return -objective(z, means, features) - 0.5 * log_determinant


@eqx.filter_jit
def _tangent_kernels(rows, columns):
    return columns @ columns.T, rows @ columns.T
