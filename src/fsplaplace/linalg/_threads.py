"""One BLAS thread for LAPACK's factorisations."""

import functools
from contextlib import AbstractContextManager

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager:
    """Run LAPACK on one thread inside this context; XLA's own matrix products keep theirs.

    Eigenproblems of the sizes met here gain nothing from a second thread, and lose two orders of magnitude when the
    other core is busy: BLAS threads spin while they wait for each other.
    """
    return _controller().limit(limits=1, user_api="blas")


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
