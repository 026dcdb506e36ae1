# %% [markdown]
# # A function from its slopes
#
# An altimeter that drifts is useless, a level is not: fourteen readings of a slope, and the height at one place. An observation
# names what it saw of the function (`of=`), here its first derivative. No kernel is differentiated: the network's features
# carry the prior, and the slope of a feature is one forward pass.
# Run with a file name to keep the figure: `python examples/slopes.py docs/figures/slopes.png`.

# %%
import sys

import jax.random as jr
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace import operators, plotting

generator = np.random.default_rng(0)


def height(x):
    return np.sin(2 * x[:, 0]) + 0.4 * x[:, 0]


X = np.array([[0.0]])
places = generator.uniform(-2, 2, (14, 1))
slopes = 2 * np.cos(2 * places[:, 0]) + 0.4 + 0.1 * generator.normal(size=14)

# %% [markdown]
# Noise is in the units of what was seen: 0.02 for the height, 0.1 for slopes. The mode of the linear model is found exactly, so
# that nothing has to be trained here.

# %%
prior = fsp.Prior(RBF(lengthscale=0.8))
context = fsp.context.Uniform([-2.5], [2.5])
model = fsp.as_model(fsp.mlp([60], prior=prior, context=context, key=jr.key(0)))
seen = fsp.Observation(places, slopes, fsp.likelihoods.Gaussian(0.1), of=operators.partial(0))
posterior = fsp.laplace(
    model,
    prior,
    fsp.likelihoods.Gaussian(0.02),
    X,
    height(X),
    also=[seen],
    context_points=np.linspace(-2.5, 2.5, 80)[:, None],
)

# %% [markdown]
# The height where none was measured, and the slope where no slope was:

# %%
x = np.linspace(-2, 2, 50)[:, None]
found, slope = posterior.predict(x), posterior.predict(x, of=operators.partial(0))
error = np.sqrt(np.mean((np.asarray(found.mean)[:, 0] - height(x)) ** 2))
print(f"error of the height: {error:.3f}; posterior standard deviation up to {float(found.std.max()):.3f}")
assert error < 0.15
assert np.mean(np.abs(np.asarray(found.mean)[:, 0] - height(x)) < 2 * np.asarray(found.std)[:, 0]) > 0.9
assert np.sqrt(np.mean((np.asarray(slope.mean)[:, 0] - 2 * np.cos(2 * x[:, 0]) - 0.4) ** 2)) < 0.2

# %%
left, right = plotting.plot_derivative(posterior, X, height(X), observed=(places, slopes))
left.set_title("height, measured once")
right.set_title("slope, measured at circles")
if len(sys.argv) > 1:
    left.figure.savefig(sys.argv[1], dpi=80)
