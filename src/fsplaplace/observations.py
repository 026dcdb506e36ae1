"""What was observed besides the function's values."""

from collections.abc import Callable

import equinox as eqx
from numpy.typing import ArrayLike

from fsplaplace.arguments import checked
from fsplaplace.likelihoods import Likelihood
from fsplaplace.operators import Operator, as_operator


class Observation(eqx.Module):
    r"""Targets $y_i \sim p(y \mid L[f](x_i))$ of something that can be computed from the function.

    Attributes:
        X: inputs, (n, ...), of the same shape as those of the values.
        y: targets, as the likelihood wants them, one for each value of $L[f](x)$.
        likelihood: of the targets given $L[f](x)$, with noise in its units; fitted by `train` where it is learnable.
        of: L, an operator of `fsplaplace.operators` or a function `lambda f: lambda x: ...`; the function itself by default.

    Examples:
        >>> slopes = fsp.Observation(X, 4 * np.cos(4 * X), fsp.likelihoods.Gaussian(0.1), of=fsp.operators.partial(0))
        >>> posterior = fsp.laplace(model, prior, likelihood, X, y, also=[slopes])
        >>> posterior.predict(X, of=fsp.operators.partial(0)).std.shape
        (20, 1)
    """

    X: ArrayLike
    y: ArrayLike
    likelihood: Likelihood
    of: Operator

    @checked(finite=True)
    def __init__(self, X: ArrayLike, y: ArrayLike, likelihood: Likelihood, *, of: Operator | Callable | None = None):
        self.X, self.y, self.likelihood, self.of = X, y, likelihood, as_operator(of)
