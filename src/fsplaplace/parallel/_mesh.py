"""Rows of data and context over the devices of a mesh; everything else stays as it is on one device."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Shaped

from fsplaplace.arguments import checked

T = TypeVar("T")

_active: contextvars.ContextVar[Mesh | None] = contextvars.ContextVar("fsplaplace_mesh", default=None)


@checked
@contextlib.contextmanager
def use_mesh(mesh: Mesh | None = None) -> Iterator[Mesh]:
    """Inside this block, passes through the network split their rows over the devices of `mesh`.

    `train`, `laplace`, `Posterior.predict` and whatever else runs the network over rows of data or context points is called as on
    one device, and returns the same arrays, to rounding, on this process's own device. With several processes (call
    `jax.distributed.initialize` before `import fsplaplace`) every process makes the same calls with the same arguments.

    Args:
        mesh: a `jax.sharding.Mesh`; its axes are used as one. All devices of all processes by default.
    """
    mesh = jax.make_mesh((jax.device_count(),), ("rows",)) if mesh is None else mesh
    # The compiler splits the work; `jax.make_mesh` asks for shardings in types, which networks would have to know of.
    automatic = (AxisType.Auto,) * len(mesh.axis_names)
    token = _active.set(Mesh(mesh.devices, mesh.axis_names, axis_types=automatic))
    try:
        yield mesh
    finally:
        _active.reset(token)


def num_shards() -> int:
    """The number of parts that a block of rows is split into: 1 without a mesh."""
    mesh = _active.get()
    return 1 if mesh is None else mesh.size


def shard_rows(x: Shaped[np.ndarray, "n ..."]) -> Shaped[Array, "n ..."] | Shaped[np.ndarray, "n ..."]:
    """Rows over the devices, n a multiple of `num_shards()`; without a mesh the array as it is."""
    mesh = _active.get()
    return x if mesh is None else _place(mesh, PartitionSpec(mesh.axis_names), x)


def row_sharding() -> NamedSharding | None:
    """How `shard_rows` places rows; None without a mesh. Hashable: a static field of what is compiled for it."""
    mesh = _active.get()
    return None if mesh is None else NamedSharding(mesh, PartitionSpec(mesh.axis_names))


def map_sharded(
    function: Callable[[Shaped[Array, "n ..."]], Shaped[Array, "n ..."]],
    x: Shaped[Array, "n ..."],
    sharding: NamedSharding | None,
) -> Shaped[Array, "n ..."]:
    """`function` of independent rows, inside `jax.jit`, with its rows over the devices; the result is on all of them.

    Rows are padded to a multiple of the number of devices. Its transpose sums gradients over the devices.
    """
    if sharding is None:
        return function(x)
    missing = -x.shape[0] % sharding.mesh.size
    padded = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (missing, *x.shape[1:]))])
    values = function(jax.lax.with_sharding_constraint(padded, sharding))
    return jax.lax.with_sharding_constraint(values, NamedSharding(sharding.mesh, PartitionSpec()))[: x.shape[0]]


def replicate(tree: T) -> T:
    """Every array of the tree on every device; without a mesh the tree as it is."""
    mesh = _active.get()
    if mesh is None:
        return tree
    return jax.tree.map(lambda leaf: _place(mesh, PartitionSpec(), leaf) if eqx.is_array(leaf) else leaf, tree)


def gather(tree: T) -> T:
    """The whole of every array on this process's first device; without a mesh the tree as it is."""
    if _active.get() is None:
        return tree

    def whole(leaf):
        if not (leaf.is_fully_replicated or leaf.is_fully_addressable):
            leaf = multihost_utils.process_allgather(leaf, tiled=True)
        return jnp.asarray(np.asarray(leaf))

    return jax.tree.map(whole, tree)


def _place(mesh: Mesh, spec: PartitionSpec, values) -> Array:
    sharding = NamedSharding(mesh, spec)
    if jnp.issubdtype(values.dtype, jax.dtypes.prng_key) or getattr(values, "sharding", None) == sharding:
        return values
    host = np.asarray(values)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
