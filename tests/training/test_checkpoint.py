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
from fsplaplace.training._checkpoint import _KIND

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(20, 1))
Y = np.sin(3 * X[:, 0]) + 0.1 * GENERATOR.normal(size=20)
STEPS = 10


def run(
    path=None, *, activation=jnp.tanh, mean=None, likelihood=None, optimizer=None, kernel=None, network=None,
    steps=STEPS, lower=-1.5, **options,
):  # fmt: skip
    prior, context = (
        fsp.Prior(kernel or RBF(lengthscale=0.5), mean=mean),
        fsp.context.Uniform(lower, 1.5),
    )
    if network is None:
        network = fsp.mlp([8], prior=fsp.Prior(RBF()), context=context, key=jr.key(0), activation=activation)
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
}


@pytest.mark.parametrize("change", CHANGES)
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
