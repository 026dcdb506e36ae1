"""Two objectives at once: a surrogate with two outputs and the expected growth of the dominated area. Needs `fsplaplace[bo]`."""

import warnings

import torch
from botorch.acquisition.multi_objective import qLogNoisyExpectedHypervolumeImprovement
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.test_functions.multi_objective import BraninCurrin
from botorch.utils.multi_objective.hypervolume import Hypervolume
from botorch.utils.multi_objective.pareto import is_non_dominated

from fsplaplace.botorch import FSPModel

warnings.simplefilter("ignore")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
problem = BraninCurrin(negate=True)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]])


def area(values):
    """What the points found so far dominate, above the reference point of the problem."""
    return Hypervolume(problem.ref_point).compute(values[is_non_dominated(values)])


# %% One model, two outputs, joint over the four points that are asked for at once.
X = torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(8, dtype=torch.float64)
model = FSPModel(X, problem(X), network=(100,), num_context=100)
areas = [area(problem(X))]
for seed in range(4):
    improvement = qLogNoisyExpectedHypervolumeImprovement(
        model, problem.ref_point, X, sampler=SobolQMCNormalSampler(torch.Size([32]), seed=seed), cache_root=False
    )
    asked, _ = optimize_acqf(improvement, bounds, q=4, num_restarts=2, raw_samples=32, options={"maxiter": 20})
    X = torch.cat([X, asked])
    model = model.updated(X, problem(X))
    areas.append(area(problem(X)))

random = torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(len(X), dtype=torch.float64)
print("dominated area after each iteration: " + ", ".join(f"{value:.1f}" for value in areas))
print(f"of {len(X)} Sobol points: {area(problem(random)):.1f}; the largest possible: {problem.max_hv:.1f}")
assert areas[-1] > area(problem(random))
