"""How close the posterior is to the exact Gaussian process: every kernel, form, precision and number of context points.

    python benchmarks/fidelity.py            # the whole table, about half an hour on two cores
    python benchmarks/fidelity.py --quick    # a corner of it, for the test suite

Writes `benchmarks/results/fidelity.json` and, from it, `fidelity.md`, after every network; a run that was cut goes on where it
stopped (delete the JSON to start anew). Rows measured at commit 1b4c2e8, in `fidelity_before.json`, stand beside them. All errors are root-mean-square differences to the
exact GP at points off the context set, divided by the prior's standard deviation.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import gpjax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, Matern12, Matern32, Matern52, Periodic, RationalQuadratic
from results import markdown_table, read_rows, write_results

import fsplaplace as fsp

# Rows of an earlier state of the code, and by how much a row may be worse than there.
BEFORE = Path(__file__).parent / "results" / "fidelity_before.json"
MOST_WORSE, MOST_ADDED = 1.1, 0.0005
NOISE = 0.1
STEPS = 5000
CONTEXT_SIZES = (50, 100, 200, 400, 1000)
QUICK_SIZES = (100,)
CORNER = (("float32", "matched"),)
EVERYTHING = tuple(
    (dtype, initialisation) for initialisation in ("matched", "usual") for dtype in ("float32", "float64")
)


@dataclasses.dataclass(frozen=True)
class Task:
    """Data, the region of interest, and the kernels to compare on it."""

    name: str
    X: np.ndarray
    y: np.ndarray
    bound: float
    hidden: tuple[int, ...]
    kernels: dict
    include_training: bool

    @property
    def context(self):
        side = [self.bound] * self.X.shape[1]
        return fsp.context.Uniform(-np.array(side), np.array(side))

    def context_points(self, size):
        side = np.full(self.X.shape[1], self.bound)
        if self.X.shape[1] == 1:
            points = fsp.context.Grid(-side, side).sample(size)
        else:
            points = fsp.context.Halton(-side, side).sample(size, key=jr.key(3))
        return np.concatenate([points, self.X]) if self.include_training else np.asarray(points)

    def test_points(self):
        if self.X.shape[1] == 1:
            return np.linspace(-0.985 * self.bound, 0.98 * self.bound, 79)[:, None]
        return np.random.default_rng(7).uniform(-self.bound, self.bound, (400, self.X.shape[1]))


def sine_task() -> Task:
    """The paper's: 100 noisy points of sin(2 pi x) with a hole in the middle."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.0, 100) * rng.choice([-1, 1], 100)
    periodic = Periodic(lengthscale=1.0, period=1.0)
    kernels = {
        "RBF": RBF(lengthscale=0.3),
        "Matern-1/2": Matern12(lengthscale=0.5),
        "Matern-3/2": Matern32(lengthscale=0.5),
        "Matern-5/2": Matern52(lengthscale=0.5),
        "rational quadratic": RationalQuadratic(lengthscale=0.3),
        "Periodic": periodic,
        "RBF + Periodic": RBF(lengthscale=1.0) + periodic,
        "RBF x Periodic": RBF(lengthscale=1.0) * periodic,
    }
    y = np.sin(2 * np.pi * x) + NOISE * rng.normal(size=100)
    return Task("1-D", x[:, None], y, 2.0, (50, 50), kernels, include_training=False)


