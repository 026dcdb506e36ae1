"""What `train` refuses before it starts."""

from fsplaplace.context import check_sampler
from fsplaplace.host import host_generator, one_blas_thread
from fsplaplace.prior import checked_factor
from fsplaplace.prior.moments import gram


def check_options(*, steps, num_context, patience, jitter, batch_size) -> None:
    """Numbers out of range, by name."""
    for name, value in (("steps", steps), ("num_context", num_context), ("patience", patience)):
        if value < 1:
            raise ValueError(f"train: {name} is {value}; pass 1 or more")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"train: batch_size is {batch_size}; pass 1 or more, or None for all rows")
    if len(jitter) != 2 or not jitter[0] >= jitter[1] > 0:
        raise ValueError(f"train: jitter is {jitter}; pass (first, last) with first >= last > 0")


def check_context(prior, context, num_context, X, key) -> None:
    """Refuse what is no sampler, points of another width than X's, and a kernel that is no covariance there."""
    check_sampler(context, caller="train")
    points = context.draw(num_context, host_generator(key))
    if points.shape[1:] != X.shape[1:]:
        raise ValueError(
            f"train: context points have shape {points.shape[1:]} per row, but X has {X.shape[1:]}; build the context from "
            "bounds of the same width"
        )
    with one_blas_thread():
        for block in gram(prior, points):
            checked_factor(prior, block)
