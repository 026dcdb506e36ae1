"""Orthonormal rows by matrix products alone: for a few very long rows, where a QR factorisation is ten times slower."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Columns per product, and per part that is overwritten: what one of them reads stays in the cache (measured for 33 and 101 rows).
_COLUMNS, _MIXED_COLUMNS = 4096, 16384
# Each round gains a factor 1 / sqrt(eps) in the condition number.
_MOST_ROUNDS = 5


def orthonormal_rows(
    rows: Float[Array, "k p"],
    against: Sequence[Float[Array, "l p"]] = (),
    *,
    tolerance: float | None = None,
    overwrite: bool = False,
) -> Float[Array, "k p"]:
    r"""Orthonormal basis of the span of `rows`, orthogonal to the orthonormal rows of each block in `against`.

    With the Gram matrix $G = V V^\top$ and overlaps $C_i = V W_i^\top$, what is left of $V$ off the blocks has the Gram
    matrix $G - \sum_i C_i C_i^\top = Q \Lambda Q^\top$, and

    $$V \leftarrow \Lambda^{-1/2} Q^\top \Bigl(V - \sum_i C_i W_i\Bigr)$$

    with eigenvalues held above rounding, repeated until the Gram matrix is the identity to `tolerance`, by default until
    rounding no longer shows (SVQB; Stathopoulos and Wu, 2002).
    Where rows depend on each other, or on the blocks, the result has what rounding left of them, made orthonormal as by
    a QR factorisation, or zeros.

    Time: one to three rounds of $O(p k (k + l))$ at the speed of matrix products; memory: the result, which takes the
    place of `rows` with `overwrite`.
    """
    eps = float(jnp.finfo(rows.dtype).eps)
    tolerance = 10 * eps if tolerance is None else tolerance
    against = tuple(against)
    rows = rows if overwrite else jnp.array(rows, copy=True)
    for _ in range(_MOST_ROUNDS):
        gram, *overlaps = (np.asarray(product, dtype=np.float64) for product in _products(rows, against))
        left = gram - sum(overlap @ overlap.T for overlap in overlaps)
        transform, condition = _inverse_root(left, np.diagonal(gram), eps)
        rows = mix_rows(transform, rows, [-transform @ overlap for overlap in overlaps], against)
        # The new Gram matrix differs from the identity by eps times this number.
        if condition * eps < tolerance:
            break
    return rows


def mix_rows(
    coefficients: Float[np.ndarray, "k k"],
    rows: Float[Array, "k p"],
    others: Sequence[Float[np.ndarray, "k l"]],
    blocks: Sequence[Float[Array, "l p"]],
) -> Float[Array, "k p"]:
    r"""$T V + \sum_i T_i W_i$ for coefficients $T, T_i$, rows $V$ and blocks $W_i$. Overwrites `rows`: no memory is added."""
    weights = [np.asarray(each, dtype=rows.dtype) for each in (coefficients, *others)]
    return _mix((weights, tuple(blocks)), rows)


def _inverse_root(gram: Float[np.ndarray, "k k"], size: Float[np.ndarray, " k"], eps: float):
    """$T$ with $T G T^\\top = I$ but for directions below rounding, and a bound on the condition number that is left."""
    scale = np.divide(1.0, np.sqrt(size), out=np.zeros_like(size), where=size > 0)
    eigenvalues, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
    floor = eps * size.shape[0]
    damped = np.maximum(eigenvalues, floor)
    smallest = damped[min(np.sum(size == 0), size.shape[0] - 1)]
    return (vectors / np.sqrt(damped)).T * scale, max(eigenvalues[-1], 1.0) / smallest


@eqx.filter_jit
def _products(rows, against):
    """Products of the rows with themselves and with each block, some columns at a time."""

    def products(part, *others):
        return [part @ other.T for other in (part, *others)]

    def add(step, sums):
        parts = products(*(_columns(matrix, step * size, size) for matrix in (rows, *against)))
        return [total + part for total, part in zip(sums, parts, strict=True)]

    size = min(_COLUMNS, rows.shape[1])
    whole, rest = divmod(rows.shape[1], size)
    ends = products(*(_columns(matrix, whole * size, rest) for matrix in (rows, *against)))
    return jax.lax.fori_loop(0, whole, add, ends)


@eqx.filter_jit(donate="all-except-first")
def _mix(factors, rows):
    (first, *others), blocks = factors

    def update(start, size: int, rows):
        new = first @ _columns(rows, start, size)
        for weights, block in zip(others, blocks, strict=True):
            new = new + weights @ _columns(block, start, size)
        return jax.lax.dynamic_update_slice(rows, new, (0, start))

    size = min(_MIXED_COLUMNS, rows.shape[1])
    whole, rest = divmod(rows.shape[1], size)
    rows = jax.lax.fori_loop(0, whole, lambda step, rows: update(step * size, size, rows), rows)
    return update(whole * size, rest, rows)


def _columns(matrix, start, size: int):
    return jax.lax.dynamic_slice(matrix, (0, start), (matrix.shape[0], size))
