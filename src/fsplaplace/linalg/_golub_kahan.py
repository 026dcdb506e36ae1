"""Block Golub-Kahan bidiagonalisation: a basis of row space that explains given targets."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.linalg._orthonormal import Basis, orthonormal_rows
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

    Time: `passes` products with $J$ and with $J^\top$ on r columns plus $O(p\,(r\,\mathrm{passes})^2)$; memory: the
    `passes` blocks of r rows, the last of which becomes the solution.
    """
    basis, images, last = Basis(), [], np.asarray(targets)
    for _ in range(passes):
        seeds = orthonormal_rows(jax.device_put(last.T), overwrite=True)
        basis.add(transpose(jax.device_put(np.asarray(seeds).T)))
        images.append(np.asarray(forward(basis.blocks[-1])))
        last = basis.image(images, last=last.shape[1])
    judge = None
    if probe is not None:
        judge = Probe(basis.image([np.asarray(probe[0](block)) for block in basis.blocks]), probe[1])
    small = ridge(basis.image(images), np.asarray(targets), deltas=deltas, probe=judge)
    return Solution(basis.combine(np.asarray(small.rows)), small.reached, small.delta)
