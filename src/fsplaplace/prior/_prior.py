"""The Gaussian-process prior over the network's function: kernel, mean and outputs."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
import numpy as np
from gpjax.kernels import AbstractKernel
from gpjax.mean_functions import Constant, Zero
from gpjax.parameters import val
from jax.core import Tracer
from jaxtyping import Array, Float, Num
from numpy.typing import ArrayLike

from fsplaplace import kernels
from fsplaplace.arguments import KeyLike, Range, check_squares, checked
from fsplaplace.host import check_fits, double_precision, itemsize, resolve_budget, rows_that_fit, to_device
from fsplaplace.operators import Operator
from fsplaplace.prior._factor import PriorFactor, factor_at
from fsplaplace.prior._structure import BlockStructure, structure_of
from fsplaplace.prior._through import SeenPrior


class Prior(eqx.Module):
    r"""$f \sim \mathcal{GP}(\mu, \Sigma)$ with q outputs.

    Args:
        kernel: any GPJax kernel. One kernel is shared by independent outputs; a sequence gives each output its own; a
            multi-output kernel (`fsplaplace.kernels.Helmholtz`, GPJax's ICM and LCM) correlates them.
        mean: $\mu$: a number, an array of shape (q,), a GPJax mean function, or any function from inputs (n, d) to
            (n,), (n, 1) or (n, q). Zero by default.
        num_outputs: q. Taken from `kernel` where that says it, else 1.

    Inputs of any shape (n, ...) are flattened to (n, d) for the kernel and the mean.

    Examples:
        >>> fsp.Prior(RBF(lengthscale=0.4)).gram(jnp.zeros((1, 1))).tolist()
        [[[1.0]]]
    """

    kernel: AbstractKernel | tuple[AbstractKernel, ...]
    mean: Callable
    num_outputs: int = eqx.field(static=True)

    @checked(traceable=True)
    def __init__(
        self,
        kernel: AbstractKernel | Sequence[AbstractKernel],
        *,
        mean: Callable | ArrayLike | None = None,
        num_outputs: int | None = None,
    ):
        several = isinstance(kernel, Sequence)
        parts: tuple[AbstractKernel, ...] = tuple(kernel) if several else (kernel,)
        if not parts:
            raise ValueError("Prior: kernel is an empty sequence; pass at least one kernel")
        own = len(parts) if several else kernels.num_outputs(parts[0])
        if own is not None and num_outputs not in (None, own):
            raise ValueError(f"Prior: the kernel has {own} outputs, but num_outputs is {num_outputs}; leave it out")
        if several and any(kernels.num_outputs(part) for part in parts):
            raise ValueError("Prior: a sequence of kernels must hold single-output kernels, one per output")
        self.kernel = parts if several else parts[0]
        self.num_outputs = own or num_outputs or 1
        if mean is None:
            self.mean = Zero()
        elif callable(mean):
            self.mean = mean
        else:
            self.mean = Constant(jnp.asarray(mean, dtype=float))

    def __str__(self) -> str:
        """What the prior believes, as `fsplaplace.describe` says it without data."""
        from fsplaplace.prior._describe import describe

        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(self)):
            return repr(self)
        return str(describe(self, num_features=max(map(_least_columns, self.blocks.kernels))))

    @property
    def structure(self) -> Literal["shared", "separate", "joint"]:
        """One kernel for independent outputs, one kernel each, or one covariance across outputs."""
        return self.blocks.name

    @functools.cached_property
    def blocks(self) -> BlockStructure:
        """How the covariance falls into blocks: what every computation that depends on `structure` asks."""
        return structure_of(self.kernel, self.num_outputs)

    def check_columns(self, num_columns: int) -> None:
        """Refuse a kernel that does not fit inputs with this number of columns."""
        for kernel in self.blocks.kernels:
            kernels.check_columns(kernel, num_columns)

    def check_parameters(self) -> None:
        """Refuse a kernel with a parameter that cannot be computed with: zero, infinite, NaN, or with squares that overflow."""
        for leaf in jax.tree.leaves(self.kernel):
            if eqx.is_inexact_array(leaf) and not isinstance(leaf, Tracer):
                values = np.asarray(leaf)
                if not np.all(np.isfinite(values)):
                    # A parameter is kept by its logarithm or the like: zero is not finite either.
                    raise ValueError(
                        "Prior: a parameter of the kernel is zero, infinite or NaN; pass positive, finite numbers"
                    )
                check_squares(values, "Prior: a parameter of the kernel", np.float32)

    @property
    def on_features(self) -> bool:
        """Whether a kernel acts on features of a frozen network."""
        return kernels.has_features(self.blocks.kernels)

    def with_bases_of(self, fitted: "Prior") -> "Prior":
        """This prior with mean and parameters of what `on_columns` made of it, after those were fitted."""
        if fitted.on_features:
            return fitted
        own, other = (each if isinstance(each, tuple) else (each,) for each in (self.kernel, fitted.kernel))
        changed = tuple(kernels.with_bases_of(*pair) for pair in zip(own, other, strict=True))
        kernel = changed if isinstance(self.kernel, tuple) else changed[0]
        return Prior(kernel, mean=fitted.mean, num_outputs=self.num_outputs)

    def on_columns(self, x: Float[Array, "n d"]) -> tuple["Prior", Float[Array, "n c"]]:
        """The same covariances with features of frozen networks (`fsplaplace.kernels.OnFeatures`) computed beforehand.

        A prior and inputs whose columns are those features; this prior and these inputs if it has none. For whoever evaluates
        covariances of the same inputs many times; the mean is not for those columns.
        """
        several = isinstance(self.kernel, tuple)
        found = kernels.on_columns(self.kernel if isinstance(self.kernel, tuple) else (self.kernel,), x)
        if found is None:
            return self, x
        kernel = found.kernels if several else found.kernels[0]
        return Prior(kernel, num_outputs=self.num_outputs), found.x

    def independent_parts(self) -> list["Prior"]:
        """Priors with mean zero of the parts of the function that are independent of each other.

        One for each output, or one of all outputs for a multi-output kernel; in the order of the blocks of
        `blocks.separated()`.
        """
        return [Prior(kernel) for kernel in self.blocks.separated().kernels]

    @checked(traceable=True)
    def through(self, operator: Operator) -> SeenPrior:
        """The prior of what a linear operator makes of the function."""
        return SeenPrior(self, operator)

    @checked(traceable=True, finite=True)
    def mean_at(self, x: Float[Array, "n ..."]) -> Float[Array, "n q"]:
        r"""$\mu(x)$."""
        flat = _flatten(x)
        values = self.mean(flat)
        if values is None or jnp.iscomplexobj(values):
            seen = "nothing" if values is None else "complex numbers"
            raise ValueError(
                f"Prior: mean returned {seen}; make it return one real number for each row, or for each output"
            )
        values = jnp.asarray(values).reshape(flat.shape[0], -1)
        if values.shape[1] not in (1, self.num_outputs):
            raise ValueError(f"Prior: mean returned {values.shape[1]} outputs, but the prior has {self.num_outputs}")
        return jnp.broadcast_to(values, (flat.shape[0], self.num_outputs)).astype(flat.dtype)

    @checked(traceable=True, finite=True)
    def variance(self, x: Float[Array, "n ..."]) -> Float[Array, "n q"]:
        r"""$\mathrm{diag}\,\Sigma(x, x)$, per output. Time and memory $O(n q)$."""
        blocks = self.blocks
        return blocks.by_output(blocks.diagonal(self._columns(x)))

    @checked(traceable=True, finite=True)
    def correlation(self, x: Float[Array, "n ..."], y: Float[Array, "n ..."]) -> Float[Array, "n q"]:
        r"""Correlation of $f(x_i)$ with $f(y_i)$ for n pairs of points, per output; 0 where the function does not vary.

        Time and memory $O(n q)$, $O(n q^2)$ for a multi-output kernel.
        """
        if x.shape != y.shape:
            raise ValueError(f"Prior.correlation: x has shape {x.shape}, but y has {y.shape}; pass pairs of points")
        blocks = self.blocks

        def pair(one, other):
            covariance = blocks.gram(one[None], other[None])
            return blocks.by_output(jnp.diagonal(covariance, axis1=1, axis2=2))[0]

        variance = self.variance(x) * self.variance(y)
        varies = variance > 0
        between = jax.vmap(pair)(_flatten(x), _flatten(y))
        return jnp.where(varies, between / jnp.sqrt(jnp.where(varies, variance, 1.0)), 0.0)

    @checked(traceable=True, finite=True)
    def covariance(self, x: Float[Array, "n ..."], y: Float[Array, "m ..."]) -> Float[Array, "n q m q"]:
        r"""$\Sigma(x, y)$ between all points and outputs. Memory $O(n m q^2)$: for small sets."""
        return self.blocks.whole(self.gram(x, y))

    @checked(traceable=True, finite=True)
    def gram(self, x: Float[Array, "n ..."], y: Float[Array, "m ..."] | None = None) -> Float[Array, "b N M"]:
        r"""The distinct diagonal blocks of $\Sigma(x, y)$.

        One block of shape (n, m) for a shared kernel, q of them for one kernel per output, and one of shape (nq, mq),
        points first, for a multi-output kernel.
        """
        x = self._columns(x)
        other = x if y is None else self._columns(y)
        if x.shape[1] != other.shape[1]:
            raise ValueError(f"Prior: x has {x.shape[1]} columns, but y has {other.shape[1]}; pass points of one space")
        return self.blocks.gram(x, other)

    @checked(traceable=True)
    def gram_product(
        self,
        x: Float[Array, "m ..."],
        vectors: Float[Array, "m q r"],
        *,
        memory_budget: float | None = None,
    ) -> Float[Array, "m q r"]:
        r"""$\Sigma(x, x) V$ without ever holding more of $\Sigma$ than the budget allows.

        Time $O(m^2 (d + q r))$; memory: one block of rows of $\Sigma$, at most half the budget.
        """
        prior, x = self.on_columns(_flatten(x))
        # The kernel's distance and its value: two row blocks live at once.
        row_bytes = 2 * self.blocks.numbers_per_pair * x.shape[0] * itemsize(x.dtype)
        rows = rows_that_fit(row_bytes, resolve_budget(memory_budget) / 2, most=x.shape[0])
        return _blocked_product(prior, x, vectors, rows)

    def squared_norm(
        self, x: Float[Array, "m ..."], residual: Float[Array, "m q"], *, jitter: float | Float[Array, ""]
    ) -> Float[Array, ""]:
        r"""$r^\top (\Sigma(x, x) + \epsilon I)^{-1} r$, the RKHS norm of the interpolant of $r$, $\epsilon$ being
        `jitter` times the mean of the diagonal.

        Time $O(m^3)$, memory $O(m^2)$ per distinct block; differentiable; float64 when JAX's x64 mode is on.
        """
        x, residual = double_precision((x, residual))
        blocks = double_precision(self).gram(x)
        right = self.to_blocks(residual[:, :, None].astype(blocks.dtype))

        def one(block, columns):
            nugget = jitter * jnp.mean(jnp.diagonal(block))
            lower = jnp.linalg.cholesky(block + nugget * jnp.eye(block.shape[0], dtype=block.dtype))
            return jnp.sum(jsl.solve_triangular(lower, columns, lower=True) ** 2)

        return jnp.sum(jax.vmap(one)(blocks, right))

    @checked(finite=True, ranges={"rtol": Range("0 or a number below 1", least=0, below=1)})
    def factor(
        self,
        context_points: Float[Array, "m ..."],
        *,
        rank: int | None = None,
        rtol: float = 1e-6,
        captured: float = 1.0,
        memory_budget: float | None = None,
    ) -> PriorFactor:
        r"""$B$ with $B B^\top \approx \Sigma(C, C)$, in float64 whatever the inputs' dtype.

        By eigendecomposition up to 2,000 points, by pivoted Cholesky beyond (time and memory linear in m). Outputs
        that share a kernel share one factorisation.

        Args:
            context_points: $C$, shape (m, ...).
            rank: the most columns in all, over all outputs; no limit by default up to 2,000 points, 500 per block
                beyond. More than the rank of $\Sigma(C, C)$ has no effect.
            rtol: directions whose eigenvalue is below `rtol` times the largest are dropped.
            captured: beyond 2,000 points, stop early when the factor has this share of the trace of $\Sigma(C, C)$; what was
                reached is `PriorFactor.captured`.
            memory_budget: bytes; a quarter of RAM by default.
        """
        independent = self.blocks.num_independent
        if rank is not None and rank < independent:
            raise ValueError(
                f"Prior.factor: rank is {rank}; pass {independent} or more, one for each independent output, or None "
                "for no limit"
            )
        return factor_at(self, self._columns(context_points), rank, rtol, captured, resolve_budget(memory_budget))

    @checked(finite=True)
    def sample(self, x: Num[Array, "n ..."], *, key: KeyLike, num_samples: int = 1) -> Float[Array, "s n q"]:
        r"""Functions drawn from the prior at the points `x`. Time $O((nq)^3)$ for a multi-output kernel, else $O(n^3)$."""
        x = x if isinstance(x, jax.Array) else to_device(x)
        x = _flatten(x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float))
        # All directions, whatever the number of points: a draw with fewer would have too small a variance.
        check_fits(num_samples, 16 * x.shape[0] * self.num_outputs, "Prior.sample: num_samples")
        factor = self.factor(x, rank=x.shape[0] * self.num_outputs, rtol=1e-12).columns
        noise = jr.normal(key, (num_samples, factor.shape[2]), x.dtype)
        return self.mean_at(x) + jnp.einsum("nqr,sr->snq", factor.astype(x.dtype), noise)

    def _columns(self, x: Float[Array, "n ..."]) -> Float[Array, "n d"]:
        """Points as rows, with the columns that the kernel uses: JAX would take another one where one is missing."""
        flat = _flatten(x)
        self.check_parameters()
        self.check_columns(flat.shape[1])
        return flat

    def to_blocks(self, values: Float[Array, "m q r"]) -> Float[Array, "b N c"]:
        """Right-hand sides for `gram`'s blocks from values at points and outputs."""
        return self.blocks.to_blocks(values)

    def from_blocks(self, blocks: Float[Array, "b N c"]) -> Float[Array, "m q r"]:
        """The inverse of `to_blocks`."""
        return self.blocks.from_blocks(blocks)


def _flatten(x: Float[Array, "n ..."]) -> Float[Array, "n d"]:
    if not isinstance(x, jax.Array):
        x = to_device(x)
        x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)
    if x.ndim < 2:
        raise ValueError(f"Prior: x has shape {x.shape}; pass points as (n, d)")
    return x.reshape(x.shape[0], -1)


