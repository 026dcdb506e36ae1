# %% [markdown]
# # The past of a rod: a heat equation with unknown start
#
# Four thermometers on a rod begin to record at t = 0.2. What was the temperature at the start? The heat equation, which holds
# everywhere, is one more kind of observation: its residual is zero at some points. What has died out before the first reading
# stays uncertain, and the posterior says how much.
# Run with a file name to keep the figure: `python examples/heat_equation.py docs/figures/heat_equation.png`.

# %%
import sys

import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace import operators

generator = np.random.default_rng(0)
DIFFUSION = 0.03


def temperature(x):
    """Of a rod with cold ends: two waves, each of which decays at its own rate."""
    time, place = x.T
    return sum(
        size * np.sin(k * np.pi * place) * np.exp(-DIFFUSION * (k * np.pi) ** 2 * time)
        for k, size in ((1, 1.0), (2, 0.5))
    )


# %% [markdown]
# Columns are time and place. Readings at four places, cold ends at all times:

# %%
times, places = np.linspace(0.2, 1.0, 9), np.array([0.2, 0.4, 0.6, 0.8])
readings = np.stack(np.meshgrid(times, places), axis=-1).reshape(-1, 2)
ends = np.stack(np.meshgrid(np.linspace(0, 1, 12), [0.0, 1.0]), axis=-1).reshape(-1, 2)
X = np.concatenate([readings, ends])
y = np.concatenate([temperature(readings) + 0.01 * generator.normal(size=len(readings)), np.zeros(len(ends))])

region = fsp.context.Halton([0.0, 0.0], [1.0, 1.0])
prior = fsp.Prior(RBF(lengthscale=[0.6, 0.3]))
model = fsp.as_model(fsp.mlp([80], prior=prior, context=region, key=jr.key(0)))
noise = fsp.likelihoods.Gaussian(0.01)
without = fsp.laplace(model, prior, noise, X, y, context_points=region.sample(200, key=jr.key(1)))

# %% [markdown]
# The equation as an operator, $\partial_t u - 0.03\, \partial_{xx} u$, and 200 points at which it is zero. `condition` adds
# observations to a posterior without a new fit; `laplace(..., also=[Observation(...)])` takes them from the beginning.

# %%
heat = operators.partial(0) - DIFFUSION * operators.partial(1, 1)
points = np.asarray(region.sample(200, key=jr.key(2)))
posterior = without.condition(points, np.zeros(200), fsp.likelihoods.Gaussian(0.05), of=heat)

start = np.stack([np.zeros(60), np.linspace(0, 1, 60)], axis=1)
before, after = without.predict(start), posterior.predict(start)
truth = temperature(start)
for name, found in {"readings alone": before, "with the heat equation": after}.items():
    error = np.sqrt(np.mean((np.asarray(found.mean)[:, 0] - truth) ** 2))
    print(f"{name}: error at the start {error:.3f}, posterior standard deviation {float(found.std.mean()):.3f}")
off = np.abs(np.asarray(after.mean)[:, 0] - truth)
assert np.mean(off <= 2 * np.asarray(after.std)[:, 0] + 1e-3) > 0.9
assert float(after.std.mean()) < 0.5 * float(before.std.mean())

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
grid = np.stack(np.meshgrid(np.linspace(0, 1, 60), np.linspace(0, 1, 60)), axis=-1)
mean = np.asarray(posterior.predict(grid.reshape(-1, 2)).mean).reshape(60, 60)
image = left.pcolormesh(grid[0, :, 0], grid[:, 0, 1], mean, cmap="PuOr", shading="gouraud", vmin=-1.3, vmax=1.3)
left.plot(*readings.T, "o", color="black", markersize=3, label="readings")
left.set(xlabel="time", ylabel="place", title="temperature, posterior mean")
left.legend(fontsize="small", loc="upper right")
figure.colorbar(image, ax=left)
for name, found, colour in (("readings alone", before, "#8A8A8A"), ("with the heat equation", after, "#D55E00")):
    mean, std = np.asarray(found.mean)[:, 0], np.asarray(found.std)[:, 0]
    right.fill_between(start[:, 1], mean - 2 * std, mean + 2 * std, color=colour, alpha=0.3, linewidth=0, label=name)
    right.plot(start[:, 1], mean, color=colour)
right.plot(start[:, 1], truth, "--", color="black", label="truth")
right.set(xlabel="place", ylabel="temperature", title="at the start, never measured")
right.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.42, 0.0))
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=80)
