"""Orthonormal rows by matrix products alone: for a few very long rows, where a QR factorisation is ten times slower."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Columns per product, and per part that is overwritten: what one of them reads stays in the cache (measured for 33 and 101 rows).
_COLUMNS, _MIXED_COLUMNS = 4096, 16384
# Each round gains a factor 1 / sqrt(eps) in the condition number.
_MOST_ROUNDS = 5
# Condition number of the Gram matrix up to which rows are made orthonormal by coefficients alone: its root multiplies the
# rounding of what is computed with the rows as they are.
_LARGEST_CONDITION = 1e4


def orthonormal_rows(rows: Float[Array, "k p"], *, overwrite: bool = False) -> Float[Array, "k p"]:
    r"""Orthonormal basis of the span of `rows`.

    With the Gram matrix $V V^\top = Q \Lambda Q^\top$,

    $$V \leftarrow \Lambda^{-1/2} Q^\top V$$

    with eigenvalues held above rounding, repeated until rounding no longer shows (SVQB; Stathopoulos and Wu, 2002).
    Where rows depend on each other, the result has what rounding left of them, made orthonormal as by a QR factorisation,
    or zeros.

    Time: one to three rounds of $O(p k^2)$ at the speed of matrix products; memory: the result, which takes the place of
    `rows` with `overwrite`.
    """
    rows, nothing = rows if overwrite else jnp.array(rows, copy=True), Basis()
    return nothing.orthonormal_part(rows, nothing.whitening(rows), tolerance=10 * _eps(rows))


class Whitening(NamedTuple):
    r"""Coefficients with which $T V + \sum_i T_i V_i$ is orthonormal, and orthogonal to a basis made from the blocks $V_i$;
    and the condition number of what is left of $V$ off that basis."""

    own: Float[np.ndarray, "k k"]
    others: Float[np.ndarray, "k K"]
    condition: float


class Basis:
    r"""Orthonormal rows $W = T V$ from blocks of very long rows $V$, added one after the other.

    With the Gram matrix $G = V V^\top$ of a new block and its overlaps $C = V W^\top$, what is left of it off the basis has
    the Gram matrix $G - C C^\top = Q \Lambda Q^\top$, so that $\Lambda^{-1/2} Q^\top (V - C W)$ is the new part of $W$.

    Mixing long rows takes as long as a pass through a network. So a block stays as it is, and the coefficients $T$ alone make
    it orthonormal, unless the condition number of $G - C C^\top$ would let rounding show in what is computed with $V$;
    then it is overwritten by its part of $W$.
    """

    def __init__(self):
        self.blocks: list[Float[Array, "k p"]] = []
        self.coefficients: Float[np.ndarray, "K K"] = np.zeros((0, 0))
        self._condition = 1.0

    def add(self, rows: Float[Array, "k p"]) -> None:
        """One more block, whose memory the basis takes. Time $O(p k K)$ for K rows in all."""
        found = self.whitening(rows)
        if self._condition * found.condition <= _LARGEST_CONDITION:
            self._condition *= found.condition
        else:
            # Only a ridge sees that a basis is not quite orthonormal, and a round less saves as much time as a pass.
            rows = self.orthonormal_part(rows, found, tolerance=_eps(rows) ** 0.5)
            found = Whitening(np.eye(rows.shape[0]), np.zeros_like(found.others), 1.0)
        above = np.zeros((found.others.shape[1], rows.shape[0]))
        self.blocks.append(rows)
        self.coefficients = np.block([[self.coefficients, above], [found.others, found.own]])

    def combine(self, coefficients: Float[np.ndarray, "k K"]) -> Float[Array, "k p"]:
        """Rows $R W$ from coefficients $R$, as many as the last block has and in its memory: the end of this basis."""
        weights = coefficients @ self.coefficients
        own, others = weights[:, -self.blocks[-1].shape[0] :], weights[:, : -self.blocks[-1].shape[0]]
        return self._mix(own, self.blocks.pop(), others)

    def image(self, images: Sequence[Float[np.ndarray, "n k"]], *, last: int = 0) -> Float[np.ndarray, "n K"]:
        r"""$J W^\top$ from the images $J V_i^\top$ of the blocks; with `last`, of so many of the last rows only."""
        raw = np.concatenate(images, axis=1)
        # [-0:] is all of them.
        return (raw.astype(np.float64) @ self.coefficients[-last:].T).astype(raw.dtype)

    def whitening(self, rows: Float[Array, "k p"]) -> Whitening:
        """How to make the rows orthonormal, and orthogonal to the basis."""
        with jax.enable_x64(True):
            gram, *overlaps = map(np.asarray, _products(rows, tuple(self.blocks)))
        overlap = np.concatenate([np.zeros((rows.shape[0], 0)), *overlaps], axis=1) @ self.coefficients.T
        own, condition = _inverse_root(gram - overlap @ overlap.T, np.diagonal(gram), _eps(rows))
        return Whitening(own, -own @ overlap @ self.coefficients, condition)

    def orthonormal_part(self, rows: Float[Array, "k p"], found: Whitening, *, tolerance: float) -> Float[Array, "k p"]:
        """The rows overwritten until they are orthonormal to `tolerance`, and orthogonal to the basis."""
        # Rounding of the products of different columns is unrelated.
        rounding = _eps(rows) / np.sqrt(max(1, rows.shape[1] // _COLUMNS))
        for _ in range(_MOST_ROUNDS):
            rows = self._mix(found.own, rows, found.others)
            # The new Gram matrix differs from the identity by rounding times the condition number.
            if found.condition * rounding < tolerance:
                break
            found = self.whitening(rows)
        return rows

    def _mix(self, own: Float[np.ndarray, "k k"], rows: Float[Array, "k p"], others: Float[np.ndarray, "k K"]):
        r"""$T V + \sum_i T_i V_i$. Overwrites the rows $V$: no memory is added."""
        edges = np.cumsum([0, *(block.shape[0] for block in self.blocks)])
        parts = [others[:, start:stop] for start, stop in itertools.pairwise(edges)]
        weights = [np.asarray(part, dtype=rows.dtype) for part in (own, *parts)]
        return _mix((weights, tuple(self.blocks)), rows)


def _eps(rows: Array) -> float:
    return float(jnp.finfo(rows.dtype).eps)


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
    """Products of the rows with themselves and with each block, some columns at a time, summed in float64."""

    def products(part, *others):
        return [(part @ other.T).astype(jnp.float64) for other in (part, *others)]

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
