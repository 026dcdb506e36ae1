"""Training: the objective by hand, and runs that can be stopped at any step."""

import os
import signal
import subprocess
import sys
import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
import references
import scipy.stats
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.training import _checkpoint
from fsplaplace.training import _loop as train_module

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(20, 1))
Y = np.sin(3 * X[:, 0]) + 0.1 * GENERATOR.normal(size=20)
CONTEXT = np.linspace(-1.5, 1.5, 12)[:, None]
STILL = optax.sgd(0.0)


def problem(*, likelihood=None, context=None, **prior):
    """A small regression problem whose context points are always the same twelve."""
    prior = fsp.Prior(RBF(lengthscale=0.5, variance=2.0), **prior)
    box = fsp.context.Uniform(-1.5, 1.5)
    model = fsp.as_model(fsp.mlp([8], prior=prior, context=box, key=jr.key(0)))
    return model, prior, likelihood or fsp.likelihoods.Gaussian(0.2), context or fsp.context.Data(CONTEXT), X, Y


def train(*args, key=None, **options):
    return fsp.train(
        *args, **{"key": jr.key(1) if key is None else key, "num_context": 12, "progress": False, **options}
    )


def norm_by_hand(model, jitter):
    residual = np.asarray(model(jnp.asarray(CONTEXT)), float)[:, 0] - 0.3
    covariance = references.rbf(CONTEXT, CONTEXT, 0.5, variance=2.0) + jitter * 2.0 * np.eye(12)
    return 0.5 * residual @ np.linalg.solve(covariance, residual)


def nll_by_hand(model):
    return -np.sum(scipy.stats.norm.logpdf(Y, np.asarray(model(jnp.asarray(X)), float)[:, 0], 0.2))


# ------------------------------------------------------------------------------------------------------ the objective


def test_objective_is_the_sum_of_log_densities_and_half_the_squared_norm(x64):
    """Sums over data and context points, not means; jitter relative to the variance of 2, annealed in equal ratios."""
    arguments = problem(mean=0.3)
    run = train(*arguments, optimizer=STILL, steps=40, jitter=(1e-2, 1e-4))
    history = run.history
    np.testing.assert_allclose(history.negative_log_likelihood, nll_by_hand(arguments[0]), rtol=1e-10)
    jitters = 1e-2 * 10.0 ** (-2 * np.minimum(np.arange(40) / 20, 1))
    expected = [norm_by_hand(arguments[0], jitter) for jitter in jitters]
    np.testing.assert_allclose(history.half_squared_norm, expected, rtol=1e-6)
    np.testing.assert_allclose(history.objective, history.negative_log_likelihood + history.half_squared_norm)
    assert run.jitter == pytest.approx(1e-4)


def test_minibatches_cover_every_row_once_an_epoch_and_are_scaled_to_all_rows(x64):
    """At fixed weights the mean of (n / b) sum_batch over an epoch is the full sum only for a partition."""
    arguments = problem()
    nll = np.asarray(train(*arguments, optimizer=STILL, steps=20, batch_size=5).history.negative_log_likelihood)
    epochs = nll.reshape(5, 4)
    np.testing.assert_allclose(epochs.mean(axis=1), nll_by_hand(arguments[0]), rtol=1e-10)
    assert np.ptp(epochs, axis=1).min() > 0
    assert not np.allclose(epochs[0], epochs[1]), "reshuffled"


def test_minibatches_take_the_noise_of_their_rows(x64):
    scales = np.linspace(0.1, 2.0, 20)[:, None]
    arguments = problem(likelihood=fsp.likelihoods.Gaussian(scales))
    nll = np.asarray(train(*arguments, optimizer=STILL, steps=4, batch_size=5).history.negative_log_likelihood)
    outputs = np.asarray(arguments[0](jnp.asarray(X)))
    assert nll.mean() == pytest.approx(-scipy.stats.norm.logpdf(Y[:, None], outputs, scales).sum(), rel=1e-10)


