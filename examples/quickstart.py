# %% [markdown]
# # Quickstart
#
# A neural network with a Gaussian-process prior over functions: you say how the function behaves (here: smooth, on a length
# scale of 0.3), the network learns from data, and what comes back knows where it does not know.

# %%
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp

# %% [markdown]
# Data: a sine with a gap in the middle.

# %%
generator = np.random.default_rng(0)
X = np.concatenate([generator.uniform(-1, -0.3, 50), generator.uniform(0.3, 1, 50)])[:, None]
y = np.sin(2 * np.pi * X[:, 0]) + 0.1 * generator.normal(size=100)

# %% [markdown]
# ## Three lines with scikit-learn's conventions
#
# `FSPRegressor` standardises the data, fits the kernel and the noise, trains a network and returns predictions with
# standard deviations. It works in pipelines and in cross-validation.

# %%
regressor = fsp.FSPRegressor(kernel="rbf", steps=500, random_state=0).fit(X, y)
x = np.linspace(-2, 2, 200)[:, None]
mean, std = regressor.predict(x, return_std=True)

gap, data = np.abs(x[:, 0]) < 0.2, np.abs(np.abs(x[:, 0]) - 0.65) < 0.3
print(f"standard deviation of a new target: {std[data].mean():.2f} at the data, {std[gap].mean():.2f} in the gap")
print(f"noise found: {regressor.noise_:.3f} (0.1 is true)")

# %% [markdown]
# ## The same, step by step
#
# Four objects and two functions. The prior says what functions are plausible, the likelihood how targets scatter around
# them, the context where in input space the prior is enforced: everywhere you will predict.

# %%
prior = fsp.Prior(RBF(lengthscale=0.3))
likelihood = fsp.likelihoods.Gaussian(scale=0.1)
context = fsp.context.Uniform(-2.0, 2.0)
network = fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(0))

trained = fsp.train(fsp.as_model(network), prior, likelihood, context, X, y, key=jr.key(1), steps=1000, progress=False)
posterior = fsp.laplace(trained.model, prior, likelihood, X, y, context_points=context.sample(200, key=jr.key(2)))

# %% [markdown]
# The posterior predicts, samples functions, and reports how well the network holds the prior you asked for.

# %%
prediction = posterior.predict(x)
functions = posterior.sample(x, key=jr.key(3), num_samples=5)
print(posterior)

assert functions.shape == (5, 200, 1)
assert float(prediction.std[gap].mean()) > 3 * float(prediction.std[data].mean())

# %%
from fsplaplace import plotting

axes = plotting.plot_regression(posterior, X, y)
axes.set_title("RBF prior, length scale 0.3")
