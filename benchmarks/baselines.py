"""Every method on the sine task, boston and energy: time, memory and log predictive density.

    FSPLAPLACE_DATA=<mirror> python benchmarks/baselines.py [--tasks sine boston energy] [--methods map gp ...] [--steps 5000]

Each fit runs in a process of its own, so that its peak memory is its own. All methods share the network (2 x 50 tanh), the
noise and the prior, the latter two fitted by the marginal likelihood on the training rows; Gaussian processes tune
theirs again. Writes `benchmarks/results/baselines.json` and `benchmarks/results/baselines.md`; rows of methods and tasks that
are not run again are kept. Times are CPU seconds (and wall-clock seconds in the JSON): other work on the machine moves
the former little.
"""

import argparse
import json
import multiprocessing
import resource
import time
import warnings
from pathlib import Path

import jax
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, Matern52

import fsplaplace as fsp
from fsplaplace import baselines, datasets, metrics
from fsplaplace.tuning import fit_prior

RESULTS = Path(__file__).resolve().parent / "results"
PREDICT_POINTS = 10_000
TASKS = ("sine", "boston", "energy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--methods", nargs="+", default=baselines.names(), choices=baselines.names())
    parser.add_argument("--steps", type=int, default=5000, help="optimiser steps of every method that is trained")
    options = parser.parse_args()
    path = RESULTS / "baselines.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    for task in options.tasks:
        for name in options.methods:
            row = in_own_process(task, name, options.steps)
            rows = [old for old in rows if (old["task"], old["method"]) != (task, name)] + [row]
            rows.sort(key=lambda row: (TASKS.index(row["task"]), baselines.names().index(row["method"])))
            RESULTS.mkdir(exist_ok=True)
            path.write_text(json.dumps(rows, indent=1) + "\n")
            (RESULTS / "baselines.md").write_text(table(rows))
            print(json.dumps(row), flush=True)


def in_own_process(task: str, name: str, steps: int) -> dict:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (task, name, steps))


def measure(task: str, name: str, steps: int) -> dict:
    X, y, x_test, y_test, prior, scale = problem(task)
    likelihood, context = fsp.likelihoods.Gaussian(scale), fsp.context.around(X, margin=0.5)
    model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(1)))
    options = {} if name == "gp" else {"steps": steps}
    if name == "ensemble":
        options = {"member": baselines.MAP(steps=steps)}
    elif name in ("laplace", "kfac", "diagonal", "last-layer"):
        options = {"train": baselines.MAP(steps=steps)}
    method = baselines.by_name(name, **options)
    before, cpu, wall = peak_memory(), time.process_time(), time.perf_counter()
    posterior = method.fit(model, X, y, likelihood, key=jr.key(2), prior=prior, context=context, progress=False)
    jax.block_until_ready(jax.tree.leaves(posterior))
    fit_cpu, fit_wall = time.process_time() - cpu, time.perf_counter() - wall
    many = np.resize(x_test, (PREDICT_POINTS, X.shape[1])) + 1e-3
    jax.block_until_ready(posterior.predict(many).variance)
    cpu, wall = time.process_time(), time.perf_counter()
    jax.block_until_ready(posterior.predict(many).variance)
    predict_cpu, predict_wall = time.process_time() - cpu, time.perf_counter() - wall
    prediction = posterior.predict(x_test)
    scores = {"noise_variance": scale**2}
    arguments = (y_test, prediction.mean[:, 0], prediction.variance[:, 0])
    return {
        "task": task, "method": name, "steps": None if name == "gp" else steps, "rows": len(X), "test_rows": len(x_test),
        "fit_cpu_seconds": fit_cpu, "fit_wall_seconds": fit_wall,
        "predict_cpu_seconds": predict_cpu, "predict_wall_seconds": predict_wall,
        "peak_memory_mib": peak_memory(), "peak_memory_before_mib": before,
        "log_predictive_density": float(metrics.log_predictive_density(*arguments, **scores)),
        "expected_log_likelihood": float(metrics.expected_log_likelihood(*arguments, **scores)),
        "rmse": float(metrics.rmse(y_test, prediction.mean[:, 0])),
    }  # fmt: skip


def problem(task: str):
    """Standardised training and test rows, the prior and the noise scale."""
    generator = np.random.default_rng(0)
    if task == "sine":
        X = np.concatenate([generator.uniform(-1, -0.5, 50), generator.uniform(0.5, 1, 50)])[:, None]
        x_test = generator.uniform(-1.5, 1.5, (500, 1))
        y, y_test = (np.sin(2 * np.pi * x[:, 0]) + 0.1 * generator.normal(size=len(x)) for x in (X, x_test))
        return X, y, x_test, y_test, fsp.Prior(RBF(lengthscale=0.3)), 0.1
    data = datasets.load(task)
    order = generator.permutation(len(data.X))
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    targets = np.asarray(data.y).reshape(len(data.y), -1)[:, 0]
    centre, spread = data.X[train].mean(axis=0), data.X[train].std(axis=0)
    X, x_test = ((data.X[rows] - centre) / np.where(spread > 0, spread, 1) for rows in (train, test))
    y, y_test = ((targets[rows] - targets[train].mean()) / targets[train].std() for rows in (train, test))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fitted = fit_prior(fsp.Prior(Matern52()), X, y, key=jr.key(0), standard_errors=False)
    return X, y, x_test, y_test, fitted.prior, float(fitted.likelihood.scale)


def peak_memory() -> float:
    """MiB, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(rows: list[dict]) -> str:
    lines = [
        "# Methods compared",
        "",
        "Generated by `python benchmarks/baselines.py`; CPU seconds on one core, compilation included in the fit. Test rows: "
        "sine on [-1.5, 1.5], beyond the data; boston and energy, a random tenth, standardised targets.",
        "",
        "| task | method | steps | fit (s) | predict 10,000 (s) | peak memory (MiB) | log predictive density | RMSE |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['task']} | {row['method']} | {row['steps'] or '-'} | {row['fit_cpu_seconds']:.1f} | "
            f"{row['predict_cpu_seconds']:.2f} | {row['peak_memory_mib']:.0f} | {row['log_predictive_density']:.3f} | "
            f"{row['rmse']:.3f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
