import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace import io
from fsplaplace.methods import MAP, ExactGP, SparseGP, WeightLaplace, last_layer

X = np.linspace(-1, 1, 8)[:, None]
PRIOR, LIKELIHOOD = fsp.Prior(RBF(lengthscale=0.5)), fsp.likelihoods.Gaussian(0.2)


def network():
    return fsp.as_model(fsp.mlp([3], prior=PRIOR, context=fsp.context.Uniform(-1, 1), key=jr.key(0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [MAP(steps=1), WeightLaplace("full", 1.0, train=None), WeightLaplace("kfac", 1.0, train=None),
     WeightLaplace("last_layer", 1.0, train=None), ExactGP(tune=False), SparseGP(4, tune=False, steps=1)],
    ids=["map", "full", "kfac", "last layer", "gp", "sparse gp"],
)  # fmt: skip
def test_a_saved_posterior_predicts_as_before(method, tmp_path):
    model = network()
    posterior = method.fit(model, X, jnp.sin(3 * X[:, 0]), LIKELIHOOD, key=jr.key(0), prior=PRIOR, progress=False)
    io.save(tmp_path / "posterior.safetensors", posterior)
    part = isinstance(method, WeightLaplace) and method.structure == "last_layer"
    loaded = io.load(tmp_path / "posterior.safetensors", last_layer(model) if part else model)
    before, after = posterior.predict(X), loaded.predict(X)
    np.testing.assert_array_equal(before.mean, after.mean)
    np.testing.assert_array_equal(before.variance, after.variance)
