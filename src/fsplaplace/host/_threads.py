"""One BLAS thread for LAPACK's factorisations, all of them for large products."""

import functools
from contextlib import AbstractContextManager, nullcontext

from threadpoolctl import ThreadpoolController

# Floating-point operations of a tenth of a second on one core.
_LARGE = 1e10


def one_blas_thread() -> AbstractContextManager:
    """Run LAPACK on one thread inside this context; XLA's own matrix products keep theirs.

    Eigenproblems of the sizes met here gain nothing from a second thread, and lose two orders of magnitude when the
    other core is busy: BLAS threads spin while they wait for each other.
    """
    _at_first()
    return _controller().limit(limits=1, user_api="blas")


def blas_threads_for(operations: float) -> AbstractContextManager:
    """The BLAS threads for one matrix product.

    A large product gets as many as the process started with, also inside `one_blas_thread`. A small one changes nothing: it
    gains little from more threads, and loses when the other cores are busy.

    Args:
        operations: floating-point operations of the product, $2 n m k$ for an n x k by a k x m matrix.
    """
    if operations < _LARGE:
        return nullcontext()
    return _controller().limit(limits=_at_first(), user_api="blas")


@functools.cache
def _at_first() -> int:
    return max((pool["num_threads"] for pool in _controller().select(user_api="blas").info()), default=1)


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
