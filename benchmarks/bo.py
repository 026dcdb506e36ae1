"""The surrogate beside BoTorch's exact Gaussian process: CPU time of an iteration, predictions from few rows, and moments where
decisions are made.

    python benchmarks/bo.py            # some minutes on one core; a run that is cut goes on
    python benchmarks/bo.py --quick    # smallest sizes, for the test suite

Four kinds of rows. "time": CPU seconds of fit and of qLogEI (10 points at once) on Hartmann-6 in a loop, both models in one process, the
second time that each size is seen. "density": log predictive density of new targets after n rows, in nats, and a constant's (mean and
variance of the rows). "moments": with the prior fixed to the exact process's, root mean square differences of mean and standard
deviation at the corners and at qLogEI's candidates, in standard deviations of the prior; and the least and largest prior variance that
the features imply there before they are normalised, over the stated one. "moments, larger": the same with twice the units and context
points. Writes `benchmarks/results/bo.json` after every row, and `bo.md` from it.
"""

import argparse
import functools
import itertools
import math
import time
import warnings
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpjax.kernels import Matern52
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior
from results import markdown_table, read_rows, write_results

import fsplaplace as fsp
from fsplaplace.botorch import FSPModel
from fsplaplace.experiments._optimisation_problems import problem
from fsplaplace.networks import push_forward

