# %% [markdown]
# # Every plot
#
# Each function draws on axes that you give it, or makes a figure, and returns the axes. Run with a file name to keep the page:
# `python examples/every_plot.py docs/figures/plots.png`.

# %%
import sys

import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from gpjax.kernels import RBF
from sklearn.datasets import make_moons

import fsplaplace as fsp
from fsplaplace import plotting
from fsplaplace.kernels import Helmholtz

generator = np.random.default_rng(0)
figure, axes = plt.subplots(3, 4, figsize=(19, 13), layout="constrained")


def fit(prior, likelihood, context, X, y, *, hidden=(50,), num_points=200):
    """A network trained under the prior, and its posterior."""
    model = fsp.as_model(fsp.mlp(list(hidden), prior=prior, context=context, key=jr.key(0)))
    trained = fsp.train(model, prior, likelihood, context, X, y, key=jr.key(1), steps=500, progress=False)
    points = context.sample(num_points, key=jr.key(2))
    return trained, fsp.laplace(trained.model, prior, likelihood, X, y, context_points=points)


# %% [markdown]
# Regression: the predictive distribution, the prior beside the posterior, the history of training,
# and whether intervals of new targets hold what they promise.


# %%
def wave(x):
    """The function behind the noise."""
    return np.sin(2 * np.pi * x[:, 0])


X = generator.uniform(0.5, 1.0, (60, 1)) * generator.choice([-1, 1], (60, 1))
y = wave(X) + 0.1 * generator.normal(size=60)
prior, noise = fsp.Prior(RBF(lengthscale=0.3)), fsp.likelihoods.Gaussian(0.1)
trained, posterior = fit(prior, noise, fsp.context.Uniform([-2.0], [2.0]), X, y)
grid = np.linspace(-2, 2, 200)[:, None]
plotting.plot_regression(posterior, X, y, x=grid, key=jr.key(3), ax=axes[0, 0])
plotting.plot_prior_and_posterior(posterior, X, y, x=grid, ax=axes[0, 1:3])
plotting.plot_history(trained.history, ax=axes[0, 3])

x = generator.uniform(-1.2, 1.2, (1000, 1))
predicted = posterior.predict(x)
held_out = wave(x) + 0.1 * generator.normal(size=1000)
plotting.plot_calibration(held_out, predicted.mean[:, 0], np.sqrt(predicted.total_variance[:, 0]), ax=axes[1, 0])

# %% [markdown]
# Classification: the probability of a class and its uncertainty over the plane, and whether confidence equals accuracy.

# %%
X, y = make_moons(150, noise=0.2, random_state=0)
prior, labels = fsp.Prior(RBF(lengthscale=0.8, variance=10.0)), fsp.likelihoods.Bernoulli()
_, posterior = fit(prior, labels, fsp.context.Uniform([-2.5, -2.0], [3.5, 2.5]), X, y)
plotting.plot_classification(posterior, X, y, ax=axes[1, 1:3])
X_new, y_new = make_moons(1000, noise=0.2, random_state=1)
probability = np.asarray(posterior.predict_proba(X_new))[:, 0]
plotting.plot_reliability(y_new, np.column_stack([1 - probability, probability]), ax=axes[1, 3])

# %% [markdown]
# A flow without sources, with the uncertainty of its velocity; and what a prior says before any data: its functions in one
# dimension.

# %%
X = generator.uniform(-1, 1, (15, 2))
y = np.stack([-X[:, 1], X[:, 0]], axis=1) * np.exp(-np.sum(X**2, axis=1, keepdims=True))
prior, small = fsp.Prior(Helmholtz(stream=RBF(lengthscale=0.8, variance=0.1))), fsp.likelihoods.Gaussian(0.02)
_, posterior = fit(prior, small, fsp.context.Uniform([-1.5, -1.5], [1.5, 1.5]), X, y)
plotting.plot_vector_field(posterior, X, y, ax=axes[2, 0])

X = np.linspace(-1, 1, 15)[:, None]
for place, lengthscale in zip(axes[2, 1:], (1.0, 0.3, 0.1), strict=True):
    fsp.plot_prior(fsp.Prior(RBF(lengthscale=lengthscale)), X, wave(X), key=jr.key(4), ax=place)
    place.set_title(f"prior with length scale {lengthscale}")

# %% [markdown]
# Nothing is left empty, and nobody's settings were changed:

# %%
assert all(place.has_data() and place.get_xlabel() and place.get_ylabel() for place in axes.ravel())
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=60)
figure
