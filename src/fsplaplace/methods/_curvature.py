r"""The generalised Gauss-Newton matrix $\Lambda = \sum_i J_i^\top H_i J_i$ in three structures.

Each knows $\log\det(I + c\, P^{-1} \Lambda)$ with its derivatives, P the diagonal prior precision, constant in groups of
weights, and turns into the posterior covariance $(c \Lambda + P)^{-1}$. The factor c rescales the curvature when
the noise changes. Host float64.
"""

import abc
import functools
from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from fsplaplace.host import format_bytes, itemsize, rows_that_fit
from fsplaplace.likelihoods import Likelihood
from fsplaplace.methods._kfac import LayerFactors, factor_bytes, kronecker_factors
from fsplaplace.methods._weight_covariance import (
    DiagonalCovariance,
    KroneckerBlock,
    KroneckerCovariance,
    LowRankUpdateCovariance,
    WeightCovariance,
)
from fsplaplace.networks import Model, jacobian

LogDet = tuple[float, Float[np.ndarray, " groups"], float]


class Curvature(abc.ABC):
    """The curvature of the data over the weights; `groups` gives each weight's group of prior precision."""

    groups: Int[np.ndarray, " p"]

    @property
    def num_groups(self) -> int:
        return int(self.groups.max()) + 1

    @abc.abstractmethod
    def log_det(self, precision: Float[np.ndarray, " groups"], factor: float) -> LogDet:
        r"""$\log\det(I + c P^{-1} \Lambda)$ and its derivatives by the logs of each precision and of c."""

    @abc.abstractmethod
    def covariance(self, precision: Float[np.ndarray, " groups"], factor: float, dtype) -> WeightCovariance:
        r"""$(c \Lambda + P)^{-1}$."""


class FullCurvature(Curvature):
    r"""All of it, by a root R with $\Lambda = R^\top R$ of min(nq, p) rows."""

    def __init__(self, root: Float[np.ndarray, "k p"], groups: Int[np.ndarray, " p"]):
        self.root, self.groups = root, groups
        # Once per group: every evidence then costs O(k^3), whatever p.
        self.grams = np.stack([_gram(root[:, groups == group]) for group in range(self.num_groups)])
        self.spectrum = np.maximum(np.linalg.eigvalsh(self.grams[0]), 0) if self.num_groups == 1 else None

    def log_det(self, precision, factor):
        if self.spectrum is not None:
            return _spectral_log_det([self.spectrum], precision, factor)
        scaled = self.grams * (factor / precision)[:, None, None]
        matrix = np.eye(scaled.shape[1]) + scaled.sum(axis=0)
        inverse = np.linalg.inv(matrix)
        slopes = -np.einsum("gij,ji->g", scaled, inverse)
        return float(np.linalg.slogdet(matrix)[1]), slopes, float(-slopes.sum())

    def covariance(self, precision, factor, dtype):
        prior_scale = precision[self.groups] ** -0.5
        scaled = np.sqrt(factor) * self.root * prior_scale
        eigenvalues, vectors = np.linalg.eigh(_gram(scaled))
        kept = eigenvalues > 1e-14 * max(eigenvalues[-1], 1e-300)
        eigenvalues, vectors = eigenvalues[kept], vectors[:, kept]
        directions = (vectors / np.sqrt(eigenvalues)).T @ scaled
        shrinkage = 1 - 1 / np.sqrt(1 + eigenvalues)
        return LowRankUpdateCovariance(*(jnp.asarray(part, dtype) for part in (prior_scale, directions, shrinkage)))


class DiagonalCurvature(Curvature):
    """Its diagonal."""

    def __init__(self, diagonal: Float[np.ndarray, " p"], groups: Int[np.ndarray, " p"]):
        self.diagonal, self.groups = diagonal, groups
        self.spectra = [diagonal[groups == group] for group in range(self.num_groups)]

    def log_det(self, precision, factor):
        return _spectral_log_det(self.spectra, precision, factor)

    def covariance(self, precision, factor, dtype):
        return DiagonalCovariance(jnp.asarray((factor * self.diagonal + precision[self.groups]) ** -0.5, dtype))


