"""Kernel matrices: fsplaplace's engine beside GPJax's dense engine, in time and in accuracy.

Both engines are jitted, warm and timed in turns on the same points, so that a busy machine slows both.
Writes benchmarks/results/kernels.json and prints a table.

    python benchmarks/kernels.py --rows 2000 --repeats 15
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from gpjax.kernels import RBF, AbstractKernel, Matern12, Matern52, Periodic, PoweredExponential, RationalQuadratic
from gpjax.kernels.computations import DenseKernelComputation
from jaxtyping import Array, Float
from rich.console import Console
from rich.table import Table

from fsplaplace.kernels import _distance, covariance, mauna_loa

RESULTS = pathlib.Path(__file__).parent / "results" / "kernels.json"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000, help="points on each side")
    parser.add_argument("--repeats", type=int, default=15, help="timed calls of each engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()

    cases = {name: compare(*case, options) for name, case in CASES.items()}
    widths = {width: compare_widths(width, options) for width in WIDTHS}
    show(cases, widths, options)
    record = {
        "settings": {"rows": options.rows, "repeats": options.repeats, "seed": options.seed, "dtype": "float32"},
        "versions": {name: importlib.metadata.version(name) for name in ("fsplaplace", "gpjax", "jax", "jaxlib")},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "device": jax.devices()[0].platform},
        "cases": cases,
        "explicit_or_product_ms": widths,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(record, indent=2) + "\n")


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


def show(cases: dict, widths: dict, options: argparse.Namespace) -> None:
    table = Table(title=f"{options.rows} x {options.rows}, float32; error relative to k(0,0) against float64")
    for heading in ("kernel", "GPJax ms", "ours ms", "speed-up", "GPJax error", "our error"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    for name, row in cases.items():
        timings = (f"{row['gpjax_ms']:.1f}", f"{row['ours_ms']:.1f}", f"{row['speedup']:.1f}x")
        table.add_row(name, *timings, f"{row['gpjax_error']:.1e}", f"{row['ours_error']:.1e}")
    crossover = Table(title="exp(-distance): explicit differences or matrix product")
    for heading in ("columns", "explicit ms", "product ms", "explicit gradient ms", "product gradient ms"):
        crossover.add_column(heading, justify="right")
    for width, row in widths.items():
        crossover.add_row(str(width), *(f"{value:.1f}" for value in row.values()))
    console = Console()
    console.print(table)
    console.print(crossover)


if __name__ == "__main__":
    main()
