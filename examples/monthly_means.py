# %% [markdown]
# # Monthly means are integrals
#
# Observatories publish means over months; a curve through the middles of months is not the curve whose means they are. Here
# every mean is observed as what it is, an average over its interval, and the curve between comes out with an uncertainty.
#
# To see whether it is right, the CO2 record of Mauna Loa is first blurred to running means over three months, from which the
# monthly means, which are known, are predicted. The blur takes away 10 % of a yearly wave and 36 % of a half-yearly one.
# Run with a file name to keep the figure: `python examples/monthly_means.py docs/figures/monthly_means.png`.

# %%
import sys

import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from gpjax.kernels import RBF, Periodic

import fsplaplace as fsp
from fsplaplace import datasets, operators

MONTH = 1 / 12

# %% [markdown]
# NOAA's record from the mirror or the cache (see `fsplaplace.datasets`); without either, a curve of the same shape.

# %%
try:
    record = datasets.load("co2")
    chosen = (record.X[:, 0] >= 2008) & (record.X[:, 0] < 2014)
    when, ppm = record.X[chosen], record.y[chosen]
except (datasets.DatasetUnavailableError, ImportError) as error:
    print(f"a made-up curve instead of NOAA's: {error}")
    when = 2008 + MONTH * (np.arange(72)[:, None] + 0.5)
    year = when[:, 0]
    ppm = 385 + 2.1 * (year - 2008) + 3 * np.sin(2 * np.pi * year) + 0.9 * np.cos(4 * np.pi * year)

middles, running_means = when[1:-1], np.convolve(ppm, np.ones(3) / 3, mode="valid")

# %% [markdown]
# A straight line, a slow departure from it, and a season that keeps its shape for years:

# %%
slope, level = np.polyfit(middles[:, 0], running_means, 1)
prior = fsp.Prior(
    RBF(lengthscale=2.0, variance=1.0) + Periodic(lengthscale=1.0, period=1.0, variance=9.0),
    mean=fsp.means.Linear([slope], level),
)
region = fsp.context.Uniform(when.min(axis=0) - 0.2, when.max(axis=0) + 0.2)
model = fsp.as_model(fsp.mlp([60], prior=prior, context=region, key=jr.key(0)))
noise = fsp.likelihoods.Gaussian(0.1)


def posterior_given(means, width):
    """Of the curve, given means over intervals of a width around each month; as values for width None."""
    of = None if width is None else operators.average(lambda x: x - width / 2, lambda x: x + width / 2, nodes=8)
    also = [fsp.Observation(middles, means, noise, of=of)]
    return fsp.laplace(model, prior, noise, None, also=also, context_points=region.sample(100, key=jr.key(1)))


over_month = operators.average(lambda x: x - MONTH / 2, lambda x: x + MONTH / 2, nodes=8)
errors, posteriors = {}, {}
for name, width in {"means as values": None, "means as averages": 3 * MONTH}.items():
    posteriors[name] = posterior_given(running_means, width)
    months = posteriors[name].predict(when, of=over_month)
    off = np.abs(np.asarray(months.mean)[:, 0] - ppm)
    errors[name] = np.sqrt(np.mean(off**2))
    print(
        f"{name}: monthly means off by {errors[name]:.2f} ppm; "
        f"{np.mean(off < 2 * np.sqrt(np.asarray(months.variance)[:, 0] + 0.1**2)):.0%} within two standard deviations"
    )

# %% [markdown]
# Seen as averages, the season has its full height. (Bars are still too narrow for single months: the prior knows no weather that
# lasts for a month.)

# %%
assert errors["means as averages"] < 0.8 * errors["means as values"]

# %%
figure, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
x = np.linspace(2009, 2012, 300)[:, None]
for (name, posterior), colour in zip(posteriors.items(), ("#8A8A8A", "#D55E00"), strict=True):
    found = posterior.predict(x)
    mean, std = np.asarray(found.mean)[:, 0], np.asarray(found.std)[:, 0]
    ax.plot(x[:, 0], mean, color=colour, label=name)
    ax.fill_between(x[:, 0], mean - 2 * std, mean + 2 * std, color=colour, alpha=0.2, linewidth=0)
ax.plot(
    middles[:, 0],
    running_means,
    "o",
    color="#0072B2",
    markersize=4,
    markerfacecolor="none",
    label="three months (given)",
)
ax.plot(when[:, 0], ppm, ".", color="black", markersize=5, label="one month (not given)")
ax.set(xlim=(2009, 2012), ylim=(383, 397), xlabel="year", ylabel="CO$_2$ in ppm")
ax.legend(fontsize="small", ncols=2)
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=80)
