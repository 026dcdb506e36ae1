"""How much memory a computation may take, and how many rows fit in it."""

import os

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

# Rows of up to this many bytes are kept between passes; larger data is read in blocks of at most the second number.
_KEPT = 256 * 2**20
_STREAMED = 16 * 2**20
# Below this number rows are not worth padding to less.
_SMALLEST_STEP = 16


def resolve_budget(memory_budget: float | None) -> float:
    """The budget in bytes: the caller's, or a quarter of this machine's memory."""
    if memory_budget is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 4
    return float(memory_budget)


def rows_that_fit(bytes_per_row: float, budget: float, *, most: int) -> int:
    """Rows per block: as many as the budget holds, at least one, at most `most`."""
    return int(min(max(budget // max(bytes_per_row, 1), 1), most))


def rows_of_data(bytes_per_row: float, budget: float, *, num_rows: int) -> int:
    """Rows of data in a block.

    All of them, kept between passes, if they take at most a quarter of the budget and 256 MiB. Otherwise blocks of at most
    16 MiB, computed anew in each pass, so that memory does not grow with the data.
    """
    if num_rows * bytes_per_row <= min(budget / 4, _KEPT):
        return num_rows
    return rows_that_fit(bytes_per_row, min(budget / 4, _STREAMED), most=num_rows)


def check_fits(count: int, bytes_of_one: float, argument: str, *, power: int = 1) -> None:
    """Refuse a count of things that the memory cannot hold, and say how many it can.

    Args:
        count: how many.
        bytes_of_one: what one of them takes.
        argument: the caller's name of the count, with the function's.
        power: 2 if each takes that for each other, as in a matrix of all with all.
    """
    available, needed = resolve_budget(None), bytes_of_one * count**power
    if needed > available:
        most = int((available / bytes_of_one) ** (1 / power))
        raise ValueError(
            f"{argument} is {count}, which takes {format_bytes(needed)}; at most {most} fit in {format_bytes(available)}, a quarter of this machine's memory"
        )


def pad_rows(x: np.ndarray, rows: int) -> np.ndarray:
    """`x` with its last row repeated until there are `rows` rows."""
    missing = rows - x.shape[0]
    return np.concatenate([x, np.broadcast_to(x[-1:], (missing, *x.shape[1:]))]) if missing else x


def pad_points(x: Float[np.ndarray, "n d"], rows: int) -> Float[np.ndarray, "rows d"]:
    """`x` with points between its rows until there are `rows` rows.

    Kernels of more than 16 columns recompute pairs of near points one by one; copies of a row would all be such pairs.
    """
    missing = rows - x.shape[0]
    if not missing or x.shape[0] == 1:
        return pad_rows(x, rows)
    generator = np.random.default_rng(0)
    corners = x[generator.integers(x.shape[0], size=(missing, 4))]
    shares = generator.dirichlet(np.ones(4), missing).astype(x.dtype)
    return np.concatenate([x, np.einsum("mc,mcd->md", shares, corners)])


def padded_size(count: int) -> int:
    """The next of the sizes that compiled programs have: a multiple of 16, then 1, 1.25, 1.5 or 1.75 times a power of two.

    Rows beyond `count` are padding. Any two numbers of rows with the same size share all programs.
    """
    step = max(_SMALLEST_STEP, 1 << max(0, count.bit_length() - 3))
    return -(-count // step) * step


def itemsize(dtype) -> int:
    """Bytes of one number."""
    return np.dtype(jnp.dtype(dtype)).itemsize


def format_bytes(count: float) -> str:
    """`1536` as `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
