"""Time of training and posterior on the sine task, and peak memory against the number of weights.

    python benchmarks/core.py            # everything; peers where `.venv-peers` can be made
    python benchmarks/core.py --quick    # the smallest sizes and no peers, for the test suite

Every measurement runs in a process of its own. Writes `benchmarks/results/core.json` and `core.md`.
"""

import argparse
import json
import subprocess
import sys
import time

from results import markdown_table, peak_memory, write_results

REPEATS = 5
WIDTHS = {10_000: 97, 100_000: 313, 1_000_000: 997, 5_000_000: 2233}


def measure_sine() -> dict:
    """Cold and warm times of one process: import, network, training, posterior, prediction."""
    begin = time.perf_counter()
    import jax
    import jax.random as jr
    import numpy as np
    from gpjax.kernels import RBF

    import fsplaplace as fsp
    from fsplaplace.experiments.demo import sine_data

    imported = time.perf_counter()
    X, y = sine_data()
    prior, likelihood = fsp.Prior(RBF(lengthscale=0.3)), fsp.likelihoods.Gaussian(0.1)
    context = fsp.context.Uniform([-2.0], [2.0])
    points = np.linspace(-2, 2, 400)[:, None]
    x = np.linspace(-2, 2, 10_000)[:, None]
    model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(1)))

    def train():
        trained = fsp.train(model, prior, likelihood, context, X, y, key=jr.key(2), steps=1000, progress=False)
        return jax.block_until_ready(trained)

    def posterior(model):
        return jax.block_until_ready(fsp.laplace(model, prior, likelihood, X, y, context_points=points))

    trained = train()
    trained_at = time.perf_counter()
    fitted = posterior(trained.model)
    fitted_at = time.perf_counter()
    jax.block_until_ready(fitted.predict(x))
    predicted_at = time.perf_counter()
    return {
        "import": imported - begin,
        "network and 1,000 steps, cold": trained_at - imported,
        "posterior, cold": fitted_at - trained_at,
        "predict 10,000, cold": predicted_at - fitted_at,
        "network, 1,000 steps and posterior, cold": fitted_at - imported,
        "1,000 steps, warm": _median(train),
        "posterior, warm": _median(lambda: posterior(trained.model)),
        "predict 10,000, warm": _median(lambda: jax.block_until_ready(fitted.predict(x))),
    }


def measure_defaults() -> dict:
    """A first posterior of an untrained network where `laplace` is given no context points."""
    import jax
    import jax.random as jr
    from gpjax.kernels import RBF

    import fsplaplace as fsp
    from fsplaplace.experiments.demo import sine_data

    X, y = sine_data()
    prior, likelihood = fsp.Prior(RBF(lengthscale=0.3)), fsp.likelihoods.Gaussian(0.1)
    network = fsp.mlp([50, 50], prior=prior, context=fsp.context.Uniform([-2.0], [2.0]), key=jr.key(1))
    model = fsp.as_model(network)
    begin = time.perf_counter()
    jax.block_until_ready(fsp.laplace(model, prior, likelihood, X, y))
    return {"posterior, default context points, cold": time.perf_counter() - begin}


def measure_memory(num_params: int) -> dict:
    """Peak memory of the matrix-free posterior above what the process held before it."""
    import jax
    import jax.random as jr
    import numpy as np
    from gpjax.kernels import RBF

    import fsplaplace as fsp

    rng = np.random.default_rng(0)
    X, points = rng.normal(size=(200, 8)), rng.normal(size=(400, 8))
    prior, context = fsp.Prior(RBF(lengthscale=4.0)), fsp.context.around(X)
    width = WIDTHS[num_params]
    model = fsp.as_model(fsp.mlp([width, width], prior=prior, context=context, key=jr.key(0)))
    jax.block_until_ready(model(model.check_inputs(X)))
    before = peak_memory()
    start = time.perf_counter()
    posterior = fsp.laplace(
        model, prior, fsp.likelihoods.Gaussian(0.1), X, np.sin(X[:, 0]), context_points=points,
        solver="golub-kahan", rank=32, passes=2,
    )  # fmt: skip
    jax.block_until_ready(posterior.scale)
    return {
        "weights": model.num_params,
        "rank": posterior.rank,
        "bytes": peak_memory() - before,
        "seconds": time.perf_counter() - start,
    }


