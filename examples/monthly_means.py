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
    chosen = (record.X[:, 0] >= 2008) & (record.X[:, 0] < 2012)
    when, ppm = record.X[chosen], record.y[chosen]
except (datasets.DatasetUnavailableError, ImportError) as error:
    print(f"a made-up curve instead of NOAA's: {error}")
    when = 2008 + MONTH * (np.arange(48)[:, None] + 0.5)
    year = when[:, 0]
    ppm = 385 + 2.1 * (year - 2008) + 3 * np.sin(2 * np.pi * year) + 0.9 * np.cos(4 * np.pi * year)

middles, running_means = when[1:-1], np.convolve(ppm, np.ones(3) / 3, mode="valid")

# %% [markdown]
# A straight line, a slow departure from it, a season that keeps its shape for years, and weather that lasts for weeks. Without
# weather the bars would be too narrow for single months. Whether the data ask for it, how long it lasts and how strong it is, the
# evidence of the running means says.

# %%
slope, level = np.polyfit(middles[:, 0], running_means, 1)
line, years = fsp.means.Linear([slope], level), RBF(lengthscale=2.0, variance=1.0)
season = Periodic(lengthscale=1.0, period=1.0, variance=9.0)
region = fsp.context.Uniform(when.min(axis=0) - 0.2, when.max(axis=0) + 0.2)
over_month = operators.average(lambda x: x - MONTH / 2, lambda x: x + MONTH / 2, nodes=8)
over_three = operators.average(lambda x: x - 1.5 * MONTH, lambda x: x + 1.5 * MONTH, nodes=12)


def posterior_given(kernel, noise, of):
    """Of the curve, given what the running means are said to be."""
    prior, noise = fsp.Prior(kernel, mean=line), fsp.likelihoods.Gaussian(noise)
    model = fsp.as_model(fsp.mlp([300], prior=prior, context=region, key=jr.key(0)))
    also = [fsp.Observation(middles, running_means, noise, of=of)]
    return fsp.laplace(model, prior, noise, None, also=also, context_points=region.sample(300, key=jr.key(1)))


weathers = [(length, size) for length in (0.03, 0.06, 0.12) for size in (0.03, 0.1, 0.3)]
kernels = [RBF(lengthscale=length, variance=size) for length, size in weathers]
found = [posterior_given(years + season + weeks, 0.02, over_three) for weeks in kernels]
best = int(np.argmax([float(posterior.log_evidence) for posterior in found]))
weeks = kernels[best]
print("weather by evidence: lasts {} years, variance {} ppm^2".format(*weathers[best]))
posteriors = {
    "averages, without weather": posterior_given(years + season, 0.1, over_three),
    "means as values": posterior_given(years + season + weeks, 0.02, None),
    "means as averages": found[best],
}
errors, within = {}, {}
for name, posterior in posteriors.items():
    months = posterior.predict(when, of=over_month)
    off = np.abs(np.asarray(months.mean)[:, 0] - ppm)
    errors[name], within[name] = np.sqrt(np.mean(off**2)), np.mean(off < 2 * np.asarray(months.std)[:, 0])
    print(
        f"{name}: log evidence {float(posterior.log_evidence):.1f}, monthly means off by {errors[name]:.2f} ppm, "
        f"{within[name]:.0%} within two standard deviations"
    )

# %% [markdown]
# Seen as averages, the season has its full height, and months that nobody has shown to the network lie within its bars.

# %%
assert errors["means as averages"] < 0.5 * errors["means as values"]
assert within["means as averages"] > 0.85
assert float(posteriors["means as averages"].log_evidence) > float(posteriors["averages, without weather"].log_evidence)

# %%
figure, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
x = np.linspace(2009, 2011, 300)[:, None]
for name, colour in {"means as values": "#8A8A8A", "means as averages": "#D55E00"}.items():
    found = posteriors[name].predict(x)
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
ax.set(xlim=(2009, 2011), ylim=(382, 396), xlabel="year", ylabel="CO$_2$ in ppm")
ax.legend(fontsize="small", ncols=2)
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=80)
