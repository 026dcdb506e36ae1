"""What training moves, by which steps, and what it holds out: for `train` and for the baselines that are trained."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree
from paramax import NonTrainable

from fsplaplace.networks import Model, layer_order, linearisation

# Adam moves all weights alike, so that a sum over many of them moves further in a step, and features that match the prior are lost:
# 2x400 under RBF(.3) on [0, 20] diverges from the exact process by .018 with steps of 1e-2, by .0004 with an eighth of them
# (benchmarks/results/width.md); 2x50 on a table of 50 rows in 300 columns covers 73 % instead of 90 %, 92 % with a sixth.
_STEP_SIZE, _NARROW = 1e-2, 50


def partition(tree: PyTree, wanted: Callable = lambda leaf: True) -> tuple[PyTree, PyTree]:
    """The arrays that training moves, of those wanted, and the rest."""
    return eqx.partition(
        tree, lambda node: not _is_frozen(node) and eqx.is_inexact_array(node) and wanted(node), is_leaf=_is_frozen
    )


def combine(trainable: PyTree, fixed: PyTree) -> PyTree:
    """The inverse of `partition`."""
    return eqx.combine(trainable, fixed, is_leaf=_is_frozen)


def _is_frozen(node) -> bool:
    return isinstance(node, NonTrainable)


def default_optimizer(model: Model, X: Float[Array, "n ..."], steps: int) -> optax.GradientTransformation:
    """Adam; the step size falls from 1e-2 (or 0.5 / k if fully connected layers have k > 50 inputs) to 0 along a cosine.

    Networks with convolutions are not measured: they begin at 1e-2, however wide.
    """
    fan_in = 0 if linearisation(model, X).convolutional else layer_order(model, X).fan_in
    return adam(_STEP_SIZE * min(1.0, _NARROW / max(fan_in, 1)), steps)


@functools.lru_cache(maxsize=64)
def adam(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """Cached so that two runs of the same length share one compiled program."""
    return optax.adam(optax.cosine_decay_schedule(learning_rate, steps))


def hold_out(model, likelihood, validation, X, targets, generator):
    """Training rows, and held-out rows or None."""
    if validation is None:
        return (X, targets), None
    if likelihood.rows(slice(0, 1)) is not likelihood:
        raise ValueError(
            "train: a likelihood with one scale per training row has none for held-out rows; leave validation out, or use one "
            "scale"
        )
    if isinstance(validation, tuple):
        if len(validation) != 2:
            raise ValueError(
                f"validation has {len(validation)} parts; pass (X, y), or the fraction of rows to hold out"
            )
        held = model.check_inputs(validation[0], argument="validation[0]")
        if held.shape[1:] != X.shape[1:]:
            raise ValueError(
                f"validation[0] has rows of shape {held.shape[1:]}, but X has {X.shape[1:]}; pass inputs of the same width"
            )
        return (X, targets), (held, likelihood.check_targets(validation[1], num_rows=held.shape[0]))
    count = X.shape[0]
    held = round(count * validation)
    if not 0 < held < count:
        raise ValueError(
            f"train: validation={validation} holds out {held} of {count} rows; pass a fraction that leaves both"
        )
    order = generator.permutation(count)
    kept, out = order[held:], order[:held]
    return (X[kept], targets[kept]), (X[out], targets[out])


class HeldOutLoss(eqx.Module):
    """The mean negative log-likelihood of held-out rows, a function of what training moves.

    Attributes:
        model: the network.
        fixed: what training does not move of the weights and the likelihood, see `partition`.
        X: held-out inputs.
        targets: held-out targets.
    """

    model: Model
    fixed: tuple
    X: Float[Array, "n ..."]
    targets: Array

    def __call__(self, trainable: tuple) -> Float[Array, ""]:
        params, likelihood, *_ = combine(trainable, self.fixed)
        return -jnp.mean(likelihood.log_prob(self.model.evaluate(params, self.X), self.targets))
