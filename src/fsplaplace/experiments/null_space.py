r"""Null space: how much of the data's curvature lies where the prior says nothing.

FSP-Laplace drops $P_0 \Lambda P_0^\top$, the part of the Gauss-Newton matrix $\Lambda$ of the training data in the null space of
the prior precision $J_C^\top \Sigma(C, C)^+ J_C$. The paper argues that it is small; this measures it.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import fsplaplace as fsp
from fsplaplace.experiments import _figures, sine, two_moons
from fsplaplace.experiments._experiment import Cell, Experiment, Outcome, Published, Row
from fsplaplace.experiments._methods import keys
from fsplaplace.host import one_blas_thread
from fsplaplace.networks import jacobian_matrix

_KERNELS = ("RBF", "Matern-1/2")
_PAPER = "precision form (the paper's)"
_OURS = "covariance form"


def null_space_share(
    curvature_root: Float[np.ndarray, "n p"], directions: Float[np.ndarray, "k p"]
) -> tuple[float, int]:
    r"""$\lVert P_0 \Lambda P_0^\top \rVert_F / \lVert \Lambda \rVert_F$ for $\Lambda = G^\top G$, and the rank kept.

    Args:
        curvature_root: $G$, one row per datum and output.
        directions: rows that span the range of the prior precision; those whose singular value is below sqrt(eps) of the
            largest are dropped, as the paper does. $P_0$ projects on the complement.

    Time $O(p (n + k)^2)$; nothing of size p x p is formed, because $\lVert A^\top A \rVert_F = \lVert A A^\top \rVert_F$.
    """
    with one_blas_thread():
        _, singular, basis = np.linalg.svd(directions, full_matrices=False)
        basis = basis[singular > np.sqrt(np.finfo(float).eps) * singular[0]]
        outside = curvature_root - (curvature_root @ basis.T) @ basis
        share = np.linalg.norm(outside @ outside.T) / np.linalg.norm(curvature_root @ curvature_root.T)
    return float(share), basis.shape[0]


class NullSpace(Experiment):
    """The table of Appendix C on the neglected term."""

    name = "null-space"
    title = "The term that FSP-Laplace neglects"
    place = "Appendix C, table of |P0 Λ P0ᵀ| / |Λ|"
    presets = {  # noqa: RUF012 - constants of the class
        "quick": {"seeds": 1, "steps": 100, "width": 30, "context": 100},
        "cpu": {"seeds": 3, "steps": 1000, "width": 100, "context": 100},
        "paper": {"seeds": 5, "steps": 20_000, "width": 100, "context": 100},
    }
    scores = {  # noqa: RUF012
        "share": ("|P0 Λ P0ᵀ| / |Λ|", "{:.2e}", "lower"),
        "rank": ("rank of the prior precision", "{:.0f}", ""),
    }
    counterparts = {_PAPER: "FSP-Laplace", _OURS: "FSP-Laplace"}  # noqa: RUF012
    published = (
        Published("regression, RBF", "FSP-Laplace", "share", 1.026e-7),
        Published("regression, Matern-1/2", "FSP-Laplace", "share", 4.305e-6),
        Published("classification, RBF", "FSP-Laplace", "share", 3.548e-4),
        Published("classification, Matern-1/2", "FSP-Laplace", "share", 1.299e-2),
    )
    notes = (
        "The share depends on the trained network and on which singular values count as zero: sqrt(eps) of the largest in "
        "float64, as in the paper. Context points are the paper's grid of 100; the covariance form adds the training inputs.",
        "For the covariance form the share means something else: outside the range of its prior covariance a weight has no "
        "variance, so nothing is dropped from its posterior; the number says how much of the data's curvature is not seen "
        "through that range. The pull-back of a smooth prior has low rank, so for it the share is large by construction.",
        "Directions of the prior below 1e-6 (covariance form) or 1e-12 (precision form) of its largest eigenvalue are not used.",
    )

    def cells(self, settings, seeds):
        return [
            Cell(f"{kind}, {kernel}", "FSP-Laplace", seed)
            for seed in range(seeds)
            for kind in ("regression", "classification")
            for kernel in _KERNELS
        ]

    def run(self, cell, settings):
        kind, _, kernel = cell.task.partition(", ")
        network_key, fit_key = keys(cell.seed, 2)
        side = int(settings["context"])
        if kind == "regression":
            task = sine.load(Cell(f"prior={kernel}", "FSP-Laplace", cell.seed))
            likelihood, box, width = (
                fsp.likelihoods.Gaussian(task.noise),
                sine.box(),
                min(50, int(settings["width"])),
            )
            grid = np.linspace(-sine.BOUND, sine.BOUND, side)[:, None]
        else:
            task = two_moons.load(kernel, cell.seed)
            likelihood, box, width = fsp.likelihoods.Bernoulli(), two_moons.box(), int(settings["width"])
            grid = np.asarray(fsp.context.Grid(*two_moons.box()).sample(side))
        region = fsp.context.Uniform(*box)
        network = fsp.mlp([width, width], prior=task.prior, context=region, key=network_key)
        trained = fsp.train(
            fsp.as_model(network), task.prior, likelihood, region, task.X, task.y,
            key=fit_key, steps=int(settings["steps"]), progress=False,
        )  # fmt: skip
        root = _curvature_root(trained.model, likelihood, task.X, task.y)
        rows = []
        for name, points, directions in (
            (_PAPER, grid, _precision_directions),
            (_OURS, np.concatenate([grid, task.X]), _covariance_directions),
        ):
            share, rank = null_space_share(root, directions(trained.model, task.prior, points))
            rows.append(Row(name, {"share": share, "rank": float(rank)}))
        return Outcome(
            tuple(rows), {"prior": "log marginal likelihood of the training data (Dirichlet targets for labels)"}
        )

    captions = {  # noqa: RUF012
        "shares": "Share of the prior precision that the low-rank factor neglects, in both forms, with the paper's values as bars.",
    }

    def figures(self, outcomes, settings):
        figure, (axis,) = _figures.panels(1, columns=1, width=5.5, height=2.8)
        tasks = list(dict.fromkeys(cell.task for cell in outcomes))
        for cell, outcome in outcomes.items():
            for row, colour in zip(outcome.rows, (_figures.RED, _figures.GREEN), strict=True):
                share = max(row.scores["share"] or 0.0, 1e-20)
                axis.plot(
                    tasks.index(cell.task),
                    share,
                    "o",
                    color=colour,
                    label=row.method if cell == next(iter(outcomes)) else None,
                )
        for number in self.published:
            label = "paper" if number is self.published[0] else None
            axis.plot(tasks.index(number.task), number.mean, "_", color="black", ms=18, label=label)
        axis.set_yscale("log")
        axis.set_xticks(range(len(tasks)), tasks, fontsize=7)
        axis.set_ylabel("|P0 Λ P0ᵀ| / |Λ|, Frobenius norms")
        axis.legend(fontsize=7, frameon=False)
        return {"shares": figure}

    def verdict(self, summary):
        parts = [
            f"{number.task} {summary.mean(number.task, _PAPER, 'share'):.1e} (paper {number.mean:.1e}, covariance form "
            f"{summary.mean(number.task, _OURS, 'share'):.1e})"
            for number in self.published
        ]
        return "Neglected share: " + "; ".join(parts) + "."


def _curvature_root(model: fsp.Model, likelihood, X, y) -> Float[np.ndarray, "n p"]:
    r"""G with $G^\top G = \sum_i J_i^\top H_i J_i$, for one output."""
    inputs = model.check_inputs(X)
    targets = jnp.asarray(likelihood.check_targets(y, num_rows=inputs.shape[0]))
    curvature = np.asarray(likelihood.curvature(model(inputs), targets), dtype=float)[:, 0, 0]
    return np.sqrt(curvature)[:, None] * np.asarray(jacobian_matrix(model, inputs), dtype=float)


def _precision_directions(model, prior, points) -> Float[np.ndarray, "k p"]:
    r"""Rows of $\Sigma(C, C)^{+1/2} J_C$, whose Gram matrix is the paper's prior precision."""
    eigenvalues, eigenvectors = _eigenpairs(prior, points, cut=1e-12)
    features = np.asarray(jacobian_matrix(model, jnp.asarray(points)), dtype=float)
    with one_blas_thread():
        return (eigenvectors / np.sqrt(eigenvalues)).T @ features


def _covariance_directions(model, prior, points) -> Float[np.ndarray, "k p"]:
    r"""Rows of $B^\top (J_C J_C^\top + \delta \lVert J_C \rVert^2 I)^{-1} J_C$, the range of our prior covariance."""
    eigenvalues, eigenvectors = _eigenpairs(prior, points, cut=1e-6)
    features = np.asarray(jacobian_matrix(model, jnp.asarray(points)), dtype=float)
    with one_blas_thread():
        tangent = features @ features.T
        ridge = 1e-10 * np.linalg.norm(tangent, 2) * np.eye(tangent.shape[0])
        return np.linalg.solve(tangent + ridge, eigenvectors * np.sqrt(eigenvalues)).T @ features


def _eigenpairs(prior, points, *, cut: float):
    r"""Eigenvalues of $\Sigma(C, C)$ above `cut` times the largest, and their vectors."""
    gram = np.asarray(prior.gram(jnp.asarray(points))[0], dtype=float)
    with one_blas_thread():
        eigenvalues, eigenvectors = np.linalg.eigh(gram)
    keep = eigenvalues > cut * eigenvalues[-1]
    return eigenvalues[keep], eigenvectors[:, keep]


EXPERIMENT = NullSpace()