def plane_task() -> Task:
    """100 noisy points of a smooth function of two variables."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (100, 2))
    y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.3 * X[:, 1] + NOISE * rng.normal(size=100)
    kernels = {"RBF ARD": RBF(lengthscale=[0.8, 1.2]), "Matern-5/2 ARD": Matern52(lengthscale=[0.8, 1.2])}
    return Task("2-D", X, y, 2.0, (100, 100), kernels, include_training=True)


def exact_gp(kernel, X, y, x):
    """Mean and standard deviation of the exact posterior, by GPJax in float64."""
    with jax.enable_x64(True):
        kernel = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64) if eqx.is_array(leaf) else leaf, kernel)
        prior = gpjax.gps.Prior(kernel=kernel, mean_function=gpjax.mean_functions.Zero())
        likelihood = gpjax.likelihoods.Gaussian(obs_stddev=jnp.asarray(NOISE, jnp.float64))
        data = gpjax.Dataset(jnp.asarray(X, jnp.float64), jnp.asarray(y, jnp.float64)[:, None])
        latent = (prior * likelihood).condition(data).predict(jnp.asarray(x, jnp.float64), covariance="diagonal")
        return np.asarray(latent.mean).ravel(), np.sqrt(np.asarray(latent.variance).ravel())


def fit(task: Task, kernel, initialisation: str, steps: int):
    """A trained network with the prior-matched or the usual first layer, in the current precision."""
    prior = fsp.Prior(kernel)
    network = fsp.mlp(task.hidden, prior=prior, context=task.context, key=jr.key(1))
    if initialisation == "usual":
        usual = eqx.nn.Linear(task.X.shape[1], task.hidden[0], key=jr.key(2))
        network = eqx.tree_at(lambda tree: tree.layers[0], network, usual)
    likelihood = fsp.likelihoods.Gaussian(NOISE)
    model = fsp.as_model(network)
    trained = fsp.train(
        model, prior, likelihood, task.context, task.X, task.y, key=jr.key(2), steps=steps, progress=False
    )
    return trained.model, prior, likelihood


def rms(values, reference) -> float:
    return float(np.sqrt(np.mean((np.asarray(values).ravel() - reference) ** 2)))


def compare(task: Task, kernel_name: str, dtype: str, initialisation: str, sizes, steps: int) -> list[dict]:
    """One row per number of context points and form."""
    kernel = task.kernels[kernel_name]
    x = task.test_points()
    mean, std = exact_gp(kernel, task.X, task.y, x)
    rows = []
    with jax.enable_x64(dtype == "float64"):
        # Kernels hold arrays of the dtype they were built in; the network's dtype is JAX's default here.
        prior_std = float(np.sqrt(np.asarray(fsp.Prior(kernel).variance(jnp.asarray(x))).max()))
        model, prior, likelihood = fit(task, kernel, initialisation, steps)
        for size in sizes:
            points = task.context_points(size)
            row = {
                "task": task.name,
                "kernel": kernel_name,
                "dtype": dtype,
                "initialisation": initialisation,
                "m": size,
            }

            def posterior(points=points, **options):
                return fsp.laplace(model, prior, likelihood, task.X, task.y, context_points=points, **options)

            auto = posterior()
            prediction = auto.predict(x)
            refined = prediction if auto.diagnostics.mean == "refined" else posterior(mean="refined").predict(x)
            rows.append(
                row
                | {
                    "form": "covariance",
                    "rank": auto.rank,
                    "std": rms(prediction.std, std) / prior_std,
                    "network mean": rms(prediction.map, mean) / prior_std,
                    "refined mean": rms(refined.mean, mean) / prior_std,
                    "auto mean": rms(prediction.mean, mean) / prior_std,
                    "chosen": auto.diagnostics.mean,
                    "delta": auto.diagnostics.delta,
                    "log evidence": float(auto.log_evidence),
                }
            )
            paper = posterior(form="precision")
            paper_std = rms(paper.predict(x).std, std) / prior_std
            rows.append(row | {"form": "precision", "rank": paper.rank, "std": paper_std})
    return rows


def tables(rows: list[dict]) -> str:
    """Markdown: the requirement's table, the sweep over m, and the two initialisations side by side."""

    def pick(**wanted):
        return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]

    networks = {(row["task"], row["kernel"], row["dtype"], row["initialisation"]) for row in rows}
    parts = [
        "# Distance to the exact Gaussian process\n",
        f"Root-mean-square differences divided by the prior std; {len(networks)} of 40 networks.\n",
        _beside_before(rows),
    ]
    tasks = sorted({row["task"] for row in rows})
    for task in tasks:
        size = max(row["m"] for row in rows if row["task"] == task)
        size = 400 if task == "1-D" and any(row["m"] == 400 for row in rows) else size
        parts.append(f"\n## {task}, m = {size}, matched initialisation\n")
        body = []
        for kernel in dict.fromkeys(row["kernel"] for row in rows if row["task"] == task):
            for dtype in ("float32", "float64"):
                ours = pick(task=task, kernel=kernel, dtype=dtype, m=size, initialisation="matched", form="covariance")
                paper = pick(task=task, kernel=kernel, dtype=dtype, m=size, initialisation="matched", form="precision")
                for row, other in zip(ours, paper, strict=True):
                    body.append(
                        [kernel, dtype, row["rank"], row["std"], other["std"], row["network mean"], row["refined mean"],
                         row["auto mean"], row["chosen"]]
                    )  # fmt: skip
        header = [
            "kernel",
            "dtype",
            "rank",
            "std",
            "std, paper's form",
            "network mean",
            "refined mean",
            "auto mean",
            "chosen",
        ]
        parts.append(markdown_table(header, body))
        parts.append(f"\n### {task}: number of context points (float32, matched), std / refined mean\n")
        sizes = sorted({row["m"] for row in rows if row["task"] == task})
        parts.append(markdown_table(["kernel", *map(str, sizes)], _sweep(pick, rows, task, sizes, "matched")))
        parts.append(f"\n### {task}: the same with the usual initialisation\n")
        parts.append(markdown_table(["kernel", *map(str, sizes)], _sweep(pick, rows, task, sizes, "usual")))
    return "\n".join(parts)


