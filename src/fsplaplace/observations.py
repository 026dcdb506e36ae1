"""What was observed besides the function's values."""

from collections.abc import Callable, Sequence

import equinox as eqx
from numpy.typing import ArrayLike

from fsplaplace.likelihoods import Likelihood
from fsplaplace.operators import Operator, as_operator


class Observation(eqx.Module):
    r"""Targets $y_i \sim p(y \mid L[f](x_i))$ of something that can be computed from the function.

    Attributes:
        X: inputs, (n, ...), of the same shape as those of the values.
        y: targets, as the likelihood wants them, one for each value of $L[f](x)$.
        likelihood: of the targets given $L[f](x)$, with noise in its units; fitted by `train` where it is learnable.
        of: L, an operator of `fsplaplace.operators` or a function `lambda f: lambda x: ...`; the function itself by default.

    ```python
    slopes = Observation(X, s, likelihoods.Gaussian(0.1), of=operators.partial(0))
    trained = train(model, prior, likelihood, context, X, y, also=[slopes], key=key)
    ```
    """

    X: ArrayLike
    y: ArrayLike
    likelihood: Likelihood
    of: Operator

    def __init__(self, X: ArrayLike, y: ArrayLike, likelihood: Likelihood, *, of: Operator | Callable | None = None):
        if not isinstance(likelihood, Likelihood):
            raise TypeError(
                f"Observation: likelihood is a {type(likelihood).__name__}; pass one of fsplaplace.likelihoods, with noise in "
                "the units of what is observed"
            )
        self.X, self.y, self.likelihood, self.of = X, y, likelihood, as_operator(of)


def check_observations(also: Sequence[Observation] | None, *, caller: str) -> tuple[Observation, ...]:
    """The observations as a tuple, or an error that says what else was passed."""
    if also is None:
        return ()
    if isinstance(also, Observation):
        raise TypeError(f"{caller}: also is one Observation; pass a list, [observation]")
    for number, each in enumerate(also):
        if not isinstance(each, Observation):
            raise TypeError(f"{caller}: also[{number}] is a {type(each).__name__}; pass fsplaplace.Observation records")
    return tuple(also)
