r"""A factor of the prior's covariance at the context points, $B B^\top \approx \Sigma(C, C)$."""

import functools
from typing import TYPE_CHECKING, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.host import format_bytes, in_float64, to_device
from fsplaplace.kernels import linear_features
from fsplaplace.linalg import pivoted_cholesky, psd_factor
from fsplaplace.prior.moments import gram

if TYPE_CHECKING:
    from fsplaplace.prior._prior import Prior

# Above this many points one eigendecomposition takes longer than all the passes through the network.
_LARGEST_EIGENPROBLEM = 2000
# Columns of each block beyond it, where the caller sets no rank.
_DEFAULT_COLUMNS = 500
# A covariance matrix in float64 is positive semi-definite to about 1e-12; a kernel written in float32, to 1e-6.
_INDEFINITE = 1e-5


class PriorFactor(eqx.Module):
    r"""$B$ with $B B^\top \approx \Sigma(C, C)$.

    Attributes:
        columns: $B$ with its rows split into points and outputs, (m, q, r).
        captured: the share of the trace of $\Sigma(C, C)$ that $B B^\top$ has.
        plan: how it was computed.
    """

    columns: Float[Array, "m q r"]
    captured: Float[Array, ""]
    plan: "FactorPlan" = eqx.field(static=True)

    @property
    def method(self) -> Literal["eigh", "pivoted Cholesky"]:
        """How it was computed."""
        return self.plan.method

    @property
    def matrix(self) -> Float[Array, "N r"]:
        """$B$ as a matrix with N = m q rows, points first."""
        return self.columns.reshape(-1, self.columns.shape[2])

    @functools.cached_property
    def rank(self) -> int:
        """The number of columns."""
        return self.columns.shape[2]


class FactorPlan(NamedTuple):
    """How the covariance at m points is factored.

    Attributes:
        method: how each block is factored.
        size: rows of a block.
        num_blocks: distinct blocks.
        copies: outputs that share each block.
        limit: the most columns of each block.
        bytes: memory at the peak.
    """

    method: Literal["eigh", "pivoted Cholesky"]
    size: int
    num_blocks: int
    copies: int
    limit: int
    bytes: float

    @property
    def rank(self) -> int:
        """The most columns in all."""
        return self.limit * self.num_blocks * self.copies


