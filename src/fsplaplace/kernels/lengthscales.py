"""What a kernel says about its functions: length scales and smoothness of its additive components."""

import itertools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from gpjax.kernels import (
    RBF,
    RFF,
    AbstractKernel,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    MultiOutputKernel,
    Periodic,
    Polynomial,
    PoweredExponential,
    ProductKernel,
    RationalQuadratic,
    SumKernel,
    White,
)
from gpjax.parameters import val
from jaxtyping import Array, Float

from ._probe import probed_lengthscales, probed_smoothness
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
    """A product of kernels that have length scales, and how often its functions are differentiated."""

    factors: tuple[Any, ...]
    derivatives: int = 0


_SMOOTHNESS = {
    RBF: math.inf,
    RationalQuadratic: math.inf,
    Periodic: math.inf,
    Matern12: 0.5,
    Matern32: 1.5,
    Matern52: 2.5,
}
_SCALED = (*_SMOOTHNESS, PoweredExponential)
_SCALE_FREE = (Constant, Linear, Polynomial)


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
    if type(kernel) is White:
        return []
    return [()] if type(kernel) in _SCALE_FREE else [(kernel,)]


def _inverse_squares(kernel: Any, num_features: int) -> Float[Array, " d"]:
    if type(kernel) not in _SCALED:
        return probed_lengthscales(kernel, num_features) ** -2.0
    scale = jnp.asarray(val(kernel.lengthscale))
    if type(kernel) is Periodic:
        scale = scale * val(kernel.period) / jnp.pi
    columns = np.arange(num_features)[kernel.active_dims]
    return jnp.zeros(num_features, scale.dtype).at[columns].set(scale**-2.0)


def _factor_smoothness(kernel: Any) -> float:
    if type(kernel) is PoweredExponential:
        power = float(val(kernel.power))
        return power / 2 if power < 2 else math.inf
    return _SMOOTHNESS[type(kernel)] if type(kernel) in _SMOOTHNESS else probed_smoothness(kernel)
