"""The Laplace approximation under a Gaussian-process prior: one entry for both forms."""

from collections.abc import Iterable
from typing import Literal

import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from fsplaplace.context import Segments, throughout
from fsplaplace.host import host_generator, one_blas_thread, resolve_budget, to_device
from fsplaplace.laplace._covariance_form import covariance_form
from fsplaplace.laplace._data import Rows, check_rows
from fsplaplace.laplace._plan import num_training
from fsplaplace.laplace._posterior import Posterior
from fsplaplace.laplace._precision_form import precision_form
from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import Model
from fsplaplace.prior import Prior

_NUM_GUARDS = 200
_NUM_CONTEXT = 500
_NEIGHBOURS = 6


def laplace(
    model: Model,
    prior: Prior,
    likelihood: Likelihood,
    X: Float[ArrayLike, "n ..."] | Iterable[tuple[ArrayLike, ArrayLike]],
    y: ArrayLike | None = None,
    *,
    context_points: Float[ArrayLike, "m ..."] | None = None,
    form: Literal["covariance", "precision"] = "covariance",
    mean: Literal["auto", "network", "refined"] = "auto",
    rank: int | None = None,
    rtol: float | None = None,
    delta: float | None = None,
    solver: Literal["auto", "dense", "normal-equations", "golub-kahan"] = "auto",
    passes: int = 3,
    guard_points: Float[ArrayLike, "g ..."] | None = None,
    include_training: bool = True,
    missed_as_noise: bool | None = None,
    memory_budget: float | None = None,
    key: PRNGKeyArray | None = None,
) -> Posterior:
    r"""The posterior over the weights of a trained network under the prior, linearised at those weights.

    The covariance form (default) pulls the prior's covariance at the context points back to the weights,

    $$S_0 = J_C^\top (J_C J_C^\top + \delta \lVert J_C \rVert^2 I)^{-1} B, \quad B B^\top \approx \Sigma(C, C), \qquad
    A = I + \sum_i (J_i S_0)^\top H_i (J_i S_0), \qquad \mathrm{Cov}[w] = S_0 A^{-1} S_0^\top,$$

    and never exceeds the prior it starts from. The precision form is the paper's Algorithm 2.

    Args:
        model: the trained network (by `fsplaplace.train` or elsewhere). Not changed.
        prior, likelihood: as in `fsplaplace.train`.
        X, y: inputs and targets as arrays, which may be memory-mapped, or X an iterable of (X, y) batches that starts anew
            each time it is iterated over (a list, a torch DataLoader). What does not fit is read again for each
            pass, in blocks; memory does not grow with n.
        context_points: where the prior is enforced, (m, ...): cover every place you will predict at, and include the
            training inputs. Repeated points count once. By default 500 points of `context.throughout(X)` and the
            training inputs, see `include_training`.
        form: "covariance", or "precision" for the paper's algorithm.
        mean: what `predict` returns as mean: the network's output; the mode of the linearised model ("refined"), which
            finishes what training left undone; or the better of the two at guard and context points ("auto"): the one
            closer to the exact Gaussian process given the data, or 1,000 of more than 2,000 targets (Gaussian likelihood),
            else the one with the lower training objective. The precision form has the network's only.
        rank: the most directions to keep; no limit by default up to 2,000 context points, 500 for each output beyond, where
            fewer are kept if they have 99.9 % of the prior variance at those points (more, if what is missed would show
            in Gaussian noise); `diagnostics.captured` says what was reached. More than there are has no effect.
        rtol: relative size below which directions of the prior are dropped. By default 1e-6, or less where Gaussian noise
            is so small that a hundredth of its variance would be dropped.
        delta: relative ridge of the pull-back. By default the power of ten for which the posterior at the guard points,
            given up to 300 of the data, diverges least from the exact Gaussian process's (Gaussian likelihood, dense
            solver), or the covariance implied there is closest to the prior's: about 1e-10 where the features can hold
            the prior, larger where they would otherwise oscillate between context points.
        solver: "dense" (an N x p Jacobian and an N x N eigenproblem), "normal-equations" (one pass in blocks and p x p
            problems: many context points, few weights), "golub-kahan" (matrix-free), or by size.
        passes: blocks of the matrix-free basis.
        guard_points: points off the context set at which the implied prior is compared with the kernel, the two means
            are compared, and the precision form's variance is bounded (only if given here, there). By default 200
            points, two thirds between pairs of context points, the rest between neighbouring training inputs.
        include_training: add training inputs to the context points of the covariance form, up to 2,000 rows (points times
            outputs) in all, and at least 500: the prior must hold where the data are.
        missed_as_noise: add the prior variance that the features miss at a training input,
            $\max(0, k(x_i, x_i) - \lVert J_i S_0 \rVert^2)$, to the variance of Gaussian noise there and of new targets, as
            the fully independent training conditional of sparse Gaussian processes does (covariance form). Without it what the
            network cannot represent is explained as function, with false confidence where the noise is small; with it,
            functions that vary smoothly through the data follow them less closely. Chosen with `delta` by default;
            always done by the matrix-free solver.
        memory_budget: bytes any single stage may take; a quarter of RAM by default.
        key: for the default guard and context points; a fixed key by default.
    """
    data = check_rows(model, prior, likelihood, X, y)
    for name, value, allowed in (
        ("form", form, ("covariance", "precision")),
        ("mean", mean, ("auto", "network", "refined")),
        ("solver", solver, ("auto", "dense", "normal-equations", "golub-kahan")),
    ):
        if value not in allowed:
            raise ValueError(f"laplace: {name} is {value!r}; pass one of {', '.join(map(repr, allowed))}")
    if rank is not None and rank < 1:
        raise ValueError(f"laplace: rank is {rank}; pass 1 or more, or None for no limit")
    if not ((rtol is None or rtol > 0) and (delta is None or delta > 0) and passes >= 1):
        raise ValueError(f"laplace: rtol ({rtol}), delta ({delta}) and passes ({passes}) must be positive")
    key = jr.key(0) if key is None else key
    generator = host_generator(key)
    points = _context_points(model, data, context_points, key)
    if include_training and form == "covariance":
        most = num_training(points.shape[0], prior.num_outputs)
        points = _with_training(points, data, most=most, generator=generator)
    given = guard_points is not None
    guards = _checked(model, guard_points, data, "guard_points") if given else _between(points, data, generator, key)
    budget = resolve_budget(memory_budget)
    if form == "precision":
        if mean == "refined":
            raise ValueError(
                "laplace: the precision form has the network's mean only; pass form='covariance' for mean='refined'"
            )
        with one_blas_thread():
            return precision_form(
                model, prior, likelihood, data, points, guards, bound_guards=given, rank=rank, budget=budget
            )
    with one_blas_thread():
        return covariance_form(
            model, prior, likelihood, data, points, guards,
            mean=mean, rank=rank, rtol=rtol, delta=delta, solver=solver, passes=passes,
            missed_as_noise=missed_as_noise, budget=budget,
        )  # fmt: skip


