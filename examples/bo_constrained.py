"""The best value where a second measurement stays below a limit: objective and constraint in one surrogate. Needs `fsplaplace[bo]`."""

import warnings

import torch
from botorch.acquisition import qLogNoisyExpectedImprovement
from botorch.acquisition.objective import GenericMCObjective
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from fsplaplace.botorch import FSPModel

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]])


def measured(x):
    """Yield, which grows towards a corner, and a temperature that must stay below 1."""
    return torch.stack([x[:, 0] + 2 * x[:, 1] + 0.3 * torch.sin(9 * x[:, 0]), 2 * x[:, 0] ** 2 + x[:, 1] ** 2], dim=-1)


def best_allowed(values):
    return float(torch.where(values[:, 1] <= 1.0, values[:, 0], -torch.inf).max())


# %% Noisy expected improvement of the yield, where the second output is at most 1.
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

grid = torch.cartesian_prod(torch.linspace(0, 1, 201), torch.linspace(0, 1, 201))
print(f"on a grid of 40,401 points: {best_allowed(measured(grid)):.4f}")
assert best_allowed(measured(X)) > best_allowed(measured(grid)) - 0.05
