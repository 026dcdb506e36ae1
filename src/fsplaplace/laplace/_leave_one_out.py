r"""Each datum predicted from all others, in closed form.

With V the posterior covariance of the outputs at a datum, m their mean and N the variance of its noise, the posterior without this
datum has covariance $(V^{-1} - N^{-1})^{-1}$ and mean $m - (V^{-1} - N^{-1})^{-1} N^{-1} (y - m)$ there (Rasmussen and Williams,
2006, Section 5.4.2, for blocks of q outputs).
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from fsplaplace.host import resolve_budget, rows_of_data, to_device
from fsplaplace.laplace._conditioning import data_block
from fsplaplace.laplace._data import Part, Rows
from fsplaplace.laplace._linear_model import LinearModel, Local
from fsplaplace.laplace._predictive import local_rows
from fsplaplace.likelihoods import Likelihood


class LeaveOneOut(eqx.Module):
    """The function at each datum as the others predict it.

    Attributes:
        mean: of the function, (n, q).
        variance: epistemic variance of the function, (n, q).
        log_density: of the datum's targets, noise included, (n,); its sum compares models without new data.
    """

    mean: Float[Array, "n q"]
    variance: Float[Array, "n q"]
    log_density: Float[Array, " n"]

    @property
    def std(self) -> Float[Array, "n q"]:
        """Epistemic standard deviation of the function."""
        return jnp.sqrt(self.variance)


class Told(NamedTuple):
    """Values that a posterior was fitted to or conditioned on.

    Attributes:
        rows: inputs and targets, checked.
        likelihood: of these targets.
    """

    rows: Rows
    likelihood: Likelihood

    @classmethod
    def of(cls, x, targets, likelihood: Likelihood) -> "Told":
        """A copy of rows on the host."""
        return cls(Rows.held_together(Part(np.array(x), np.array(targets))), likelihood)


def leave_each_out(linear: LinearModel, told: Sequence[Told], width: int) -> LeaveOneOut:
    """`leave_one_out` at all rows, one set after the other, in blocks.

    Args:
        linear: the posterior, seen through the operator if the data are.
        told: what it was fitted to or conditioned on.
        width: numbers that are observed at each input.
    """
    found, before = [], 0
    for rows, likelihood in told:
        if likelihood.noise((rows.num_rows, width)) is None:
            raise ValueError(
                f"Posterior.leave_one_out: {type(likelihood).__name__} has no closed form; fit without the datum, or use Gaussian"
            )
        size = rows_of_data(24 * width * linear.scale.shape[0], resolve_budget(None), num_rows=rows.num_rows)
        for where, part in rows.blocks(size):
            local = local_rows(linear, to_device(part.inputs))
            found.append(leave_one_out(linear, local, part.targets, likelihood.rows(where), first=before + where.start))
        before += rows.num_rows
    return found[0] if len(found) == 1 else jax.tree.map(lambda *leaves: to_device(np.concatenate(leaves)), *found)


def leave_one_out(
    linear: LinearModel, local: Local, targets: Shaped[np.ndarray, "n ..."], likelihood: Likelihood, *, first: int
) -> LeaveOneOut:
    """Leave-one-out moments at n rows of the data that the posterior was fitted to.

    Args:
        linear: the posterior.
        local: its process at these rows.
        targets: of these rows.
        likelihood: Gaussian noise of these targets.
        first: the number of the first row, for messages.

    Time $O(n q^2 (q + r))$.
    """
    block, dtype = data_block(linear, local, targets, likelihood), linear.scale.dtype
    assert block.noise is not None
    noise, features, unexplained = block.noise.variance, block.features, np.asarray(local.unexplained, np.float64)
    root = np.sqrt(noise)
    whitened = features / root[:, :, None]
    leverage, vectors = np.linalg.eigh(whitened @ whitened.transpose(0, 2, 1))
    leverage = np.maximum(leverage, 0.0)
    if leverage.max() >= 1 - 10 * float(jnp.finfo(dtype).eps):
        row = first + int(np.argmax(leverage.max(axis=1)))
        raise ValueError(
            f"leave_one_out: row {row} has leverage {leverage.max():.6g}, but no datum that the posterior was fitted to reaches 1; "
            "pass the rows, targets and likelihood that it was fitted to, or fit in float64 if the noise is tiny"
        )
    gain = root[:, :, None] * vectors * (leverage / (1 - leverage))[:, None, :]
    covariance = gain @ (vectors.transpose(0, 2, 1) * root[:, None, :])
    residual = np.asarray(block.targets, np.float64).reshape(noise.shape) - block.offset
    mean = block.offset - np.einsum("nqp,np->nq", gain @ vectors.transpose(0, 2, 1), residual / root)
    carried, with_datum = np.diagonal(covariance, axis1=1, axis2=2), np.sum(features**2, axis=2)
    if not linear.missed_as_noise:
        # The share of the missed variance that data have not explained goes with what the features carry.
        unexplained = unexplained * np.divide(carried, with_datum, out=np.ones_like(carried), where=with_datum > 0)
    added = noise if linear.missed_as_noise else noise + unexplained
    total = covariance + added[:, :, None] * np.eye(noise.shape[1])
    off = residual + block.offset - mean
    squared = np.einsum("nq,nq->n", off, np.linalg.solve(total, off[:, :, None])[:, :, 0])
    log_density = -0.5 * (squared + np.linalg.slogdet(total)[1] + noise.shape[1] * np.log(2 * np.pi))
    return LeaveOneOut(*(to_device(part, dtype) for part in (mean, carried + unexplained, log_density)))
