"""Mean functions of a prior that GPJax lacks; any callable is one, too."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from gpjax.mean_functions import AbstractMeanFunction
from gpjax.mean_functions import Constant as Constant
from gpjax.parameters import val
from gpjax.typing import Array as AnyArray
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import check_finite, check_numbers


class Linear(AbstractMeanFunction):
    r"""$\mu(x) = x^\top W + b$, a trend.

    `fsplaplace.fit_prior` sets both by generalised least squares, so their values here are only placeholders then.

    Args:
        slope: $W$, of shape (d, q), or (d,) for one output.
        intercept: $b$, a number or of shape (q,).

    Wrap either in `paramax.non_trainable` to keep it as it is.

    Examples:
        >>> fsp.means.Linear([2.0], 1.0)(np.array([[3.0]])).tolist()
        [[7.0]]
    """

    slope: Any
    intercept: Any

    def __init__(self, slope: ArrayLike, intercept: ArrayLike = 0.0):
        self.slope = slope if _is_wrapped(slope) else jnp.asarray(check_numbers(slope, "Linear: slope"), dtype=float)
        self.intercept = (
            intercept
            if _is_wrapped(intercept)
            else jnp.asarray(check_numbers(intercept, "Linear: intercept"), dtype=float)
        )
        for name, value in (("slope", slope), ("intercept", intercept)):
            if not _is_wrapped(value):
                check_finite(np.asarray(value), f"Linear: {name}")
        if jnp.ndim(val(self.slope)) not in (1, 2):
            raise ValueError(
                f"Linear: slope has shape {jnp.shape(val(self.slope))}; pass (d,), or (d, q) for q outputs"
            )
        if jnp.ndim(val(self.intercept)) > 1:
            raise ValueError(
                f"Linear: intercept has shape {jnp.shape(val(self.intercept))}; pass a number, or (q,) for q outputs"
            )

    def __call__(self, x: Float[AnyArray, "n d"]) -> Float[Array, "n q"]:
        x, slope = jnp.asarray(x), jnp.asarray(val(self.slope))
        slope = slope[:, None] if slope.ndim == 1 else slope
        if slope.shape[0] != x.shape[1]:
            raise ValueError(f"Linear: slope has {slope.shape[0]} rows, but the inputs have {x.shape[1]} columns")
        return x @ slope.astype(x.dtype) + jnp.asarray(val(self.intercept)).astype(x.dtype)


def _is_wrapped(value) -> bool:
    return hasattr(value, "unwrap")
