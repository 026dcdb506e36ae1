# %% [markdown]
# # Bayesian optimisation of two objectives
#
# No input is best in both, so the search is for the front: the points that cannot be improved in one objective without losing in
# the other. One network with two outputs is the surrogate; BoTorch's expected growth of the dominated area asks for four points at
# once. Needs `fsplaplace[bo,plots]`.

# %%
import warnings

import matplotlib.pyplot as plt
import torch
from botorch.acquisition.multi_objective import qLogNoisyExpectedHypervolumeImprovement
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.test_functions.multi_objective import BraninCurrin
from botorch.utils.multi_objective.hypervolume import Hypervolume
from botorch.utils.multi_objective.pareto import is_non_dominated

from fsplaplace.botorch import FSPModel

warnings.simplefilter("ignore")  # BoTorch's advice on scaling
torch.manual_seed(0)
problem = BraninCurrin(negate=True).to(torch.float64)
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def sobol(count):
    return torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(count, dtype=torch.float64)


def area(values):
    """What the points found so far dominate, above the reference point of the problem."""
    return Hypervolume(problem.ref_point).compute(values[is_non_dominated(values)])


# %% [markdown]
# One model, two outputs, joint over the four points:

# %%
X = sobol(8)
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

others = problem(sobol(len(X)))
print("dominated area after each iteration: " + ", ".join(f"{value:.1f}" for value in areas))
print(f"of {len(X)} Sobol points: {area(others):.1f}; the largest possible: {problem.max_hv:.1f}")
assert areas[-1] > area(others)

# %% [markdown]
# Both axes are to be maximised: up and to the right is better.

# %%
found = problem(X)
front = found[is_non_dominated(found)]
front = front[front[:, 0].argsort()]
figure, axis = plt.subplots(figsize=(4.6, 3.4))
axis.plot(*others.T, "o", color="tab:gray", alpha=0.6, label="as many Sobol points")
axis.plot(*found.T, "o", color="tab:red", label="asked for by the surrogate")
axis.plot(*front.T, drawstyle="steps-pre", color="tab:red", lw=1, label="front")
axis.set(xlabel="negative Branin", ylabel="negative Currin")
axis.legend(frameon=False, fontsize=8)
