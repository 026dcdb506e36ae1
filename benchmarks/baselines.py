"""Every method on the sine task, boston and energy: time, memory and log predictive density.

    FSPLAPLACE_DATA=<mirror> python benchmarks/baselines.py [--tasks sine boston energy] [--methods map gp ...] [--steps 2000]

Each fit runs in a process of its own, so that its peak memory is its own. All methods share the network (2 x 50 tanh) and
the prior, fitted by the marginal likelihood on the training rows. The noise of the sine task is known. On the tables it is
the marginal likelihood's for the methods with a prior over functions; Gaussian processes tune kernel and noise again;
the others learn it: MAP and the ensemble with a tenth of the training rows held out, weight-space Laplace by its evidence.
Writes `baselines.json` and `baselines.md` to `benchmarks/results` (or `--out`); rows of methods and tasks that are not run
again are kept. Times are CPU seconds (and wall-clock seconds in the JSON): other work on the machine moves the former little.
"""

import argparse
import json
import multiprocessing
import time
import warnings
from pathlib import Path

import jax
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, Matern52
from results import peak_memory

import fsplaplace as fsp
from fsplaplace import datasets, metrics
from fsplaplace import methods as baselines
from fsplaplace.tuning import fit_prior

RESULTS = Path(__file__).resolve().parent / "results"
PREDICT_POINTS = 10_000
TASKS = ("sine", "boston", "energy")
# Their noise is learned on the tables: the marginal likelihood's is that of another model.
LEARN_NOISE = ("map", "ensemble", "laplace", "kfac", "diagonal", "last-layer", "gp", "sparse-gp")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--methods", nargs="+", default=baselines.names(), choices=baselines.names())
    parser.add_argument("--steps", type=int, default=2000, help="optimiser steps of every method that is trained")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the results")
    options = parser.parse_args(arguments)
    path = options.out / "baselines.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    for task in options.tasks:
        for name in options.methods:
            row = in_own_process(task, name, options.steps)
            rows = [old for old in rows if (old["task"], old["method"]) != (task, name)] + [row]
            rows.sort(key=lambda row: (TASKS.index(row["task"]), baselines.names().index(row["method"])))
            options.out.mkdir(exist_ok=True)
            path.write_text(json.dumps(rows, indent=1) + "\n")
            path.with_suffix(".md").write_text(table(rows))
            print(json.dumps(row), flush=True)


def in_own_process(task: str, name: str, steps: int) -> dict:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (task, name, steps))


def measure(task: str, name: str, steps: int) -> dict:
    X, y, x_test, y_test, prior, scale = problem(task)
    learn_noise = task != "sine" and name in LEARN_NOISE
    likelihood = fsp.likelihoods.Gaussian(scale, learnable=learn_noise)
    context = fsp.context.around(X, margin=0.5)
    model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(1)))
    method = configured(name, steps, validation=0.1 if learn_noise else None)
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
    assert prediction.noise_variance is not None  # every task is a regression
    noise = np.asarray(prediction.noise_variance)[:, 0]
    arguments = (y_test, prediction.mean[:, 0], prediction.variance[:, 0])
    return {
        "task": task, "method": name, "steps": None if name == "gp" else steps, "rows": len(X), "test_rows": len(x_test),
        "noise_scale": float(np.sqrt(np.mean(noise))), "noise_learned": learn_noise,
        "fit_cpu_seconds": fit_cpu, "fit_wall_seconds": fit_wall,
        "predict_cpu_seconds": predict_cpu, "predict_wall_seconds": predict_wall,
        "peak_memory_mib": peak_memory() / 2**20, "peak_memory_before_mib": before / 2**20,
        "log_predictive_density": float(metrics.log_predictive_density(*arguments, noise_variance=noise)),
        "expected_log_likelihood": float(metrics.expected_log_likelihood(*arguments, noise_variance=noise)),
        "rmse": float(metrics.rmse(y_test, prediction.mean[:, 0])),
    }  # fmt: skip


def configured(name: str, steps: int, *, validation: float | None) -> baselines.Method:
    """The method with its defaults and this many optimiser steps; `validation` for the networks with a prior on weights."""
    network = baselines.MAP(steps=steps, validation=validation)
    if name == "map":
        return network
    if name == "ensemble":
        return baselines.Ensemble(member=network)
    if name in ("laplace", "kfac", "diagonal", "last-layer"):
        # Of six settings tried on boston, full and K-FAC, held-out rows with three rounds had the highest log evidence.
        return baselines.by_name(name, train=network, rounds=3 if validation else 1)
    return baselines.by_name(name, **({} if name == "gp" else {"steps": steps}))


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


def table(rows: list[dict]) -> str:
    lines = [
        "# Methods compared",
        "",
        "Generated by `python benchmarks/baselines.py`; CPU seconds on one core, compilation included in the fit. Test rows: "
        "sine on [-1.5, 1.5], beyond the data; boston and energy, a random tenth, standardised targets. Noise: the standard "
        "deviation in the density, known on the sine task.",
        "",
        "| task | method | steps | fit (s) | predict 10,000 (s) | peak memory (MiB) | log predictive density | RMSE | noise |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['task']} | {row['method']} | {row['steps'] or '-'} | {row['fit_cpu_seconds']:.1f} | "
            f"{row['predict_cpu_seconds']:.2f} | {row['peak_memory_mib']:.0f} | {row['log_predictive_density']:.3f} | "
            f"{row['rmse']:.3f} | {row['noise_scale']:.3f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
