"""Kernel matrices: fsplaplace's engine beside GPJax's dense engine, in time and in accuracy, and a large Gram product.

    python benchmarks/kernels.py            # 2,000 x 2,000 matrices; a product with 25,000 x 25,000 in 784 dimensions
    python benchmarks/kernels.py --quick    # small ones, for the test suite

Both engines are jitted, warm and timed in turns on the same points, so that a busy machine slows both. Writes
`benchmarks/results/kernels.json` and `kernels.md`.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from gpjax.kernels import RBF, AbstractKernel, Matern12, Matern52, Periodic, PoweredExponential, RationalQuadratic
from gpjax.kernels.computations import DenseKernelComputation
from jaxtyping import Array, Float
from results import markdown_table, peak_memory, write_results

import fsplaplace as fsp
from fsplaplace.experiments import mauna_loa_kernel as mauna_loa
from fsplaplace.kernels import _distance, covariance

CASES = {
    "RBF, 2-D": (2, lambda d: RBF(lengthscale=0.5)),
    "Matern-1/2, 2-D": (2, lambda d: Matern12(lengthscale=0.5)),
    "Matern-5/2 ARD, 2-D": (2, lambda d: Matern52(lengthscale=jnp.array([0.5, 1.0]))),
    "powered exponential, 2-D": (2, lambda d: PoweredExponential(lengthscale=0.5, power=1.3)),
    "periodic, 2-D": (2, lambda d: Periodic(period=1.3)),
    "Mauna Loa, 1-D": (1, lambda d: mauna_loa()),
    "RBF, 16-D": (16, lambda d: RBF(lengthscale=d**0.5)),
    "RBF, 784-D": (784, lambda d: RBF(lengthscale=d**0.5)),
    "Matern-1/2, 784-D": (784, lambda d: Matern12(lengthscale=d**0.5)),
    "Matern-5/2 ARD, 784-D": (784, lambda d: Matern52(lengthscale=jnp.linspace(0.5, 2.0, d) * d**0.5)),
    "RBF + rational quadratic, 784-D": (784, lambda d: RBF(lengthscale=d**0.5) + RationalQuadratic(lengthscale=9.0)),
}
WIDTHS = (4, 8, 16, 32, 48)


GRAM_ROWS, GRAM_COLUMNS, GRAM_BUDGET = 25_000, 784, 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000, help="points on each side")
    parser.add_argument("--repeats", type=int, default=15, help="timed calls of each engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="small matrices, for the test suite")
    parser.add_argument("--out", default="benchmarks/results", help="directory for the JSON and the table")
    options = parser.parse_args()
    gram_rows = GRAM_ROWS
    if options.quick:
        options.rows, options.repeats, gram_rows = 100, 2, 500
    began = time.perf_counter()
    # First, so that nothing else has raised the peak.
    rows = [{"kind": "gram", **gram_product(gram_rows, options)}]
    rows += [{"kind": "engine", "kernel": name, **compare(*case, options)} for name, case in CASES.items()]
    rows += [{"kind": "width", "columns": width, **compare_widths(width, options)} for width in WIDTHS]
    settings = {"rows": options.rows, "repeats": options.repeats, "seed": options.seed, "dtype": "float32"}
    write_results(options.out, "kernels", rows, settings, seconds=time.perf_counter() - began, tables=tables)


def gram_product(count: int, options: argparse.Namespace) -> dict:
    """Seconds and memory of Sigma V for eight columns, and its error at a few rows against float64."""
    rng = np.random.default_rng(options.seed)
    x = jnp.asarray(rng.normal(size=(count, GRAM_COLUMNS)), jnp.float32)
    vectors = jnp.asarray(rng.normal(size=(count, 1, 8)), jnp.float32)
    kernel = RBF(lengthscale=GRAM_COLUMNS**0.5)
    before, began = peak_memory(), time.perf_counter()
    product = jax.block_until_ready(fsp.Prior(kernel).gram_product(x, vectors, memory_budget=GRAM_BUDGET))
    seconds, peak = time.perf_counter() - began, peak_memory() - before
    exact = float64_reference(kernel, x[:5], x) @ np.asarray(vectors, np.float64)[:, 0]
    error = np.max(np.abs(np.asarray(product)[:5, 0] - exact)) / np.max(np.abs(exact))
    matrix = count**2 * 4
    return {
        "rows": count,
        "seconds": seconds,
        "bytes": peak,
        "budget": GRAM_BUDGET,
        "matrix_bytes": matrix,
        "error": float(error),
    }


def compare(width: int, build, options: argparse.Namespace) -> dict[str, float]:
    """Median milliseconds of both engines and their errors against float64."""
    kernel, (x, y) = build(width), points(width, options)
    engines = {"ours": jax.jit(covariance), "gpjax": jax.jit(DenseKernelComputation().cross_covariance)}
    times = medians({name: lambda engine=engine: engine(kernel, x, y) for name, engine in engines.items()}, options)
    row = {f"{name}_ms": value for name, value in times.items()} | {"speedup": times["gpjax"] / times["ours"]}
    few = slice(0, 400)
    exact = float64_reference(kernel, x[few], y[few])
    for name, engine in engines.items():
        error = np.abs(np.asarray(engine(kernel, x[few], y[few]), np.float64) - exact)
        row |= {
            f"{name}_error": float(error.max() / exact.max()),
            f"{name}_elementwise_error": float((error / np.maximum(exact, np.finfo(np.float32).tiny)).max()),
        }
    return row


def compare_widths(width: int, options: argparse.Namespace) -> dict[str, float]:
    """Median milliseconds of both ways to a distance, in value and gradient: where one overtakes the other."""
    x, y = points(width, options)

    def summed(threshold):
        def distance(x, y):
            default, _distance.EXPLICIT_WIDTH = _distance.EXPLICIT_WIDTH, threshold
            try:
                return jnp.exp(-_distance.squared_distance.__wrapped__(x, y))
            finally:
                _distance.EXPLICIT_WIDTH = default

        return jax.jit(distance), jax.jit(jax.grad(lambda x, y: jnp.sum(distance(x, y)), argnums=(0, 1)))

    explicit, explicit_gradient = summed(width)
    product, product_gradient = summed(width - 1)
    ways = {
        "explicit": explicit,
        "product": product,
        "explicit_gradient": explicit_gradient,
        "product_gradient": product_gradient,
    }
    return medians({name: lambda way=way: way(x, y) for name, way in ways.items()}, options)


def points(width: int, options: argparse.Namespace) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """Normal points; one in ten of the second set coincides with the first's, one in ten nearly does."""
    x_key, y_key, noise_key = jax.random.split(jax.random.key(options.seed), 3)
    x, y = (jax.random.normal(key, (options.rows, width)) for key in (x_key, y_key))
    tenth = options.rows // 10
    nearly = x[tenth : 2 * tenth] + 1e-4 * jax.random.normal(noise_key, (tenth, width))
    return x, y.at[:tenth].set(x[:tenth]).at[tenth : 2 * tenth].set(nearly)


