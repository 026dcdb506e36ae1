# %% [markdown]
# # Your own network: Haiku
#
# A Haiku function is transformed and initialised as usual; the pair of it and its parameters is a network here.

# %%
import haiku as hk
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp

generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (60, 1))
y = np.cos(3 * X[:, 0]) + 0.05 * generator.normal(size=60)

prior = fsp.Prior(RBF(lengthscale=0.6))
likelihood = fsp.likelihoods.Gaussian(scale=0.05)
context = fsp.context.Uniform(-1.5, 1.5)

# %%
transformed = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([50, 50, 1], activation=jnp.tanh)(x)))
params = transformed.init(jr.key(0), jnp.zeros((1, 1)))

# %% [markdown]
# The first layer gets the prior's length scale: Haiku's parameters are plain dictionaries, so that is an assignment.

# %%
weight, bias = fsp.matched_first_layer(50, prior=prior, context=context, key=jr.key(1))
params["mlp/~/linear_0"] = {"w": weight.T, "b": bias}
model = fsp.as_model((transformed, params))

# %%
trained = fsp.train(model, prior, likelihood, context, X, y, key=jr.key(2), steps=300, progress=False)
posterior = fsp.laplace(trained.model, prior, likelihood, X, y, context_points=context.sample(100, key=jr.key(3)))

inside, outside = posterior.predict(np.array([[0.0]])), posterior.predict(np.array([[1.4]]))
print(f"f(0.0) = {float(inside.mean[0, 0]):.2f} ± {float(inside.std[0, 0]):.2f}  (1.00 is true)")
print(f"f(1.4) = {float(outside.mean[0, 0]):.2f} ± {float(outside.std[0, 0]):.2f}  (no data there)")

assert abs(float(inside.mean[0, 0]) - 1.0) < 0.1
assert float(outside.std[0, 0]) > 3 * float(inside.std[0, 0])

# %% [markdown]
# The trained parameters go back into Haiku as they are:

# %%
print(transformed.apply(trained.model.params, jnp.array([[0.0]])))
