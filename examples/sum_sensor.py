# %% [markdown]
# # A sensor that sees a sum
#
# A gravimeter on a volcano sees a slow tide and the quick swelling of the ground, added up. Two functions, one prior for each,
# and observations of their sum: what is slow and what is quick tells them apart. Three readings of the tide alone fix the level,
# which no sum can.
# Run with a file name to keep the figure: `python examples/sum_sensor.py docs/figures/sum_sensor.png`.

# %%
import sys

import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace import operators

generator = np.random.default_rng(0)


def parts(x):
    """The tide and the swelling."""
    return np.stack(
        [1.2 * np.sin(0.9 * x[:, 0] + 0.4), 0.5 * np.sin(7 * x[:, 0]) * np.exp(-(x[:, 0] ** 2) / 2)], axis=1
    )


X = generator.uniform(-3, 3, (60, 1))
y = parts(X).sum(axis=1) + 0.05 * generator.normal(size=60)
rare = np.array([[-2.5], [0.0], [2.5]])

# %% [markdown]
# `combination` is a weighted sum of the outputs, `output` one of them. Nothing was seen of both at once, so X is None.

# %%
prior = fsp.Prior([RBF(lengthscale=2.0), RBF(lengthscale=0.3, variance=0.25)])
region = fsp.context.Uniform([-3.0], [3.0])
model = fsp.as_model(fsp.mlp([60], prior=prior, context=region, key=jr.key(0)))
noise = fsp.likelihoods.Gaussian(0.05)
also = [
    fsp.Observation(X, y, noise, of=operators.combination([1.0, 1.0])),
    fsp.Observation(rare, parts(rare)[:, 0], noise, of=operators.output(0)),
]
posterior = fsp.laplace(model, prior, noise, None, also=also, context_points=np.linspace(-3, 3, 100)[:, None])

# %% [markdown]
# Each part is less certain than the sum: where one is taken for higher, the other is taken for lower.

# %%
x = np.linspace(-2.8, 2.8, 200)[:, None]
found, total = posterior.predict(x), posterior.predict(x, of=operators.combination([1.0, 1.0]))
mean, std = np.asarray(found.mean), np.asarray(found.std)
error = np.sqrt(np.mean((mean - parts(x)) ** 2, axis=0))
print(f"error of the tide {error[0]:.3f}, of the swelling {error[1]:.3f}")
print(f"standard deviations {std.mean(axis=0).round(3)}, of the sum {float(total.std.mean()):.3f}")
between = np.asarray(posterior.covariance(x, joint=False))
correlation = between[:, 0, 1] / np.sqrt(between[:, 0, 0] * between[:, 1, 1])
assert np.all(error < 0.15)
assert np.median(correlation) < -0.3
assert float(total.std.mean()) < std.mean(axis=0).min()

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), layout="constrained")
sums = parts(x).sum(axis=1), np.asarray(total.mean)[:, 0], np.asarray(total.std)[:, 0]
columns = [(parts(x)[:, i], mean[:, i], std[:, i]) for i in range(2)]
for ax, name, (truth, middle, spread) in zip(axes, ("sum", "tide", "swelling"), (sums, *columns), strict=True):
    ax.fill_between(
        x[:, 0], middle - 2 * spread, middle + 2 * spread, color="#009E73", alpha=0.3, linewidth=0, label="mean ± 2 std"
    )
    ax.plot(x[:, 0], middle, color="#D55E00", label="mean")
    ax.plot(x[:, 0], truth, "--", color="black", linewidth=1, label="truth")
    ax.set(title=name, xlabel="time")
axes[0].plot(X[:, 0], y, "o", color="#8A8A8A", markersize=3, markerfacecolor="none", label="seen")
axes[1].plot(rare[:, 0], parts(rare)[:, 0], "o", color="#8A8A8A", markerfacecolor="none", label="seen")
axes[0].legend(fontsize="small")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=80)