def medians(calls: dict, options: argparse.Namespace) -> dict[str, float]:
    times = {name: [] for name in calls}
    for call in calls.values():
        jax.block_until_ready(call())
    for _ in range(options.repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def float64_reference(kernel: AbstractKernel, x: Array, y: Array) -> np.ndarray:
    with jax.enable_x64(True):
        kernel, x, y = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), "float64"), (kernel, x, y))
        return np.asarray(DenseKernelComputation().cross_covariance(kernel, x, y))


def tables(rows: list[dict]) -> str:
    of = lambda kind: [row for row in rows if row["kind"] == kind]  # noqa: E731
    engines = [
        [row["kernel"], f"{row['gpjax_ms']:.1f}", f"{row['ours_ms']:.1f}", f"{row['speedup']:.1f}", f"{row['gpjax_error']:.1e}",
         f"{row['ours_error']:.1e}"]
        for row in of("engine")
    ]  # fmt: skip
    grams = [
        [row["rows"], f"{row['seconds']:.1f}", f"{row['bytes'] / 2**20:.0f} MiB", f"{row['budget'] / 2**20:.0f} MiB",
         f"{row['matrix_bytes'] / 2**20:.0f} MiB", f"{row['error']:.1e}"]
        for row in of("gram")
    ]  # fmt: skip
    widths = [
        [row["columns"], *(f"{row[name]:.1f}" for name in row if name not in ("kind", "columns"))]
        for row in of("width")
    ]
    return "\n\n".join([
        "# Kernel matrices (float32; error relative to k(0, 0), against float64)",
        markdown_table(["kernel", "GPJax ms", "ours ms", "speed-up", "GPJax error", "our error"], engines),
        f"# Product with a Gram matrix in {GRAM_COLUMNS} dimensions, eight columns",
        markdown_table(["points", "seconds", "peak above start", "budget", "the whole matrix", "relative error"], grams),
        "# exp(-distance): explicit differences or matrix product (milliseconds)",
        markdown_table(["columns", "explicit", "product", "explicit gradient", "product gradient"], widths),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
