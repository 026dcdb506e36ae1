"""Can it be known before training whether a network is large enough? And is the width that follows from it worth its price?

    python benchmarks/width.py            # about a quarter of an hour on one core
    python benchmarks/width.py --quick    # a corner of it, for the test suite

"grid": for kernels, regions and widths, what `fsplaplace.holds` says about the untrained network, beside the divergence of the
posterior from the exact Gaussian process at new inputs after training, with data drawn from the prior. "auto": the network that
`fsplaplace.mlp("auto")` takes on each of these tasks. "tables": `FSPRegressor` with two layers of 50 and with "auto".
Writes `benchmarks/results/width.json` and, from it, `width.md`, after every row; a run that was cut goes on where it stopped.
"""

import argparse
import dataclasses
import time
import warnings
from collections.abc import Iterator

import jax
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, AbstractKernel, Matern12, Matern32, Matern52
from results import markdown_table, read_rows, write_results
from scipy.stats import norm, spearmanr
from sklearn.datasets import load_diabetes, make_friedman1

import fsplaplace as fsp
from fsplaplace import datasets
from fsplaplace.training import adam

NOISE = 0.1
# Nats: what `fsplaplace.holds` calls large enough, and a divergence that is too large.
ENOUGH, BAD = 0.01, 0.02
WIDTHS = (10, 50, 150)


@dataclasses.dataclass(frozen=True)
class Task:
    """A kernel in a box with so many rows, and the widths to try on it."""

    kernel: AbstractKernel
    dimension: int = 1
    half: float = 1.0
    rows: int = 100
    widths: tuple[int, ...] = WIDTHS


TASKS = {
    "RBF(.02)": Task(RBF(lengthscale=0.02), widths=(*WIDTHS, 400)),
    "RBF(.05)": Task(RBF(lengthscale=0.05)),
    "RBF(.1)": Task(RBF(lengthscale=0.1)),
    "RBF(.3)": Task(RBF(lengthscale=0.3)),
    "RBF(.3) on [0, 20]": Task(RBF(lengthscale=0.3), half=10.0, rows=200, widths=(*WIDTHS, 400)),
    "Matern-1/2(.3)": Task(Matern12(lengthscale=0.3)),
    "Matern-3/2(.1)": Task(Matern32(lengthscale=0.1)),
    "Matern-5/2(.3)": Task(Matern52(lengthscale=0.3)),
    "2-D RBF(.5)": Task(RBF(lengthscale=0.5), 2),
    "3-D Matern-3/2(1)": Task(Matern32(lengthscale=1.0), 3),
    "4-D RBF(1)": Task(RBF(lengthscale=1.0), 4),
}
QUICK = {"RBF(.05)": Task(RBF(lengthscale=0.05), rows=50, widths=(10, 50))}
TABLES = ("yacht", "friedman1")
MEASURES = {
    "loss": "loss",
    "wrong": "1 - share",
    "missed": "missed variance",
    "covariance_error": "covariance error",
}


def drawn(task: Task):
    """Rows drawn from the prior, new inputs, and the exact process there."""
    generator, n = np.random.default_rng(0), task.rows
    X = generator.uniform(-task.half, task.half, (n, task.dimension))
    x = generator.uniform(-task.half, task.half, (300, task.dimension))
    prior = fsp.Prior(task.kernel)
    whole = fsp.prior.moments.covariance(prior, np.concatenate([X, x]))
    own, cross = whole[:n, :n], whole[:n, n:]
    y = np.linalg.cholesky(own + 1e-9 * np.eye(n)) @ generator.normal(size=n) + NOISE * generator.normal(size=n)
    gain = np.linalg.solve(own + NOISE**2 * np.eye(n), cross)
    return prior, X, y, x, (y @ gain, np.diagonal(whole)[n:] - np.sum(cross * gain, axis=0))