def plan_factor(prior: "Prior", num_points: int, rank: int | None, budget: float) -> FactorPlan:
    """What `Prior.factor` will do, or an error that says what would fit the budget.

    Args:
        prior: the prior.
        num_points: m.
        rank: the most columns over all outputs, None for no limit.
        budget: bytes.
    """
    blocks = prior.blocks
    num_blocks, copies, size = blocks.num_blocks, blocks.copies, num_points * blocks.rows_per_point
    limit = None if rank is None else max(1, rank // blocks.num_independent)
    # The matrix, its eigenvectors and LAPACK's workspace.
    if size <= _LARGEST_EIGENPROBLEM and 4 * size**2 * 8 <= budget:
        return FactorPlan("eigh", size, num_blocks, copies, min(limit or size, size), 4 * size**2 * 8)
    limit = min(limit or _DEFAULT_COLUMNS, size)
    needed = 3 * size * limit * 8
    if needed > budget:
        fits = int(budget // (3 * size * 8))
        raise MemoryError(
            f"Prior.factor: {limit} columns at {size} rows need {format_bytes(needed)}, but "
            f"memory_budget is {format_bytes(budget)}; "
            + (f"pass rank={fits * copies * num_blocks}" if fits else "use fewer context points")
        )
    return FactorPlan("pivoted Cholesky", size, num_blocks, copies, limit, needed)


def factor_at(
    prior: "Prior", points: Float[Array, "m ..."], rank: int | None, rtol: float, captured: float, budget: float
) -> PriorFactor:
    """See `Prior.factor`."""
    plan, host = plan_factor(prior, points.shape[0], rank, budget), np.asarray(points)
    written = [linear_features(kernel, host.reshape(len(host), -1)) for kernel in prior.blocks.kernels]
    prior, host = _with_features(prior, host)
    if all(columns is not None and columns.shape[1] < len(host) for columns in written):
        parts = [_linear_columns(np.asarray(columns, np.float64), rtol, plan.limit) for columns in written]
    elif plan.method == "eigh":
        parts = [_eigen_columns(prior, block, rtol, plan.limit) for block in gram(prior, host)]
    else:
        for block in gram(prior, host[:: max(1, host.shape[0] // 200)]):
            checked_factor(prior, block)
        parts = _cholesky_parts(prior, host.reshape(host.shape[0], -1), plan, rtol, captured)
    kept, total = sum(part[1] for part in parts), sum(part[2] for part in parts)
    _check_placed(prior, len(host), [part[0].shape[1] for part in parts], plan, budget)
    columns = prior.blocks.place_columns([np.asarray(part[0]) for part in parts])
    with jax.enable_x64(True):
        return PriorFactor(to_device(columns), to_device(kept / total), plan)


def _check_placed(prior: "Prior", num_points: int, ranks: list[int], plan: FactorPlan, budget: float) -> None:
    """Refuse columns for all outputs that the budget cannot hold: outputs that share a block have columns of their own."""
    rows, rank = num_points * prior.num_outputs, sum(ranks) * plan.copies
    if 8.0 * rows * rank > budget:
        fits = int(budget // (8 * rows))
        raise MemoryError(
            f"Prior.factor: {rank} columns for {num_points} points and {prior.num_outputs} outputs need "
            f"{format_bytes(8.0 * rows * rank)}, but memory_budget is {format_bytes(budget)}; "
            + (f"pass rank={fits}" if fits >= prior.num_outputs else "use fewer context points")
        )


def _with_features(prior: "Prior", points: np.ndarray) -> tuple["Prior", np.ndarray]:
    """Features of frozen networks once, and not for every column of the factor."""
    changed, columns = prior.on_columns(to_device(points.reshape(len(points), -1)))
    return (prior, points) if changed is prior else (changed, np.asarray(columns))


def _linear_columns(features: Float[np.ndarray, "m k"], rtol: float, limit: int):
    """The factor of F F^T for fewer features than points: their own singular vectors, without an m x m matrix."""
    left, singular, _ = np.linalg.svd(features, full_matrices=False)
    keep = min(int(np.sum(singular**2 > rtol * singular[0] ** 2)), limit)
    return left[:, :keep] * singular[:keep], float(np.sum(singular[:keep] ** 2)), float(np.sum(singular**2))


def checked_factor(prior: "Prior", block: Float[np.ndarray, "N N"], *, rtol: float = 0.0):
    """`psd_factor` of a block of `gram`; refused if not finite, or negative in some direction by more than rounding."""
    if not np.all(np.isfinite(block)):
        raise ValueError(
            f"Prior: the kernel {_kernel_name(prior)} gave NaN or infinite covariances at the context points; check its "
            "parameters and the scale of the inputs"
        )
    columns, eigenvalues = psd_factor(block, rtol=rtol)
    largest, smallest = float(eigenvalues[0]), float(eigenvalues[-1])
    if largest <= 0 or smallest < -_INDEFINITE * largest:
        raise ValueError(
            f"Prior: the kernel {_kernel_name(prior)} is not positive semi-definite at the context points (eigenvalues "
            f"from {smallest:.3g} to {largest:.3g}); use a valid covariance function"
        )
    return columns, eigenvalues


def _eigen_columns(prior: "Prior", block, rtol: float, limit: int):
    columns, eigenvalues = checked_factor(prior, block, rtol=rtol)
    keep = min(int(np.sum(eigenvalues > rtol * eigenvalues[0])), limit)
    return columns[:, :keep], float(np.sum(eigenvalues[:keep])), float(np.trace(block))


@in_float64
def _cholesky_parts(prior: "Prior", points, plan: FactorPlan, rtol: float, captured: float):
    points = to_device(points)
    return [
        _nonzero(*_cholesky_columns(prior, points, block, rtol, captured, plan.limit))
        for block in range(plan.num_blocks)
    ]


@eqx.filter_jit
def _cholesky_columns(prior: "Prior", points, block: int, rtol: float, captured: float, limit: int):
    blocks = prior.blocks
    diagonal = blocks.diagonal(points)[block]

    def columns_at(pivots):
        return blocks.columns(block, points, pivots)

    columns, remaining = pivoted_cholesky(columns_at, diagonal, rank=limit, rtol=rtol, captured=captured)
    total = jnp.sum(diagonal)
    return columns, total - jnp.sum(remaining), total


def _nonzero(columns, kept, total):
    columns = np.asarray(columns)
    return columns[:, np.any(columns != 0, axis=0)], float(kept), float(total)


def _kernel_name(prior: "Prior") -> str:
    return ", ".join(type(kernel).__name__ for kernel in prior.blocks.kernels)
