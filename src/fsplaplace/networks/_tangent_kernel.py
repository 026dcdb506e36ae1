r"""The tangent kernel of a network, $J(x) J(x')^\top$: all that the features of its linearisation can do."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from paramax import unwrap

from fsplaplace.host import blas_threads_for, format_bytes, in_float64, itemsize
from fsplaplace.networks._circles import beside_circles
from fsplaplace.networks._fully_connected import MLP
from fsplaplace.networks._jacobian import jacobian_blocks
from fsplaplace.networks._model import Model, join
from fsplaplace.networks._units import Units
from fsplaplace.networks.adapters import EQUINOX_CALL

# Numbers that go through an activation together: one compiled program for layers of any width.
_TOGETHER = 2**16


def tangent_kernel(
    model: Model, x: Float[np.ndarray, "n ..."], outputs: Int[np.ndarray, " k"], *, budget: float
) -> Float[np.ndarray, "nk nk"]:
    r"""$J(x) J(x)^\top$ between all points and some of the outputs, points first, in float64.

    For a fully connected network with layers $h_l = W_l a_{l-1} + b_l$ it is

    $$\sum_l \bigl(a_{l-1}(x)^\top a_{l-1}(x') + 1\bigr)\; \delta_l(x)\, \delta_l(x')^\top, \qquad
      \delta_l = \frac{\partial f}{\partial h_l},$$

    so that the Jacobian, of as many columns as there are weights, is not needed.

    Args:
        model: the network.
        x: points, in the network's dtype.
        outputs: which of the network's.
        budget: bytes that the Jacobian of other networks may take.

    Time $O((n k)^2 w)$ for layers of width w; $O((n k)^2 p)$ for other networks, and memory $O(n q p)$.
    """
    network = _layered(model)
    if network is not None:
        return _layer_by_layer(network, np.asarray(x, np.float64), outputs)
    q = model.num_outputs(x)
    rows = x.shape[0] * q
    # The blocks, and all of them in float64.
    needed = rows * model.num_params * (itemsize(model.dtype) + 8)
    if needed > budget:
        raise MemoryError(
            f"holds: the Jacobian of {model.num_params} weights at {rows} rows needs {format_bytes(needed)}, but memory_budget "
            f"is {format_bytes(budget)}; pass num_points={int(x.shape[0] * budget // needed)} or fewer"
        )
    blocks = [block for _, block in jacobian_blocks(model, x, budget=budget)]
    jacobian = np.concatenate(blocks).reshape(x.shape[0], q, -1)[:, outputs].astype(np.float64)
    jacobian = jacobian.reshape(-1, model.num_params)
    with blas_threads_for(2.0 * jacobian.size * jacobian.shape[0]):
        return jacobian @ jacobian.T


def fully_connected_network(model: Model) -> MLP | None:
    """The network behind a model, if it is an `MLP`."""
    network = join(model.params, model.frozen) if model.call == EQUINOX_CALL else None
    return network if isinstance(network, MLP) else None


def _layered(model: Model) -> MLP | None:
    """The network behind a model, if it is an `MLP` with nothing frozen and activations of single numbers."""
    network = fully_connected_network(model)
    if network is None or any(layer.bias is None for layer in network.layers):
        return None
    in_layers = sum(part.size for layer in network.layers for part in (layer.weight, layer.bias) if part is not None)
    return network if in_layers == model.num_params and _of_single_numbers(network.activation) else None


def _of_single_numbers(activation: Callable[[Array], Array]) -> bool:
    """Whether a unit's activation depends on that unit alone, unlike in a softmax."""
    probe = np.array([-1.0, 0.5, 2.0])
    try:
        whole, part = np.asarray(activation(jnp.asarray(probe))), np.asarray(activation(jnp.asarray(probe[:2])))
    except (TypeError, ValueError, IndexError):
        return False
    return whole.shape == probe.shape and np.array_equal(whole[:2], part)


def _layer_by_layer(
    network: MLP, x: Float[np.ndarray, "n d"], outputs: Int[np.ndarray, " k"]
) -> Float[np.ndarray, "nk nk"]:
    units = Units() if network.units is None else unwrap(network.units)
    centre, scale, output_scale = (
        default if part is None else np.asarray(part, np.float64)
        for part, default in ((units.centre, 0.0), (units.scale, 1.0), (units.output_scale, 1.0))
    )
    layers = [(np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)) for layer in network.layers]
    z = (x - centre) / scale
    if units.frequencies is not None:
        z = beside_circles(z, np.asarray(units.frequencies, np.float64))
    inputs, slopes = [z], []
    for weight, bias in layers[:-1]:
        activated, slope = _activate(network.activation, inputs[-1] @ weight.T + bias)
        inputs.append(activated)
        slopes.append(slope)
    (n, q), kernel = (x.shape[0], outputs.size), 0.0
    # Derivatives of each output in what goes into the activations of a layer, (n, q, width).
    chosen = (np.eye(layers[-1][0].shape[0]) * output_scale)[outputs]
    back = np.broadcast_to(chosen, (n, *chosen.shape))
    for number in range(len(layers) - 1, -1, -1):
        rows = back.reshape(n * q, -1)
        with blas_threads_for(2.0 * rows.size * n * q):
            between = (rows @ rows.T).reshape(n, q, n, q)
            kernel = kernel + (inputs[number] @ inputs[number].T + 1.0)[:, None, :, None] * between
        if number:
            back = (back @ layers[number][0]) * slopes[number - 1][:, None, :]
    return np.asarray(kernel).reshape(n * q, n * q)


def _activate(activation: Callable[[Array], Array], values: Float[np.ndarray, "n w"]):
    """Activations and their derivatives, in blocks of one size."""
    flat = values.ravel()
    padded = np.pad(flat, (0, -flat.size % _TOGETHER)).reshape(-1, _TOGETHER)
    parts = [_value_and_slope(activation, block) for block in padded]
    together = np.concatenate([np.stack([np.asarray(part) for part in pair]) for pair in parts], axis=1)
    return tuple(row[: flat.size].reshape(values.shape) for row in together)


@in_float64
@eqx.filter_jit
def _value_and_slope(activation: Callable[[Array], Array], values: Float[Array | np.ndarray, " k"]):
    return jax.jvp(activation, (values,), (jnp.ones_like(values),))