def divergence(model, prior, X, y, x, exact) -> float:
    """Of the posterior for a new target from the exact process, in nats, the mean over new inputs."""
    found = fsp.laplace(model, prior, fsp.likelihoods.Gaussian(NOISE), X, y).predict(x)
    mean, given = (np.asarray(part, float)[:, 0] for part in (found.mean, found.total_variance))
    wanted = exact[1] + NOISE**2
    return 0.5 * float(np.mean(((exact[0] - mean) ** 2 + wanted) / given - 1 + np.log(given / wanted)))


def grid_row(name: str, task: Task, width: int, steps: int) -> dict:
    """What is known before training, and what comes out after it."""
    prior, X, y, x, exact = drawn(task)
    context, likelihood = fsp.context.around(X), fsp.likelihoods.Gaussian(NOISE)
    network = fsp.mlp([width, width], prior=prior, context=context, key=jr.key(1))
    held = fsp.holds(network, prior, context, key=jr.key(1), compare=False)
    row = {
        "part": "grid", "task": name, "width": width, "loss": held.loss, "wrong": 1 - held.share, "missed": held.missed,
        "covariance_error": held.covariance_error, "determined": held.determined,
    }  # fmt: skip
    model = fsp.as_model(network)
    row["untrained"] = divergence(model, prior, X, y, x, exact)
    # Adam moves every weight alike, so a wide network's function moves further in a step: smaller ones keep its features.
    compared = width > 50 and max(task.widths) > 150
    for column, rate in (("trained", 1e-2), ("trained, smaller steps", 1e-2 * 50 / width)):
        if column == "trained" or compared:
            trained = fsp.train(
                model, prior, likelihood, context, X, y,
                key=jr.key(2), steps=steps, progress=False, optimizer=adam(rate, steps),
            )  # fmt: skip
            row[column] = divergence(trained.model, prior, X, y, x, exact)
        else:
            row[column] = row["trained"]
    return row


def auto_row(name: str, task: Task) -> dict:
    """The width that "auto" takes, and seconds for it when all programs are compiled."""
    prior, X, *_ = drawn(task)
    context = fsp.context.around(X)

    def choose():
        return fsp.mlp("auto", prior=prior, context=context, key=jr.key(1))

    network = choose()
    start = time.process_time()
    choose()
    seconds = time.process_time() - start
    held = fsp.holds(network, prior, context, key=jr.key(1), compare=False)
    return {
        "part": "auto", "task": name, "width": network.layers[0].weight.shape[0], "seconds": seconds, "loss": held.loss,
        "enough": held.enough, "sentence": str(held).splitlines()[0],
    }  # fmt: skip


