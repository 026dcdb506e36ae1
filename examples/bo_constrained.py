# %% [markdown]
# # Bayesian optimisation with a constraint
#
# The largest yield at which a temperature stays below its limit: objective and constraint are two outputs of one network with a
# Gaussian-process prior, and BoTorch's noisy expected improvement weighs both. Needs `fsplaplace[bo]`.

# %%
import warnings

import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from fsplaplace.botorch import FSPModel

warnings.simplefilter("ignore")  # BoTorch's advice on scaling
torch.manual_seed(0)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def measured(x):
    """Yield, which grows towards a corner, and a temperature that must stay below 1."""
    return torch.stack([x[:, 0] + 2 * x[:, 1] + 0.3 * torch.sin(9 * x[:, 0]), 2 * x[:, 0] ** 2 + x[:, 1] ** 2], dim=-1)


def best_allowed(values):
    return float(torch.where(values[:, 1] <= 1.0, values[:, 0], -torch.inf).max())


# %% [markdown]
# Six Sobol points, then two more at a time. `model.updated` starts the search for the new prior from the last one.

# %%
X = torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(6, dtype=torch.float64)
model = FSPModel(X, measured(X), network=(100,), num_context=100)
for seed in range(6):
    improvement = qLogNoisyExpectedImprovement(
        model, X, sampler=SobolQMCNormalSampler(torch.Size([64]), seed=seed), cache_root=False,
        objective=GenericMCObjective(lambda values, X=None: values[..., 0]),
        constraints=[lambda values: values[..., 1] - 1.0],
    )  # fmt: skip
    asked, _ = optimize_acqf(improvement, bounds, q=2, num_restarts=2, raw_samples=32, options={"maxiter": 20})
    X = torch.cat([X, asked])
    model = model.updated(X, measured(X))
    print(f"{len(X)} rows: best allowed yield {best_allowed(measured(X)):.4f}")

# %% [markdown]
# A fine grid says what there was to find:

# %%
line = torch.linspace(0, 1, 201, dtype=torch.float64)
possible = best_allowed(measured(torch.cartesian_prod(line, line)))
print(f"on a grid of {line.numel() ** 2:,} points: {possible:.4f}")
assert best_allowed(measured(X)) > possible - 0.05
