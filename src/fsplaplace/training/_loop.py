"""One compiled optimisation loop, for `train` and for every method that is trained."""

import abc
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from fsplaplace.host import check_target, one_blas_thread, progress_bar
from fsplaplace.parallel import gather, replicate
from fsplaplace.training import _checkpoint
from fsplaplace.training._fingerprint import fingerprint

# Steps between visits to the host: for progress, validation, checkpoints and the check for divergence.
_CHUNK = 100
# Compiled steps cannot be interrupted: so long at most until Ctrl-C is heard.
_PATIENCE_SECONDS = 0.5


class Objective(eqx.Module):
    """What is minimised, with the data it is about.

    Its arrays are arguments of the compiled program, so that two runs of one shape share it.

    Attributes:
        terms: names of the numbers that `evaluate` returns beside the value, for messages.
    """

    terms: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def evaluate(
        self, parameters: PyTree, memory: PyTree, step: Int[Array, ""], key: PRNGKeyArray, drawn: PyTree
    ) -> tuple[Float[Array, ""], tuple[tuple[Float[Array, ""], ...], PyTree]]:
        """The value; and its terms with the memory for the next step.

        Args:
            parameters: where to evaluate.
            memory: what the last step handed on; `first_memory` at step 0.
            step: number of the step.
            key: of the whole run.
            drawn: what `draw_on_host` returned for this step.
        """

    def first_memory(self) -> PyTree:
        """What `evaluate` carries from step to step; nothing by default."""
        return None

    def draw_on_host(self, steps: range, key: PRNGKeyArray) -> list[PyTree]:
        """For each step the random numbers that a compiled program cannot draw; none by default."""
        return [None] * len(steps)

    def on_mesh(self) -> "Objective":
        """The objective with its arrays on every device of the mesh, if there is one."""
        return replicate(self)

    def probes(self, parameters: PyTree) -> PyTree:
        """Outputs of the functions inside, by which a checkpoint knows its run; none by default."""
        return None

    @property
    def advice(self) -> str:
        """What to change when a term is not finite."""
        return "lower the learning rate of `optimizer`, or run in float64"


