# %% [markdown]
# # Currents along a coast
#
# Water does not flow through a coast line. That is an observation, too: along the shore of an island the component of the current
# across it is zero. Together with a prior for flows without sources it tells about the lee of the island, where no drifter went.
# Run with a file name to keep the figure: `python examples/coast_line.py docs/figures/coast_line.png`.

# %%
import sys

import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace import operators, plotting
from fsplaplace.kernels import Helmholtz

generator = np.random.default_rng(0)
RADIUS = 0.5


def current(x):
    """Steady flow to the right, around a round island at the origin: no sources, and no flow through the shore."""
    first, second = x.T
    distance = np.sum(x**2, axis=1)
    bend = (RADIUS / distance) ** 2
    return np.stack([1 - bend * (first**2 - second**2), -2 * bend * first * second], axis=1)


# %% [markdown]
# Sixteen drifters, all on the left:

# %%
X = generator.uniform([-1.5, -1.2], [-0.55, 1.2], (16, 2))
y = current(X) + 0.03 * generator.normal(size=(16, 2))

# %% [markdown]
# Of the function's two outputs the shore sees one number, the current along its normal: a linear operator that is written as a
# function of functions. It is tried out before it is used, and refused if it is not linear.


# %%
def across(f):
    return lambda x: jnp.sum(f(x) * x / jnp.linalg.norm(x), keepdims=True)


normal = operators.linear(across, order=0, name="current across the shore")
angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
shore = RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)

prior = fsp.Prior(Helmholtz(stream=RBF(lengthscale=0.7, variance=0.2)), mean=[1.0, 0.0])
region = fsp.context.Halton([-1.5, -1.2], [1.5, 1.2])
model = fsp.as_model(fsp.mlp([100], prior=prior, context=region, key=jr.key(0)))
without = fsp.laplace(
    model, prior, fsp.likelihoods.Gaussian(0.03), X, y, context_points=region.sample(200, key=jr.key(1))
)
posterior = without.condition(shore, np.zeros(24), fsp.likelihoods.Gaussian(0.01), of=normal)

# %% [markdown]
# What flows through the shore before and after, and how well the lee is known:

# %%
lee = np.stack([np.full(20, 0.8), np.linspace(-0.6, 0.6, 20)], axis=1)
for name, each in {"without": without, "with the coast line": posterior}.items():
    through, there = each.predict(shore, of=normal), each.predict(lee)
    error = np.sqrt(np.mean((np.asarray(there.mean) - current(lee)) ** 2))
    print(
        f"{name}: {np.abs(through.mean).max():.3f} through the shore at most, known to {float(through.std.max()):.3f}; "
        f"in the lee error {error:.3f}, standard deviation {float(there.std.mean()):.3f}"
    )
assert np.abs(posterior.predict(shore, of=normal).mean).max() < 0.03
assert float(posterior.predict(lee).std.mean()) < 0.8 * float(without.predict(lee).std.mean())
assert np.abs(posterior.predict(lee, of=operators.divergence).mean).max() < 0.1

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, name, each in zip(axes, ("drifters alone", "no flow through the shore"), (without, posterior), strict=True):
    plotting.plot_vector_field(each, X, y, ax=ax)
    ax.add_patch(plt.Circle((0, 0), RADIUS, facecolor="#8A8A8A", edgecolor="black", zorder=5))
    ax.set_title(name)
# One colour, one number in both.
uncertainty = [ax.collections[0] for ax in axes]
for image in uncertainty:
    image.set_clim(0, max(each.get_array().max() for each in uncertainty))
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=65)
