"""How time and memory grow, and how much of the machine is used: data, weights, context points, and two large networks.

    python benchmarks/scale.py                 # growth, context, utilisation, a 10-million-weight MLP, a ResNet-18
    python benchmarks/scale.py --only growth   # one part; the others are kept from the last run
    python benchmarks/scale.py --quick         # the smallest sizes

Every measurement runs in a process of its own. Writes `benchmarks/results/scale.json` and `scale.md` after each part, and
`scale.png`.
"""

import argparse
import functools
import json
import math
import subprocess
import sys
import time
from pathlib import Path

from results import markdown_table, peak_memory, write_results

GROWTH = {
    "n": [1_000, 10_000, 100_000, 1_000_000],
    "p": [10_000, 100_000, 1_000_000, 5_000_000],
    "m": [500, 5_000, 50_000],
}
WIDTHS = {10_000: 97, 100_000: 313, 1_000_000: 997, 5_000_000: 2233}
CONTEXT = [10_000, 50_000]
# Wanted slopes of time and memory on the log-log plot.
LIMITS = {"n": (1.1, 0.1), "p": (1.1, 1.05), "m": (1.1, 1.1)}


def measure_growth(axis: str, size: int) -> dict:
    """A posterior at fixed rank with one of n, p and m grown: the second call, so without compilation."""
    import fsplaplace as fsp

    n, p, m = (size if axis == name else default for name, default in (("n", 200), ("p", 10_000), ("m", 500)))
    width = WIDTHS[p] if axis == "p" else 50
    prior, model, X, y, points = _table_problem(n, m, width, smooth=True)
    options = dict(rank=32, passes=2, solver="golub-kahan", include_training=False)
    plan = fsp.plan(model, prior, X, points, **options)

    def fit():
        return fsp.laplace(
            model, prior, fsp.likelihoods.Gaussian(0.1), X, y, context_points=points, mean="network", **options
        )

    before = peak_memory()
    _time(fit)
    seconds, posterior = _time(fit)
    bytes_used = peak_memory() - before
    return {"axis": axis, "size": model.num_params if axis == "p" else size, "rank": posterior.rank,
            "seconds": seconds, "bytes": bytes_used, "planned": plan.peak_bytes}  # fmt: skip


def measure_context(m: int) -> dict:
    """Default options at many context points: Matern-1/2, 8 inputs, 2 x 50 network, 1,000 data; the first call."""
    import fsplaplace as fsp

    prior, model, X, y, points = _table_problem(1000, m, 50, smooth=False)
    plan = fsp.plan(model, prior, X, points)
    before = peak_memory()
    seconds, posterior = _time(
        lambda: fsp.laplace(model, prior, fsp.likelihoods.Gaussian(0.1), X, y, context_points=points)
    )
    return {"points": m, "rank": posterior.rank, "captured": float(posterior.diagnostics.captured), "seconds": seconds,
            "bytes": peak_memory() - before, "process": peak_memory(), "planned": plan.peak_bytes}  # fmt: skip