def test_training_lowers_the_objective_and_leaves_the_callers_model_alone(dtype):
    arguments = problem()
    before = np.asarray(arguments[0].weights)
    run = train(*arguments, steps=300)
    assert run.model.weights.dtype == dtype
    assert run.history.objective.shape == (300,)
    assert float(run.history.objective[-1]) < 0.2 * float(run.history.objective[0])
    np.testing.assert_array_equal(arguments[0].weights, before)
    assert not np.array_equal(run.model.weights, before)


@pytest.mark.parametrize(
    ("hidden", "columns", "size"),
    [
        ([50, 50], 1, 1e-2), ([50, 50], 50, 1e-2), ([8], 1, 1e-2), ([400, 30], 1, 1.25e-3), ([30, 400], 1, 1.25e-3),
        ([100], 1, 5e-3), ([8, 8], 200, 2.5e-3),
    ],
)  # fmt: skip
def test_the_first_step_falls_with_the_number_of_inputs_of_a_layer(hidden, columns, size):
    """Adam's first step moves a weight by the step size, whatever its gradient: a sum over many would move further."""
    _, prior, likelihood, _, X, y = problem()
    X, context = np.repeat(X, columns, axis=1), fsp.context.Uniform([-1.5] * columns, [1.5] * columns)
    model = fsp.as_model(fsp.mlp(hidden, prior=prior, context=context, key=jr.key(0)))
    trained = train(model, prior, likelihood, context, X, y, steps=1)
    before, after = (jax.tree.leaves(each.params) for each in (model, trained.model))
    moves = np.concatenate([np.abs(np.asarray(b - a)).ravel() for a, b in zip(before, after, strict=True)])
    assert np.median(moves) == pytest.approx(size, rel=1e-3)


def test_the_key_decides_the_run():
    arguments = problem(context=fsp.context.Halton(-1.5, 1.5))
    first, again, other = (train(*arguments, steps=20, key=jr.key(seed)).model.weights for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_noise_moves_only_where_it_is_learnable():
    fixed = train(*problem(), steps=100)
    assert float(fixed.likelihood.scale) == pytest.approx(0.2)
    free = train(*problem(likelihood=fsp.likelihoods.Gaussian(1.0, learnable=True)), steps=300)
    assert float(free.likelihood.scale) < 0.6


# --------------------------------------------------------------------------------------------------------- validation


def test_early_stopping_returns_the_weights_with_the_lowest_validation_loss():
    """Held-out targets of the opposite sign: the better the fit, the worse the validation."""
    held = (X, -Y)
    run = train(*problem(), steps=2000, validation=held, patience=2, optimizer=optax.adam(1e-3))
    losses = np.asarray(run.history.validation_loss)
    assert losses.size == np.argmin(losses) + 1 + 2
    np.testing.assert_array_equal(run.history.validation_step, 100 * (1 + np.arange(losses.size)))
    assert run.history.objective.shape[0] == run.history.validation_step[-1] < 2000
    outputs = run.model(jnp.asarray(X, jnp.float32))
    loss = -np.mean(run.likelihood.log_prob(outputs, jnp.asarray(-Y[:, None], jnp.float32)))
    assert loss == pytest.approx(losses.min(), rel=1e-4)


def test_a_validation_fraction_holds_out_that_many_rows(x64):
    """The negative log-likelihood in the history is of the rows that are left."""
    arguments = problem()
    run = train(*arguments, optimizer=STILL, steps=1, validation=0.25)
    outputs = np.asarray(arguments[0](jnp.asarray(X)))[:, 0]
    all_rows = -scipy.stats.norm.logpdf(Y, outputs, 0.2)
    left, held = float(run.history.negative_log_likelihood[0]), 5 * float(run.history.validation_loss[0])
    assert left + held == pytest.approx(all_rows.sum(), rel=1e-10)
    assert left < all_rows.sum()


# --------------------------------------------------------------------------------------------------------- checkpoints


class Killed(BaseException):
    """Stands for a signal: nothing in the library may catch it."""


@pytest.mark.parametrize("when", ["before the first checkpoint", "before a checkpoint", "after a checkpoint"])
def test_a_killed_run_resumes_to_bitwise_the_same_weights(tmp_path, monkeypatch, when):
    arguments = problem(
        context=fsp.context.Uniform(-1.5, 1.5), likelihood=fsp.likelihoods.Gaussian(0.5, learnable=True)
    )
    options = {"steps": 350, "batch_size": 6, "validation": 0.2}
    path = tmp_path / "run.safetensors"
    whole = train(*arguments, **options)
    write, calls = _checkpoint.write, []

    def interrupted(*args):
        calls.append(None)
        if when == "after a checkpoint":
            write(*args)
        if len(calls) == (1 if when == "before the first checkpoint" else 2):
            raise Killed
        if when != "after a checkpoint":
            write(*args)

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint, "write", interrupted)
        with pytest.raises(Killed):
            train(*arguments, **options, checkpoint=path)
    assert path.exists() == (when != "before the first checkpoint")
    resumed = train(*arguments, **options, checkpoint=path)
    same = jax.tree.map(np.array_equal, eqx.filter(whole, eqx.is_array), eqx.filter(resumed, eqx.is_array))
    assert all(jax.tree.leaves(same)), same


