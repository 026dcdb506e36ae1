# %% [markdown]
# # Your own network: Equinox
#
# Any Equinox module is a network here: `as_model` maps it over the rows of a batch, because Equinox modules are written for
# one example.

# %%
import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from gpjax.kernels import Matern52

import fsplaplace as fsp


class ResidualNetwork(eqx.Module):
    """Two residual blocks between two linear layers."""

    first: eqx.nn.Linear
    blocks: list[eqx.nn.Linear]
    last: eqx.nn.Linear

    def __init__(self, width, *, key):
        keys = jr.split(key, 4)
        self.first = eqx.nn.Linear(1, width, key=keys[0])
        self.blocks = [eqx.nn.Linear(width, width, key=k) for k in keys[1:3]]
        self.last = eqx.nn.Linear(width, 1, key=keys[3])

    def __call__(self, x):
        x = jax.nn.tanh(self.first(x))
        for block in self.blocks:
            x = x + jax.nn.tanh(block(x))
        return self.last(x)


# %% [markdown]
# The features of a freshly initialised network are usually too smooth for a short length scale. `match_first_layer` redraws
# the first linear layer so that they fit the prior; everything else stays as you made it.

# %%
generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (60, 1))
y = np.abs(X[:, 0]) + 0.05 * generator.normal(size=60)

prior = fsp.Prior(Matern52(lengthscale=0.5))
likelihood = fsp.likelihoods.Gaussian(scale=0.05)
context = fsp.context.Uniform(-2.0, 2.0)

network = ResidualNetwork(40, key=jr.key(0))
network = fsp.match_first_layer(network, prior=prior, context=context, key=jr.key(1))
model = fsp.as_model(network)
print(model.name, "with", model.num_params, "weights")

# %%
trained = fsp.train(model, prior, likelihood, context, X, y, key=jr.key(2), steps=500, progress=False)
posterior = fsp.laplace(trained.model, prior, likelihood, X, y, context_points=context.sample(200, key=jr.key(3)))

x = np.array([[-0.5], [0.5], [1.8]])
prediction = posterior.predict(x)
for place, mean, std in zip(x[:, 0], prediction.mean[:, 0], prediction.std[:, 0], strict=True):
    print(f"f({place:4.1f}) = {mean:5.2f} ± {std:.2f}")

assert abs(float(prediction.mean[0, 0]) - 0.5) < 0.1
assert float(prediction.std[2, 0]) > 3 * float(prediction.std[0, 0])

# %% [markdown]
# ## Only some of the weights
#
# A mask makes the posterior over part of the weights, by their path. The others stay where training put them.

# %%
last_layer = fsp.as_model(network, mask=lambda path: "last" in path)
print(last_layer.num_params, "of", model.num_params, "weights")
assert last_layer.num_params == 41
