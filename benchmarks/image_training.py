"""What limits the image networks: epochs, step size, the prior's variance? Trainings judged on validation images alone.

    python benchmarks/image_training.py [--data fashion_mnist] [--only EPOCHS VARIANCE RATE] [--keep DIRECTORY]

The experiments' network, 54,000 training images and Kuzushiji characters as context, seed 0. Scores are of the network
alone: on the 6,000 images that were held out, and its entropy there against that of 2,000 Kuzushiji characters that are neither
context nor in any table. No test image is read. The prior without a variance is none: MAP, whose optimiser steps are the same.
Results: benchmarks/results/image_training.json and .md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace import metrics
from fsplaplace.experiments import get
from fsplaplace.experiments._experiment import Cell
from fsplaplace.experiments._image_data import context_of, load_images
from fsplaplace.experiments._image_work import LIKELIHOOD, Work, train
from fsplaplace.methods import MAP

RESULTS = Path(__file__).parent / "results"
# Of the kernel on pixels, from the evidence of Dirichlet labels: what the experiments found.
LENGTH_SCALES = {"mnist": 7.106805956684765, "fashion_mnist": 7.549382983679546}
# Epochs, variance of the prior (None: no prior over functions), step size.
GRID = (
    (5, 0.1, 2e-3), (5, 0.5, 2e-3), (5, 2.0, 2e-3), (5, None, 2e-3), (10, 0.1, 2e-3), (10, 0.5, 2e-3), (10, 2.0, 2e-3),
    (10, 0.5, 1e-3), (10, 0.5, 4e-3), (20, 0.5, 2e-3),
)  # fmt: skip


def measure(name: str, epochs: int, variance: float | None, rate: float, keep: Path | None) -> dict:
    """One training and its scores on validation images."""
    images = load_images(name, 0)
    settings = get(name.replace("_", "-")).presets["cpu"] | {"epochs": epochs, "learning_rate": rate, "directory": keep}
    work = Work(Cell(name, "training", 0), settings, images, "KMNIST")
    began = time.process_time()
    if variance is None:
        method = MAP(steps=work.steps, optimizer=work.optimizer(work.steps), batch_size=100)
        model = method.fit(work.network(), images.X, images.y, LIKELIHOOD, key=work.keys[1], progress=False).model
    else:

        def prior(value: float) -> fsp.Prior:
            return fsp.Prior(RBF(lengthscale=LENGTH_SCALES[name], variance=value), num_outputs=10)

        sampler = context_of("KMNIST", images, 0, num_corrupted=0)
        model = train(work, prior, variance, sampler, work.steps, f"sweep-{variance}").model
    seconds = time.process_time() - began
    valid, foreign = (
        np.concatenate([np.asarray(model(x[i : i + 500])) for i in range(0, len(x), 500)])
        for x in (images.X_valid, images.kmnist_valid)
    )
    probabilities = np.asarray(jax.nn.softmax(valid))
    entropy = [metrics.predictive_entropy(np.asarray(jax.nn.softmax(each))) for each in (valid, foreign)]
    return {
        "data": name,
        "epochs": epochs,
        "variance": variance,
        "learning_rate": rate,
        "accuracy": float(metrics.accuracy(images.y_valid, probabilities)),
        "log_likelihood": float(metrics.expected_log_likelihood_from_logits(images.y_valid, valid[None])),
        "ece": float(metrics.expected_calibration_error(images.y_valid, probabilities)),
        "auroc": float(metrics.auroc(*entropy)),
        "cpu_seconds": seconds,
    }


def table(rows: list[dict]) -> str:
    """The results as Markdown."""
    lines = [
        "Networks alone, on validation images: 6,000 of the data, 2,000 foreign ones (Kuzushiji characters). One seed.",
        "",
        "| data | epochs | prior variance | step size | accuracy | log-likelihood | ECE | AUROC | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row["data"], row["epochs"], row["variance"] or 1e9, row["learning_rate"])):
        variance = "none (MAP)" if row["variance"] is None else f"{row['variance']:g}"
        lines.append(
            f"| {row['data']} | {row['epochs']} | {variance} | {row['learning_rate']:g} | {row['accuracy']:.4f} | "
            f"{row['log_likelihood']:.4f} | {row['ece']:.4f} | {row['auroc']:.4f} | {row['cpu_seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing and write the results after each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=list(LENGTH_SCALES), default="fashion_mnist")
    parser.add_argument("--only", nargs=3, action="append", help="epochs, variance (or none), step size: these alone")
    parser.add_argument("--keep", type=Path, help="directory for checkpoints of the trainings")
    parser.add_argument("--out", type=Path, default=RESULTS / "image_training.json")
    options = parser.parse_args()
    rows = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.is_file() else []
    chosen = [(int(e), None if v == "none" else float(v), float(r)) for e, v, r in options.only or ()] or GRID
    for epochs, variance, rate in chosen:
        identity = (options.data, epochs, variance, rate)
        if any((r["data"], r["epochs"], r["variance"], r["learning_rate"]) == identity for r in rows):
            continue
        rows.append(measure(*identity, options.keep))
        print(rows[-1], flush=True)
        options.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
        options.out.with_suffix(".md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