class OneTerm(Objective):
    """An objective that is one number, a function of the parameters and a key that is new at every step."""

    terms: ClassVar[tuple[str, ...]] = ("the objective",)

    @abc.abstractmethod
    def __call__(self, parameters: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        """The value at these parameters."""

    def evaluate(self, parameters, memory, step, key, drawn):
        value = self(parameters, jr.fold_in(key, step))
        return value, ((value,), memory)


class Minimum(eqx.Module):
    """Where a run ended.

    Attributes:
        parameters: at the last step, or those with the lowest validation loss.
        terms: one array for each of the objective's terms, with one entry per step.
        validation_step: number of steps before each validation.
        validation_loss: the loss then.
    """

    parameters: PyTree
    terms: tuple[Float[np.ndarray, " steps"], ...]
    validation_step: Int[np.ndarray, " v"]
    validation_loss: Float[np.ndarray, " v"]


def minimise(
    objective: Objective,
    start: PyTree,
    *,
    optimizer: optax.GradientTransformation,
    steps: int,
    key: PRNGKeyArray,
    title: str,
    progress: bool,
    in_loop: bool = True,
    validate: Any = None,
    patience: int = 20,
    checkpoint: str | Path | None = None,
) -> Minimum:
    """The parameters after `steps` optimiser steps, and the objective's terms at each step.

    Args:
        objective: what to minimise.
        start: a pytree of arrays (None where nothing is to be fitted).
        optimizer: any Optax optimiser.
        steps: number of steps.
        key: of the run.
        title: of the progress bar and of errors.
        progress: show a progress bar.
        in_loop: false for convolutional networks, which the CPU runs several times faster outside a compiled loop.
        validate: a pytree with `__call__(parameters)`; the parameters with the lowest value are returned, looked at
            every 100 steps, and the run ends after `patience` looks without improvement.
        patience: see `validate`.
        checkpoint: a file; the state is written there every 100 steps, and a run that finds its own file continues.

    Time: that of `steps` gradients; one program is compiled.
    """
    state = _first_state(optimizer, start, objective.first_memory())
    record = _Record.empty(start, len(objective.terms))
    identity = None
    if checkpoint is not None:
        check_target(checkpoint)
        identity = fingerprint(objective, validate, start, optimizer, key, steps)
        first = state.memory
        state, record = _checkpoint.restore(checkpoint, (state, record), identity)
        _check_restored(checkpoint, state, record, steps, first)
    # After the fingerprint: a run may continue on another number of devices.
    objective, (state, validate) = objective.on_mesh(), replicate((state, validate))
    advance = _Loop() if in_loop else _advance_by_steps
    with (
        one_blas_thread(),
        _saying_what_is_kept(title, checkpoint),
        progress_bar(title, total=steps, show=progress) as report,
    ):
        while int(state.step) < steps and not (validate is not None and record.looks_without_gain() >= patience):
            begin = int(state.step)
            stop = min(steps, (begin // _CHUNK + 1) * _CHUNK)
            state, terms = advance(state, objective, optimizer, key, stop)
            _check_finite(objective, terms, begin, title)
            record = record.extend(terms)
            if validate is not None:
                record = record.validate(state, _evaluate(validate, state.parameters))
            if checkpoint is not None and identity is not None and jax.process_index() == 0:
                _checkpoint.write(checkpoint, (state, record), identity)
            report(stop, f"objective {sum(float(term[-1]) for term in terms):.4g}")
    best = gather(record.best if validate is not None else state.parameters)
    return Minimum(best, record.terms, record.validation_step, record.validation_loss)


class _State(eqx.Module):
    parameters: PyTree
    optimizer: optax.OptState
    memory: PyTree
    step: Int[Array, ""]


class _Record(eqx.Module):
    """History so far, on the host, and the best parameters by validation."""

    terms: tuple[Float[np.ndarray, " steps"], ...]
    validation_step: Int[np.ndarray, " v"]
    validation_loss: Float[np.ndarray, " v"]
    best: PyTree

    @classmethod
    def empty(cls, start: PyTree, num_terms: int) -> "_Record":
        none = np.zeros((0,))
        return cls((none,) * num_terms, np.zeros((0,), np.int32), none, start)

    def extend(self, terms) -> "_Record":
        longer = tuple(np.append(old, new) for old, new in zip(self.terms, terms, strict=True))
        return _Record(longer, self.validation_step, self.validation_loss, self.best)

    def validate(self, state: _State, loss) -> "_Record":
        improved = self.validation_loss.size == 0 or bool(loss < np.min(self.validation_loss))
        return _Record(
            self.terms,
            np.append(self.validation_step, state.step),
            np.append(self.validation_loss, loss),
            state.parameters if improved else self.best,
        )

    def looks_without_gain(self) -> int:
        """Number of validations since the one with the lowest loss."""
        losses = self.validation_loss
        return losses.size - 1 - int(np.argmin(losses)) if losses.size else 0


def _step(state: _State, objective: Objective, optimizer, key, drawn):
    gradient = eqx.filter_grad(lambda at: objective.evaluate(at, state.memory, state.step, key, drawn), has_aux=True)
    gradients, (terms, memory) = gradient(state.parameters)
    updates, inner = optimizer.update(gradients, state.optimizer, state.parameters)
    return _State(eqx.apply_updates(state.parameters, updates), inner, memory, state.step + 1), terms


@eqx.filter_jit
def _first_state(optimizer, start: PyTree, memory: PyTree) -> _State:
    return _State(start, optimizer.init(start), memory, jnp.zeros((), jnp.int32))


@eqx.filter_jit
def _loop(state: _State, objective: Objective, optimizer, key, drawn, first, stop):
    """Steps up to `stop` of the chunk that began at `first`: numbers that are not static, so that one program serves all."""

    def body(carry):
        state, records = carry
        offset = state.step - first
        state, terms = _step(state, objective, optimizer, key, jax.tree.map(lambda leaf: leaf[offset], drawn))
        new = (old.at[offset].set(term.astype(old.dtype)) for old, term in zip(records, terms, strict=True))
        return state, tuple(new)

    blank = jnp.zeros((_CHUNK,), jnp.result_type(*jax.tree.leaves(state.parameters)))
    return jax.lax.while_loop(lambda carry: carry[0].step < stop, body, (state, (blank,) * len(objective.terms)))


class _Loop:
    """Advances in compiled loops, each of so many steps that Ctrl-C is heard in time; the first step shows how many."""

    def __init__(self):
        # Several processes must take the same steps together, and each has a clock of its own.
        self.adapts = jax.process_count() == 1
        self.steps = 1 if self.adapts else _CHUNK
        self.measured = False

    def __call__(self, state: _State, objective: Objective, optimizer, key, stop: int):
        begin = step = int(state.step)
        # Always a whole chunk, also before a nearer stop: another number would be another program.
        each = objective.draw_on_host(range(begin, begin + _CHUNK), key)
        drawn = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        first, records = jnp.asarray(begin), []
        while step < stop:
            after, began = min(step + self.steps, stop), time.perf_counter()
            state, terms = _loop(state, objective, optimizer, key, drawn, first, jnp.asarray(after))
            records.append([np.asarray(term)[step - begin : after - begin] for term in terms])
            self._learn((time.perf_counter() - began) / (after - step))
            step = after
        return state, tuple(map(np.concatenate, zip(*records, strict=True)))

    def _learn(self, seconds: float) -> None:
        """The first loop's time is that of compiling it."""
        if self.measured and self.adapts:
            self.steps = int(np.clip(_PATIENCE_SECONDS / max(seconds, 1e-9), 1, _CHUNK))
        self.measured = True


@contextlib.contextmanager
def _saying_what_is_kept(title: str, checkpoint: str | Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as interrupt:
        kept = checkpoint is not None and Path(checkpoint).exists()
        interrupt.add_note(
            f"{title}: interrupted; {checkpoint} holds the last finished 100 steps, the same call goes on from there"
            if kept
            else f"{title}: interrupted; nothing was kept, pass checkpoint=path to be able to go on"
        )
        raise


def _advance_by_steps(state: _State, objective: Objective, optimizer, key, stop: int):
    """One compiled step at a time: on the CPU a convolution is several times slower inside a compiled loop."""
    records = []
    for drawn in objective.draw_on_host(range(int(state.step), stop), key):
        state, terms = _compiled_step(state, objective, optimizer, key, drawn)
        # Waits for the step: otherwise a whole chunk would be under way before Ctrl-C is heard.
        records.append(np.asarray(terms))
    return state, tuple(np.asarray(records).T)


_compiled_step = eqx.filter_jit(_step)
_evaluate = eqx.filter_jit(lambda function, *arguments: function(*arguments))


def _check_finite(objective: Objective, terms, begin: int, title: str) -> None:
    """Divergence is an error that names the step and the first term that diverged."""
    finite = np.isfinite(np.stack(terms))
    if np.all(finite):
        return
    first = int(np.argmin(finite.all(axis=0)))
    name = objective.terms[int(np.argmin(finite[:, first]))]
    raise FloatingPointError(f"{title}: {name} is not finite at step {begin + first}; {objective.advice}")


def _check_restored(path: str | Path, state: _State, record: _Record, steps: int, first_memory: PyTree) -> None:
    """Refuse numbers that no run of this length writes: a checksum does not say who computed it."""
    leaves = jax.tree.leaves((state.parameters, record.best, record.terms))
    if not all(np.all(np.isfinite(np.asarray(leaf))) for leaf in leaves):
        raise ValueError(f"checkpoint {path} has weights that are not finite; delete it, or pass another path")
    # The memory is an order of the rows: the same numbers in another order.
    pairs = zip(jax.tree.leaves(state.memory), jax.tree.leaves(first_memory), strict=True)
    if not all(np.array_equal(np.sort(np.ravel(one)), np.sort(np.ravel(other))) for one, other in pairs):
        raise ValueError(f"checkpoint {path} has an order of rows that is none; delete it, or pass another path")
    step, looks = int(state.step), record.validation_step
    if not 0 <= step <= steps:
        raise ValueError(
            f"checkpoint {path} is at step {step}, but the run has steps 0 to {steps}; delete it, or pass another path"
        )
    whole = all(term.shape == (step,) for term in record.terms) and looks.shape == record.validation_loss.shape
    if not (whole and np.all(np.diff(looks, prepend=0) > 0) and np.all(looks <= step)):
        raise ValueError(
            f"checkpoint {path} is at step {step}, but its history has {record.terms[0].size} steps and validations after "
            f"{looks.tolist()[-3:]}; delete it, or pass another path"
        )
