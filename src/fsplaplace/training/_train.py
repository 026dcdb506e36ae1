"""Algorithm 1: training with the RKHS norm of the network as regulariser."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.sharding import NamedSharding
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike

from fsplaplace.context import Sampler
from fsplaplace.host import host_generator, one_blas_thread, progress_bar
from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import Model, linearisation
from fsplaplace.parallel import gather, map_sharded, replicate, row_sharding
from fsplaplace.prior import Prior
from fsplaplace.training import _checkpoint
from fsplaplace.training._checks import check_context, check_finite, check_options
from fsplaplace.training._problem import check_problem
from fsplaplace.training._trainable import adam, combine, hold_out, partition

# Steps between visits to the host: for progress, validation, checkpoints and the check for divergence.
_CHUNK = 100


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


class Trained(eqx.Module):
    """A trained network: `model`, `likelihood` with its fitted parameters, `history`, and the last jitter used."""

    model: Model
    likelihood: Likelihood
    history: History
    jitter: float = eqx.field(static=True)


def train(
    model: Model,
    prior: Prior,
    likelihood: Likelihood,
    context: Sampler,
    X: ArrayLike,
    y: ArrayLike,
    *,
    key: PRNGKeyArray,
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

    Both terms are sums: averaging the second over context points would weaken the prior by their number.

    Args:
        model: the network; `fsplaplace.as_model` makes one. Not changed.
        prior: the Gaussian-process prior.
        likelihood: of the targets given the outputs; fitted along where it is learnable.
        context: where the prior is enforced.
        X: inputs, (n, d) or (n, ...).
        y: targets, (n,), (n, q), or labels.
        steps: optimiser steps.
        optimizer: any Optax optimiser; by default Adam with a step size that falls from 1e-2 to 0 along a cosine.
        batch_size: rows per step, reshuffled every epoch; all rows by default. Rows that do not fill a last batch sit
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
    """
    X, targets = check_problem(model, prior, likelihood, X, y)
    check_options(steps=steps, num_context=num_context, patience=patience, jitter=jitter, batch_size=batch_size)
    train_rows, held_out = hold_out(model, likelihood, validation, X, targets, host_generator(key))
    check_context(prior, context, num_context, X, key)
    problem = _Problem(
        prior,
        context,
        *train_rows,
        num_context=num_context,
        batch_size=batch_size,
        steps=steps,
        jitter=jitter,
    )
    optimizer = optimizer or adam(1e-2, steps)
    trainable, fixed = partition((model.params, likelihood))
    state = _initial_state(optimizer, trainable, problem.X.shape[0])
    record = _Record.empty(trainable)
    if checkpoint is not None:
        identity = _checkpoint.fingerprint(
            problem, model, fixed, state, key, _first_update(optimizer, trainable), held_out
        )
        state, record = _checkpoint.restore(checkpoint, (state, record), identity)
    # After the fingerprint: a run may continue on another number of devices.
    problem = problem.on_mesh()
    state, rest, placed, held_out = replicate((state, fixed, model, held_out))

    advance = _advance_by_steps if linearisation(model, X).convolutional else _advance_in_loop
    with one_blas_thread(), progress_bar("Training", total=steps, show=progress) as report:
        while int(state.step) < steps and not record.stopped(patience, held_out):
            stop = min(steps, (int(state.step) // _CHUNK + 1) * _CHUNK)
            state, nll, norm = advance(state, rest, placed, problem, optimizer, key, stop)
            check_finite(nll, norm, int(state.step), problem.jitter)
            record = record.extend(nll, norm)
            if held_out is not None:
                record = record.validate(state, _validation_loss(state.trainable, rest, placed, *held_out))
            if checkpoint is not None and jax.process_index() == 0:
                _checkpoint.write(checkpoint, (state, record), identity)
            report(int(state.step), f"objective {float(nll[-1] + norm[-1]):.4g}")

    best = gather(record.best if held_out is not None else state.trainable)
    params, fitted = combine(best, fixed)
    history = History(*map(jnp.asarray, (record.nll, record.norm, record.validation_step, record.validation_loss)))
    return Trained(
        model.with_params(params), fitted, history, float(problem.jitter_at(len(record.nll) - 1, maximum=max))
    )


class _Problem(eqx.Module):
    """Data and prior of the objective: what stays the same over a run."""

    prior: Prior
    context: Sampler
    X: Float[Array, "n ..."]
    targets: Array
    num_context: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    jitter: tuple[float, float] = eqx.field(static=True)
    sharding: NamedSharding | None = eqx.field(static=True, default=None)

    def on_mesh(self) -> "_Problem":
        """Rows of every step over the devices of the mesh, where there is one."""
        placed = dataclasses.replace(replicate(self), sharding=row_sharding())
        # Points drawn outside of compiled code are drawn by each process for itself.
        return placed if self.context.compiled else dataclasses.replace(placed, context=self.context)

    def jitter_at(self, step, *, maximum: Callable = jnp.maximum):
        first, last = self.jitter
        return maximum(last, first * (last / first) ** (step / max(1, self.steps // 2)))

    def batch(self, state: "_State", key):
        """This epoch's permutation of the rows, and the slice of it that this step takes (None: all rows)."""
        count = self.X.shape[0]
        if self.batch_size is None or self.batch_size >= count:
            return state.order, None
        position = state.step % (count // self.batch_size)
        order = jax.lax.cond(
            position == 0, lambda: jr.permutation(_shuffle_key(key, state.step), count), lambda: state.order
        )
        return order, jax.lax.dynamic_slice(order, (position * self.batch_size,), (self.batch_size,))


class _State(eqx.Module):
    trainable: tuple
    optimizer: optax.OptState
    order: Int[Array, " n"]
    step: Int[Array, ""]


class _Record(eqx.Module):
    """History so far, on the host, and the best weights by validation."""

    nll: Float[np.ndarray, " steps"]
    norm: Float[np.ndarray, " steps"]
    validation_step: Int[np.ndarray, " v"]
    validation_loss: Float[np.ndarray, " v"]
    best: tuple

    @classmethod
    def empty(cls, trainable):
        none = np.zeros((0,))
        return cls(none, none, np.zeros((0,), np.int32), none, trainable)

    def extend(self, nll, norm):
        arrays = (np.append(self.nll, nll), np.append(self.norm, norm))
        return eqx.tree_at(lambda record: (record.nll, record.norm), self, arrays)

    def validate(self, state, loss):
        improved = self.validation_loss.size == 0 or bool(loss < np.min(self.validation_loss))
        return _Record(
            self.nll,
            self.norm,
            np.append(self.validation_step, state.step),
            np.append(self.validation_loss, loss),
            state.trainable if improved else self.best,
        )

    def stopped(self, patience, held_out):
        losses = self.validation_loss
        return held_out is not None and losses.size > patience and int(np.argmin(losses)) < losses.size - patience


def _objective(trainable, fixed, model: Model, problem: _Problem, rows, points, step):
    params, likelihood = combine(trainable, fixed)
    count = problem.X.shape[0]
    X, targets = (problem.X, problem.targets) if rows is None else (problem.X[rows], problem.targets[rows])
    likelihood = likelihood if rows is None else likelihood.rows(rows)
    # One pass through the network for data and context: half the overhead of two.
    inputs = jnp.concatenate([X, points])
    outputs = map_sharded(functools.partial(model.evaluate, params), inputs, problem.sharding)
    log_likelihood = jnp.sum(likelihood.log_prob(outputs[: X.shape[0]], targets)) * (count / X.shape[0])
    residual = outputs[X.shape[0] :] - problem.prior.mean_at(points)
    norm = 0.5 * problem.prior.squared_norm(points, residual, jitter=problem.jitter_at(step))
    norm = norm.astype(log_likelihood.dtype)
    return norm - log_likelihood, (-log_likelihood, norm)


def _step(state: _State, fixed, model, problem, optimizer, key, points=None):
    if points is None:
        points = problem.context.sample(problem.num_context, key=_context_key(key, state.step))
    points = points.astype(model.dtype)
    order, rows = problem.batch(state, key)
    gradient = eqx.filter_grad(_objective, has_aux=True)
    gradients, (nll, norm) = gradient(state.trainable, fixed, model, problem, rows, points, state.step)
    updates, inner = optimizer.update(gradients, state.optimizer, state.trainable)
    return _State(eqx.apply_updates(state.trainable, updates), inner, order, state.step + 1), nll, norm


@eqx.filter_jit
def _initial_state(optimizer, trainable, num_rows: int) -> _State:
    return _State(trainable, optimizer.init(trainable), jnp.arange(num_rows), jnp.zeros((), jnp.int32))


@eqx.filter_jit
def _loop(state, fixed, model, problem, optimizer, key, points, stop):
    """Steps up to `stop`, which is not a static number: one program serves every chunk, also after a resume."""
    start = state.step

    def body(carry):
        state, nll, norm = carry
        offset = state.step - start
        state, nll_now, norm_now = _step(
            state, fixed, model, problem, optimizer, key, None if points is None else points[offset]
        )
        return state, nll.at[offset].set(nll_now), norm.at[offset].set(norm_now)

    blank = jnp.zeros((_CHUNK,), model.dtype)
    return jax.lax.while_loop(lambda carry: carry[0].step < stop, body, (state, blank, blank))


def _advance_in_loop(state, fixed, model, problem, optimizer, key, stop):
    begin = int(state.step)
    points = None
    if not problem.context.compiled:
        points = jnp.stack([_host_points(problem, key, step) for step in range(begin, begin + _CHUNK)])
    state, nll, norm = _loop(state, fixed, model, problem, optimizer, key, points, jnp.asarray(stop))
    return state, np.asarray(nll)[: stop - begin], np.asarray(norm)[: stop - begin]


def _advance_by_steps(state, fixed, model, problem, optimizer, key, stop):
    """One compiled step at a time: on the CPU a convolution is several times slower inside a compiled loop."""
    records = []
    for step in range(int(state.step), stop):
        points = None if problem.context.compiled else _host_points(problem, key, step)
        state, nll, norm = _compiled_step(state, fixed, model, problem, optimizer, key, points)
        records.append((nll, norm))
    nll, norm = np.asarray(records).T
    return state, nll, norm


_compiled_step = eqx.filter_jit(_step)


def _host_points(problem, key, step):
    return problem.context.sample(problem.num_context, key=_context_key(key, step))


def _context_key(key, step):
    return jr.fold_in(key, 2 * step)


def _shuffle_key(key, step):
    return jr.fold_in(key, 2 * step + 1)


@eqx.filter_jit
def _first_update(optimizer, trainable):
    """What the optimiser makes of gradients of one: its settings, as far as they can be seen from outside."""
    gradients = jax.tree.map(jnp.ones_like, trainable)
    return optimizer.update(gradients, optimizer.init(trainable), trainable)[0]


@eqx.filter_jit
def _validation_loss(trainable, fixed, model, X, targets):
    params, likelihood = combine(trainable, fixed)
    return -jnp.mean(likelihood.log_prob(model.evaluate(params, X), targets))
