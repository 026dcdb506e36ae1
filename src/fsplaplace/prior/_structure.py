r"""How the prior's covariance falls into blocks: shared by all outputs, one for each output, or one over all outputs.

| structure | kernels | distinct blocks of $\Sigma(x, y)$ | copies of each | rows of a block |
|---|---|---|---|---|
| shared | one scalar kernel | 1 | q | n |
| separate | one scalar kernel per output | q | 1 | n |
| joint | one multi-output kernel | 1 | 1 | n q, points first |
"""

import abc
from typing import Any, ClassVar, Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from gpjax.kernels import AbstractKernel
from jaxtyping import Array, Float, Int

from fsplaplace import kernels as _kernels

# What is in NumPy stays in NumPy.
_Numbers = TypeVar("_Numbers", Array, np.ndarray)


class BlockStructure(eqx.Module):
    """The contract of the three structures; a new structure needs the abstract members, the rest follows.

    Attributes:
        kernels: one kernel for each distinct block.
        num_outputs: q.
        name: what `Prior.structure` says.
        outputs: for each block the outputs that it describes.
        copies: how often each block stands on the diagonal of the covariance.
        rows_per_point: rows of a block for each point.
    """

    kernels: tuple[AbstractKernel, ...]
    num_outputs: int = eqx.field(static=True)
    name: ClassVar[Literal["shared", "separate", "joint"]]

    @property
    @abc.abstractmethod
    def outputs(self) -> tuple[tuple[int, ...], ...]:
        """For each block the outputs that it describes."""

    @property
    def copies(self) -> int:
        """How often each block stands on the diagonal of the covariance."""
        return 1

    @property
    def rows_per_point(self) -> int:
        """Rows of a block for each point."""
        return 1

    @property
    def num_blocks(self) -> int:
        """The number of distinct blocks."""
        return len(self.kernels)

    @property
    def num_independent(self) -> int:
        """The number of blocks with their copies: how many parts of the function are independent of each other."""
        return self.num_blocks * self.copies

    @property
    def numbers_per_pair(self) -> int:
        """Numbers in the distinct blocks for each pair of points."""
        return self.num_blocks * self.rows_per_point**2

    @abc.abstractmethod
    def describe(self) -> str:
        """The structure in words."""

    @abc.abstractmethod
    def separated(self) -> "BlockStructure":
        """The same covariance without copies, for outputs that share a kernel and differ in something else."""

    @abc.abstractmethod
    def gram(self, x: Float[Array, "n d"], y: Float[Array, "m d"]) -> Float[Array, "b N M"]:
        r"""The distinct diagonal blocks of $\Sigma(x, y)$."""

    @abc.abstractmethod
    def diagonal(self, x: Float[Array, "n d"]) -> Float[Array, "b N"]:
        r"""The diagonals of the blocks of $\Sigma(x, x)$. Time $O(n q)$."""

    @abc.abstractmethod
    def columns(self, block: int, x: Float[Array, "n d"], pivots: Int[Array, " k"]) -> Float[Array, "N k"]:
        r"""Columns of one block of $\Sigma(x, x)$.

        Args:
            block: which block.
            x: n points, one per row.
            pivots: which columns, counted as the rows of the block.
        """

    @abc.abstractmethod
    def to_blocks(self, values: Float[_Numbers, "m q r"]) -> Float[_Numbers, "b N c"]:
        """Right-hand sides for the blocks from values at points and outputs."""

    @abc.abstractmethod
    def from_blocks(self, blocks: Float[_Numbers, "b N c"]) -> Float[_Numbers, "m q r"]:
        """The inverse of `to_blocks`."""

    @abc.abstractmethod
    def by_output(self, diagonal: Float[_Numbers, "b N"]) -> Float[_Numbers, "n q"]:
        """One number per point and output from one per row of each block."""

    @abc.abstractmethod
    def whole(self, blocks: Float[_Numbers, "b N M"]) -> Float[_Numbers, "n q m q"]:
        """The covariance between all points and outputs from its distinct blocks."""

    @abc.abstractmethod
    def place_columns(self, parts: list[Float[np.ndarray, "N k"]]) -> Float[np.ndarray, "m q r"]:
        """Columns over points and outputs from the columns of each block; each copy of a block gets its own."""


class _ScalarKernels(BlockStructure):
    """Outputs that are independent of each other: blocks are matrices of scalar kernels."""

    def gram(self, x, y):
        return self._of_each_kernel(lambda kernel: _kernels.covariance(kernel, x, y))

    def diagonal(self, x):
        return self._of_each_kernel(lambda kernel: _kernels.variance(kernel, x))

    def columns(self, block, x, pivots):
        return _kernels.covariance(self.kernels[block], x, x[pivots])

    def _of_each_kernel(self, function):
        """Results stacked; outputs with the same kernel object share one evaluation."""
        results = {id(kernel): function(kernel) for kernel in {id(kernel): kernel for kernel in self.kernels}.values()}
        return jnp.stack([results[id(kernel)] for kernel in self.kernels])


