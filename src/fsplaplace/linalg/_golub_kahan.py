"""Block Golub-Kahan bidiagonalisation: a basis of row space that explains given targets."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fsplaplace.linalg._orthonormal import mix_rows, orthonormal_rows
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
    blocks, images, last = [], [], jnp.asarray(targets)
    # Only the ridge sees that a basis is not quite orthonormal, and a round less saves as much time as a pass.
    tolerance = float(jnp.finfo(last.dtype).eps) ** 0.5
    for _ in range(passes):
        seeds = orthonormal_rows(jnp.asarray(np.asarray(last).T), overwrite=True)
        pulled = transpose(jnp.asarray(np.asarray(seeds).T))
        blocks.append(orthonormal_rows(pulled, blocks, tolerance=tolerance, overwrite=True))
        last = forward(blocks[-1])
        images.append(np.asarray(last))
    judge = None
    if probe is not None:
        judge = Probe(np.concatenate([np.asarray(probe[0](block)) for block in blocks], axis=1), probe[1])
    small = ridge(np.concatenate(images, axis=1), np.asarray(targets), deltas=deltas, probe=judge)
    *others, coefficients = np.split(small.rows, passes, axis=1)
    rows = mix_rows(coefficients, blocks.pop(), others, blocks)
    return Solution(rows, small.reached, small.delta)
