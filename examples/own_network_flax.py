# %% [markdown]
# # Your own network: Flax
#
# Flax NNX modules hold their parameters; Linen modules do not, so they come as a pair with the variables that `init`
# returned. Both are called on batches, as is their convention.

# %%
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flax import linen, nnx
from gpjax.kernels import RBF

import fsplaplace as fsp

generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (60, 1))
y = np.cos(3 * X[:, 0]) + 0.05 * generator.normal(size=60)

prior = fsp.Prior(RBF(lengthscale=0.6))
likelihood = fsp.likelihoods.Gaussian(scale=0.05)
context = fsp.context.Uniform(-1.5, 1.5)
context_points = context.sample(100, key=jr.key(0))

# %% [markdown]
# `matched_first_layer` gives weights and biases of a first layer whose units vary on the prior's length scale, to put into a
# network of any library.

# %%
weight, bias = fsp.matched_first_layer(50, prior=prior, context=context, key=jr.key(1))


# %% [markdown]
# ## NNX


# %%
class Network(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(1, 50, rngs=rngs), nnx.Linear(50, 1, rngs=rngs)
        self.first.kernel[...], self.first.bias[...] = weight.T, bias

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))


model = fsp.as_model(Network(nnx.Rngs(0)))
trained = fsp.train(model, prior, likelihood, context, X, y, key=jr.key(2), steps=300, progress=False)
posterior = fsp.laplace(trained.model, prior, likelihood, X, y, context_points=context_points)
nnx_prediction = posterior.predict(X)
print(f"NNX:   RMSE {float(jnp.sqrt(jnp.mean((nnx_prediction.mean[:, 0] - y) ** 2))):.3f}")


# %% [markdown]
# ## Linen
#
# The same network with the same weights: the same posterior.


# %%
class LinenNetwork(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = jnp.tanh(linen.Dense(50, name="first")(x))
        return linen.Dense(1, name="second")(x)


first, second = trained.model.params["first"], trained.model.params["second"]
variables = {
    "params": {
        "first": {"kernel": first["kernel"][...], "bias": first["bias"][...]},
        "second": {"kernel": second["kernel"][...], "bias": second["bias"][...]},
    }
}
model = fsp.as_model((LinenNetwork(), variables))
posterior = fsp.laplace(model, prior, likelihood, X, y, context_points=context_points)
linen_prediction = posterior.predict(X)
print(f"Linen: RMSE {float(jnp.sqrt(jnp.mean((linen_prediction.mean[:, 0] - y) ** 2))):.3f}")

assert np.allclose(nnx_prediction.mean, linen_prediction.mean, atol=1e-3)
assert np.allclose(nnx_prediction.std, linen_prediction.std, atol=1e-3)