@pytest.mark.slow
def test_a_process_ended_by_sigkill_is_resumed_by_another_process(tmp_path):
    """The checkpoint must be recognised in a new process, where every function has another address."""
    path, weights = tmp_path / "run.safetensors", tmp_path / "weights.npy"
    start = f"""
        import os, signal, sys
        import numpy as np
        sys.path[:0] = [{os.path.dirname(__file__)!r}, {os.path.dirname(references.__file__)!r}]
        import test_train
        from fsplaplace.training import _checkpoint
    """
    die = """
        write = _checkpoint.write
        def write_and_die(*args):
            write(*args)
            os.kill(os.getpid(), signal.SIGKILL)
        _checkpoint.write = write_and_die
    """
    run = f"""
        trained = test_train.train(*test_train.problem(), steps=200, checkpoint={str(path)!r})
        np.save({str(weights)!r}, trained.model.weights)
    """
    for script, code in ((start + die + run, -signal.SIGKILL), (start + run, 0)):
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300, check=False
        )
        assert ended.returncode == code, ended.stderr
        assert path.exists()
    np.testing.assert_array_equal(np.load(weights), train(*problem(), steps=200).model.weights)


def test_a_finished_run_is_read_from_its_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    first = train(*problem(), steps=100, checkpoint=path)
    again = train(*problem(), steps=100, checkpoint=path)
    np.testing.assert_array_equal(first.model.weights, again.model.weights)
    np.testing.assert_array_equal(first.history.objective, again.history.objective)


