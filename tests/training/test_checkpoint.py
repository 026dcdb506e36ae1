"""Checkpoints: a file continues its own run only, and a file that was changed is refused."""

import os
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
from gpjax.kernels import RBF, Matern52

import fsplaplace as fsp
from fsplaplace.host import FileFormatError, checksum, read_tensors, write_tensors
from fsplaplace.training import _fingerprint, _train
from fsplaplace.training._checkpoint import _KIND

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(20, 1))
Y = np.sin(3 * X[:, 0]) + 0.1 * GENERATOR.normal(size=20)
STEPS = 10


def run(
    path=None, *, activation=jnp.tanh, mean=None, likelihood=None, optimizer=None, kernel=None, network=None,
    steps=STEPS, lower=-1.5, context=None, **options,
):  # fmt: skip
    prior = fsp.Prior(kernel or RBF(lengthscale=0.5), mean=mean)
    context = context or fsp.context.Uniform(lower, 1.5)
    if network is None:
        box = fsp.context.Uniform(-1.5, 1.5)
        network = fsp.mlp([8], prior=fsp.Prior(RBF()), context=box, key=jr.key(0), activation=activation)
    return fsp.train(
        fsp.as_model(network), prior, likelihood or fsp.likelihoods.Gaussian(0.2), context, X, Y,
        key=jr.key(1), steps=steps, num_context=12, progress=False, checkpoint=path, optimizer=optimizer, **options,
    )  # fmt: skip


def scaled(scale):
    """A function that differs from its siblings in a closed-over number only."""
    return lambda x: scale * jnp.tanh(x)


def laplace_density(output, target):
    return -jnp.abs(output[0] - target)


def student_density(output, target):
    return -2.0 * jnp.log1p((output[0] - target) ** 2)


class Branch(eqx.Module):
    """Two networks of one structure whose call differs."""

    linear: eqx.nn.Linear
    power: int = eqx.field(static=True)

    def __call__(self, x):
        return self.linear(jnp.tanh(x) ** self.power)


def cosine(rate=1e-2):
    return optax.adam(optax.cosine_decay_schedule(rate, STEPS))


class Schedule:
    """An object that is no pytree, with a number that only steps between the probed ones tell apart."""

    def __init__(self, until):
        self.until = until

    def __call__(self, step):
        return jnp.where(step < self.until, 1e-2, 1e-3)


def written(source, name):
    """What a script of a user's defines under this name, as another version of the script would."""
    script = {"jnp": jnp, "jr": jr, "Sampler": fsp.context.Sampler, "__name__": "a_script_of_a_user"}
    exec(textwrap.dedent(source), script)
    return script[name]


def sampler(code, more=""):
    """A sampler of one class name whose method, constant or global differs."""
    source = f"""
class Mine(Sampler):
    width: float
    constant = 1.0

    def draw(self, num_points, generator):
        return {code} * generator.uniform(-1, 1, (num_points, 1))

    def sample(self, num_points, *, key):
        return {code} * jr.uniform(key, (num_points, 1), minval=-1, maxval=1)
{more}
"""
    return {"context": written(source, "Mine")(1.0)}


def schedule(source):
    return {"optimizer": optax.adam(written(source, "schedule"))}


