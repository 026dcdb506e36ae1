"""Saved posteriors: the same bits after a round trip, our own error for every other file, and nothing executed."""

import os
import re
import subprocess
import sys

import equinox as eqx
import gpjax.kernels as gpk
import gpjax.mean_functions as gpm
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import paramax
import pytest
from gpjax.parameters import CoregionalizationMatrix, SigmoidBounded

import fsplaplace as fsp
from fsplaplace import io
from fsplaplace.experiments import mauna_loa_kernel
from fsplaplace.io import FileFormatError, load, save
from fsplaplace.means import Linear

POINTS = np.linspace(-1, 1, 7)[:, None].astype(np.float32)


def network(seed=0, width=6, outputs=1, inputs=1, activation=jnp.tanh):
    return fsp.as_model(eqx.nn.MLP(inputs, outputs, width, 1, activation=activation, key=jr.key(seed)))


@pytest.fixture(scope="module")
def posterior():
    """A fitted posterior, with all its diagnostics."""
    X = np.random.default_rng(0).uniform(-1, 1, (8, 1))
    prior, likelihood = fsp.Prior(gpk.RBF(lengthscale=0.5)), fsp.likelihoods.Gaussian(0.1)
    return fsp.laplace(network(), prior, likelihood, X, np.sin(X[:, 0]), context_points=POINTS)


