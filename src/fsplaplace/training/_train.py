"""Algorithm 1: training with the RKHS norm of the network as regulariser."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import NamedSharding
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, as_key, checked
from fsplaplace.context import Sampler
from fsplaplace.host import host_generator, ready_to_compute, to_device
from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import Model, linearisation
from fsplaplace.observations import Observation
from fsplaplace.operators import value
from fsplaplace.parallel import map_sharded, replicate, row_sharding
from fsplaplace.prior import Prior
from fsplaplace.training._checks import check_context, check_jitter
from fsplaplace.training._loop import Objective, minimise
from fsplaplace.training._observed import TrainingRows, bring_all_near, observed_rows
from fsplaplace.training._problem import check_problem, check_types
from fsplaplace.training._trainable import HeldOutLoss, combine, default_optimizer, hold_out, partition

# Training rows at which a checkpoint's run is compared with this one, and where in units of the outputs the
# likelihood is: enough to tell functions apart, at no cost.
_PROBED_ROWS = 8
_PROBED_SHIFTS = (0.0, 1.0, -0.5)
# Steps whose mean is "the end" in a summary: single steps see random context points.
_LAST = 20


class History(eqx.Module):
    """What training recorded: one entry per step, and one per validation."""

    negative_log_likelihood: Float[Array, " steps"]
    half_squared_norm: Float[Array, " steps"]
    validation_step: Int[Array, " v"]
    validation_loss: Float[Array, " v"]

    @property
    def objective(self) -> Float[Array, " steps"]:
        """The training objective: negative log-likelihood plus half the squared norm."""
        return self.negative_log_likelihood + self.half_squared_norm

    @property
    def summary(self) -> str:
        """Steps and objective in a few words."""
        objective = np.asarray(self.objective, np.float64)
        if not objective.size:
            return "0 steps"
        last = f"{objective.size:,} steps, objective {objective[0]:.4g} -> {np.mean(objective[-_LAST:]):.4g}"
        best = np.asarray(self.validation_loss, np.float64)
        return last + (f", best validation loss {best.min():.4g}" if best.size else "")


class Trained(eqx.Module):
    """A trained network.

    Attributes:
        model: with the fitted weights.
        likelihood: with its fitted parameters.
        history: the objective at every step.
        jitter: the last that was used.
        also: the fitted likelihoods of the further observations, in their order.
    """

    model: Model
    likelihood: Likelihood
    history: History
    jitter: float = eqx.field(static=True)
    also: tuple[Likelihood, ...] = ()

    def __str__(self) -> str:
        terms = [
            float(np.mean(np.asarray(term)[-_LAST:]))
            for term in (self.history.negative_log_likelihood, self.history.half_squared_norm)
            if term.size
        ]
        lines = [f"{self.model.name} with {self.model.num_params:,} weights, trained: {self.history.summary}"]
        if terms:
            lines.append(
                f"negative log-likelihood {terms[0]:.4g}, half the squared norm under the prior {terms[1]:.4g}, at the end"
            )
        return "\n".join([*lines, f"likelihood: {type(self.likelihood).__name__}"])

    def __repr__(self) -> str:
        return f"Trained({self.model.name}, {self.model.num_params} weights, {self.history.summary})"


@checked
def train(
    model: Model,
    prior: Prior,
    likelihood: Likelihood,
    context: Sampler,
    X: ArrayLike | None,
    y: ArrayLike | None = None,
    *,
    key: KeyLike,
    also: Sequence[Observation] | None = None,
    steps: int = 5000,
    optimizer: optax.GradientTransformation | None = None,
    batch_size: int | None = None,
    num_context: int = 100,
    jitter: tuple[float, float] = (1e-2, 1e-4),
    validation: float | tuple[ArrayLike, ArrayLike] | None = None,
    patience: int = 20,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Trained:
    r"""Minimise, over the weights, with fresh context points C at every step,

    $$-\frac{n}{b} \sum_{j \in \text{batch}} \log p(y_j \mid f(x_j, w))
    + \tfrac12 (f(C, w) - \mu(C))^\top \Sigma(C, C)^{-1} (f(C, w) - \mu(C)).$$

    Both terms are sums: averaging the second over context points would weaken the prior by their number. Further
    observations (`also`) add $-(n_k / b_k) \sum_j \log p_k(y_j \mid L_k[f(\cdot, w)](x_j))$ each.

    Args:
        model: the network; `fsplaplace.as_model` makes one. Not changed.
        prior: the Gaussian-process prior.
        likelihood: of the targets given the outputs; fitted along where it is learnable.
        context: where the prior is enforced.
        X: inputs, (n, d) or (n, ...); None if nothing but `also` was observed.
        y: targets, (n,), (n, q), or labels.
        also: what was observed of the function besides its values; see `fsplaplace.Observation`.
        steps: optimiser steps.
        optimizer: any Optax optimiser; by default Adam with a step size that falls to 0 along a cosine, from 1e-2, or from
            0.5 / k if a fully connected network has a layer of k > 50 inputs: larger steps cost it the features that match
            the prior.
        batch_size: rows per step, of each kind of observation, reshuffled every epoch; all rows by default. Rows that do not fill a last batch sit
            out the epoch.
        num_context: context points per step.
        jitter: added to the diagonal of $\Sigma(C, C)$, relative to its mean: from the first value down to the second
            over the first half of the steps, in equal ratios. Large at first, because a nearly singular prior pins the
            network where it starts.
        validation: a fraction of the rows to hold out, or (X, y); the weights with the lowest held-out negative
            log-likelihood are returned, and training ends after `patience` validations without improvement (one
            every 100 steps).
        checkpoint: a file; the state is written there every 100 steps, and a run that finds its own file continues
            from it to the same weights as a run that was never stopped. Removed by you.
        progress: show a progress bar.

    Time per step: forward and reverse passes over the batch and the context points, and $O(m^3)$ for m context points.

    Examples:
        >>> trained = fsp.train(model, prior, likelihood, context, X, y, key=jr.key(1), steps=20, progress=False)
        >>> trained.history.objective.shape
        (20,)
    """
    ready_to_compute()
    also = tuple(also or ())
    check_types(model, prior, likelihood)
    if (X is None) != (y is None):
        raise ValueError("train: one of X and y is None; pass both, or neither and also=[Observation(...)]")
    if X is None and not also:
        raise ValueError("train: X is None and there are no observations; pass X and y, or also=[Observation(...)]")
    given = model
    near = bring_all_near(model, prior, X, also)
    model, prior, context = near.model, near.prior, near.sampler(context)
    data = None if X is None or y is None else check_problem(model, prior, likelihood, X, y)
    check_jitter(jitter)
    kinds, held_out = [], None
    if data is not None:
        train_rows, held_out = hold_out(model, likelihood, validation, *data, host_generator(key))
        kinds.append(TrainingRows(value, *train_rows))
    elif validation is not None:
        raise ValueError("train: validation holds out values, but X is None; leave validation out")
    kinds += [observed_rows(model, prior, each, f"also[{number}]") for number, each in enumerate(also)]
    example = kinds[0].X
    check_context(prior, context, num_context, example, key)
    trainable, fixed = partition((model.params, likelihood, *(each.likelihood for each in also)))
    objective = _RegularisedLoss(
        model,
        fixed,
        prior,
        context,
        tuple(kinds),
        values=data is not None,
        num_context=num_context,
        batch_size=batch_size,
        steps=steps,
        jitter=jitter,
    )
    found = minimise(
        objective,
        trainable,
        optimizer=optimizer or default_optimizer(model, example, steps),
        steps=steps,
        key=as_key(key),
        title="train",
        progress=progress,
        in_loop=not linearisation(model, example).convolutional,
        validate=None if held_out is None else HeldOutLoss(model, fixed, held_out[0], to_device(held_out[1])),
        patience=patience,
        checkpoint=checkpoint,
    )
    params, fitted, *others = combine(found.parameters, fixed)
    history = History(*map(jnp.asarray, (*found.terms, found.validation_step, found.validation_loss)))
    last = float(objective.jitter_at(len(found.terms[0]) - 1, maximum=max))
    return Trained(given.with_params(params), fitted, history, last, tuple(others))


class _RegularisedLoss(Objective):
    """The negative log-likelihood and half the squared norm, with all that stays the same over a run.

    The memory is this epoch's permutation of the rows, one for each kind of observation.

    Attributes:
        model: the network.
        fixed: what training does not move of the weights and the likelihood.
        prior: whose norm it is.
        context: where the norm is taken.
        kinds: inputs and targets of each kind of observation, values first.
        values: whether there are values.
        num_context: context points per step.
        batch_size: rows per step; None for all.
        steps: of the whole run, along which the jitter falls.
        jitter: its first and its last value.
        sharding: how rows are placed on the mesh, if there is one.
    """

    terms: ClassVar[tuple[str, ...]] = ("the log-likelihood", "the RKHS norm")
    model: Model
    fixed: tuple
    prior: Prior
    context: Sampler
    kinds: tuple[TrainingRows, ...]
    values: bool = eqx.field(static=True)
    num_context: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    jitter: tuple[float, float] = eqx.field(static=True)
    sharding: NamedSharding | None = eqx.field(static=True, default=None)

    @property
    def advice(self):
        return f"raise jitter (now {self.jitter}), {super().advice}"

    def evaluate(self, parameters, memory, step, key, drawn):
        points = self.context.sample(self.num_context, key=_context_key(key, step)) if drawn is None else drawn
        points = points.astype(self.model.dtype)
        params, *likelihoods = combine(parameters, self.fixed)
        batches = [self._batch(kind, order, step, key) for kind, order in zip(self.kinds, memory, strict=True)]
        # One pass through the network for values and context: half the overhead of two.
        first, seen = (self.kinds[0].rows(batches[0][1])[0], 1) if self.values else (points[:0], 0)
        inputs = jnp.concatenate([first, points])
        outputs = map_sharded(functools.partial(self.model.evaluate, params), inputs, self.sharding)
        log_likelihood = jnp.zeros((), outputs.dtype)
        for number, (kind, (_, rows)) in enumerate(zip(self.kinds, batches, strict=True)):
            X, targets = kind.rows(rows)
            # Without values the likelihood of new values, which comes first, has no rows.
            likelihood = likelihoods[number + 1 - seen]
            likelihood = likelihood if rows is None else likelihood.rows(rows)
            observed = outputs[: X.shape[0]] if number < seen else self._through(kind, params, X)
            total = jnp.sum(likelihood.log_prob(observed, targets)) * (kind.X.shape[0] / X.shape[0])
            log_likelihood = log_likelihood + total.astype(outputs.dtype)
        residual = outputs[first.shape[0] :] - self.prior.mean_at(points)
        norm = 0.5 * self.prior.squared_norm(points, residual, jitter=self.jitter_at(step))
        norm = norm.astype(log_likelihood.dtype)
        return norm - log_likelihood, ((-log_likelihood, norm), tuple(order for order, _ in batches))

    def _through(self, kind: TrainingRows, params, X):
        """What is observed of the network."""
        return map_sharded(functools.partial(self.model.through(kind.operator).evaluate, params), X, self.sharding)

    def first_memory(self):
        return tuple(np.arange(kind.X.shape[0]) for kind in self.kinds)

    def draw_on_host(self, steps, key):
        if self.context.compiled:
            return super().draw_on_host(steps, key)
        return [self.context.sample(self.num_context, key=_context_key(key, step)) for step in steps]

    def on_mesh(self):
        placed = dataclasses.replace(replicate(self), sharding=row_sharding())
        # Points drawn outside of compiled code are drawn by each process for itself.
        return placed if self.context.compiled else dataclasses.replace(placed, context=self.context)

    def probes(self, parameters):
        params, *likelihoods = combine(parameters, self.fixed)
        probes = []
        for number, kind in enumerate(self.kinds):
            rows = np.unique(np.linspace(0, kind.X.shape[0] - 1, _PROBED_ROWS).astype(int))
            (x, targets), likelihood = kind.rows(rows), likelihoods[number + (not self.values)].rows(rows)
            outputs = self._through(kind, params, x)
            densities = [likelihood.log_prob(outputs + shift, targets) for shift in _PROBED_SHIFTS]
            probes.append((outputs, self.prior.mean_at(x), self.prior.gram(x), densities))
        return probes

    def jitter_at(self, step, *, maximum: Callable = jnp.maximum):
        first, last = self.jitter
        return maximum(last, first * (last / first) ** (step / max(1, self.steps // 2)))

    def _batch(self, kind: TrainingRows, order: Int[Array, " n"], step, key):
        """This epoch's permutation of the rows, and the slice of it that this step takes (None: all rows)."""
        count = kind.X.shape[0]
        if self.batch_size is None or self.batch_size >= count:
            return order, None
        position = step % (count // self.batch_size)
        order = jax.lax.cond(position == 0, lambda: jr.permutation(_shuffle_key(key, step), count), lambda: order)
        return order, jax.lax.dynamic_slice(order, (position * self.batch_size,), (self.batch_size,))


def _context_key(key, step):
    return jr.fold_in(key, 2 * step)


def _shuffle_key(key, step):
    return jr.fold_in(key, 2 * step + 1)
