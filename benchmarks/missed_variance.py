"""Is prior variance that a network misses function or noise? The same posteriors both ways, and as `laplace` chooses.

    python benchmarks/missed_variance.py            # 40 problems of benchmarks/verdict.py with Gaussian noise
    python benchmarks/missed_variance.py --quick    # two, for the test suite

"Function": data tell about what the features miss as much as about what they carry. "Noise": they tell nothing of it. The loss is
that of the log predictive density of held-out targets against the exact process. Writes `missed_variance.json` and `.md`; a run
that was cut goes on where it stopped.
"""

import argparse
import itertools
import time
import warnings

import jax.random as jr
import numpy as np
import verdict
from results import markdown_table, read_rows, write_results

import fsplaplace as fsp

TREATMENTS = {"function": False, "noise": True, "chosen": None}
SETTINGS = {"problems": 40, "test_targets": 1000}


def measure(problem: dict) -> dict:
    """The loss of each treatment, with one network."""
    drawn = verdict.data(problem, SETTINGS["test_targets"])
    context = fsp.context.around(drawn.X)
    key = jr.key(problem["number"])
    model = fsp.as_model(fsp.mlp([problem["width"]] * 2, prior=drawn.prior, context=context, key=key))
    row = dict(problem)
    for name, missed in TREATMENTS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            posterior = fsp.laplace(model, drawn.prior, drawn.likelihood, drawn.X, drawn.y, missed_as_noise=missed)
        row[name] = verdict.measured_loss(problem, drawn, verdict.process_of(verdict.rounded(posterior), drawn))
    return row


def tables(rows: list[dict]) -> str:
    """Means over problems by kernel, and of all; losses far above 1 nat would decide alone: the median as well."""
    body = []
    for name in (*verdict.KERNELS, "all"):
        part = [row for row in rows if name in (row["kernel"], "all")]
        if part:
            values = [[row[each] for row in part] for each in TREATMENTS]
            better = float(np.mean(np.array(values[0]) < np.array(values[1])))
            body.append([name, len(part), *(float(f(each)) for f in (np.mean, np.median) for each in values), better])
    header = [f"{kind} loss, {name}" for kind in ("mean", "median") for name in TREATMENTS]
    return markdown_table(["kernel", "problems", *header, "share with function better"], body)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default="benchmarks/results")
    arguments = parser.parse_args()
    settings = {**SETTINGS, **({"problems": 2} if arguments.quick else {})}
    drawn = (verdict.draw(number) for number in itertools.count())
    wanted = (p for p in drawn if (p["likelihood"], p["form"]) == ("Gaussian", "covariance") and p["rows"] < 2000)
    rows, began = read_rows(arguments.out, "missed_variance", settings), time.perf_counter()
    for problem in itertools.islice(wanted, len(rows), settings["problems"]):
        rows.append(measure(problem))
        write_results(
            arguments.out, "missed_variance", rows, settings, seconds=time.perf_counter() - began, tables=tables
        )


if __name__ == "__main__":
    main()
