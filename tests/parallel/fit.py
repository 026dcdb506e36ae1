"""One small network and one small posterior by the matrix-free solver; what a process of `test_parallel` and of `benchmarks/devices.py` runs.

python fit.py <file to write> [<coordinator> <number of processes> <number of this one>]
"""

import contextlib
import os
import socket
import subprocess
import sys

import jax
import numpy as np


def launch(path, *, devices: int, processes: int = 1) -> list[subprocess.Popen]:
    """Start the processes of one fit, each with so many virtual devices."""
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
    }
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    together = [[coordinator, str(processes), str(number)] if processes > 1 else [] for number in range(processes)]
    return [
        subprocess.Popen([sys.executable, __file__, path, *process], env=environment, stderr=subprocess.PIPE, text=True)
        for process in together
    ]


def fit(mesh: bool) -> dict[str, np.ndarray]:
    """97 context points, 50 data and 9 slopes: no multiple of any number of devices."""
    import jax.random as jr
    from gpjax.kernels import RBF

    import fsplaplace as fsp
    from fsplaplace import parallel

    rng = np.random.default_rng(0)
    X, points, x = rng.uniform(-1, 1, (50, 2)), rng.uniform(-1, 1, (97, 2)), rng.uniform(-1, 1, (33, 2))
    prior, context = fsp.Prior(RBF(lengthscale=1.0)), fsp.context.Uniform([-1.0] * 2, [1.0] * 2)
    model = fsp.as_model(fsp.mlp([20, 20], prior=prior, context=context, key=jr.key(0)))
    with parallel.use_mesh() if mesh else contextlib.nullcontext():
        posterior = fsp.laplace(
            model, prior, fsp.likelihoods.Gaussian(0.1), X, np.sin(3 * X[:, 0]),
            also=[fsp.Observation(X[:9], 3 * np.cos(3 * X[:9, 0]), fsp.likelihoods.Gaussian(0.3), of=fsp.operators.partial(0))],
            context_points=points, solver="golub-kahan", rank=6, passes=2, include_training=False, delta=1e-2,
        )  # fmt: skip
        prediction = posterior.predict(x)
    return {
        "mean": np.asarray(prediction.mean),
        "variance": np.asarray(prediction.variance),
        "evidence": np.asarray(posterior.log_evidence),
    }


def train(mesh: bool, checkpoint: str) -> dict[str, np.ndarray]:
    """50 steps on batches of 17 and 21 context points, with 9 slopes; and the same, stopped on one device half-way and taken up again."""
    import jax.random as jr
    from gpjax.kernels import RBF

    import fsplaplace as fsp
    from fsplaplace import parallel
    from fsplaplace.training import _checkpoint, _loop

    _loop._CHUNK = 25
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (50, 2))
    prior, context = fsp.Prior(RBF(lengthscale=1.0)), fsp.context.Uniform([-1.0] * 2, [1.0] * 2)
    model = fsp.as_model(fsp.mlp([20, 20], prior=prior, context=context, key=jr.key(0)))

    def run(**options):
        trained = fsp.train(
            model, prior, fsp.likelihoods.Gaussian(0.1), context, X, np.sin(3 * X[:, 0]), key=jr.key(1), steps=50,
            also=[fsp.Observation(X[:9], 3 * np.cos(3 * X[:9, 0]), fsp.likelihoods.Gaussian(0.3), of=fsp.operators.partial(0))],
            batch_size=17, num_context=21, progress=False, **options,
        )  # fmt: skip
        return np.asarray(trained.model.weights)

    write = _checkpoint.write

    def write_and_stop(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    _checkpoint.write, first = write_and_stop, jax.process_index() == 0
    if first:
        with contextlib.suppress(KeyboardInterrupt):
            run(checkpoint=checkpoint)
    _checkpoint.write = write
    with parallel.use_mesh() if mesh else contextlib.nullcontext():
        # The other processes wait for the first one's checkpoint in this run.
        weights = run()
        resumed = run(checkpoint=checkpoint)
    return {"weights": weights, "resumed": resumed}


if __name__ == "__main__":
    path, *process = sys.argv[1:]
    if process:
        coordinator, count, number = process
        # Before fsplaplace is imported, which starts JAX's backend.
        jax.distributed.initialize(coordinator, int(count), int(number), heartbeat_timeout_seconds=10)
    several = jax.device_count() > 1
    result = fit(several) | train(several, f"{path}.checkpoint")
    if jax.process_index() == 0:
        np.savez(path, devices=jax.device_count(), **result)
