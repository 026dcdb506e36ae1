"""Is the verdict right? Random problems, the posterior's log predictive density beside the exact process's.

    python benchmarks/verdict.py            # 240 problems, 100 others and 60 of labels, half an hour on one core
    python benchmarks/verdict.py --quick    # four, for the test suite

Kernels, length scales, offsets, noise, likelihoods and training steps are drawn anew for each problem; dimensions, rows and widths
come from a list of designs, so that problems share compiled programs. The data are drawn from the prior itself. The exact
process is computed here in NumPy: for labels and counts it is the Laplace approximation of the latent Gaussian process.
The 100 others are for the confirmation of thresholds that are chosen on the first 240. A label tells little, so that few networks of those
lose 0.1 nats with labels or counts: the last 60 are labels and counts of large functions with networks of 3 to 40 units a layer.
Writes `benchmarks/results/verdict.json` and, from it, `verdict.md`, after every problem; a run that was cut goes on where it stopped.
"""

import argparse
import dataclasses
import time
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, Matern12, Matern32, Matern52
from results import markdown_table, read_rows, write_results
from scipy.special import expit, gammaln, logsumexp

import fsplaplace as fsp
from fsplaplace.prior import moments

KERNELS = {"RBF": RBF, "Matern-1/2": Matern12, "Matern-3/2": Matern32, "Matern-5/2": Matern52}
# Loss against the exact process, in nats per target, of a bad posterior and of a good one.
BAD, GOOD = 0.1, 0.02
SETTINGS = {"problems": 240, "others": 100, "labels": 60, "test_targets": 2000}
FIRST_OTHER, FIRST_LABEL = 1000, 2000


class Design(NamedTuple):
    """What decides the shapes of arrays."""

    dimension: int
    rows: int
    width: int
    outputs: int = 1
    form: str = "covariance"


DESIGNS = (
    Design(1, 40, 10), Design(1, 150, 30), Design(1, 150, 60), Design(2, 100, 20), Design(2, 200, 60), Design(4, 60, 20),
    Design(4, 200, 60), Design(6, 100, 40), Design(8, 150, 30), Design(2, 100, 40, outputs=2),
    Design(1, 60, 30, form="precision"), Design(2, 2500, 40),
)  # fmt: skip
LABEL_DESIGNS = (
    Design(1, 100, 3), Design(1, 200, 6), Design(1, 300, 10), Design(2, 300, 6), Design(1, 200, 40), Design(2, 200, 40),
)  # fmt: skip


def draw(number: int) -> dict:
    """The settings of one problem."""
    generator = np.random.default_rng(number)
    if number >= FIRST_LABEL:
        return _draw_labels(number, generator)
    design = DESIGNS[number % len(DESIGNS)]
    if design.rows > 2000 and number // len(DESIGNS) % 4:
        # Many rows take long: one round in four.
        design = DESIGNS[1]
    simple = design.outputs == 1 and design.form == "covariance" and design.rows < 2000
    return {
        "number": number,
        **design._asdict(),
        "kernel": str(generator.choice(list(KERNELS))),
        # In units of the inputs' range of 2; in many dimensions shorter ones leave nothing to learn.
        "lengthscale": float(np.exp(generator.uniform(np.log(0.03), np.log(1.0)))) * design.dimension**0.5,
        "likelihood": str(generator.choice(["Gaussian", "Gaussian", "Bernoulli", "Poisson"])) if simple else "Gaussian",
        "x offset": float(generator.choice([0.0, 0.0, 300.0])),
        "y offset": float(generator.choice([0.0, 0.0, 10.0])),
        "noise": float(generator.choice([0.03, 0.1, 0.3])),
        "steps": int(generator.choice([0, 0, 0, 200])),
        "variance": None,
    }


