"""What `train` refuses before it starts."""

from fsplaplace.host import check_fits, host_generator, one_blas_thread
from fsplaplace.prior import checked_factor
from fsplaplace.prior.moments import gram


def check_jitter(jitter: tuple[float, float]) -> None:
    """Refuse a jitter that grows, and one that vanishes."""
    if not jitter[0] >= jitter[1] > 0:
        raise ValueError(f"train: jitter is {jitter}; pass (first, last) with first >= last > 0")


def check_context(prior, context, num_context, X, key) -> None:
    """Refuse points of another width than X's, and a kernel that is no covariance there."""
    # Matrices of all points with all points, in float64: kernel, factor and their gradients.
    check_fits(num_context, 32 * prior.num_outputs, "train: num_context", power=2)
    points = context.draw(num_context, host_generator(key))
    if points.shape[1:] != X.shape[1:]:
        raise ValueError(
            f"train: context points have shape {points.shape[1:]} per row, but X has {X.shape[1:]}; build the context from "
            "bounds of the same width"
        )
    with one_blas_thread():
        for block in gram(prior, points):
            checked_factor(prior, block)