def _beside_before(rows: list[dict]) -> str:
    """How many errors fell and rose against the earlier rows, and those that rose by more than they may."""
    identity = ("task", "kernel", "dtype", "initialisation", "m", "form")
    before = {tuple(row[name] for name in identity): row for row in json.loads(BEFORE.read_text())["rows"]}
    errors = {"covariance": ("std", "refined mean", "auto mean", "network mean"), "precision": ("std",)}
    counts, worse = [], []
    for form, names in errors.items():
        for name in names:
            pairs = [
                (row, before[known][name], row[name])
                for row in rows
                if row["form"] == form and (known := tuple(row[part] for part in identity)) in before
            ]
            risen, fallen = (
                [(row, old, new) for row, old, new in pairs if (new > old) is up and _differ(old, new)]
                for up in (True, False)
            )
            if pairs:
                ratios = [max(new, 1e-4) / max(old, 1e-4) for _, old, new in pairs]
                counts.append([f"{form}, {name}", len(pairs), len(fallen), len(risen), float(np.median(ratios))])
            for row, old, new in risen:
                stds = before[tuple(row[part] for part in identity)]["std"], row["std"]
                worse.append([*(row[part] for part in identity[:-1]), f"{form}, {name}", old, new, *stds])
    return "\n".join(
        [
            f"## Beside the rows measured at commit 1b4c2e8\n\nBetter or worse: by more than {100 * (MOST_WORSE - 1):.0f} % and {MOST_ADDED}.\n",
            markdown_table(["error", "rows", "better", "worse", "median ratio"], counts),
            "\nWorse, and the std of the same posteriors (the ridge is chosen for mean and std together):\n",
            markdown_table([*identity[:-1], "error", "before", "after", "std before", "std after"], worse),
        ]
    )


def _differ(old: float, new: float) -> bool:
    low, high = sorted((old, new))
    return high > MOST_WORSE * low and high > low + MOST_ADDED


def _sweep(pick, rows, task, sizes, initialisation):
    body = []
    for kernel in dict.fromkeys(row["kernel"] for row in rows if row["task"] == task):
        cells = []
        for size in sizes:
            found = pick(
                task=task, kernel=kernel, dtype="float32", m=size, initialisation=initialisation, form="covariance"
            )
            cells.append(f"{found[0]['std']:.4f} / {found[0]['refined mean']:.4f}" if found else "")
        body.append([kernel, *cells])
    return body


def run(rows: list[dict], *, quick: bool) -> Iterator[list[dict]]:
    """Rows so far, after each trained network that `rows` does not hold yet."""
    done = {(row["task"], row["kernel"], row["dtype"], row["initialisation"]) for row in rows}
    # Every kernel once before any twice, so that a run that was cut has all of them.
    for dtype, initialisation in CORNER if quick else EVERYTHING:
        for task in (sine_task(), plane_task()):
            for kernel in list(task.kernels)[:1] if quick else list(task.kernels):
                if (task.name, kernel, dtype, initialisation) in done:
                    continue
                sizes = QUICK_SIZES if quick else CONTEXT_SIZES
                rows += compare(task, kernel, dtype, initialisation, sizes, 300 if quick else STEPS)
                print(task.name, kernel, dtype, initialisation, flush=True)
                yield rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a corner of the table, in seconds")
    parser.add_argument("--out", default="benchmarks/results", help="directory for the JSON and the table")
    arguments = parser.parse_args()
    start = time.perf_counter()
    settings = {"noise": NOISE, "steps": 300 if arguments.quick else STEPS, "quick": arguments.quick, "seed": 1}
    earlier = read_rows(arguments.out, "fidelity", settings)
    for rows in run(earlier, quick=arguments.quick):
        write_results(arguments.out, "fidelity", rows, settings, seconds=time.perf_counter() - start, tables=tables)


if __name__ == "__main__":
    main()
