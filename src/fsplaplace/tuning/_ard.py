"""One length scale per input dimension."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gpjax.kernels import White
from gpjax.kernels.stationary.base import StationaryKernel
from gpjax.parameters import PositiveReal, val

from fsplaplace.prior import Prior


def expand_lengthscales(prior: Prior, num_features: int) -> Prior:
    """The prior with the length scale of every stationary kernel repeated for each of its input dimensions."""
    is_kernel = lambda node: isinstance(node, StationaryKernel)  # noqa: E731
    return jax.tree.map(lambda node: _expand(node, num_features) if is_kernel(node) else node, prior, is_leaf=is_kernel)


def _expand(kernel: StationaryKernel, num_features: int) -> StationaryKernel:
    columns = np.arange(num_features)[kernel.active_dims]
    size = jnp.size(val(kernel.lengthscale))
    if isinstance(kernel, White) or not isinstance(kernel.lengthscale, PositiveReal) or size != 1 or columns.size == 1:
        return kernel
    repeated = PositiveReal(jnp.broadcast_to(val(kernel.lengthscale), (columns.size,)))
    return eqx.tree_at(lambda tree: tree.lengthscale, kernel, repeated)
