"""Is the verdict right? Random problems, the posterior's log predictive density beside the exact process's.

    python benchmarks/verdict.py            # 240 problems, about a quarter of an hour
    python benchmarks/verdict.py --quick    # six, for the test suite

Kernels, length scales, widths, dimensions, likelihoods, offsets, noise, numbers of rows and training steps are drawn anew for each
problem; the data are drawn from the prior itself. Writes `benchmarks/results/verdict.json` and, from it, `verdict.md`, after every
problem; a run that was cut goes on where it stopped.
"""

import argparse
import time
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, Matern12, Matern32, Matern52
from results import markdown_table, read_rows, write_results

import fsplaplace as fsp
from fsplaplace.methods import ExactGP

KERNELS = {"RBF": RBF, "Matern-1/2": Matern12, "Matern-3/2": Matern32, "Matern-5/2": Matern52}
# Loss against the exact process, in nats per target, of a bad posterior and of a good one.
BAD, GOOD = 0.1, 0.02
SETTINGS = {"problems": 240, "test_rows": 300}


def draw(number: int) -> dict:
    """The settings of one problem."""
    generator = np.random.default_rng(number)
    dimension = int(generator.choice([1, 1, 2, 4]))
    return {
        "number": number,
        "kernel": str(generator.choice(list(KERNELS))),
        # In units of the inputs' range of 2; in many dimensions shorter ones leave nothing to learn.
        "lengthscale": float(np.exp(generator.uniform(np.log(0.03), np.log(1.0)))) * dimension**0.5,
        "width": int(generator.choice([8, 20, 50, 100])),
        "dimension": dimension,
        "likelihood": str(generator.choice(["Gaussian", "Gaussian", "Bernoulli"])),
        "offset": float(generator.choice([0.0, 0.0, 10.0])),
        "noise": float(generator.choice([0.03, 0.1, 0.3])),
        "rows": int(generator.choice([30, 100, 200])),
        "steps": int(generator.choice([0, 300])),
    }


def measure(problem: dict) -> dict:
    """Fit, and score both processes on held-out targets."""
    key, generator = jr.key(problem["number"]), np.random.default_rng(10_000 + problem["number"])
    labels = problem["likelihood"] == "Bernoulli"
    offset, dimension = 0.0 if labels else problem["offset"], problem["dimension"]
    prior = fsp.Prior(
        KERNELS[problem["kernel"]](lengthscale=problem["lengthscale"], variance=4.0 if labels else 1.0), mean=offset
    )
    count = problem["rows"]
    inputs = generator.uniform(-1, 1, (count + SETTINGS["test_rows"], dimension))
    with jax.enable_x64(True):
        function = np.asarray(prior.sample(jnp.asarray(inputs), key=key))[0, :, 0]
    if labels:
        targets = (generator.uniform(size=function.size) < 1 / (1 + np.exp(-function))).astype(int)
        likelihood = fsp.likelihoods.Bernoulli()
    else:
        targets = function + problem["noise"] * generator.normal(size=function.size)
        likelihood = fsp.likelihoods.Gaussian(problem["noise"])
    X, y, x, held_out = inputs[:count], targets[:count], inputs[count:], targets[count:]
    context = fsp.context.around(X)
    model = fsp.as_model(fsp.mlp([problem["width"]] * 2, prior=prior, context=context, key=key))
    if problem["steps"]:
        trained = fsp.train(model, prior, likelihood, context, X, y, key=key, steps=problem["steps"], progress=False)
        model = trained.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fsp.VerdictWarning)
        posterior = fsp.laplace(model, prior, likelihood, X, y)
    exact = ExactGP(tune=False).fit(model, X, y, likelihood, key=key, prior=prior, progress=False)
    loss = float(np.mean(score(exact, x, held_out, labels) - score(posterior, x, held_out, labels)))
    verdict = posterior.verdict
    return {**problem, "loss": loss, "estimate": float(verdict.loss), "level": verdict.level}


def score(posterior, x, targets, labels: bool):
    """Log predictive density of each target."""
    found = posterior.predict(x)
    if labels:
        # The probit approximation of the probability, the same for both processes.
        mean, variance = (np.asarray(part, dtype=float)[:, 0] for part in (found.mean, found.variance))
        logit = mean / np.sqrt(1 + np.pi / 8 * variance)
        return -np.logaddexp(0.0, np.where(targets > 0, -logit, logit))
    variance = np.asarray(found.total_variance, dtype=float)[:, 0]
    residual = targets - np.asarray(found.mean, dtype=float)[:, 0]
    return -0.5 * (residual**2 / variance + np.log(2 * np.pi * variance))


def tables(rows: list[dict]) -> str:
    """How many of the bad are cautioned about, and of the good, by likelihood."""
    body = []
    for name in ("Gaussian", "Bernoulli", "all"):
        of_it = [row for row in rows if name in (row["likelihood"], "all")]
        bad, good = [r for r in of_it if r["loss"] > BAD], [r for r in of_it if r["loss"] < GOOD]
        body.append([name, len(of_it), *(cell for part in (bad, good) for cell in (len(part), _share(part)))])
    header = ["likelihood", "problems", f"worse by more than {BAD} nats", "of these cautioned", f"within {GOOD} nats"]
    text = [markdown_table([*header, "of these cautioned"], body), ""]
    wrong = [
        r for r in rows if (r["loss"] > BAD and r["level"] == "good") or (r["loss"] < GOOD and r["level"] != "good")
    ]
    names = [
        "kernel",
        "lengthscale",
        "width",
        "dimension",
        "likelihood",
        "noise",
        "rows",
        "steps",
        "loss",
        "estimate",
        "level",
    ]
    text += ["Where the verdict is wrong:", "", markdown_table(names, [[row[name] for name in names] for row in wrong])]
    return "\n".join(text)


def _share(part: list[dict]) -> str:
    return f"{100 * np.mean([row['level'] != 'good' for row in part]):.0f} %" if part else "-"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default="benchmarks/results")
    arguments = parser.parse_args()
    settings = {**SETTINGS, "problems": 6 if arguments.quick else SETTINGS["problems"]}
    rows, began = read_rows(arguments.out, "verdict", settings), time.perf_counter()
    for number in range(len(rows), settings["problems"]):
        rows.append(measure(draw(number)))
        write_results(arguments.out, "verdict", rows, settings, seconds=time.perf_counter() - began, tables=tables)
        if number % 10 == 9:
            jax.clear_caches()


if __name__ == "__main__":
    main()
