"""The call shape that every method shares."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike
from paramax import NonTrainable

from fsplaplace.arguments import check_fields
from fsplaplace.context import Sampler, around
from fsplaplace.laplace import Posterior
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.methods._posterior import FunctionPosterior
from fsplaplace.networks import Model
from fsplaplace.prior import Prior
from fsplaplace.training import check_problem


class Method(eqx.Module):
    """A way to get a posterior over functions, with its settings.

    `fit` has one call shape for all, and what it returns has `predict`, `sample` and `predict_proba` as
    `fsplaplace.Posterior` has: methods can be swapped without changing anything else.
    """

    def __check_init__(self):
        check_fields(self)

    @abc.abstractmethod
    def fit(
        self,
        model: Model,
        X: ArrayLike,
        y: ArrayLike,
        likelihood: Likelihood,
        *,
        key: PRNGKeyArray,
        prior: Prior | None = None,
        context: Sampler | None = None,
        progress: bool = True,
    ) -> FunctionPosterior | Posterior:
        """The posterior given the data.

        Args:
            model: the network; not changed. Gaussian processes use its width and dtype only.
            X: inputs, (n, d) or (n, ...).
            y: targets, (n,), (n, q), or labels.
            likelihood: of the targets given the outputs; its parameters are fitted along where they are learnable.
            prior: the Gaussian-process prior, for the methods that have one.
            context: where a prior over functions is enforced; `fsplaplace.context.around(X)` by default.
            progress: show progress bars.
        """


def check_function_prior(
    method: Method, model: Model, prior: Prior | None, likelihood: Likelihood, X, y
) -> tuple[Prior, Float[Array, "n ..."], Array]:
    """`check_problem` for a method that needs a prior over functions."""
    if prior is None:
        raise ValueError(
            f"{type(method).__name__}.fit: prior is None, but the method needs a prior over functions; pass "
            "prior=fsplaplace.Prior(kernel)"
        )
    return prior, *check_problem(model, prior, likelihood, X, y)


def default_context(method: Method, context: Sampler | None, X: Float[Array, "n ..."]) -> Sampler:
    """The sampler given, or one around the data, refused for other than tabular inputs."""
    if context is not None:
        return context
    if X.ndim != 2:
        raise ValueError(
            f"{type(method).__name__}.fit: there is no default context for inputs of shape {X.shape[1:]}; pass context, for "
            "instance fsplaplace.context.Data(other_images)"
        )
    return around(X)


def has_learnable_scale(likelihood: Likelihood) -> bool:
    """Whether it is a Gaussian whose noise may be fitted."""
    return isinstance(likelihood, Gaussian) and not isinstance(likelihood.log_scale, NonTrainable)
