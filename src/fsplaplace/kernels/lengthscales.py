"""What a kernel says about its functions: length scales and smoothness of its additive components."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from gpjax.kernels import RFF, AbstractKernel, MultiOutputKernel, ProductKernel, SumKernel
from jaxtyping import Array, Float

from ._entry import Circle
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


def circles(kernel: AbstractKernel, num_features: int) -> tuple[Circle, ...]:
    """The columns along which a component of the kernel repeats, with their periods.

    Args:
        kernel: a GPJax kernel, scalar or multi-output, with concrete (not traced) parameters.
        num_features: number of input dimensions d.
    """
    found = [_circles(factor, num_features) for component in _components(kernel) for factor in component.factors]
    return tuple(dict.fromkeys(itertools.chain.from_iterable(found)))


def lengthscales_on_circles(
    kernel: AbstractKernel, num_features: int, wound: Sequence[Circle]
) -> Float[np.ndarray, "k w"]:
    r"""`lengthscales` of the kernel as one of x and of points on circles of radius 1, two columns for each circle: w = d + 2 c.

    With $u = (\sin 2 \pi x / p, \cos 2 \pi x / p)$ a periodic kernel is an RBF of u, so that its product with an RBF of x is one
    of (x, u): smooth, however many periods there are.

    Args:
        kernel: as in `circles`.
        num_features: number of input dimensions d.
        wound: the circles; kernels that repeat otherwise keep their length scale along x.
    """
    rows = []
    for component in _components(kernel):
        inverse = np.zeros(num_features + 2 * len(wound))
        for factor in component.factors:
            here = {circle: length for circle, length in _circles(factor, num_features).items() if circle in wound}
            along = np.array(_inverse_squares(factor, num_features), np.float64)
            along[[circle.column for circle in here]] = 0.0
            inverse[:num_features] += along
            for circle, length in here.items():
                place = num_features + 2 * wound.index(circle)
                inverse[place : place + 2] += length**-2.0
        rows.append(inverse)
    with np.errstate(divide="ignore"):
        return np.stack(rows) ** -0.5 if rows else np.zeros((0, num_features + 2 * len(wound)))


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


def _circles(kernel: Any, num_features: int) -> Mapping[Circle, float]:
    find = exact_entry(kernel).circles
    return {} if find is None else find(kernel, num_features)


def _inverse_squares(kernel: Any, num_features: int) -> Float[Array, " d"]:
    return (exact_entry(kernel).lengthscales or probed_lengthscales)(kernel, num_features) ** -2.0


def _factor_smoothness(kernel: Any) -> float:
    return (exact_entry(kernel).smoothness or probed_smoothness)(kernel)
