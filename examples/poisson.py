# %% [markdown]
# # Poisson's equation in a square and in an L
#
# $-\Delta u = 1$ with $u = 0$ all around: the bending of a membrane under its weight. Two kinds of observations, the Laplacian
# inside and values on the boundary, both with small noise, and the mean of the posterior is a solution of the equation with an
# error bar: how far the true one may be, given so few points and a function of the prior.
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
    return in_square(x) & ~np.all(x > 0, axis=-1)


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
def finite_differences(inside, side=81):
    ticks = np.linspace(-1, 1, side)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    free = inside(grid).ravel()
    off = [1.0] * (side * side)
    stencil = diags_array([4.0, *[-1.0] * 4], offsets=[0, 1, -1, side, -side], shape=(side * side,) * 2).tocsr()
    solution = np.zeros(len(off))
    solution[free] = spsolve(stencil[free][:, free], np.full(free.sum(), (ticks[1] - ticks[0]) ** 2))
    return grid, free.reshape(side, side), solution.reshape(side, side)


# %% [markdown]
# 100 points inside and 48 on the boundary. The solution is 0.3 high at most, so the prior's standard deviation is 0.3. The prior
# holds wherever context points are, and the shape of the region is in the observations alone.

# %%
box = fsp.context.Halton([-1.0, -1.0], [1.0, 1.0])
prior = fsp.Prior(RBF(lengthscale=0.6, variance=0.09))
model = fsp.as_model(fsp.mlp([150], prior=prior, context=box, key=jr.key(0)))
load, edge = fsp.likelihoods.Gaussian(0.05), fsp.likelihoods.Gaussian(0.002)
candidates = np.asarray(box.sample(300, key=jr.key(1)))

figure, axes = plt.subplots(2, 3, figsize=(10, 6), layout="constrained")
for (name, corners), inside, row in zip(CORNERS.items(), (in_square, in_l_shape), axes, strict=True):
    collocation, boundary = candidates[inside(candidates)][:100], around(corners, 48)
    also = [
        fsp.Observation(collocation, -np.ones(100), load, of=operators.laplacian),
        fsp.Observation(boundary, np.zeros(48), edge),
    ]
    posterior = fsp.laplace(model, prior, edge, None, also=also, context_points=candidates)
    grid, free, truth = finite_differences(inside)
    found = posterior.predict(grid.reshape(-1, 2))
    mean, std = (np.asarray(part).reshape(free.shape) for part in (found.mean, found.std))
    error = np.abs(mean - truth)
    print(
        f"{name}: largest value {mean[free].max():.4f} (finite differences {truth.max():.4f}), error {error[free].mean():.4f} "
        f"on average, posterior standard deviation {std[free].mean():.4f}"
    )
    assert error[free].mean() < 0.02
    for ax, values, title in zip(row, (mean, error, 2 * std), ("posterior mean", "error", "2 std"), strict=True):
        shown = np.where(free, values, np.nan)
        image = ax.pcolormesh(grid[0, :, 0], grid[:, 0, 1], shown, cmap="cividis", shading="nearest", vmin=0)
        ax.plot(*boundary.T, ".", color="#D55E00", markersize=3)
        ax.set(title=f"{name}: {title}", aspect="equal", xlabel="x₁", ylabel="x₂")
        figure.colorbar(image, ax=ax)
    row[0].plot(*collocation.T, ".", color="white", markersize=2)

# %% [markdown]
# The square is solved to its error bar. In the L the true solution has infinite curvature at the inner corner, which no function
# of a smooth prior has: the error that begins there reaches far into the region, where it is several times its bar. An error
# bar is as good as the prior it comes from.

# %%
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=65)
