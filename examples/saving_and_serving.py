# %% [markdown]
# # Saving and serving
#
# A posterior is arrays and a few names: `save` writes them to one safetensors file with a JSON header, `load` reads them
# without executing anything. Predictions are then bit by bit the same, in another process or on another day.

# %%
import tempfile
from pathlib import Path

import jax
import jax.random as jr
import numpy as np
from gpjax.kernels import Matern52

import fsplaplace as fsp

generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (60, 1))
y = np.cos(3 * X[:, 0]) + 0.05 * generator.normal(size=60)

prior = fsp.Prior(Matern52(lengthscale=0.6))
likelihood = fsp.likelihoods.Gaussian(scale=0.05)
context = fsp.context.Uniform(-1.5, 1.5)
network = fsp.mlp([50], prior=prior, context=context, key=jr.key(0))
trained = fsp.train(fsp.as_model(network), prior, likelihood, context, X, y, key=jr.key(1), steps=300, progress=False)
posterior = fsp.laplace(trained.model, prior, likelihood, X, y, context_points=context.sample(100, key=jr.key(2)))

# %% [markdown]
# ## One file
#
# To load, you bring the network's code (its structure; its weights are in the file).

# %%
path = Path(tempfile.mkdtemp()) / "posterior.safetensors"
fsp.save(path, posterior)
print(f"{path.stat().st_size / 1e3:.0f} kB")

loaded = fsp.load(path, network)
x = np.linspace(-1.5, 1.5, 100)[:, None]
assert np.array_equal(loaded.predict(x).mean, posterior.predict(x).mean)

# %% [markdown]
# A file that does not fit is refused with the reason, here a network of another width:

# %%
other = fsp.mlp([60], prior=prior, context=context, key=jr.key(0))
try:
    fsp.load(path, other)
except fsp.FileFormatError as error:
    print(error)

# %% [markdown]
# ## A compiled predictor
#
# Posteriors are pytrees, so one `jax.jit` around `predict` makes a server's inner loop: a fixed batch size is compiled once.


# %%
@jax.jit
def serve(batch):
    prediction = loaded.predict(batch)
    return prediction.mean, prediction.total_variance


mean, variance = serve(x.astype(np.float32))
print(f"first answer: {float(mean[0, 0]):.3f} ± {float(variance[0, 0]) ** 0.5:.3f}")

# %% [markdown]
# ## Estimators
#
# The scikit-learn estimators pickle, as their conventions ask. Unpickle only what you trust; for files from elsewhere use
# `fsp.save(path, estimator.posterior_)`.

# %%
import pickle

regressor = fsp.FSPRegressor(network=(30,), steps=200, num_context=200, random_state=0).fit(X, y)
again = pickle.loads(pickle.dumps(regressor))
assert np.array_equal(again.predict(x), regressor.predict(x))
