"""Block Golub-Kahan bidiagonalisation: a basis of row space that explains given targets."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.linalg._ridge import Probe, Solution, ridge


def block_golub_kahan(
    forward: Callable[[Float[Array, "k p"]], Float[Array, "n k"]],
    transpose: Callable[[Float[Array, "n k"]], Float[Array, "k p"]],
    targets: Float[Array, "n r"],
    *,
    passes: int,
    deltas: Sequence[float],
    probe: tuple[Callable[[Float[Array, "k p"]], Float[Array, "g k"]], Callable[[np.ndarray], float]] | None = None,
) -> Solution:
    r"""Rows of $S_0 \approx \arg\min_S \lVert J S - B \rVert^2 + \delta \lVert J \rVert^2 \lVert S \rVert^2$, matrix-free.

    Starting from the targets, alternate between the two sides,

    $$W_1 = \mathrm{orth}(J^\top B), \qquad W_{k+1} = \mathrm{orth}\bigl(J^\top \mathrm{orth}(J W_k)\bigr)
    \text{ against } W_1, \dots, W_k,$$

    and solve the least-squares problem in the basis: $T = \arg\min \lVert (J W) T - B \rVert^2 + \delta
    \lVert J W \rVert^2 \lVert T \rVert^2$, $S_0 = W T$. Bases stay orthonormal, so float32 passes keep their accuracy; the small
    least-squares problem is solved in float64.

    Args:
        forward: rows $V \mapsto J V^\top$.
        transpose: columns $U \mapsto (J^\top U)^\top$.
        targets: $B$, of shape (n, r).
        passes: number of blocks of the basis; 2 or 3 are enough for the priors measured.
        deltas: the ridge, relative to the square of the largest singular value of $J$ in the basis: one value, or
            several of which the one with the lowest loss at the probe is taken.
        probe: products of rows with the matrix at the probe, and the loss of what a solution reaches there.

    Time: `passes` products with $J$ and with $J^\top$ on r columns plus $O(p\,(r\,\mathrm{passes})^2)$; memory
    $O(p\, r\, \mathrm{passes})$.
    """
    basis = _orthonormal_rows(transpose(_orthonormal_rows(targets.T, None).T), None)
    image = forward(basis)
    for _ in range(passes - 1):
        last = image[:, -targets.shape[1] :]
        block = _orthonormal_rows(transpose(_orthonormal_rows(last.T, None).T), basis)
        basis = jnp.concatenate([basis, block])
        image = jnp.concatenate([image, forward(block)], axis=1)
    judge = None if probe is None else Probe(probe[0](basis), probe[1])
    small = ridge(np.asarray(image), np.asarray(targets), deltas=deltas, probe=judge)
    return Solution(_combine(jnp.asarray(small.rows, targets.dtype), basis), small.reached, small.delta)


@eqx.filter_jit
def _orthonormal_rows(rows: Float[Array, "k p"], against: Float[Array, "l p"] | None) -> Float[Array, "k p"]:
    """Orthonormal basis of the span of `rows`, orthogonal to the orthonormal rows of `against`."""
    if against is None:
        return jnp.linalg.qr(rows.T)[0].T
    # Normalising between the two projections keeps the result orthogonal where `rows` adds almost nothing.
    for _ in range(2):
        rows = jnp.linalg.qr((rows - (rows @ against.T) @ against).T)[0].T
    return rows


@eqx.filter_jit
def _combine(coefficients: Float[Array, "r k"], basis: Float[Array, "k p"]) -> Float[Array, "r p"]:
    return coefficients @ basis