def made_up(posterior, prior, likelihood=None, *, model=None, inputs=2):
    """A posterior with other parts and random directions: as good as a fitted one for storage."""
    model = model or network(outputs=prior.num_outputs, inputs=inputs)
    scale = jr.normal(jr.key(3), (3, model.num_params), model.dtype)
    points = jr.normal(jr.key(4), (5, inputs), model.dtype)
    likelihood = likelihood or fsp.likelihoods.Gaussian(0.1)
    return fsp.Posterior(
        model, prior, likelihood, scale, scale[0], scale[:, 0], points, jnp.asarray(0.5), posterior.diagnostics
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "posterior.safetensors"


def assert_same(loaded, saved):
    """The same pytree, bit by bit, with dtypes and weak types."""
    first, second = jax.tree.leaves(loaded), jax.tree.leaves(saved)
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        if eqx.is_array(b):
            assert (a.dtype, a.shape, type(a)) == (b.dtype, b.shape, type(b))
            assert getattr(a, "weak_type", False) == getattr(b, "weak_type", False)
        np.testing.assert_array_equal(a, b)


def test_a_loaded_posterior_is_the_saved_one_bit_by_bit(posterior, path):
    save(path, posterior)
    loaded = load(path, network(seed=1))
    assert_same(loaded, posterior)
    assert str(loaded.diagnostics) == str(posterior.diagnostics)
    np.testing.assert_array_equal(loaded.predict(POINTS).variance, posterior.predict(POINTS).variance)


def test_a_new_process_predicts_the_same_bits(posterior, path):
    save(path, posterior)
    code = f"""
import sys, equinox as eqx, jax.numpy as jnp, jax.random as jr, numpy as np
from fsplaplace.io import load
network = eqx.nn.MLP(1, 1, 6, 1, activation=jnp.tanh, key=jr.key(5))
prediction = load({str(path)!r}, network).predict(np.linspace(-1, 1, 7)[:, None])
sys.stdout.write(np.asarray(prediction.mean).tobytes().hex() + " " + np.asarray(prediction.variance).tobytes().hex())
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    prediction = posterior.predict(np.linspace(-1, 1, 7)[:, None])
    expected = [np.asarray(value).tobytes().hex() for value in (prediction.mean, prediction.variance)]
    assert result.stdout.split() == expected


def test_double_precision_is_kept(posterior, path, x64):
    model = fsp.as_model(eqx.nn.MLP(1, 1, 6, 1, activation=jnp.tanh, dtype=float, key=jr.key(0)))
    saved = made_up(posterior, fsp.Prior(gpk.RBF()), model=model, inputs=1)
    assert saved.scale.dtype == jnp.float64
    save(path, saved)
    assert_same(load(path, model), saved)
    with jax.enable_x64(False), pytest.raises(FileFormatError, match=r"float64\[.*float32\["):
        load(path, network())


KERNELS = {
    "RBF with columns": gpk.RBF(active_dims=[0, 1], lengthscale=[0.3, 2.0], variance=1.5),
    "Matern": gpk.Matern12() + gpk.Matern32(active_dims=[1]) * gpk.Matern52(lengthscale=0.7),
    "periodic": gpk.Periodic(period=0.5) + gpk.PoweredExponential() + gpk.RationalQuadratic() + gpk.White(variance=0.1),
    "nonstationary": gpk.Linear() + gpk.Polynomial(degree=3) + gpk.ArcCosine(order=1) + gpk.Constant(constant=2.0),
    "slice": gpk.RBF(active_dims=slice(0, 1)),
    "bounded": gpk.RBF(lengthscale=SigmoidBounded(0.5, low=0.1, high=0.9)),
    "fixed": gpk.RBF(variance=paramax.non_trainable(jnp.ones(()))),
    "engine": gpk.RBF(compute_engine=fsp.kernels.GemmComputation()),
    "Mauna Loa": mauna_loa_kernel(),
    "Helmholtz": fsp.kernels.Helmholtz(gpk.RBF(), gpk.RBF(lengthscale=2.0) + gpk.Matern52()),
    "ICM": gpk.ICMKernel(gpk.RBF(), CoregionalizationMatrix(2, 1, jr.key(0))),
    "LCM": gpk.LCMKernel([gpk.RBF(), gpk.Matern32()], [CoregionalizationMatrix(2, 1, jr.key(i)) for i in (1, 2)]),
    "one each": (gpk.RBF(), gpk.Matern52(lengthscale=0.4)),
}  # fmt: skip
MEANS = {
    "zero": None,
    "number": 0.5,
    "sum": gpm.Constant(1.0) + gpm.Constant(2.0) * gpm.Constant(3.0),
    "linear": Linear([1.0, 2.0], 0.5),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_rebuilt(name, posterior, path):
    prior = fsp.Prior(KERNELS[name])
    posterior = made_up(posterior, prior)
    save(path, posterior)
    loaded = load(path, network(seed=2, outputs=prior.num_outputs, inputs=2))
    assert_same(loaded, posterior)
    without_addresses = [re.sub(r" at 0x\w+", "", str(kernel)) for kernel in (loaded.prior.kernel, prior.kernel)]
    assert without_addresses[0] == without_addresses[1]
    x = jr.normal(jr.key(0), (3, 2))
    np.testing.assert_array_equal(loaded.prior.gram(x), prior.gram(x))


@pytest.mark.parametrize("name", MEANS)
def test_every_mean_is_rebuilt(name, posterior, path):
    prior = fsp.Prior(gpk.RBF(), mean=MEANS[name])
    save(path, made_up(posterior, prior))
    loaded = load(path, network(inputs=2))
    assert type(loaded.prior.mean) is type(prior.mean)
    x = jr.normal(jr.key(0), (3, 2))
    np.testing.assert_array_equal(loaded.prior.mean_at(x), prior.mean_at(x))


@pytest.mark.parametrize(
    "likelihood",
    [
        fsp.likelihoods.Gaussian(0.3, learnable=True),
        fsp.likelihoods.Gaussian(np.full((8, 1), 0.2)),
        fsp.likelihoods.HeteroscedasticGaussian(),
        fsp.likelihoods.Bernoulli(),
        fsp.likelihoods.Categorical(3),
        fsp.likelihoods.Poisson(),
        fsp.likelihoods.StudentT(0.3, degrees=5.0, learnable=True),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_every_likelihood_is_rebuilt(likelihood, posterior, path):
    save(path, made_up(posterior, fsp.Prior(gpk.RBF(), num_outputs=2), likelihood))
    loaded = load(path, network(outputs=2, inputs=2))
    assert jax.tree.structure(loaded.likelihood) == jax.tree.structure(likelihood)
    assert_same(loaded.likelihood, likelihood)


def test_code_is_refused_by_name_unless_left_out(posterior, path):
    prior = fsp.Prior(gpk.RBF(), mean=jnp.sinc)
    posterior = made_up(posterior, prior, inputs=1)
    with pytest.raises(ValueError, match=r"prior\.mean is sinc.*pass omit='mean' to save and mean= to load"):
        save(path, posterior)
    assert not path.exists()
    save(path, posterior, omit="mean")
    with pytest.raises(FileFormatError, match=r"saved without its mean; pass mean= to load"):
        load(path, network())
    loaded = load(path, network(), mean=jnp.sinc)
    np.testing.assert_array_equal(loaded.prior.mean_at(jnp.asarray(POINTS)), prior.mean_at(jnp.asarray(POINTS)))
    assert load(path, network(), prior=prior).prior is prior
    with pytest.raises(ValueError, match=r"omit has \['kernel'\]; choose from 'prior', 'mean', 'likelihood'"):
        save(path, posterior, omit="kernel")


class Laplacian(fsp.likelihoods.Likelihood):
    """A user's likelihood."""

    scale: jax.Array

    def log_density(self, output, target):
        return -jnp.sum(jnp.abs(output - target)) / self.scale


def test_a_likelihood_of_ones_own_is_given_again_or_registered(posterior, path):
    own = Laplacian(jnp.asarray(2.0))
    posterior = made_up(posterior, posterior.prior, own, inputs=1)
    with pytest.raises(ValueError, match=r"likelihood is .*Laplacian.*omit='likelihood'.*likelihood= to load"):
        save(path, posterior)
    save(path, posterior, omit="likelihood")
    assert load(path, network(), likelihood=own).likelihood is own
    io.register(Laplacian, name="tests.Laplacian")
    save(path, posterior)
    assert load(path, network()).likelihood.scale == 2.0
    with pytest.raises(ValueError, match=r"'tests\.Laplacian' belongs to"):
        io.register(fsp.Prior, name="tests.Laplacian")


def test_a_trained_network_is_stored_too(path):
    history = fsp.History(jnp.arange(3.0), jnp.arange(3.0), jnp.arange(1), jnp.ones(1))
    trained = fsp.Trained(network(), fsp.likelihoods.Gaussian(0.2), history, 1e-4)
    save(path, trained)
    assert_same(load(path, network(seed=3)), trained)


def test_weights_outside_the_mask_are_stored(path):
    def masked(seed):
        layers = eqx.nn.MLP(1, 1, 6, 1, activation=jnp.tanh, key=jr.key(seed))
        return fsp.as_model(layers, mask=lambda path: "layers[1]" in path)

    history = fsp.History(jnp.zeros(0), jnp.zeros(0), jnp.zeros(0, int), jnp.zeros(0))
    save(path, fsp.Trained(masked(0), fsp.likelihoods.Bernoulli(), history, 0.0))
    np.testing.assert_array_equal(load(path, masked(1)).model(POINTS), masked(0)(POINTS))


def linen_network(seed):
    linen = pytest.importorskip("flax.linen")
    module = linen.Sequential([linen.Dense(3), linen.BatchNorm(use_running_average=True)])
    variables = module.init(jr.key(seed), POINTS)
    return module, jax.tree.map(lambda leaf: leaf + seed, variables)


def nnx_network(seed):
    nnx = pytest.importorskip("flax.nnx")
    rngs = nnx.Rngs(seed)
    module = nnx.Sequential(nnx.Linear(1, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs))
    module.layers[1].mean[...] = jnp.full(3, float(seed))
    module.eval()
    return module


def torch_network(seed):
    torch = pytest.importorskip("torch")
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.BatchNorm1d(3))
    module(torch.randn(9, 1))
    return module.eval()