class KroneckerCurvature(Curvature):
    r"""$G \otimes A$ for each layer's weights and G for its bias, by their eigendecompositions."""

    def __init__(self, layers: list[LayerFactors], groups: Int[np.ndarray, " p"]):
        self.groups, self.layers, self.eigen = groups, layers, []
        spectra: list[list] = [[] for _ in range(self.num_groups)]
        for layer in layers:
            (a, input_basis), (g, output_basis) = _eigen(layer.input_factor), _eigen(layer.output_factor)
            self.eigen.append((a, input_basis, g, output_basis))
            spectra[groups[layer.weight_slot]].append(np.outer(g, a).ravel())
            if layer.bias_slot >= 0:
                spectra[groups[layer.bias_slot]].append(g)
        self.spectra = [np.concatenate(parts) for parts in spectra]

    def log_det(self, precision, factor):
        return _spectral_log_det(self.spectra, precision, factor)

    def covariance(self, precision, factor, dtype):
        blocks = []
        for layer, (a, input_basis, g, output_basis) in zip(self.layers, self.eigen, strict=True):
            weight_scale = (factor * np.outer(g, a) + precision[self.groups[layer.weight_slot]]) ** -0.5
            bias_scale = None
            if layer.bias_slot >= 0:
                bias_scale = jnp.asarray((factor * g + precision[self.groups[layer.bias_slot]]) ** -0.5, dtype)
            blocks.append(
                KroneckerBlock(
                    output_basis=jnp.asarray(output_basis, dtype),
                    input_basis=jnp.asarray(input_basis, dtype),
                    weight_scale=jnp.asarray(weight_scale, dtype),
                    bias_scale=bias_scale,
                    weight_slot=layer.weight_slot,
                    bias_slot=layer.bias_slot,
                )
            )
        return KroneckerCovariance(tuple(blocks))


def curvature(
    structure: str, model: Model, likelihood: Likelihood, X, targets, groups: Int[np.ndarray, " p"], *, budget: float
) -> Curvature:
    """The curvature of the data at the model's weights; refused before anything is allocated if it cannot fit."""
    if structure == "kfac":
        return KroneckerCurvature(kronecker_factors(model, likelihood, X, targets), groups)
    roots = _root_blocks(model, likelihood, X, targets, budget)
    if structure == "diagonal":
        return DiagonalCurvature(functools.reduce(np.add, (np.sum(root**2, axis=0) for root in roots)), groups)
    p = model.num_params
    if X.shape[0] * model.num_outputs(X) <= p:
        return FullCurvature(np.concatenate(list(roots)), groups)
    matrix = functools.reduce(np.add, (root.T @ root for root in roots))
    # The nugget, far below rounding of the matrix itself, lets LAPACK take the root of a singular matrix.
    nugget = 1e-14 * np.trace(matrix) * np.eye(p)
    return FullCurvature(np.linalg.cholesky(matrix + nugget).T, groups)


def check_memory(structure: str, model: Model, X, budget: float) -> None:
    """Refuse a structure that needs more than the budget, and name one that does not."""
    p = model.num_params
    rows = min(X.shape[0] * model.num_outputs(X), p)
    if structure == "kfac":
        needed, instead = factor_bytes(model), "structure='diagonal'"
    elif structure == "diagonal":
        needed, instead = 4 * 8 * p, "a larger memory_budget"
    else:
        # The root, its scaled copy and the directions; the Gram matrices and LAPACK's workspace.
        needed, instead = 8 * (3 * rows * p + 4 * rows**2), "structure='kfac', 'diagonal' or 'last_layer'"
    if needed > budget:
        raise MemoryError(
            f"WeightLaplace: structure={structure!r} needs {format_bytes(needed)} for {p} weights and {X.shape[0]} rows, but "
            f"memory_budget is {format_bytes(budget)}; use {instead}"
        )


def _root_blocks(model: Model, likelihood: Likelihood, X, targets, budget: float) -> Iterator[np.ndarray]:
    """H^{1/2} J of some rows at a time."""
    per_row = 4 * model.num_outputs(X) * model.num_params * (8 + itemsize(model.dtype))
    rows = rows_that_fit(per_row, budget / 8, most=X.shape[0])
    for start in range(0, X.shape[0], rows):
        part = slice(start, start + rows)
        yield np.asarray(_root(model, likelihood.rows(part), X[part], targets[part]), dtype=np.float64)


@eqx.filter_jit
def _root(model: Model, likelihood: Likelihood, X, targets):
    eigenvalues, eigenvectors = jnp.linalg.eigh(likelihood.curvature(model(X), targets))
    roots = jnp.sqrt(jnp.maximum(eigenvalues, 0))[:, :, None] * eigenvectors.mT
    return (roots @ jacobian(model, X)).reshape(-1, model.num_params)


def _spectral_log_det(spectra: list[np.ndarray], precision, factor: float) -> LogDet:
    ratios = [factor * spectrum / delta for spectrum, delta in zip(spectra, precision, strict=True)]
    slopes = np.array([-np.sum(ratio / (1 + ratio)) for ratio in ratios])
    return float(sum(np.sum(np.log1p(ratio)) for ratio in ratios)), slopes, float(-slopes.sum())


def _gram(matrix: np.ndarray) -> np.ndarray:
    return matrix @ matrix.T


def _eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    eigenvalues, eigenvectors = np.linalg.eigh(matrix)
    return np.maximum(eigenvalues, 0), eigenvectors