def _draw_labels(number: int, generator: np.random.Generator) -> dict:
    """Labels and counts in turn, of functions large enough that they tell about them."""
    design = LABEL_DESIGNS[number % len(LABEL_DESIGNS)]
    likelihood = ("Bernoulli", "Poisson")[number // len(LABEL_DESIGNS) % 2]
    return {
        "number": number,
        **design._asdict(),
        "kernel": str(generator.choice(list(KERNELS))),
        "lengthscale": float(np.exp(generator.uniform(np.log(0.03), np.log(0.3)))) * design.dimension,
        "likelihood": likelihood,
        "x offset": 0.0,
        "y offset": 0.0,
        "noise": 0.0,
        "steps": 0,
        "variance": float(generator.choice([4.0, 9.0, 16.0] if likelihood == "Bernoulli" else [1.0, 2.0, 4.0])),
    }


class Drawn(NamedTuple):
    """The data of one problem, drawn from its prior.

    Attributes:
        prior: over functions.
        likelihood: of the targets.
        X: training inputs.
        y: training targets.
        x: test inputs.
        held_out: test targets, without the offset.
        offset: of the targets.
        exact: the exact process at the test inputs, without the offset.
    """

    prior: fsp.Prior
    likelihood: Any
    X: np.ndarray
    y: np.ndarray
    x: np.ndarray
    held_out: np.ndarray
    offset: float
    exact: "Process"


def data(problem: dict, test_targets: int) -> Drawn:
    """Inputs, a function of the prior, targets, and the exact process."""
    generator, count, q = np.random.default_rng(10_000 + problem["number"]), problem["rows"], problem["outputs"]
    offset = problem["y offset"] if problem["likelihood"] == "Gaussian" else 0.0
    variance = problem["variance"] or (4.0 if problem["likelihood"] == "Bernoulli" else 1.0)
    kernel = KERNELS[problem["kernel"]](lengthscale=problem["lengthscale"], variance=variance)
    prior = fsp.Prior(kernel, mean=offset, num_outputs=q)
    inputs = generator.uniform(-1, 1, (count + test_targets // q, problem["dimension"])) + problem["x offset"]
    # What the network sees: numbers of float32.
    inputs = inputs.astype(np.float32).astype(np.float64)
    covariance = moments.gram(prior, inputs)[0]
    lower = np.linalg.cholesky(covariance + 1e-8 * np.eye(len(covariance)))
    function = lower @ generator.normal(size=(len(covariance), q))
    targets, likelihood = observe(problem, function, generator)
    exact = exact_process(problem["likelihood"], covariance, count, targets[:count], problem["noise"])
    return Drawn(
        prior, likelihood, inputs[:count], targets[:count] + offset, inputs[count:], targets[count:], offset, exact
    )


def measure(problem: dict) -> dict:
    """Fit, and score both processes on held-out targets."""
    drawn = data(problem, SETTINGS["test_targets"])
    posterior = fit(problem, drawn)
    ratio = posterior.diagnostics.ratios["new"]
    process = process_of(posterior, drawn)
    return {
        **problem, "loss": measured_loss(problem, drawn, process), "estimate": float(posterior.verdict.loss),
        "std over exact": measured_stds(problem, drawn, process), "level": posterior.verdict.level,
        "reason": posterior.verdict.reasons[0],
        "implied over stated": [float(ratio.smallest), float(ratio.median), float(ratio.largest)],
    }  # fmt: skip


def process_of(posterior: fsp.Posterior, drawn: Drawn) -> "Process":
    """The posterior at the test inputs, without the offset."""
    found = posterior.predict(drawn.x)
    return Process(np.asarray(found.mean, float) - drawn.offset, np.asarray(found.variance, float))


def measured_stds(problem: dict, drawn: Drawn, process: "Process") -> list[float] | None:
    """The smallest and the largest standard deviation of a new target over the exact one; None without Gaussian noise."""
    if problem["likelihood"] != "Gaussian":
        return None
    found, exact = (each.variance + problem["noise"] ** 2 for each in (process, drawn.exact))
    ratio = np.sqrt(found / exact)
    return [float(np.min(ratio)), float(np.max(ratio))]


def measured_loss(problem: dict, drawn: Drawn, process: "Process") -> float:
    """What the log predictive density of held-out targets loses against the exact process, in nats per target."""
    return float(np.mean(score(problem, drawn.exact, drawn.held_out) - score(problem, process, drawn.held_out)))


def observe(problem: dict, function: np.ndarray, generator: np.random.Generator):
    """Targets of a function, and their likelihood."""
    match problem["likelihood"]:
        case "Bernoulli":
            return (generator.uniform(size=function.shape) < expit(function)).astype(int), fsp.likelihoods.Bernoulli()
        case "Poisson":
            return generator.poisson(np.exp(function)), fsp.likelihoods.Poisson()
    noise = problem["noise"]
    return function + noise * generator.normal(size=function.shape), fsp.likelihoods.Gaussian(noise)


def fit(problem: dict, drawn: Drawn) -> fsp.Posterior:
    """The posterior of a network of the problem's width, trained or not."""
    key, context = jr.key(problem["number"]), fsp.context.around(drawn.X)
    prior, likelihood, X, y = drawn.prior, drawn.likelihood, drawn.X, drawn.y
    model = fsp.as_model(fsp.mlp([problem["width"]] * 2, prior=prior, context=context, key=key))
    if problem["steps"]:
        trained = fsp.train(model, prior, likelihood, context, X, y, key=key, steps=problem["steps"], progress=False)
        model = trained.model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return rounded(fsp.laplace(model, prior, likelihood, X, y, form=problem["form"]))


def rounded(posterior: fsp.Posterior) -> fsp.Posterior:
    """With directions of no variance up to a round number, so that posteriors share programs."""
    added, information = -posterior.rank % 128, posterior.information
    if information is not None:
        information = jnp.concatenate([information, jnp.ones(added, information.dtype)])
    scale = jnp.concatenate([posterior.scale, jnp.zeros((added, posterior.scale.shape[1]), posterior.scale.dtype)])
    return dataclasses.replace(posterior, scale=scale, information=information)


class Process(NamedTuple):
    """A latent function at n inputs: mean and variance, (n, q)."""

    mean: np.ndarray
    variance: np.ndarray


def exact_process(likelihood: str, covariance: np.ndarray, count: int, targets: np.ndarray, noise: float) -> Process:
    """The exact Gaussian process of zero mean, or the Laplace approximation of a latent one, at all rows after the first."""
    K, cross, own = covariance[:count, :count], covariance[count:, :count], np.diagonal(covariance)[count:]
    if likelihood == "Gaussian":
        lower = np.linalg.cholesky(K + noise**2 * np.eye(count))
        half = np.linalg.solve(lower, cross.T)
        variance = own - np.sum(half**2, axis=0)
        return Process(half.T @ np.linalg.solve(lower, targets), np.repeat(variance[:, None], targets.shape[1], axis=1))
    # Rasmussen and Williams (2006), Algorithm 3.1, with halved steps; f = K a.
    link = expit if likelihood == "Bernoulli" else np.exp
    a = np.zeros((count, 1))

    def objective(a):
        f = K @ a
        normaliser = np.logaddexp(0, f) if likelihood == "Bernoulli" else np.exp(f)
        return float(np.sum(normaliser - targets * f) + 0.5 * np.sum(a * f))

    for _ in range(100):
        f = K @ a
        value = link(f)
        weight = value * (1 - value) if likelihood == "Bernoulli" else value
        b = weight * f + targets - value
        new = b - np.linalg.solve(np.eye(count) + weight * K, weight * (K @ b))
        size, now = 1.0, objective(a)
        while size > 1e-6 and not objective(a + size * (new - a)) <= now:
            size /= 2
        change, a = size * (new - a), a + size * (new - a)
        if np.max(np.abs(K @ change)) < 1e-8:
            break
    root = np.sqrt(weight)
    half = np.linalg.solve(np.linalg.cholesky(np.eye(count) + root * K * root.T), root * cross.T)
    return Process(cross @ a, (own - np.sum(half**2, axis=0))[:, None])


def score(problem: dict, process: Process, targets: np.ndarray) -> np.ndarray:
    """Log predictive density of each target: in closed form, or by quadrature over the latent function."""
    mean, variance = process
    if problem["likelihood"] == "Gaussian":
        total = variance + problem["noise"] ** 2
        return -0.5 * ((targets - mean) ** 2 / total + np.log(2 * np.pi * total))
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    f = mean[..., None] + np.sqrt(np.maximum(variance, 0.0))[..., None] * nodes
    if problem["likelihood"] == "Bernoulli":
        logs = -np.logaddexp(0.0, np.where(targets[..., None] > 0, -f, f))
    else:
        logs = targets[..., None] * f - np.exp(f) - gammaln(targets[..., None] + 1.0)
    return logsumexp(logs, axis=-1, b=weights / weights.sum())


def tables(rows: list[dict]) -> str:
    """How many of the bad are cautioned about, and of the good: by likelihood, and on problems that chose no threshold."""
    chosen = [row for row in rows if row["number"] < FIRST_OTHER]
    parts = {
        name: [row for row in chosen if row["likelihood"] == name] for name in ("Gaussian", "Bernoulli", "Poisson")
    }
    parts |= {
        "precision form": [row for row in chosen if row["form"] == "precision"],
        "two outputs": [row for row in chosen if row["outputs"] > 1],
        "more than 2,000 rows": [row for row in chosen if row["rows"] > 2000],
        "first 240": chosen,
        "others": [row for row in rows if FIRST_OTHER <= row["number"] < FIRST_LABEL],
    }
    labels = [row for row in rows if row["number"] >= FIRST_LABEL]
    parts |= {
        f"large functions: {name}": [r for r in labels if r["likelihood"] == name] for name in ("Bernoulli", "Poisson")
    }
    parts["all"] = rows
    body = []
    for name, part in parts.items():
        bad, good = [r for r in part if r["loss"] > BAD], [r for r in part if r["loss"] < GOOD]
        body.append([name, len(part), *(cell for each in (bad, good) for cell in (len(each), _share(each)))])
    header = ["problems", "number", f"worse by more than {BAD} nats", "of these cautioned", f"within {GOOD} nats"]
    text = [markdown_table([*header, "of these cautioned"], body), ""]
    wrong = [
        r for r in rows if (r["loss"] > BAD and r["level"] == "good") or (r["loss"] < GOOD and r["level"] != "good")
    ]
    names = ["number", "dimension", "rows", "width", "outputs", "form", "kernel", "lengthscale", "likelihood", "noise"]
    names += ["steps", "loss", "estimate", "level"]
    text += ["Where the verdict is wrong:", "", markdown_table(names, [[row[name] for name in names] for row in wrong])]
    return "\n".join(text)


def _share(part: list[dict]) -> str:
    return f"{100 * np.mean([row['level'] != 'good' for row in part]):.1f} %" if part else "-"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default="benchmarks/results")
    arguments = parser.parse_args()
    settings = {**SETTINGS, **({"problems": 2, "others": 1, "labels": 1} if arguments.quick else {})}
    # All sets grow alike, so that a run that was cut has some of each.
    parts = ((0, settings["problems"]), (FIRST_OTHER, settings["others"]), (FIRST_LABEL, settings["labels"]))
    numbers = [
        first + at for _, first, at in sorted((at / count, first, at) for first, count in parts for at in range(count))
    ]
    rows, began = read_rows(arguments.out, "verdict", settings), time.perf_counter()
    done = {row["number"] for row in rows}
    for number in (each for each in numbers if each not in done):
        rows.append(measure(draw(number)))
        write_results(arguments.out, "verdict", rows, settings, seconds=time.perf_counter() - began, tables=tables)


if __name__ == "__main__":
    main()
