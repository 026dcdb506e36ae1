# %% [markdown]
# # A driven pendulum: an equation that is not linear
#
# $u'' + 4 \sin u = s(t)$, where the drive s is known at 30 times with noise, and the pendulum's angle and speed at the start.
# Operators compose: `value.map(jnp.sin)` is not linear, and is replaced by its tangent at the mode, which is found by repeating
# this (Gauss-Newton). The posterior is then the one of a linear equation close to the true one.
#
# Are its error bars right? The solutions are drawn from the prior itself, and the drives computed from them: over many such
# pendulums, 95 % of the truth should be within two standard deviations. Four are solved here; `benchmarks/operators.py` has
# twenty, beside a plain physics-informed network.
# Run with a file name to keep the figure: `python examples/pendulum.py docs/figures/pendulum.png`.

# %%
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace import operators
from fsplaplace.likelihoods import Gaussian

generator = np.random.default_rng(0)
pendulum = operators.partial(0, 0) + 4.0 * operators.value.map(jnp.sin)

# %% [markdown]
# Truths: functions with the prior's covariance, as sums of many waves, which JAX differentiates.

# %%
LENGTHSCALE, PENDULUMS, WAVES = 0.8, 4, 200
times, start, x = np.linspace(0, 4, 30)[:, None], np.zeros((1, 1)), np.linspace(0, 4, 80)[:, None]


def angle_of(number):
    frequency, phase = np.random.default_rng(number).normal(size=(2, WAVES)) * [[1 / LENGTHSCALE], [2 * np.pi]]
    return lambda t: np.sqrt(2 / WAVES) * jnp.sum(jnp.cos(frequency * t[0] + phase), keepdims=True)


def seen(operator, angle, places):
    return np.asarray(jax.vmap(operator(angle))(jnp.asarray(places)))


# %% [markdown]
# One network for all of them, which is not trained: the mode is found in the linear model, and the same programs serve every
# pendulum. (With `fsplaplace.train(..., also=...)` the network itself would follow the equation.)

# %%
prior = fsp.Prior(RBF(lengthscale=LENGTHSCALE))
model = fsp.as_model(fsp.mlp([60], prior=prior, context=fsp.context.Uniform([0.0], [4.0]), key=jr.key(0)))
points, exactly = np.linspace(0, 4, 80)[:, None], Gaussian(0.01)
covered, errors, shown = [], [], []
for number in range(PENDULUMS):
    angle = angle_of(number)
    drive = seen(pendulum, angle, times)[:, 0] + 0.1 * generator.normal(size=30)
    also = [
        fsp.Observation(times, drive, Gaussian(0.1), of=pendulum),
        fsp.Observation(start, seen(operators.value, angle, start), exactly),
        fsp.Observation(start, seen(operators.partial(0), angle, start), exactly, of=operators.partial(0)),
    ]
    posterior = fsp.laplace(model, prior, exactly, None, also=also, context_points=points, mean="refined")
    found, truth = posterior.predict(x), seen(operators.value, angle, x)[:, 0]
    mean, std = np.asarray(found.mean)[:, 0], np.asarray(found.std)[:, 0]
    covered.append(np.mean(np.abs(mean - truth) <= 2 * std))
    errors.append(np.sqrt(np.mean((mean - truth) ** 2)))
    shown.append((mean, std, truth))

print(
    f"{PENDULUMS} pendulums: error {np.median(errors):.3f} (median), {np.mean(covered):.0%} within two standard deviations"
)
assert np.median(errors) < 0.1
assert np.mean(covered) > 0.8

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
for ax, (mean, std, truth), share in zip(axes, shown, covered, strict=False):
    ax.fill_between(
        x[:, 0], mean - 2 * std, mean + 2 * std, color="#009E73", alpha=0.3, linewidth=0, label="mean ± 2 std"
    )
    ax.plot(x[:, 0], mean, color="#D55E00", label="mean")
    ax.plot(x[:, 0], truth, "--", color="black", label="truth")
    ax.set(xlabel="t", title=f"{share:.0%} within 2 std")
axes[0].set_ylabel("angle")
axes[0].legend(fontsize="small")
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=80)
