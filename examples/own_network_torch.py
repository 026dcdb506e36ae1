# %% [markdown]
# # Your own network: PyTorch
#
# `as_model` traces a `torch.nn.Module` in eval mode and translates it to one JAX function with the same weights. Train it in
# torch or here; the trained weights can be copied back.

# %%
import jax.random as jr
import numpy as np
import torch
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.networks.adapters import copy_to_torch

generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (60, 1))
y = np.cos(3 * X[:, 0]) + 0.05 * generator.normal(size=60)

prior = fsp.Prior(RBF(lengthscale=0.6))
likelihood = fsp.likelihoods.Gaussian(scale=0.05)
context = fsp.context.Uniform(-1.5, 1.5)

# %%
torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Linear(1, 50), torch.nn.Tanh(), torch.nn.Linear(50, 50), torch.nn.Tanh(), torch.nn.Linear(50, 1)
).eval()

# %% [markdown]
# The first layer gets the prior's length scale, through torch's own parameters.

# %%
weight, bias = fsp.matched_first_layer(50, prior=prior, context=context, key=jr.key(0))
with torch.no_grad():
    network[0].weight.copy_(torch.tensor(np.asarray(weight)))
    network[0].bias.copy_(torch.tensor(np.asarray(bias)))

model = fsp.as_model(network)
same = np.abs(np.asarray(model(X.astype(np.float32))) - network(torch.tensor(X, dtype=torch.float32)).detach().numpy())
print(f"largest difference between torch and JAX: {same.max():.1e}")
assert same.max() < 1e-5

# %%
trained = fsp.train(model, prior, likelihood, context, X, y, key=jr.key(1), steps=300, progress=False)
posterior = fsp.laplace(trained.model, prior, likelihood, X, y, context_points=context.sample(100, key=jr.key(2)))
inside, outside = posterior.predict(np.array([[0.0]])), posterior.predict(np.array([[1.4]]))
print(f"f(0.0) = {float(inside.mean[0, 0]):.2f} ± {float(inside.std[0, 0]):.2f}  (1.00 is true)")
print(f"f(1.4) = {float(outside.mean[0, 0]):.2f} ± {float(outside.std[0, 0]):.2f}  (no data there)")

# %% [markdown]
# Back to torch, for whoever serves the network from there:

# %%
copy_to_torch(trained.model, network)
back = network(torch.tensor(X, dtype=torch.float32)).detach().numpy()
assert np.allclose(back, trained.model(X.astype(np.float32)), atol=1e-4)
