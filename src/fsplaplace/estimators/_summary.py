"""What an estimator says of itself after a fit: verdict, kernel in words, noise, leave-one-out score, relevant columns."""

import math
import textwrap
from typing import Any, NamedTuple

import numpy as np
from gpjax.kernels import AbstractKernel, ProductKernel, SumKernel
from gpjax.parameters import val
from jaxtyping import Float

from fsplaplace.estimators._kernels import Columns
from fsplaplace.prior import Prior, moments

# The studio's words for kernels.
_WORDS = {
    "RBF": "very smooth",
    "Matern52": "smooth",
    "Matern32": "slightly rough",
    "Matern12": "kinked",
    "RationalQuadratic": "many scales",
    "PoweredExponential": "adjustable",
    "Periodic": "repeats",
    "Linear": "trend",
    "Polynomial": "curved trend",
    "Constant": "offset",
    "White": "jumps",
    "ArcCosine": "like a wide network",
}
_WIDTH = 80
# Columns that are listed one by one.
_MOST_LISTED = 6
# A column whose move by one standard deviation changes the function this much less than the most relevant one's is not listed.
_HARDLY = 0.02
# Rows at which the relevance is looked at.
_RELEVANCE_ROWS = 64


class LeaveOneOutScores(NamedTuple):
    """Each row predicted from all others, in the targets' units.

    Attributes:
        log_density: mean over rows of the log density of a new target.
        rmse: root mean squared error.
        coverage: share of the targets inside their 90 % intervals.
        num_rows: how many rows were looked at.
    """

    log_density: float
    rmse: float
    coverage: float
    num_rows: int


def paragraphs(lines: list[str]) -> str:
    """Lines of at most 80 characters; what does not fit goes on below, moved to the right."""
    return "\n".join(
        textwrap.fill(line, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in lines
    )


def kernel_words(kernel: AbstractKernel | tuple[AbstractKernel, ...], columns: Columns) -> str:
    """The kernel in words, its parameters in the units of the columns and the target.

    Example:
        >>> kernel_words(RBF(lengthscale=2.0), Columns(("age",), np.array([10.0]), 3.0))
        'very smooth (RBF): length scale 20, size 3'
    """
    if isinstance(kernel, tuple):
        return "; ".join(f"output {k}: {kernel_words(part, columns)}" for k, part in enumerate(kernel))
    if isinstance(kernel, SumKernel):
        return " + ".join(f"[{kernel_words(part, columns)}]" for part in kernel.kernels)
    if isinstance(kernel, ProductKernel):
        # A product has the target's units once.
        first, *others = kernel.kernels
        factors = [
            kernel_words(first, columns),
            *(kernel_words(part, columns._replace(target_std=1.0)) for part in others),
        ]
        return " x ".join(f"[{part}]" for part in factors)
    name = type(kernel).__name__
    chosen = np.arange(len(columns.names))[kernel.active_dims]
    seen = "" if chosen.size == len(columns.names) else f" of {', '.join(columns.names[k] for k in chosen)}"
    said = _parameters(kernel, chosen, columns)
    return f"{_WORDS.get(name, 'kernel')} ({name}){seen}" + (f": {', '.join(said)}" if said else "")


def kernel_name(kernel: AbstractKernel | tuple[AbstractKernel, ...]) -> str:
    """The kernel's classes alone."""
    if isinstance(kernel, tuple):
        return ", ".join(map(kernel_name, kernel))
    if isinstance(kernel, SumKernel):
        return " + ".join(map(kernel_name, kernel.kernels))
    if isinstance(kernel, ProductKernel):
        named = ((part, kernel_name(part)) for part in kernel.kernels)
        return " x ".join(f"({name})" if isinstance(part, SumKernel) else name for part, name in named)
    return type(kernel).__name__


def _parameters(kernel: Any, chosen: np.ndarray, columns: Columns) -> list[str]:
    said = []
    if (period := getattr(kernel, "period", None)) is not None and chosen.size == 1:
        said.append(f"period {_scalar(period) * columns.std[chosen[0]]:.4g}")
    elif (length := getattr(kernel, "lengthscale", None)) is not None and type(kernel).__name__ != "White":
        scales = np.broadcast_to(np.asarray(val(length), np.float64), chosen.shape)
        order = np.argsort(scales)[:_MOST_LISTED]
        each = [f"{columns.names[chosen[k]]} {scales[k] * columns.std[chosen[k]]:.3g}" for k in order]
        if chosen.size == 1:
            said.append(f"length scale {scales[0] * columns.std[chosen[0]]:.3g}")
        else:
            more = f" and {chosen.size - order.size} longer ones" if chosen.size > order.size else ""
            said.append(f"length scales {', '.join(each)}{more}")
    if (
        type(kernel).__name__ not in ("Linear", "Polynomial")
        and (variance := getattr(kernel, "variance", None)) is not None
    ):
        said.append(f"size {math.sqrt(_scalar(variance)) * columns.target_std:.3g}")
    return said


def feature_relevance(
    prior: Prior, X: Float[np.ndarray, "n d"], target_std: Float[np.ndarray, " q"]
) -> Float[np.ndarray, " d"]:
    r"""How much the function changes when one column alone moves by one unit, in the targets' units.

    $\sqrt{E\,(f(x + e_j) - f(x))^2}$ under the prior, over rows x and outputs: small where a length scale is long, and defined for
    every kernel. Time: d evaluations of the kernel at 64 pairs of points.
    """
    rows = X[np.linspace(0, len(X) - 1, min(len(X), _RELEVANCE_ROWS)).astype(int)]
    each, q, found = np.arange(len(rows)), prior.num_outputs, []
    for column in range(X.shape[1]):
        moved = rows + np.eye(X.shape[1])[column]
        both = moments.covariance(prior, np.concatenate([rows, moved])).reshape(2 * len(rows), q, 2 * len(rows), q)
        variance = np.einsum("nqnq->nq", both)
        shared = np.stack([both[each, output, len(rows) + each, output] for output in range(q)], axis=1)
        change = variance[: len(rows)] + variance[len(rows) :] - 2 * shared
        found.append(math.sqrt(max(float(np.mean(change * target_std**2)), 0.0)))
    return np.array(found)


def relevance_words(relevance: Float[np.ndarray, " d"], names: tuple[str, ...]) -> str:
    """The columns that matter most, and how many hardly do."""
    order = np.argsort(-relevance)
    matter = [k for k in order if relevance[k] > _HARDLY * relevance[order[0]]]
    listed = ", ".join(f"{names[k]} {relevance[k]:.3g}" for k in matter[:_MOST_LISTED])
    hardly = [names[k] for k in order if k not in matter]
    rest = len(matter) - _MOST_LISTED
    return (
        listed
        + (f" and {rest} more" if rest > 0 else "")
        + (
            f"; hardly {', '.join(hardly[:_MOST_LISTED])}{', ...' if len(hardly) > _MOST_LISTED else ''}"
            if hardly
            else ""
        )
    )


def _scalar(parameter: Any) -> float:
    return float(np.mean(np.asarray(val(parameter), np.float64)))
