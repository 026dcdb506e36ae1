# %% [markdown]
# # Poisson's equation in a square and in an L
#
# $-\Delta u = g$ with $u = 0$ all around: a membrane under a load. Two kinds of observations, the Laplacian inside and values on
# the boundary, both with small noise, and the mean of the posterior is a solution of the equation with an error bar: how far
# the true one may be, given so few points and a function of the prior.
# Run with a file name to keep the figure: `python examples/poisson.py docs/figures/poisson.png`.

# %%
import sys

import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from gpjax.kernels import RBF
from scipy.sparse import diags_array
from scipy.sparse.linalg import spsolve

import fsplaplace as fsp
from fsplaplace import operators


def in_square(x):
    """Everywhere in [-1, 1]^2."""
    return np.all(np.abs(x) < 1, axis=-1)


def in_l_shape(x):
    """The square without its upper right quarter."""
    return in_square(x) & ~np.all(x >= 0, axis=-1)


CORNERS = {
    "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    "L-shape": [(-1, -1), (1, -1), (1, 0), (0, 0), (0, 1), (-1, 1)],
}


def around(corners, count):
    """Points at equal distances along a polygon."""
    corners = np.array([*corners, corners[0]], float)
    lengths = np.cumsum([0, *np.linalg.norm(np.diff(corners, axis=0), axis=1)])
    at = np.linspace(0, lengths[-1], count, endpoint=False)
    return np.stack([np.interp(at, lengths, column) for column in corners.T], axis=1)


# %% [markdown]
# A reference by finite differences on a fine grid, to compare with:


# %%
def finite_differences(inside, load, side=81):
    ticks = np.linspace(-1, 1, side)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    free = inside(grid).ravel()
    stencil = diags_array([4.0, *[-1.0] * 4], offsets=[0, 1, -1, side, -side], shape=(side * side,) * 2).tocsr()
    solution = np.zeros(side * side)
    solution[free] = spsolve(stencil[free][:, free], (ticks[1] - ticks[0]) ** 2 * load(grid.reshape(-1, 2)[free]))
    return grid, free.reshape(side, side), solution.reshape(side, side)


# %% [markdown]
# Three problems: a wavy load in both regions, and one as heavy everywhere in the L, which brings a warning that is explained
# below. 100 points inside and 48 on the boundary. The prior holds wherever context points are, and the shape of the region is in the
# observations alone.


# %%
def waves(x):
    """The load of u = sin(pi x1) sin(pi x2) / 4, which is zero along both boundaries."""
    return np.pi**2 / 2 * np.prod(np.sin(np.pi * x), axis=-1)


def constant(x):
    """The same everywhere."""
    return np.ones(len(x))


PROBLEMS = {
    "square, waves": ("square", in_square, waves),
    "L, waves": ("L-shape", in_l_shape, waves),
    "L, constant load": ("L-shape", in_l_shape, constant),
}
box = fsp.context.Halton([-1.0, -1.0], [1.0, 1.0])
prior = fsp.Prior(RBF(lengthscale=0.6, variance=0.09))
model = fsp.as_model(fsp.mlp([150], prior=prior, context=box, key=jr.key(0)))
noise, edge = fsp.likelihoods.Gaussian(0.05), fsp.likelihoods.Gaussian(0.002)
candidates = np.asarray(box.sample(300, key=jr.key(1)))
generator = np.random.default_rng(0)

figure, axes = plt.subplots(3, 3, figsize=(10, 9), layout="constrained")
for (name, (region, inside, load)), row in zip(PROBLEMS.items(), axes, strict=True):
    collocation, boundary = candidates[inside(candidates)][:100], around(CORNERS[region], 48)
    also = [
        fsp.Observation(
            collocation, -load(collocation) + 0.05 * generator.normal(size=100), noise, of=operators.laplacian
        ),
        fsp.Observation(boundary, 0.002 * generator.normal(size=48), edge),
    ]
    posterior = fsp.laplace(model, prior, edge, None, also=also, context_points=candidates)
    grid, free, truth = finite_differences(inside, load)
    found = posterior.predict(grid.reshape(-1, 2))
    mean, std = (np.asarray(part).reshape(free.shape) for part in (found.mean, found.std))
    error = np.abs(mean - truth)
    within = np.mean(error[free] <= 2 * std[free])
    print(
        f"{name}: largest value {mean[free].max():.4f} (finite differences {truth.max():.4f}), error {error[free].mean():.4f} "
        f"on average, posterior standard deviation {std[free].mean():.4f}, {within:.0%} within two of them"
    )
    assert within > 0.85 or name == "L, constant load"
    # Error and error bar with the same colours, so that they can be compared.
    limits = [(None, None), *2 * [(0.0, max(error[free].max(), 2 * std[free].max()))]]
    panels = zip(row, (mean, error, 2 * std), ("posterior mean", "error", "2 std"), limits, strict=True)
    for ax, values, title, (lowest, highest) in panels:
        shown = np.where(free, values, np.nan)
        image = ax.pcolormesh(
            grid[0, :, 0], grid[:, 0, 1], shown, cmap="cividis", shading="nearest", vmin=lowest, vmax=highest
        )
        ax.plot(*boundary.T, ".", color="#D55E00", markersize=3)
        ax.set(aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1], title=title)
        figure.colorbar(image, ax=ax, shrink=0.8)
    row[0].set_ylabel(name)
    row[0].plot(*collocation.T, ".", color="white", markersize=2)

# %% [markdown]
# The first two are solved to their error bars. Under a constant load the true solution in the L has infinite curvature at the
# inner corner, which no function of a smooth prior has: the error that begins there reaches far into the region, where it is
# several times its bar. An error bar is as good as the prior it comes from. The verdict, which compares the network with the
# Gaussian process of the same prior, cannot say that the prior is wrong; but `laplace` has warned that the boundary values at that
# corner and the load near it contradict each other under a prior this smooth.

# %%
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=65)