def table_row(name: str) -> dict:
    """`FSPRegressor` with both networks on the same tenth of the rows, held out."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    elif name == "friedman1":
        X, y = make_friedman1(300, 10, noise=0.5, random_state=0)
    else:
        table = datasets.load(name)
        X, y = table.X, table.y
    order = np.random.default_rng(0).permutation(len(y))
    held_out, kept = np.split(order, [max(50, len(y) // 10)])
    row = {"part": "table", "task": name, "rows": len(kept), "columns": X.shape[1]}
    for label, network in (("2x50", (50, 50)), ("auto", "auto")):
        jax.clear_caches()
        start = time.process_time()
        model = fsp.FSPRegressor(network=network, random_state=0).fit(X[kept], y[kept])
        row[f"{label} CPU seconds"] = time.process_time() - start
        mean, std = model.predict(X[held_out], return_std=True)
        row[f"{label} score"] = float(np.mean(norm.logpdf(y[held_out], mean, std)) + np.log(np.std(y[kept])))
    row["width"] = model.posterior_.model.params.layers[0].weight.shape[0]
    return row


def tables(rows: list[dict]) -> str:
    """Markdown: how well each number predicts the divergence, the grid, what "auto" takes, tables."""
    grid, auto, scores = ([row for row in rows if row["part"] == part] for part in ("grid", "auto", "table"))
    parts = [
        "# Is the network large enough? Known before training",
        f"\nDivergence of the posterior from the exact Gaussian process for a new target (nats, noise {NOISE}), and what "
        "`fsplaplace.holds` says of the untrained network.",
    ]
    grid.sort(key=lambda row: (list(TASKS).index(row["task"]), row["width"]))
    outcomes = ("untrained", "trained", "trained, smaller steps")
    if len(grid) > 2:
        parts += ["\n## Rank correlation with the divergence\n", "Over all rows of the grid (Spearman).\n"]
        body = [
            [title, *(float(spearmanr([r[name] for r in grid], [r[o] for r in grid])[0]) for o in outcomes)]
            for name, title in MEASURES.items()
        ]
        parts.append(markdown_table(["number", *outcomes], body))
        parts += [
            "\nThe missed variance ranks networks even better after training; the loss is of the size of the divergence, for any noise, "
            "so that a limit on it means something:\n",
            markdown_table(
                ["", "networks", *(f"diverge by more than {BAD}: {o}" for o in outcomes)],
                [
                    [title, len(part), *(sum(row[o] > BAD for row in part) for o in outcomes)]
                    for title, part in (
                        (f"loss up to {ENOUGH}: large enough", [row for row in grid if row["loss"] <= ENOUGH]),
                        ("loss above", [row for row in grid if row["loss"] > ENOUGH]),
                    )
                ],
            ),
        ]
    if grid:
        parts += [
            "\n## Grid\n",
            "Smaller steps: Adam's step size times 50 / width, measured from width 150 on for tasks that have 400.\n",
        ]
        names = ("task", "width", *MEASURES, *outcomes)
        header = ["task", "width", *MEASURES.values(), *outcomes]
        parts.append(markdown_table(header, [[row[name] for name in names] for row in grid]))
    if auto:
        parts += ['\n## What "auto" takes\n', "CPU seconds with all programs compiled.\n"]
        header = ["task", "network", "loss", "large enough", "CPU seconds"]
        body = [[r["task"], f"2x{r['width']}", r["loss"], "yes" if r["enough"] else "no", r["seconds"]] for r in auto]
        parts.append(markdown_table(header, body))
    if scores:
        parts += [
            "\n## `FSPRegressor`\n",
            "Log predictive density of held-out rows (targets standardised), cold CPU seconds.\n",
        ]
        names = ["task", "rows", "columns", "width", "2x50 score", "auto score", "2x50 CPU seconds", "auto CPU seconds"]
        parts.append(
            markdown_table(["table", *names[1:3], "auto takes 2x", *names[4:]], [[r[n] for n in names] for r in scores])
        )
    return "\n".join(parts)


def run(rows: list[dict], *, quick: bool) -> Iterator[list[dict]]:
    """Rows so far, after each one that `rows` does not hold yet."""
    done = {(row["part"], row["task"], row["width"] if row["part"] == "grid" else None) for row in rows}
    steps, tasks = (50, QUICK) if quick else (300, TASKS)
    jobs = [
        ("grid", name, width, lambda n=name, w=width: grid_row(n, tasks[n], w, steps))
        for name in tasks
        for width in tasks[name].widths
    ]
    jobs += [("auto", name, None, lambda n=name: auto_row(n, tasks[n])) for name in tasks]
    jobs += [("table", name, None, lambda n=name: table_row(n)) for name in (() if quick else TABLES)]
    for part, name, width, measure in jobs:
        if (part, name, width) in done:
            continue
        if len(rows) % 20 == 0:
            # Hundreds of compiled programs in one process exhaust the system's memory maps.
            jax.clear_caches()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            rows.append(measure())
        print(part, name, width or "", flush=True)
        yield rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a corner of the table, in seconds")
    parser.add_argument("--out", default="benchmarks/results", help="directory for the JSON and the table")
    arguments = parser.parse_args()
    start, settings = time.perf_counter(), {"noise": NOISE, "quick": arguments.quick}
    for rows in run(read_rows(arguments.out, "width", settings), quick=arguments.quick):
        write_results(arguments.out, "width", rows, settings, seconds=time.perf_counter() - start, tables=tables)


if __name__ == "__main__":
    main()
