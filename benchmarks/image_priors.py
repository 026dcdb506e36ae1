"""Which prior over images? The evidence of pixels, principal components and random features, on both data sets.

    python benchmarks/image_priors.py [--images 5000]

Exact Gaussian processes on Dirichlet labels, ten classes with one kernel. Parameters of each kernel are fitted to the first
images of the training set (`--fit`), the evidence is that of all `--images`. Accuracy and AUROC, by the mean posterior
variance against the test images of the other data set, are on test images; nothing is chosen by them.
Results: benchmarks/results/image_priors.json and .md.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.linalg as sl
from gpjax.kernels import RBF, Matern32

import fsplaplace as fsp
from fsplaplace import datasets, metrics
from fsplaplace.kernels import OnFeatures, RandomConvolutions
from fsplaplace.tuning.labels import dirichlet_labels

RESULTS = Path(__file__).parent / "results"
OTHER = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}
NUM_CLASSES = 10
# Noise of Dirichlet labels leaves covariances well-conditioned: a nugget for rounding alone.
NUGGET = 1e-8


def principal_components(X, count: int):
    """The map to the leading components of the training images, scaled to unit mean square length."""
    flat = X.reshape(len(X), -1).astype(np.float64)
    centre = flat.mean(axis=0)
    _, _, axes = np.linalg.svd(flat - centre, full_matrices=False)
    scale = np.sqrt(np.mean(np.sum(((flat - centre) @ axes[:count].T) ** 2, axis=1)))
    return lambda images: ((images.reshape(len(images), -1) - centre) @ axes[:count].T / scale).astype(np.float32)


def candidates(X, images: int):
    """Name -> (kernel, map from images to what the kernel is on)."""
    flat = lambda images: images.reshape(len(images), -1)  # noqa: E731
    network = RandomConvolutions(X.shape[1:], key=jr.key(0))
    return {
        "RBF on pixels": (RBF(lengthscale=8.0, variance=4.0), flat),
        "RBF on 50 principal components": (RBF(lengthscale=1.0, variance=4.0), principal_components(X[:images], 50)),
        "RBF on random features": (OnFeatures(network, RBF(lengthscale=0.4, variance=4.0)), flat),
        "Matern-3/2 on pixels": (Matern32(lengthscale=8.0, variance=4.0), flat),
        "Matern-3/2 on random features": (OnFeatures(network, Matern32(lengthscale=0.4, variance=4.0)), flat),
    }


def measure(name: str, kernel, data, other, *, num_images: int, num_fit: int, num_test: int) -> dict:
    """Evidence, accuracy and detection of foreign images of one prior on one data set."""
    began, (base, mapped) = time.process_time(), kernel
    X, y = data.X[:num_images], data.y[:num_images].astype(np.int32)
    likelihood = fsp.likelihoods.Categorical(NUM_CLASSES)
    start = fsp.Prior(base, num_outputs=NUM_CLASSES)
    fitted = fsp.fit_prior(
        start, mapped(X[:num_fit]), y[:num_fit], likelihood, key=jr.key(0), restarts=1, standard_errors=False
    ).prior
    inputs = [mapped(images) for images in (X, data.X_test[:num_test], other.X_test[:num_test])]
    prior, columns = fitted.on_columns(jnp.asarray(np.concatenate(inputs)))
    with jax.enable_x64(True):
        columns = np.asarray(columns, np.float64)
        rows, rest = columns[:num_images], columns[num_images:]
        gram = np.asarray(prior.gram(jnp.asarray(rows))[0])
        cross = np.asarray(prior.gram(jnp.asarray(rows), jnp.asarray(rest))[0])
        stated = np.asarray(prior.variance(jnp.asarray(rest)))[:, 0]
    targets, variances = dirichlet_labels(y, NUM_CLASSES)
    # One constant for all classes, by generalised least squares, as `fit_prior` has it.
    factors = [sl.cholesky(gram + np.diag(v + NUGGET * gram[0, 0]), lower=True) for v in variances.T]
    solve = lambda factor, right: sl.solve_triangular(factor, right, lower=True, check_finite=False)  # noqa: E731
    ones = [solve(factor, np.ones(num_images)) for factor in factors]
    white = [solve(factor, target) for factor, target in zip(factors, targets.T, strict=True)]
    shift = sum(o @ w for o, w in zip(ones, white, strict=True)) / sum(o @ o for o in ones)
    evidence, means, spread = 0.0, [], []
    for factor, w, o in zip(factors, white, ones, strict=True):
        residual = w - shift * o
        evidence -= (
            0.5 * residual @ residual + np.sum(np.log(np.diagonal(factor))) + 0.5 * num_images * np.log(2 * np.pi)
        )
        reached = solve(factor, cross)
        means.append(shift + reached.T @ residual)
        spread.append(stated - np.sum(reached**2, axis=0))
    mean, variance = np.stack(means, axis=1), np.mean(spread, axis=0)
    eigenvalues = np.linalg.eigvalsh(gram[:1000, :1000])[::-1]
    base_kernel = fitted.kernel.base if isinstance(fitted.kernel, OnFeatures) else fitted.kernel
    return {
        "prior": name,
        "evidence_per_image": float(evidence / num_images),
        "accuracy": float(np.mean(mean[:num_test].argmax(axis=1) == data.y_test[:num_test])),
        "auroc_variance": float(metrics.auroc(variance[:num_test], variance[num_test:])),
        "leading_50": float(np.sum(eigenvalues[:50]) / np.sum(eigenvalues)),
        "lengthscale": float(np.asarray(fsp.kernels.lengthscales(base_kernel, rows.shape[1]))[0, 0]),
        "variance": float(stated[0]),
        "cpu_seconds": time.process_time() - began,
    }


def table(results: dict) -> str:
    """The results as Markdown."""
    lines = [
        f"Exact Gaussian processes on Dirichlet labels of {results['images']:,} training images (parameters fitted to "
        f"{results['fit']:,}); accuracy and AUROC on {results['test']:,} test images and as many of the other data set.",
        "",
        "| data | prior | evidence, nats an image | accuracy | AUROC, variance | variance in 50 directions |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in results["rows"].items():
        for row in rows:
            lines.append(
                f"| {name} | {row['prior']} | {row['evidence_per_image']:.2f} | {row['accuracy']:.3f} | "
                f"{row['auroc_variance']:.3f} | {100 * row['leading_50']:.0f} % |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing and write the results after each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--fit", type=int, default=600)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULTS / "image_priors.json")
    options = parser.parse_args()
    sizes = {"images": options.images, "fit": options.fit, "test": options.test}
    results = {**sizes, "rows": {name: [] for name in OTHER}}
    if options.out.is_file():
        found = json.loads(options.out.read_text(encoding="utf-8"))
        results = found if all(found.get(key) == value for key, value in sizes.items()) else results
    sets = {name: (datasets.load(name), datasets.load(other)) for name, other in OTHER.items()}
    priors = {name: candidates(data.X, options.fit) for name, (data, _) in sets.items()}
    # The same prior on both data sets first: what is finished early can be compared early.
    for prior, name in [(prior, name) for prior in priors["mnist"] for name in sets]:
        if any(row["prior"] == prior for row in results["rows"][name]):
            continue
        row = measure(
            prior,
            priors[name][prior],
            *sets[name],
            num_images=options.images,
            num_fit=options.fit,
            num_test=options.test,
        )
        results["rows"][name].append(row)
        print(name, row, flush=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        options.out.with_suffix(".md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
