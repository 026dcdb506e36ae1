"""An exported posterior predicts the same with jax alone, for any number of rows."""

import hashlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp

_CLIENT = """
import sys
import jax, numpy as np
jax.config.update("jax_enable_x64", sys.argv[3] == "float64")
program = jax.export.deserialize(bytearray(open(sys.argv[1], "rb").read()))
x = np.load(sys.argv[2])
parts = [program.call(x[:1]), program.call(x[1:])]
found = {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}
foreign = [name for name in ("fsplaplace", "equinox", "gpjax", "optax", "jaxtyping") if name in sys.modules]
assert not foreign, foreign
np.savez(sys.argv[4], **found)
"""


def posterior(likelihood, targets, dtype, *, num_outputs=1):
    X = np.random.default_rng(0).uniform(-1, 1, (30, 2)).astype(dtype)
    prior = fsp.Prior(RBF(lengthscale=0.7), num_outputs=num_outputs)
    context = fsp.context.Uniform(jnp.full(2, -1.5, dtype), jnp.full(2, 1.5, dtype))
    network = fsp.mlp([20], prior=prior, context=context, key=jr.key(0))
    points = context.sample(40, key=jr.key(1))
    return fsp.laplace(fsp.as_model(network), prior, likelihood, X, targets(X), context_points=points)


def in_another_process(path, x, tmp_path, dtype):
    np.save(tmp_path / "x.npy", x)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", _CLIENT, path, tmp_path / "x.npy", dtype, tmp_path / "found.npz"]
    subprocess.run(list(map(str, command)), env=environment, check=True, timeout=300, cwd=tmp_path)
    return np.load(tmp_path / "found.npz")


@pytest.mark.slow
def test_gaussian_targets_in_both_widths(tmp_path, dtype):
    fitted = posterior(fsp.likelihoods.Gaussian(0.1), lambda X: np.sin(3 * X[:, 0]), dtype.name)
    x = np.random.default_rng(1).uniform(-2, 2, (7, 2)).astype(dtype)
    path = tmp_path / "posterior.jaxprogram"
    assert set(fsp.export(fitted, path)) == {"cpu", "cuda", "tpu"}
    found, wanted = in_another_process(path, x, tmp_path, dtype.name), fitted.predict(x)
    # In float32 products along 81 weights are summed in another order: as many roundings, of terms that may be larger than the sum.
    tolerance = 1e-6 if dtype == jnp.float64 else 81 * 4 * np.finfo(np.float32).eps
    for name, values in (("mean", wanted.mean), ("std", wanted.std), ("total_std", np.sqrt(wanted.total_variance))):
        np.testing.assert_allclose(found[name], values, atol=tolerance, rtol=0, err_msg=name)


@pytest.mark.slow
def test_labels_come_with_probabilities(tmp_path):
    fitted = posterior(
        fsp.likelihoods.Categorical(3), lambda X: (X[:, 0] > 0).astype(int) + (X[:, 1] > 0), "float32", num_outputs=3
    )
    path = tmp_path / "labels.jaxprogram"
    fsp.export(fitted, path, platforms=["cpu"])
    program = jax.export.deserialize(bytearray(path.read_bytes()))
    x = np.random.default_rng(1).uniform(-1, 1, (5, 2)).astype(np.float32)
    found = program.call(x)
    assert set(found) == {"mean", "std", "probability"}
    np.testing.assert_allclose(found["probability"], fitted.predict_proba(x, method="probit"), atol=1e-5, rtol=0)
    assert program.call(x[:1])["mean"].shape == (1, 3)


def test_what_cannot_be_exported_is_refused_and_no_file_is_left(tmp_path):
    with pytest.raises(TypeError, match="dict is not a posterior"):
        fsp.export({}, tmp_path / "nothing")
    fitted = posterior(fsp.likelihoods.Gaussian(0.1), lambda X: X[:, 0], "float32")
    with pytest.raises(ValueError, match="platforms is empty"):
        fsp.export(fitted, tmp_path / "nothing", platforms=[])
    assert not (tmp_path / "nothing").exists()


def test_a_flipped_bit_is_seen_before_the_program_is_read(tmp_path):
    """JAX reads a damaged program without a word; the last 32 bytes are the hash of the others, as the page says."""
    path = tmp_path / "posterior.jaxprogram"
    fsp.export(posterior(fsp.likelihoods.Gaussian(0.1), lambda X: X[:, 0], "float32"), path, platforms=["cpu"])
    data = bytearray(path.read_bytes())
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    data[len(data) // 2] ^= 1
    assert hashlib.sha256(data[:-32]).digest() != data[-32:]