class Shared(_ScalarKernels):
    """One scalar kernel for q independent outputs."""

    name = "shared"

    @property
    def outputs(self):
        return (tuple(range(self.num_outputs)),)

    @property
    def copies(self):
        return self.num_outputs

    def describe(self):
        return f"{self.num_outputs} independent outputs with one kernel" if self.num_outputs > 1 else "one output"

    def separated(self):
        return Separate(self.kernels * self.num_outputs, self.num_outputs)

    def to_blocks(self, values):
        m, q, r = values.shape
        return values.reshape(1, m, q * r)

    def from_blocks(self, blocks):
        _, m, columns = blocks.shape
        return blocks.reshape(m, self.num_outputs, columns // self.num_outputs)

    def by_output(self, diagonal):
        return diagonal.T.repeat(self.num_outputs, axis=1)

    def whole(self, blocks):
        copies = _numpy_of(blocks).broadcast_to(blocks, (self.num_outputs, *blocks.shape[1:]))
        return self.separated().whole(copies)

    def place_columns(self, parts):
        return self.separated().place_columns(parts * self.num_outputs)


class Separate(_ScalarKernels):
    """One scalar kernel for each of q independent outputs."""

    name = "separate"

    @property
    def outputs(self):
        return tuple((output,) for output in range(self.num_outputs))

    def describe(self):
        return f"{self.num_outputs} independent outputs with a kernel each"

    def separated(self):
        return self

    def to_blocks(self, values):
        return values.transpose(1, 0, 2)

    def from_blocks(self, blocks):
        return blocks.transpose(1, 0, 2)

    def by_output(self, diagonal):
        return diagonal.T

    def whole(self, blocks):
        same_output = np.eye(self.num_outputs, dtype=bool)[:, None, :]
        return _numpy_of(blocks).where(same_output, blocks.transpose(1, 0, 2)[:, :, :, None], 0.0)

    def place_columns(self, parts):
        columns = np.zeros((parts[0].shape[0], self.num_outputs, sum(part.shape[1] for part in parts)))
        start = 0
        for output, part in enumerate(parts):
            columns[:, output, start : start + part.shape[1]] = part
            start += part.shape[1]
        return columns


class Joint(BlockStructure):
    """One multi-output kernel, so that outputs depend on each other."""

    name = "joint"

    @property
    def outputs(self):
        return (tuple(range(self.num_outputs)),)

    @property
    def rows_per_point(self):
        return self.num_outputs

    def describe(self):
        return f"{self.num_outputs} correlated outputs"

    def separated(self):
        return self

    def gram(self, x, y):
        blocks = _kernels.block_covariance(self.kernels[0], x, y)
        return blocks.reshape(1, x.shape[0] * self.num_outputs, y.shape[0] * self.num_outputs)

    def diagonal(self, x):
        return _kernels.block_variance(self.kernels[0], x).reshape(1, -1)

    def columns(self, block, x, pivots):
        covariance = _kernels.block_covariance(self.kernels[block], x, x[pivots // self.num_outputs])
        chosen = jnp.take_along_axis(covariance, (pivots % self.num_outputs)[None, None, :, None], axis=3)
        return chosen.reshape(x.shape[0] * self.num_outputs, -1)

    def to_blocks(self, values):
        m, q, r = values.shape
        return values.reshape(1, m * q, r)

    def from_blocks(self, blocks):
        _, rows, columns = blocks.shape
        return blocks.reshape(rows // self.num_outputs, self.num_outputs, columns)

    def by_output(self, diagonal):
        return diagonal.reshape(-1, self.num_outputs)

    def whole(self, blocks):
        q = self.num_outputs
        return blocks.reshape(blocks.shape[1] // q, q, blocks.shape[2] // q, q)

    def place_columns(self, parts):
        return parts[0].reshape(-1, self.num_outputs, parts[0].shape[1])


def structure_of(kernel: AbstractKernel | tuple[AbstractKernel, ...], num_outputs: int) -> BlockStructure:
    """The structure of a prior with this kernel (one, or a tuple with one for each output) and number of outputs."""
    if isinstance(kernel, tuple):
        return Separate(kernel, num_outputs)
    kind = Shared if _kernels.num_outputs(kernel) is None else Joint
    return kind((kernel,), num_outputs)


def _numpy_of(values: Any) -> Any:
    """NumPy for arrays on the host, JAX's for all others."""
    return np if isinstance(values, np.ndarray) else jnp