def _context_points(model: Model, data: Rows, context_points, key) -> Float[Array, "m ..."]:
    if context_points is not None:
        return _checked(model, context_points, data, "context_points")
    if len(data.row_shape) != 1:
        raise ValueError(
            f"laplace: there are no default context points for inputs of shape {data.row_shape}; pass context_points, for instance "
            "images from another data set"
        )
    return _distinct(np.asarray(throughout(data.held().inputs).sample(_NUM_CONTEXT, key=key), dtype=model.dtype))


def _with_training(points, data: Rows, *, most: int, generator: np.random.Generator) -> Float[Array, "k ..."]:
    index = np.arange(data.num_rows)
    if data.num_rows > most:
        index = generator.permutation(data.num_rows)[:most]
    return _distinct(np.concatenate([np.asarray(points), data.take(index).inputs]))


def _checked(model: Model, points, data: Rows, argument: str) -> Float[Array, "m ..."]:
    points = model.check_inputs(points, argument=argument)
    if points.shape[1:] != data.row_shape:
        raise ValueError(
            f"{argument} has rows of shape {points.shape[1:]}, but X has {data.row_shape}; pass points of the same width"
        )
    return _distinct(points) if argument == "context_points" else points


def _distinct(points: Float[ArrayLike, "m ..."]) -> Float[Array, "k ..."]:
    """Points without exact repetitions, in their order: a repeated point adds nothing to the prior."""
    values = np.asarray(points)
    _, first = np.unique(values.reshape(values.shape[0], -1), axis=0, return_index=True)
    return to_device(values[np.sort(first)])


def _between(points: Float[Array, "m ..."], data: Rows, generator: np.random.Generator, key) -> Float[Array, "g ..."]:
    """Points off the context set: between random pairs of its points, and between neighbouring training inputs."""
    values = np.asarray(points)
    local = len(data.row_shape) == 1 and data.num_rows > 1
    count = 2 * _NUM_GUARDS // 3 if local else _NUM_GUARDS
    first, second = generator.integers(0, values.shape[0], (2, count))
    weight = generator.uniform(size=count).astype(values.dtype).reshape(-1, *[1] * (values.ndim - 1))
    across = (1 - weight) * values[first] + weight * values[second]
    if not local:
        return to_device(across)
    near = Segments(data.held().inputs, neighbours=_NEIGHBOURS).sample(_NUM_GUARDS - count, key=key)
    return to_device(generator.permutation(np.concatenate([across, near])))