def measure_utilisation() -> dict:
    """Floating-point rate of passes and Gram products against a plain matrix product in the same process."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from fsplaplace.linalg import orthonormal_rows
    from fsplaplace.networks._jacobian import pull_back, push_forward

    prior, model, _, _, points = _table_problem(200, 600, 997, smooth=True)
    rng = np.random.default_rng(0)
    x, width, rank = model.check_inputs(points), 997, 33
    directions = jnp.asarray(rng.standard_normal((rank, model.num_params), dtype=np.float32))
    cotangents = jnp.asarray(rng.standard_normal((600, 1, rank), dtype=np.float32))
    square, block = (
        jnp.asarray(rng.standard_normal(shape, dtype=np.float32)) for shape in ((2048, 2048), (600, width))
    )
    weights = jnp.asarray(rng.standard_normal((width, width), dtype=np.float32))
    many, vectors = jnp.asarray(rng.uniform(size=(8192, 8)), jnp.float32), jnp.ones((8192, 1, 256), jnp.float32)
    product = jax.jit(lambda a, b: a @ b)
    work = {
        "GEMM 2048": (lambda: product(square, square), 2 * 2048**3),
        f"GEMM 600 x {width} x {width}": (lambda: product(block, weights), 2 * 600 * width**2),
        "J V, 1 M weights": (
            lambda: push_forward(model, x, directions, budget=6e9), 4 * 600 * rank * model.num_params),
        "J^T U, 1 M weights": (
            lambda: pull_back(model, x, cotangents, budget=6e9), 4 * 600 * rank * model.num_params),
        "orthonormal rows, 1 M weights": (
            lambda: orthonormal_rows(directions), 2 * 4 * rank**2 * model.num_params),
        "prior Gram product, 8,192 points, 256 columns": (
            lambda: prior.gram_product(many, vectors), 2 * 8192**2 * (256 + 8)),
    }  # fmt: skip
    best = {name: math.inf for name in work}
    for _ in range(4):
        for name, (run, _) in work.items():
            best[name] = min(best[name], _time(run)[0])
    return {"rates": {name: flops / best[name] / 1e9 for name, (_, flops) in work.items()}}


def measure_mlp(width: int) -> dict:
    """3072-2048-2048-10, ten outputs under a shared kernel, rank 100, 500 context points, 1,000 predictions."""
    import equinox as eqx
    import jax
    import jax.random as jr
    import numpy as np
    from gpjax.kernels import RBF

    import fsplaplace as fsp

    first, second, third = jr.split(jr.key(0), 3)
    layers = (eqx.nn.Linear(3072, width, key=first), eqx.nn.Linear(width, width, key=second),
              eqx.nn.Linear(width, 10, key=third))  # fmt: skip
    model = fsp.as_model(fsp.MLP(layers, jax.nn.relu))
    rng = np.random.default_rng(0)
    X, points, test = (rng.uniform(size=(size, 3072)).astype(np.float32) for size in (200, 500, 1000))
    prior = fsp.Prior(RBF(lengthscale=30.0), num_outputs=10)
    labels = rng.integers(0, 10, 200)
    return _large(model, prior, X, labels, points, test, None, rank=100, passes=2, classes=10)


def measure_resnet(m: int) -> dict:
    """A ResNet-18 with group normalisation, 32 x 32 x 3 inputs, ten outputs, rank 70, seven for each output."""
    import jax.random as jr
    import numpy as np
    from gpjax.kernels import RBF
    from resnet import resnet18

    import fsplaplace as fsp

    model = fsp.as_model(resnet18(10, key=jr.key(0)))
    rng = np.random.default_rng(0)
    X, points, test, guards = (rng.uniform(size=(size, 32, 32, 3)).astype(np.float32) for size in (8, m, 8, 8))
    prior = fsp.Prior(RBF(lengthscale=30.0), num_outputs=10)
    labels = rng.integers(0, 10, 8)
    return _large(model, prior, X, labels, points, test, guards, rank=70, passes=1, classes=10)


def _large(model, prior, X, labels, points, test, guards, *, rank: int, passes: int, classes: int) -> dict:
    import jax

    import fsplaplace as fsp

    options = dict(rank=rank, passes=passes, solver="golub-kahan", include_training=False, memory_budget=12 * 2**30)
    plan = fsp.plan(model, prior, X, points, **options)
    likelihood = fsp.likelihoods.Categorical(classes)
    jax.block_until_ready(model(model.check_inputs(X)))
    before, in_passes = peak_memory(), _watch_passes()
    seconds, posterior = _time(
        lambda: fsp.laplace(model, prior, likelihood, X, labels, context_points=points, guard_points=guards, **options)
    )
    share = in_passes() / seconds
    fitted = peak_memory() - before
    predict, _ = _time(lambda: posterior.predict(test))
    return {"weights": model.num_params, "rank": posterior.rank, "points": len(points), "predictions": len(test),
            "seconds": seconds, "predict": predict, "bytes": fitted, "process": peak_memory(), "passes": share,
            "planned": plan.peak_bytes, "stages": {k: float(s.seconds) for k, s in posterior.diagnostics.stages.items()}}  # fmt: skip


def _watch_passes():
    """Count the seconds spent in products with the Jacobian, wherever the library calls them."""
    import jax

    from fsplaplace.networks import _jacobian

    spent = [0.0]

    def timed(function):
        @functools.wraps(function)
        def run(*args, **kwargs):
            seconds, result = _time(lambda: jax.block_until_ready(function(*args, **kwargs)))
            spent[0] += seconds
            return result

        return run

    for name in ("push_forward", "pull_back", "map_rows"):
        original = getattr(_jacobian, name)
        for module in [m for key, m in sys.modules.items() if key.startswith("fsplaplace") and m is not _jacobian]:
            if getattr(module, name, None) is original:
                setattr(module, name, timed(original))
    return lambda: spent[0]


def _table_problem(n: int, m: int, width: int, *, smooth: bool):
    import jax
    import jax.random as jr
    import numpy as np
    from gpjax.kernels import RBF, Matern12

    import fsplaplace as fsp

    rng = np.random.default_rng(0)
    X, points = rng.normal(size=(n, 8)).astype(np.float32), rng.uniform(-2, 2, size=(m, 8)).astype(np.float32)
    prior = fsp.Prior((RBF if smooth else Matern12)(lengthscale=4.0))
    context = fsp.context.Uniform([-2.0] * 8, [2.0] * 8)
    model = fsp.as_model(fsp.mlp([width, width], prior=prior, context=context, key=jr.key(0)))
    jax.block_until_ready(model(model.check_inputs(X[:200])))
    return prior, model, X, np.sin(X[:, 0]), points


def _time(function):
    import jax

    start = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - start, result


MEASUREMENTS = {
    "growth": lambda axis, size: measure_growth(axis, int(size)),
    "context": lambda m: measure_context(int(m)),
    "utilisation": measure_utilisation,
    "mlp": lambda width: measure_mlp(int(width)),
    "resnet": lambda m: measure_resnet(int(m)),
}


def jobs(*, quick: bool) -> dict[str, list[tuple[str, ...]]]:
    return {
        "growth": [(axis, str(s)) for axis, sizes in GROWTH.items() for s in (sizes[:2] if quick else sizes)],
        "context": [(str(m),) for m in (CONTEXT[:1] if quick else CONTEXT)],
        "utilisation": [()],
        "mlp": [("256" if quick else "2048",)],
        "resnet": [("2" if quick else "64",)],
    }


def in_a_process(kind: str, *arguments: str) -> dict:
    command = [sys.executable, __file__, "--measure", kind, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(kind, *arguments, done.stdout.splitlines()[-1], flush=True)
    return {"kind": kind} | json.loads(done.stdout.splitlines()[-1])


def slope(rows: list[dict], field: str) -> float:
    """Slope on logarithmic axes between the largest two sizes, where fixed costs hide the growth least."""
    before, last = sorted(rows, key=lambda row: row["size"])[-2:]
    return math.log(last[field] / before[field]) / math.log(last["size"] / before["size"])


def tables(rows: list[dict]) -> str:
    parts = ["# Growth at rank 32, two passes (second call)\n"]
    growth = {axis: [r for r in rows if r["kind"] == "growth" and r["axis"] == axis] for axis in GROWTH}
    body = [
        [axis, row["size"], f"{row['seconds']:.2f}", _mib(row["bytes"]), _mib(row["planned"])]
        for axis, group in growth.items() for row in group
    ]  # fmt: skip
    parts.append(markdown_table(["axis", "size", "seconds", "peak above start", "planned"], body))
    body = [
        [axis, f"{slope(group, 'seconds'):.2f} (at most {LIMITS[axis][0]})", f"{slope(group, 'bytes'):.2f} (at most {LIMITS[axis][1]})"]
        for axis, group in growth.items() if len(group) > 1
    ]  # fmt: skip
    parts += ["\n", markdown_table(["axis, largest two sizes", "slope of time", "slope of memory"], body)]
    parts.append("\n# Many context points: Matern-1/2, 8 inputs, 2 x 50, 1,000 data, default options, first call\n")
    body = [
        [r["points"], r["rank"], f"{100 * r['captured']:.1f} %", f"{r['seconds']:.1f}", _mib(r["bytes"]), _mib(r["process"]), _mib(r["planned"])]
        for r in rows if r["kind"] == "context"
    ]  # fmt: skip
    header = ["points", "rank", "variance captured", "seconds", "peak above start", "whole process", "planned"]
    parts.append(markdown_table(header, body))
    parts.append("\n# Utilisation (GFLOP/s, best of four, one process)\n")
    for row in (r for r in rows if r["kind"] == "utilisation"):
        best = max(rate for name, rate in row["rates"].items() if name.startswith("GEMM"))
        body = [[name, f"{rate:.0f}", f"{100 * rate / best:.0f} %"] for name, rate in row["rates"].items()]
        parts.append(markdown_table(["work", "rate", "of the best GEMM"], body))
    parts.append("\n# Large networks, first call\n")
    body = [
        [{"mlp": "3072-2048-2048-10", "resnet": "ResNet-18"}[r["kind"]], r["weights"], r["points"], r["rank"], f"{r['seconds']:.0f}",
         f"{r['predict']:.1f} ({r['predictions']})", f"{100 * r['passes']:.0f} %", _mib(r["bytes"]), _mib(r["process"]), _mib(r["planned"])]
        for r in rows if r["kind"] in ("mlp", "resnet")
    ]  # fmt: skip
    header = ["network", "weights", "context points", "rank", "seconds", "predictions", "in passes", "peak above start",
              "whole process", "planned"]  # fmt: skip
    parts.append(markdown_table(header, body))
    return "\n".join(parts)


def _mib(count: float) -> str:
    return f"{count / 2**20:,.0f} MiB"


def plot(rows: list[dict], path: Path) -> None:
    """Time and memory against size, with a line of slope one to compare with."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    names = {"n": "data rows n", "p": "weights p", "m": "context points m"}
    for panel, (field, unit, label) in zip(
        axes, (("seconds", 1, "seconds"), ("bytes", 2**20, "MiB above start")), strict=True
    ):
        for axis, name in names.items():
            group = [r for r in rows if r["kind"] == "growth" and r["axis"] == axis]
            values = [max(r[field] / unit, 1e-3) for r in group]
            panel.loglog([r["size"] for r in group], values, "o-", label=f"{name}: slope {slope(group, field):.2f}")
        low, high = panel.get_xlim()
        start = panel.get_ylim()[0]
        panel.loglog([low, high], [start, start * high / low], ":", color="grey", label="slope 1", scaley=False)
        panel.set(xlabel="size", ylabel=label)
        panel.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest sizes")
    parser.add_argument("--only", nargs="+", choices=list(MEASUREMENTS), help="some parts; others stay as they were")
    parser.add_argument("--out", default="benchmarks/results", help="directory for the JSON, the table and the plot")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, *rest = arguments.measure
        print(json.dumps(MEASUREMENTS[name](*rest)))
        return
    start = time.perf_counter()
    path = Path(arguments.out) / "scale.json"
    wanted = arguments.only or list(MEASUREMENTS)
    rows = [r for r in json.loads(path.read_text())["rows"] if r["kind"] not in wanted] if path.exists() else []
    for kind in wanted:
        rows += [in_a_process(kind, *job) for job in jobs(quick=arguments.quick)[kind]]
        write_results(
            arguments.out, "scale", rows, {"quick": arguments.quick}, seconds=time.perf_counter() - start, tables=tables
        )
    plot(rows, Path(arguments.out) / "scale.png")


if __name__ == "__main__":
    main()