PROBLEMS = ("Branin", "Hartmann", "Ackley", "polynomial", "BNN draw")
SIZES = (10, 40, 100)
MOMENTS = tuple(
    f"{place}_{what}"
    for place in ("corners", "candidates")
    for what in ("mean_error", "std_error", "implied_least", "implied_largest")
)
LARGER = {"network": (800,), "num_context": 800}
# What is wanted, and why it is not always reached.
REMARKS = {
    "time": "Wanted: a ratio of at most 3. Half of an iteration is linear algebra (a Jacobian of 512 context points in 3,201 weights, and "
    "its Gram matrix). These rows are of a quiet machine (3.98 before ridges and features were kept), the other tables of the code before "
    "that. Earlier ones, with ratios of 2.1 to 3.2, were of a loaded one, where the exact process's fit took three times as long "
    "and an iteration of ours twice.",
    "moments": "Wanted: mean errors of at most 0.1, std errors of at most 0.05, and implied variances between 0.8 and 1.25. Corners are "
    "context points. At candidates, which lie between them, 400 units are few for six inputs with length scales of 0.3: other draws of "
    "the same network give mean errors between 0.05 and 0.15, with even directions, other steepness or more context points "
    "alone no less. Predictions use features normalised to the stated variance.",
    "moments, larger": "800 units and context points reach all three, in about four times the CPU time of `laplace`: "
    "`FSPModel(X, Y, network=(800,), num_context=800)`.",
    "density": "Log predictive density of 300 new targets, in nats.",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one seed, Branin, ten rows")
    parser.add_argument("--out", default="benchmarks/results", help="directory for the JSON and the table")
    options = parser.parse_args()
    problems, sizes, seeds = (("Branin",), (10,), 1) if options.quick else (PROBLEMS, SIZES, options.seeds)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    settings = {"iterations": 2 if options.quick else 8, "quick": options.quick}
    jobs = [("time", "Hartmann", settings["iterations"], seed) for seed in range(seeds)]
    jobs += [(kind, "Hartmann", 40, seed) for kind in ("moments", "moments, larger") for seed in range(seeds)]
    jobs += [("density", *job) for job in itertools.product(problems, sizes, range(seeds))]
    kinds = {"time": iteration_time, "moments": moments, "density": density}
    kinds["moments, larger"] = functools.partial(moments, **LARGER)
    rows, began = read_rows(options.out, "bo", settings), time.perf_counter()
    for kind, name, size, seed in jobs:
        if any((row["kind"], row["problem"], row["size"], row["seed"]) == (kind, name, size, seed) for row in rows):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = kinds[kind](name, size, seed)
        rows.append({"kind": kind, "problem": name, "size": size, "seed": seed, **found})
        write_results(options.out, "bo", rows, settings, seconds=time.perf_counter() - began, tables=tables)


def data(name: str, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sobol points of the unit cube and their values."""
    X = torch.quasirandom.SobolEngine(problem(name).dimension, scramble=True, seed=seed).draw(size, dtype=torch.float64)
    return X, values(name, X)


def values(name: str, X: torch.Tensor) -> torch.Tensor:
    return torch.tensor(problem(name).function(X.numpy()))[:, None]


def fitted_process(X: torch.Tensor, Y: torch.Tensor, **options) -> SingleTaskGP:
    model = SingleTaskGP(X, Y, **options)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def candidates(improvement, dimension: int) -> torch.Tensor:
    bounds = torch.stack([torch.zeros(dimension), torch.ones(dimension)])
    torch.manual_seed(0)
    found, _ = optimize_acqf(
        improvement, bounds, q=10, num_restarts=2, raw_samples=16, options={"maxiter": 10, "seed": 0}
    )
    return found.detach()


def iteration_time(name: str, iterations: int, seed: int) -> dict:
    """Medians over the iterations of one loop, the second of two."""
    seconds: dict[str, list[float]] = {}
    # The first loop of each compiles and warms up; the second overwrites its seconds.
    for method in ("gp", "gp", "ours", "ours"):
        (X, Y), last, seconds[method] = data(name, 10, seed), None, []
        for number in range(iterations):
            began = time.process_time()
            model = fitted_process(X, Y) if method == "gp" else updated(last, X, Y)
            last = model
            sampler = SobolQMCNormalSampler(torch.Size([128]), seed=number)
            asked = candidates(qLogExpectedImprovement(model, Y.max(), sampler=sampler), X.shape[1])
            seconds[method].append(time.process_time() - began)
            X, Y = torch.cat([X, asked]), torch.cat([Y, values(name, asked)])
    ours, theirs = median(seconds["ours"]), median(seconds["gp"])
    return {"seconds": ours, "gp_seconds": theirs, "ratio": ours / theirs}


def updated(last: FSPModel | None, X: torch.Tensor, Y: torch.Tensor) -> FSPModel:
    return FSPModel(X, Y) if last is None else last.updated(X, Y)


def moments(name: str, size: int, seed: int, **options) -> dict:
    X, Y = data(name, size, seed)
    Y = (Y - Y.mean()) / Y.std()
    d = X.shape[1]
    base = MaternKernel(nu=2.5, ard_num_dims=d, lengthscale_prior=GammaPrior(3.0, 6.0))
    kernel = ScaleKernel(base, outputscale_prior=GammaPrior(2.0, 0.15))
    exact = fitted_process(X, Y, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None).eval()
    variance = float(kernel.outputscale.detach())
    prior = fsp.Prior(Matern52(lengthscale=base.lengthscale.detach()[0].tolist(), variance=variance))
    noise = float(exact.likelihood.noise.detach()) ** 0.5
    model = FSPModel(X, Y, prior=prior, noise=noise, outcome_transform=None, **options)
    sampler = SobolQMCNormalSampler(torch.Size([128]), seed=0)
    places = {
        "corners": torch.tensor(list(itertools.product([0.0, 1.0], repeat=d))),
        "candidates": torch.cat(
            [candidates(qLogExpectedImprovement(each, Y.max(), sampler=sampler), d) for each in (model, exact)]
        ),
    }
    found = {}
    for place, points in places.items():
        with torch.no_grad():
            ours, theirs = model.posterior(points), exact.posterior(points)
        pairs = {"mean": (ours.mean, theirs.mean), "std": (ours.variance.sqrt(), theirs.variance.sqrt())}
        for moment, (one, other) in pairs.items():
            found[f"{place}_{moment}_error"] = float((one - other).square().mean().sqrt()) / variance**0.5
        implied = implied_variance(model, points) / variance
        found |= {f"{place}_implied_least": float(implied.min()), f"{place}_implied_largest": float(implied.max())}
    return found


def implied_variance(model: FSPModel, X: torch.Tensor) -> np.ndarray:
    """The prior variance that the features carry before they are normalised: directions as they were before the data."""
    fitted = model.fitted
    with jax.enable_x64(True):
        features = np.asarray(push_forward(fitted.model, jnp.asarray(X.numpy()), fitted.scale, budget=1e9))[:, 0]
    return (features**2) @ np.asarray(fitted.information)


def density(name: str, size: int, seed: int) -> dict:
    (X, Y), (new, wanted) = data(name, size, seed), data(name, 300, 1000 + seed)
    process = fitted_process(X, Y)

    def score(mean, variance):
        return float((-0.5 * torch.log(2 * math.pi * variance) - 0.5 * (wanted - mean) ** 2 / variance).mean())

    with torch.no_grad():
        posteriors = {"ours": FSPModel(X, Y).posterior(new, observation_noise=True)}
        posteriors["gp"] = process.posterior(new, observation_noise=True)
    found = {method: score(each.mean, each.variance) for method, each in posteriors.items()}
    return {**found, "constant": score(Y.mean(), Y.var())}


def tables(rows: list[dict]) -> str:
    """One table for each kind: medians over seeds; of moments the worst."""
    parts = []
    for kind, columns in (
        ("time", ("seconds", "gp_seconds", "ratio")),
        ("moments", MOMENTS),
        ("moments, larger", MOMENTS),
        ("density", ("ours", "gp", "constant")),
    ):
        chosen = [row for row in rows if row["kind"] == kind]
        groups = list(dict.fromkeys((row["problem"], row["size"]) for row in chosen))
        body = []
        for where in groups:
            members = [row for row in chosen if (row["problem"], row["size"]) == where]
            body.append(
                [*where, len(members), *(over_seeds(column)(row[column] for row in members) for column in columns)]
            )
        if body:
            header = (
                "problem",
                "iterations" if kind == "time" else "rows",
                "seeds",
                *(c.replace("_", " ") for c in columns),
            )
            parts += [f"## {kind}", REMARKS[kind], markdown_table(header, body)]
    return "\n\n".join(parts)


def over_seeds(column: str):
    """How the values of several seeds become one."""
    if column.endswith("_least"):
        return min
    return max if column in MOMENTS else median


if __name__ == "__main__":
    main()