CHANGES = {
    "activation tanh to relu": ({"activation": jnp.tanh}, {"activation": jax.nn.relu}),
    "activation tanh to sin": ({"activation": jnp.tanh}, {"activation": jnp.sin}),
    "a number that an activation closes over": ({"activation": scaled(1.0)}, {"activation": scaled(1.001)}),
    "a lambda's body": ({"activation": lambda x: jnp.tanh(x)}, {"activation": lambda x: jnp.sin(x)}),
    "a static field": (
        {"network": Branch(eqx.nn.Linear(1, 1, key=jr.key(0)), 1)},
        {"network": Branch(eqx.nn.Linear(1, 1, key=jr.key(0)), 2)},
    ),
    "mean function": ({"mean": lambda x: 0.1 * x}, {"mean": lambda x: 0.1 * x**2}),
    "kernel": ({}, {"kernel": Matern52(lengthscale=0.5)}),
    "likelihood's density": (
        {"likelihood": fsp.likelihoods.FromLogDensity(laplace_density)},
        {"likelihood": fsp.likelihoods.FromLogDensity(student_density)},
    ),
    "schedule with the same first rate": (
        {"optimizer": cosine()},
        {"optimizer": optax.adam(optax.exponential_decay(1e-2, STEPS, 0.5))},
    ),
    "momentum, unseen in a first update": ({"optimizer": optax.adam(1e-2)}, {"optimizer": optax.adam(1e-2, b1=0.5)}),
    "context region": ({}, {"lower": -1.4}),
    "validation": ({}, {"validation": 0.2}),
    "a method of a class": (sampler("1.5"), sampler("1.6")),
    "a constant of a class": (sampler("self.constant"), sampler("self.constant", "    constant = 2.0")),
    "a number of the script": (sampler("half", "half = 1.5"), sampler("half", "half = 1.6")),
    "another number of the script": (
        schedule("until = 4\ndef schedule(step): return jnp.where(step < until, 1e-2, 1e-3)"),
        schedule("until = 5\ndef schedule(step): return jnp.where(step < until, 1e-2, 1e-3)"),
    ),
    "a function that a function calls": (
        schedule("def early(step): return step < 4\ndef schedule(step): return jnp.where(early(step), 1e-2, 1e-3)"),
        schedule("def early(step): return step < 5\ndef schedule(step): return jnp.where(early(step), 1e-2, 1e-3)"),
    ),
    "an attribute of an object": ({"optimizer": optax.adam(Schedule(4))}, {"optimizer": optax.adam(Schedule(5))}),
    "an attribute of an object of Optax": (
        {"optimizer": optax.MultiSteps(optax.adam(1e-2), 2).gradient_transformation()},
        {"optimizer": optax.MultiSteps(optax.adam(1e-2), 3).gradient_transformation()},
    ),
}


class _Begun(Exception):
    """A run that is about to take its first step."""


@pytest.fixture
def identity(monkeypatch):
    """The fingerprint of a run, and that of its functions by their outputs left out: without the steps."""

    def begin(objective, start, *, optimizer, steps, key, validate=None, **_):
        raise _Begun(_fingerprint.fingerprint(objective, validate, start, optimizer, key, steps))

    monkeypatch.setattr(_train, "minimise", begin)
    # Seen by what they are, not by what they return: outputs at a few points are a second net under the first.
    monkeypatch.setattr(_fingerprint, "_probes", lambda *_: ())
    monkeypatch.setattr(_fingerprint, "_updates", lambda *_: [])

    def of(**options):
        with pytest.raises(_Begun) as begun:
            run("unused", **options)
        return begun.value.args[0]

    return of


@pytest.mark.parametrize("change", CHANGES)
def test_the_fingerprint_of_other_functions_is_another(identity, change):
    first, second = (identity(**options) for options in CHANGES[change])
    assert not second.matches(first.digest, first.probes)
    again = identity(**CHANGES[change][0])
    assert again.matches(first.digest, first.probes)


@pytest.mark.parametrize("change", ["activation tanh to relu", "schedule with the same first rate"])
def test_a_checkpoint_of_other_functions_is_refused(tmp_path, change):
    path = tmp_path / "run.safetensors"
    first, second = CHANGES[change]
    run(path, **first)
    with pytest.raises(ValueError, match=r"checkpoint .*run.safetensors belongs to another run .* pass another path"):
        run(path, **second)


def test_a_checkpoint_of_equal_functions_at_other_addresses_is_read(tmp_path):
    path = tmp_path / "run.safetensors"
    written = run(path, activation=scaled(1.0), optimizer=cosine())
    np.testing.assert_array_equal(
        run(path, activation=scaled(1.0), optimizer=cosine()).model.weights, written.model.weights
    )


