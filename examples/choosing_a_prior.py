# %% [markdown]
# # Choosing a prior
#
# The kernel is where you put what you know. This page looks at priors before any training: in words, by their marginal
# likelihood, and by what they say outside the data.

# %%
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, Matern12, Periodic

import fsplaplace as fsp

generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (80, 1))
y = np.sin(2 * np.pi * X[:, 0]) + 0.1 * generator.normal(size=80)

# %% [markdown]
# ## What does a prior believe?
#
# `describe` says it in words, and warns where it contradicts the data.

# %%
print(fsp.describe(fsp.Prior(RBF(lengthscale=30.0)), X, y))

# %% [markdown]
# ## Which one fits?
#
# `fit_prior` sets kernel parameters and noise by the marginal likelihood: the probability of the data averaged over all
# functions the prior allows. It needs no network and takes seconds.

# %%
fitted = fsp.fit_prior(fsp.Prior(RBF()), X, y, key=jr.key(0))
print(fitted)

# %% [markdown]
# The same for several kernels, the best first. A higher value means that the data is less of a surprise.

# %%
candidates = {"smooth": RBF(), "rough": Matern12(), "periodic": Periodic(period=1.0)}
ranking = fsp.choose_prior(X, y, candidates, key=jr.key(0))
print(ranking)

# %% [markdown]
# ## What it means outside the data
#
# All three explain the data between -1 and 1. They differ where there is none: the smooth prior forgets, the periodic one
# goes on. Train under two of them and compare at x = 1.75, where the sine is -1.

# %%
context = fsp.context.Uniform(-2.0, 2.0)
outside = np.array([[1.75]])
spread = {}
for name, kernel in {"smooth": fitted.prior.kernel, "periodic": Periodic(period=1.0)}.items():
    prior = fsp.Prior(kernel)
    network = fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(1))
    trained = fsp.train(
        fsp.as_model(network), prior, fitted.likelihood, context, X, y, key=jr.key(2), steps=500, progress=False
    )
    posterior = fsp.laplace(
        trained.model, prior, fitted.likelihood, X, y, context_points=context.sample(200, key=jr.key(3))
    )
    prediction = posterior.predict(outside)
    spread[name] = float(prediction.std[0, 0])
    print(f"{name}: f(1.75) = {float(prediction.mean[0, 0]):.2f} ± {spread[name]:.2f}")

assert spread["periodic"] < 0.5 * spread["smooth"]