@eqx.filter_jit
def _blocked_product(prior: Prior, x, vectors, rows: int):
    right = prior.to_blocks(vectors)
    if rows >= x.shape[0]:
        return prior.from_blocks(prior.gram(x) @ right)
    num_blocks = -(-x.shape[0] // rows)
    padded = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (num_blocks * rows - x.shape[0], x.shape[1]))])
    products = jax.lax.map(lambda part: prior.gram(part, x) @ right, padded.reshape(num_blocks, rows, -1))
    stacked = jax.vmap(prior.from_blocks)(products)
    return stacked.reshape(num_blocks * rows, *stacked.shape[2:])[: x.shape[0]]


def _least_columns(kernel: AbstractKernel) -> int:
    """The fewest input columns that a kernel can act on."""
    if isinstance(kernel, kernels.OnFeatures):
        return math.prod(kernel.shape)
    parts = jax.tree.leaves(kernel, is_leaf=lambda node: isinstance(node, AbstractKernel) and node is not kernel)
    inner = [_least_columns(part) for part in parts if isinstance(part, AbstractKernel)]
    dims, length = kernel.active_dims, getattr(kernel, "lengthscale", None)
    own = max(dims, default=0) + 1 if isinstance(dims, list) else 1 if length is None else jnp.size(val(length))
    return max(own, 2 if isinstance(kernel, kernels.Helmholtz) else 1, *inner, 1)
