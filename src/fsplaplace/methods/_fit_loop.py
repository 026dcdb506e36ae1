"""One compiled optimisation loop for every method that is trained."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from fsplaplace.host import one_blas_thread, progress_bar

Objective = Callable[[Any, PRNGKeyArray], Float[Array, ""]]

# Steps between visits to the host: for progress, validation and the check for divergence.
_CHUNK = 100


def minimise(
    objective: Objective,
    start: Any,
    *,
    optimizer: optax.GradientTransformation,
    steps: int,
    key: PRNGKeyArray,
    title: str,
    progress: bool,
    in_loop: bool = True,
    validate: Callable[[Any], Float[Array, ""]] | None = None,
    patience: int = 20,
) -> tuple[Any, Float[np.ndarray, " steps"]]:
    """The parameters after `steps` optimiser steps on `objective(parameters, key)`, and the objective at each step.

    Args:
        objective: a pytree with a `__call__`: its arrays are arguments of the compiled program, so that two fits of
            one shape share it. The key is new at every step.
        start: a pytree of arrays (None where nothing is to be fitted).
        in_loop: false for convolutional networks, which the CPU runs several times faster outside a compiled loop.
        validate: with it, the parameters with the lowest `validate(parameters)` are returned, looked at every 100
            steps, and the run ends after `patience` looks without improvement.
    """
    if steps < 1:
        raise ValueError(f"{title}: steps is {steps}; pass 1 or more")
    state = (start, optimizer.init(start), jnp.zeros((), jnp.int32))
    losses, best, best_loss, since = [], start, np.inf, 0
    with one_blas_thread(), progress_bar(title, total=steps, show=progress) as report:
        for begin in range(0, steps, _CHUNK):
            stop = min(steps, begin + _CHUNK)
            # An array, not a number: one program serves every chunk.
            state, values = (_loop if in_loop else _by_steps)(objective, optimizer, state, key, np.asarray(stop))
            losses.append(np.asarray(values)[: stop - begin])
            _check_finite(losses[-1], begin, title)
            report(stop, f"objective {losses[-1][-1]:.4g}")
            if validate is not None:
                loss = float(_evaluate(validate, state[0]))
                since = 0 if loss < best_loss else since + 1
                best, best_loss = (state[0], loss) if loss < best_loss else (best, best_loss)
                if since >= patience:
                    break
    return (best if validate is not None else state[0]), np.concatenate(losses)


def _step(objective, optimizer, state, key):
    parameters, inner, step = state
    value, gradient = eqx.filter_value_and_grad(lambda at: objective(at, jr.fold_in(key, step)))(parameters)
    updates, inner = optimizer.update(gradient, inner, parameters)
    return (eqx.apply_updates(parameters, updates), inner, step + 1), value


@eqx.filter_jit
def _loop(objective, optimizer, state, key, stop):
    start = state[2]

    def body(carry):
        state, values = carry
        offset = state[2] - start
        state, value = _step(objective, optimizer, state, key)
        return state, values.at[offset].set(value.astype(values.dtype))

    blank = jnp.zeros((_CHUNK,), jnp.result_type(*jax.tree.leaves(state[0])))
    return jax.lax.while_loop(lambda carry: carry[0][2] < stop, body, (state, blank))


_compiled_step = eqx.filter_jit(_step)
_evaluate = eqx.filter_jit(lambda function, *arguments: function(*arguments))


def _by_steps(objective, optimizer, state, key, stop):
    values = []
    for _ in range(int(state[2]), int(stop)):
        state, value = _compiled_step(objective, optimizer, state, key)
        values.append(value)
    return state, np.asarray(values)


def _check_finite(losses, begin: int, title: str) -> None:
    if not np.all(np.isfinite(losses)):
        step = begin + int(np.argmin(np.isfinite(losses)))
        raise FloatingPointError(
            f"{title}: the objective is not finite at step {step}; lower the learning rate of `optimizer`, or run in float64"
        )
