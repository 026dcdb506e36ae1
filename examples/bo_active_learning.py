"""Active learning: ask where a measurement lowers the uncertainty of the whole function most. Needs `fsplaplace[bo]`."""

import warnings

import torch
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from fsplaplace.botorch import FSPModel

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def measured(x):
    """A ridge that is steep in the first input."""
    return torch.sin(8 * x[:, :1]) * torch.exp(-2 * x[:, 1:])


# %% The variance that is left, averaged over the square, decides where to look next. The new rows are added in closed form while
# they are no surprise.
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
region = torch.quasirandom.SobolEngine(2, scramble=True, seed=1).draw(100, dtype=torch.float64)
X = torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(8, dtype=torch.float64)
model = FSPModel(X, measured(X), network=(100,), num_context=100)
errors, spread = [], []
for _ in range(6):
    with torch.no_grad():
        found = model.posterior(region)
    errors.append(float((found.mean - measured(region)).square().mean().sqrt()))
    spread.append(float(found.variance.mean()))
    criterion = qNegIntegratedPosteriorVariance(model, region, sampler=SobolQMCNormalSampler(torch.Size([1])))
    asked, _ = optimize_acqf(criterion, bounds, q=2, num_restarts=2, raw_samples=16, options={"maxiter": 20})
    X = torch.cat([X, asked])
    model = model.updated(X, measured(X), refit="condition")

for count, error, variance in zip(range(8, 20, 2), errors, spread, strict=True):
    print(f"{count} rows: error {error:.3f}, average variance {variance:.4f}")
assert errors[-1] < 0.5 * errors[0]