def measure_peer(structure: str) -> dict:
    """laplace-torch on the same task; runs inside `.venv-peers`."""
    import numpy as np
    import torch
    from laplace import Laplace

    begin = time.perf_counter()
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.0, 100) * rng.choice([-1.0, 1.0], 100)
    X = torch.tensor(x[:, None], dtype=torch.float32)
    y = torch.tensor(np.sin(2 * np.pi * x) + 0.1 * rng.normal(size=100), dtype=torch.float32)[:, None]
    net = torch.nn.Sequential(
        torch.nn.Linear(1, 50), torch.nn.Tanh(), torch.nn.Linear(50, 50), torch.nn.Tanh(), torch.nn.Linear(50, 1)
    )
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=100)
    grid = torch.linspace(-2, 2, 10_000)[:, None]

    def fit():
        posterior = Laplace(net, "regression", subset_of_weights="all", hessian_structure=structure, sigma_noise=0.1)
        posterior.fit(loader)
        return posterior

    def predict():
        # In batches: all 10,000 points at once take more than 20 GiB.
        with torch.no_grad():
            return [posterior(part, pred_type="glm") for part in grid.split(250)]

    posterior = fit()
    fitted_at = time.perf_counter()
    predict()
    predicted_at = time.perf_counter()
    return {
        "posterior, cold": fitted_at - begin,
        "predict 10,000, cold": predicted_at - fitted_at,
        "posterior, warm": _median(fit),
        "predict 10,000, warm": _median(predict),
    }


def _median(function) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


MEASUREMENTS = {
    "sine": measure_sine,
    "defaults": measure_defaults,
    "peer": measure_peer,
    "memory": lambda size: measure_memory(int(size)),
}


def in_a_process(name: str, *arguments: str, python: str = sys.executable) -> dict:
    """Run one of the measurements above in a fresh process and read what it prints."""
    done = subprocess.run([python, __file__, "--measure", name, *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def tables(rows: list[dict]) -> str:
    times = [row for row in rows if row["kind"] == "time"]
    stages = list(dict.fromkeys(stage for row in times for stage in row["seconds"]))
    parts = [
        "# Time on the sine task (seconds)\n",
        "1,000 training steps, 400 context points, 2x50 network, float32.\n",
    ]
    body = [[stage, *(row["seconds"].get(stage) for row in times)] for stage in stages]
    parts.append(markdown_table(["", *(row["method"] for row in times)], body))
    memory = [row for row in rows if row["kind"] == "memory"]
    parts.append("\n# Peak memory of the matrix-free posterior (rank 32, 400 context points, 2 passes)\n")
    body = [
        [
            row["weights"],
            f"{row['bytes'] / 2**20:.0f} MiB",
            f"{row['bytes'] / row['weights']:.0f}",
            f"{row['seconds']:.1f}",
        ]
        for row in memory
    ]
    parts.append(markdown_table(["weights", "peak above start", "bytes per weight", "seconds"], body))
    return "\n".join(parts)


def collect(*, quick: bool) -> list[dict]:
    rows = [{"kind": "time", "method": "fsplaplace", "seconds": in_a_process("sine") | in_a_process("defaults")}]
    if not quick:
        from laplace_torch_parity import ensure_peers

        python = ensure_peers()
        for structure in ("full", "kron", "diag"):
            seconds = in_a_process("peer", structure, python=python)
            rows.append({"kind": "time", "method": f"laplace-torch {structure}", "seconds": seconds})
    for size in list(WIDTHS)[:1] if quick else WIDTHS:
        rows.append({"kind": "memory"} | in_a_process("memory", str(size)))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest sizes and no peers")
    parser.add_argument("--out", default="benchmarks/results", help="directory for the JSON and the table")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        name, *rest = arguments.measure
        print(json.dumps(MEASUREMENTS[name](*rest)))
        return
    start = time.perf_counter()
    rows = collect(quick=arguments.quick)
    write_results(arguments.out, "core", rows, {"repeats": REPEATS, "quick": arguments.quick, "seed": 1},
                  seconds=time.perf_counter() - start, tables=tables)  # fmt: skip


if __name__ == "__main__":
    main()