class Normalised(eqx.Module):
    norm: eqx.nn.BatchNorm

    def __call__(self, x, state):
        return self.norm(x, state)


def equinox_network(seed):
    make = eqx.nn.make_with_state(lambda: Normalised(eqx.nn.BatchNorm(1, axis_name="batch", mode="ema")))
    network, state = make()
    batched = jax.vmap(network, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
    return eqx.nn.inference_mode(network), batched(POINTS + seed, state)[1]


@pytest.mark.parametrize("make", [linen_network, nnx_network, torch_network, equinox_network])
def test_networks_of_every_library_are_stored_with_their_statistics(make, path):
    saved, other = fsp.as_model(make(1)), fsp.as_model(make(2))
    assert not np.array_equal(saved(POINTS), other(POINTS))
    save(
        path,
        fsp.Trained(
            saved,
            fsp.likelihoods.Bernoulli(),
            fsp.History(jnp.zeros(0), jnp.zeros(0), jnp.zeros(0, int), jnp.zeros(0)),
            0.0,
        ),
    )
    np.testing.assert_array_equal(load(path, other).model(POINTS), saved(POINTS))


def test_another_network_is_refused_with_the_reason(posterior, path):
    save(path, posterior)
    with pytest.raises(FileFormatError, match=r"layers\[0\]\.bias is float32\[6\] in the file.*has float32\[7\]"):
        load(path, network(width=7))
    with pytest.raises(
        FileFormatError, match=r"MLP computes another function than the saved one.*check its activation"
    ):
        load(path, network(activation=jax.nn.relu))
    with pytest.raises(FileFormatError, match="holds the weights of MLP; pass that network"):
        load(path)
    with pytest.raises(ValueError, match=r"builtins\.int is not a class that files can hold"):
        save(path, 3)


def test_a_crash_while_saving_leaves_the_old_file_whole(posterior, path, monkeypatch):
    save(path, posterior)
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save(path, posterior)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mean", [None, 10.0, Linear([2.0], 1.0)], ids=["none", "number", "linear"])
def test_a_network_with_units_is_loaded_into_one_of_other_weights_and_units(posterior, path, mean):
    def build(seed, upper):
        prior = fsp.Prior(gpk.RBF(lengthscale=0.5), mean=mean)
        context = fsp.context.Uniform([-1.0], [upper])
        return prior, fsp.as_model(fsp.mlp([6], prior=prior, context=context, key=jr.key(seed)))

    prior, model = build(0, 1.0)
    saved = made_up(posterior, prior, model=model, inputs=1)
    save(path, saved)
    loaded = load(path, build(1, 30.0)[1])
    assert_same(loaded, saved)
    np.testing.assert_array_equal(loaded.predict(POINTS).mean, saved.predict(POINTS).mean)


def test_a_wrapped_network_is_saved_with_its_units(posterior, path):
    def build(seed, centre):
        wrapped = eqx.nn.MLP(1, 1, 6, 1, activation=jnp.tanh, key=jr.key(seed))
        return fsp.as_model(wrapped, mean=lambda x: 2 * x, centre=[centre], scale=[0.5])

    saved = made_up(posterior, fsp.Prior(gpk.RBF()), model=build(0, 3.0), inputs=1)
    save(path, saved)
    np.testing.assert_array_equal(load(path, build(1, 0.0)).predict(POINTS).mean, saved.predict(POINTS).mean)
    other = fsp.as_model(eqx.nn.MLP(1, 1, 6, 1, activation=jnp.tanh, key=jr.key(0)), centre=[0.0], scale=[1.0])
    with pytest.raises(FileFormatError, match="computes another function"):
        load(path, other)


@pytest.mark.slow
def test_a_posterior_of_a_method_is_loaded_in_a_fresh_process(path):
    from fsplaplace.methods import by_name

    X = np.linspace(-1, 1, 8)[:, None]
    fitted = by_name("gp", tune=False).fit(
        network(), X, np.sin(X[:, 0]), fsp.likelihoods.Gaussian(0.1), key=jr.key(0), prior=fsp.Prior(gpk.RBF())
    )
    save(path, fitted)
    code = f"""
import sys, numpy as np, fsplaplace as fsp, fsplaplace.io
assert "fsplaplace.methods" not in sys.modules
mean = fsp.load({str(path)!r}).predict(np.linspace(-1, 1, 7)[:, None]).mean
sys.stdout.write(np.asarray(mean).tobytes().hex())
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == np.asarray(fitted.predict(np.linspace(-1, 1, 7)[:, None]).mean).tobytes().hex()
