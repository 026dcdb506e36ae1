"""What a kernel says about its functions: length scales and smoothness of its additive components."""

import itertools
from typing import Any, NamedTuple

import jax.numpy as jnp
from gpjax.kernels import RFF, AbstractKernel, MultiOutputKernel, ProductKernel, SumKernel
from jaxtyping import Array, Float

from ._probe import probed_lengthscales, probed_smoothness
from ._registry import exact_entry
from .helmholtz import Helmholtz


def lengthscales(kernel: AbstractKernel, num_features: int) -> Float[Array, "k d"]:
    """Characteristic length scale of every additive component along every input dimension.

    RBF, Matérn, rational quadratic and powered exponential kernels give their ℓ, a periodic kernel the ℓ p / π
    of the RBF with the same curvature at zero; the factors of a product add inverse squares. A kernel of
    unknown form is probed for the distance at which its correlation falls to e^-1/2, as an RBF's does at ℓ.

    Args:
        kernel: a GPJax kernel, scalar or multi-output (then the components of its latent kernels).
        num_features: number of input dimensions d.

    Returns:
        One row per component, infinite where the component does not vary. Constant, linear, polynomial and
        white-noise terms have no length scale and no row. Cost: d, or 200 d kernel values to probe.
    """
    rows = [
        sum((_inverse_squares(factor, num_features) for factor in component.factors), jnp.zeros(num_features))
        for component in _components(kernel)
    ]
    return jnp.stack(rows) ** -0.5 if rows else jnp.zeros((0, num_features))


def smoothness(kernel: AbstractKernel) -> tuple[float, ...]:
    """Smoothness ν of every component, in the order of the rows of `lengthscales`.

    Functions have square-integrable derivatives of every order below ν: Matérn kernels give 1/2, 3/2 and 5/2,
    a powered exponential of power κ < 2 gives κ / 2, analytic kernels infinity. A product is as rough as its
    roughest factor, and a Helmholtz field, made of first derivatives, one less than its potentials.

    Args:
        kernel: a GPJax kernel, scalar or multi-output, with concrete (not traced) parameters.

    Returns:
        One number per component; of a kernel of unknown form only ν < 1 is seen, the rest is called infinity.
    """
    return tuple(
        min(_factor_smoothness(factor) for factor in component.factors) - component.derivatives
        for component in _components(kernel)
    )


class _Component(NamedTuple):
    """A product of kernels that have length scales.

    Attributes:
        factors: the kernels.
        derivatives: how often its functions are differentiated.
    """

    factors: tuple[Any, ...]
    derivatives: int = 0


def _components(kernel: Any) -> list[_Component]:
    """The kernel multiplied out into a sum of products."""
    if isinstance(kernel, Helmholtz):
        potentials = [base for base in (kernel.potential, kernel.stream) if base is not None]
        return [part._replace(derivatives=1) for base in potentials for part in _components(base)]
    if isinstance(kernel, MultiOutputKernel):
        return [part for latent in kernel.latent_kernels for part in _components(latent)]
    if isinstance(kernel, RFF):
        return _components(kernel.base_kernel)
    if type(kernel) is SumKernel:
        return [part for term in kernel.kernels for part in _components(term)]
    products = [_Component(factors) for factors in _factors(kernel)]
    return [product for product in products if product.factors]


def _factors(kernel: Any) -> list[tuple[Any, ...]]:
    """Sum of products as tuples of factors; a scale-free kernel is the empty product, white noise no term."""
    if type(kernel) is SumKernel:
        return [factors for term in kernel.kernels for factors in _factors(term)]
    if type(kernel) is ProductKernel:
        choices = itertools.product(*(_factors(factor) for factor in kernel.kernels))
        return [tuple(itertools.chain.from_iterable(choice)) for choice in choices]
    match exact_entry(kernel).kind:
        case "noise":
            return []
        case "scale-free":
            return [()]
        case "scaled":
            return [(kernel,)]


def _inverse_squares(kernel: Any, num_features: int) -> Float[Array, " d"]:
    return (exact_entry(kernel).lengthscales or probed_lengthscales)(kernel, num_features) ** -2.0


def _factor_smoothness(kernel: Any) -> float:
    return (exact_entry(kernel).smoothness or probed_smoothness)(kernel)
