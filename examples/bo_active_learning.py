# %% [markdown]
# # Active learning: where does a measurement teach most?
#
# A BoTorch acquisition function asks for the two inputs that lower the uncertainty of the whole function most. The surrogate is a
# network with a Gaussian-process prior; while new rows are no surprise they are added in closed form, without training. Needs
# `fsplaplace[bo,plots]`.

# %%
import warnings

import matplotlib.pyplot as plt
import torch
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from fsplaplace.botorch import FSPModel

warnings.simplefilter("ignore")  # BoTorch's advice on scaling
torch.manual_seed(0)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def measured(x):
    return torch.sin(8 * x[:, :1]) * torch.exp(-2 * x[:, 1:])


def sobol(count, seed):
    return torch.quasirandom.SobolEngine(2, scramble=True, seed=seed).draw(count, dtype=torch.float64)


# %% [markdown]
# The variance that is left, averaged over the square, decides where to look next.

# %%
region, X = sobol(100, seed=1), sobol(8, seed=0)
model = FSPModel(X, measured(X), network=(100,), num_context=100)
errors, variances = [], []
for _ in range(6):
    with torch.no_grad():
        found = model.posterior(region)
    errors.append(float((found.mean - measured(region)).square().mean().sqrt()))
    variances.append(float(found.variance.mean()))
    criterion = qNegIntegratedPosteriorVariance(model, region, sampler=SobolQMCNormalSampler(torch.Size([1])))
    asked, _ = optimize_acqf(criterion, bounds, q=2, num_restarts=2, raw_samples=16, options={"maxiter": 20})
    X = torch.cat([X, asked])
    model = model.updated(X, measured(X), refit="condition")

for count, error, variance in zip(range(8, 20, 2), errors, variances, strict=True):
    print(f"{count} rows: error {error:.3f}, average variance {variance:.4f}")
assert errors[-1] < 0.5 * errors[0]

# %% [markdown]
# Black: the rows it began with; red: the rows it asked for, over the standard deviation that is left. They go where the function could
# still be anything.

# %%
line = torch.linspace(0, 1, 40, dtype=torch.float64)
grid = torch.cartesian_prod(line, line)
with torch.no_grad():
    left = model.posterior(grid).variance.sqrt().reshape(40, 40)
figure, axis = plt.subplots(figsize=(4.6, 3.6))
image = axis.contourf(line, line, left.T, levels=12, cmap="Greys")
figure.colorbar(image, label="standard deviation left")
axis.plot(*X[:8].T, "o", color="black", label="first rows")
axis.plot(*X[8:].T, "o", color="tab:red", label="asked for")
axis.set(xlabel="first input", ylabel="second input")
axis.legend(loc="upper center", bbox_to_anchor=(0.5, 1.14), ncols=2, frameon=False)