@pytest.mark.slow
def test_the_fingerprint_is_the_same_in_another_process(tmp_path):
    """Set and dictionary orders, addresses and caches differ there: nothing of a run may depend on them."""
    path = tmp_path / "run.safetensors"
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import test_checkpoint as t
        t.run({str(path)!r}, activation=t.scaled(1.5), mean=lambda x: 0.1 * x, optimizer=t.cosine(),
              likelihood=t.fsp.likelihoods.FromLogDensity(t.student_density), steps=5)
    """)
    stamps = []
    # Both without the type checks of this process, which rewrite the functions that a fingerprint sees.
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", script], check=True, timeout=300, env=environment)
        stamps.append(path.stat().st_mtime_ns)
    assert stamps[0] == stamps[1], "a finished run is read, not run again"


def test_every_flipped_bit_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    run(path)
    original = path.read_bytes()
    header = 8 + int.from_bytes(original[:8], "little")
    generator = np.random.default_rng(0)
    bits = [*generator.integers(0, 8 * header, 150), *generator.integers(8 * header, 8 * len(original), 150)]
    for bit in bits:
        damaged = bytearray(original)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"run.safetensors"):
            _read(path)
    path.write_bytes(original)
    _read(path)


def _read(path):
    """`restore` without the run around it, for the many files of one test."""
    from fsplaplace.training import _checkpoint
    from fsplaplace.training._fingerprint import Fingerprint

    tensors, header = read_tensors(path, kind=_KIND)
    names = sorted(name for name in tensors if name.startswith("probe/"))
    own = Fingerprint(header.get("run"), tuple(tensors[name] for name in names))
    state = [tensors[name] for name in sorted(tensors) if name.startswith("state/")]
    _checkpoint.restore(path, state, own)


def _rewrite(path, change):
    """The file with changed arrays and a checksum that fits them."""
    tensors, header = read_tensors(path, kind=_KIND)
    header.pop("checksum")
    change(tensors, header)
    write_tensors(path, tensors, {**header, "checksum": checksum(header, tensors)})


def _step_name(tensors):
    scalars = [name for name in sorted(tensors) if name.startswith("state/") and tensors[name].shape == ()]
    return scalars[-1]


@pytest.mark.parametrize("step", [-5, STEPS + 1, 3])
def test_a_step_that_the_run_does_not_have_is_refused(tmp_path, step):
    path = tmp_path / "run.safetensors"
    run(path)
    _rewrite(path, lambda tensors, _: tensors.update({_step_name(tensors): np.asarray(step, np.int32)}))
    with pytest.raises(ValueError, match=rf"checkpoint .*run.safetensors is at step {step}, but .* delete it"):
        run(path)


@pytest.mark.parametrize("change", ["shape", "dtype", "missing"])
def test_arrays_of_another_shape_are_refused_by_name(tmp_path, change):
    path = tmp_path / "run.safetensors"
    run(path)

    def alter(tensors, _):
        first = tensors.pop("state/00000")
        if change != "missing":
            tensors["state/00000"] = first[:-1] if change == "shape" else first.astype(np.float64)

    _rewrite(path, alter)
    with pytest.raises(FileFormatError, match=r"checkpoint .*run.safetensors.* this run has"):
        run(path)


@pytest.mark.parametrize("change", ["nan", "order", "array", "field"])
def test_numbers_that_no_run_writes_are_refused(tmp_path, change):
    path = tmp_path / "run.safetensors"
    run(path)

    def alter(tensors, header):
        if change == "nan":
            tensors["state/00000"] = np.full_like(tensors["state/00000"], np.nan)
        elif change == "order":
            name = next(name for name, value in tensors.items() if value.dtype.kind == "i" and value.size > 1)
            tensors[name] = tensors[name] + 1000
        elif change == "array":
            tensors["more"] = np.zeros(3)
        else:
            header["more"] = 3

    _rewrite(path, alter)
    with pytest.raises(
        ValueError, match=r"checkpoint .*run.safetensors.*(finite|order of rows|nobody knows|unknown field)"
    ):
        run(path)


def test_a_checkpoint_of_an_older_version_is_refused_with_a_sentence(tmp_path):
    path = tmp_path / "run.safetensors"
    write_tensors(path, {"00000": np.zeros(3)}, {"kind": _KIND, "run": "0" * 64})
    with pytest.raises(FileFormatError, match=r"was written by another version of fsplaplace \(format 1.*delete"):
        run(path)