@pytest.mark.parametrize(
    "change",
    [
        {"key": jr.key(2)},
        {"steps": 101},
        {"optimizer": optax.adam(0.5)},
        {"jitter": (1e-1, 1e-4)},
        {"batch_size": 4},
        "y",
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change):
    path = tmp_path / "run.safetensors"
    arguments = problem()
    train(*arguments, steps=100, checkpoint=path)
    if change == "y":
        arguments, change = (*arguments[:-1], Y + 1.0), {}
    with pytest.raises(ValueError, match=r"checkpoint .*run.safetensors belongs to another run .* pass another path"):
        train(*arguments, **{"steps": 100, "checkpoint": path, **change})


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    train(*problem(), steps=100, checkpoint=path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"run.safetensors is not a readable fsplaplace training checkpoint"):
        train(*problem(), steps=100, checkpoint=path)


# ------------------------------------------------------------------------------------------------------- convolutions


class ConvolutionalNetwork(eqx.Module):
    convolution: eqx.nn.Conv2d
    linear: eqx.nn.Linear

    def __init__(self, key):
        first, second = jr.split(key)
        self.convolution = eqx.nn.Conv2d(1, 2, 3, key=first)
        self.linear = eqx.nn.Linear(8, 1, key=second)

    def __call__(self, x):
        return self.linear(jnp.tanh(self.convolution(x)).ravel())


@pytest.mark.slow
def test_convolutional_networks_take_single_steps_to_the_weights_of_the_loop(monkeypatch):
    images = np.random.default_rng(1).normal(size=(10, 1, 4, 4)).astype(np.float32)
    model, prior = fsp.as_model(ConvolutionalNetwork(jr.key(0))), fsp.Prior(RBF(lengthscale=4.0))
    arguments = (model, prior, fsp.likelihoods.Gaussian(0.2), fsp.context.Data(images, jitter=0.1), images, np.ones(10))
    called = []
    by_steps = train_module._advance_by_steps
    monkeypatch.setattr(train_module, "_advance_by_steps", lambda *a: called.append(None) or by_steps(*a))
    stepwise = train(*arguments, steps=15)
    assert called
    monkeypatch.setattr(train_module, "_advance_by_steps", train_module._Loop())
    looped = train(*arguments, steps=15)
    np.testing.assert_allclose(stepwise.model.weights, looped.model.weights, atol=1e-5)
    np.testing.assert_allclose(stepwise.history.objective, looped.history.objective, rtol=1e-4)


# ------------------------------------------------------------------------------------------------------------- errors


def test_divergence_is_an_error_that_names_the_step():
    with pytest.raises(
        FloatingPointError, match=r"train: the .* is not finite at step \d+; raise jitter .* learning rate"
    ):
        train(*problem(), steps=100, optimizer=optax.sgd(1e12))


def test_a_prior_too_smooth_for_its_jitter_is_an_error():
    model, _, likelihood, context, inputs, targets = problem()
    prior = fsp.Prior(RBF(lengthscale=100.0))
    with pytest.raises(FloatingPointError, match=r"train: the RKHS norm is not finite at step 0; raise jitter \(now"):
        train(model, prior, likelihood, context, inputs, targets, steps=10, jitter=(1e-12, 1e-12))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, r"train: steps is 0; pass 1 or more"),
        ({"num_context": 0}, r"train: num_context is 0; pass 1 or more"),
        ({"patience": 0}, r"train: patience is 0; pass 1 or more"),
        ({"batch_size": 0}, r"train: batch_size is 0; pass 1 or more, or None for all rows"),
        ({"jitter": (1e-4, 1e-2)}, r"train: jitter is \(0.0001, 0.01\); pass \(first, last\) with first >= last > 0"),
        ({"jitter": (1e-4, 0.0)}, r"train: jitter is \(0.0001, 0.0\)"),
        ({"validation": 0.0}, r"train: validation=0.0 holds out 0 of 20 rows; pass a fraction that leaves both"),
        ({"validation": 1.0}, r"train: validation=1.0 holds out 20 of 20 rows"),
        ({"validation": (X[:, :0], Y)}, r"validation\[0\] has shape \(20, 0\); pass at least one column"),
        ({"likelihood": fsp.likelihoods.Gaussian(np.ones((20, 1))), "validation": 0.5}, r"one scale per training row"),
    ],
)
def test_impossible_options_are_refused(options, message):
    options = {"steps": 10, **options}
    with pytest.raises(ValueError, match=message):
        train(*problem(likelihood=options.pop("likelihood", None)), **options)


def test_progress_is_silent_where_the_output_is_no_terminal(capsys):
    fsp.train(*problem(), key=jr.key(0), steps=10, num_context=12, progress=True)
    shown = capsys.readouterr()
    assert not (shown.out + shown.err).strip()


@pytest.mark.parametrize("kept", [False, True])
def test_an_interrupt_is_heard_within_a_chunk(tmp_path, monkeypatch, kept):
    """A compiled loop cannot be interrupted: the pieces are short, and the error says what is kept."""
    path = tmp_path / "run.safetensors"
    if kept:
        path.touch()
        monkeypatch.setattr(_checkpoint, "restore", lambda _, state, __: state)
    pieces = []

    def interrupt(self, seconds):
        pieces.append(None)
        self.steps = 2
        if len(pieces) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(train_module._Loop, "_learn", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(*problem(), steps=100, num_context=5, checkpoint=path if kept else None)
    assert len(pieces) == 3
    (note,) = caught.value.__notes__
    assert ("holds the last finished 100 steps" in note) is kept
    assert ("nothing was kept, pass checkpoint=path" in note) is not kept


def test_steps_of_a_piece_follow_the_clock():
    loop = train_module._Loop()
    loop._learn(30.0)
    assert loop.steps == 1, "the first time is that of compiling"
    for seconds, steps in ((0.1, 5), (1e-4, 100), (2.0, 1)):
        loop._learn(seconds)
        assert loop.steps == steps
