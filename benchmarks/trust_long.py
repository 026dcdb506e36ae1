"""Long runs: 200 fits of 200 sizes in one process, and an HTTP service under concurrent requests."""

import concurrent.futures
import gc
import json
import runpy
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

FITS = 200
REQUESTS = 2000
_EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "http_service.py"


def resident_bytes() -> int:
    """Memory that this process holds now."""
    fields = Path("/proc/self/status").read_text().split()
    return int(fields[fields.index("VmRSS:") + 1]) * 1024


def memory_maps() -> int:
    """Memory maps of this process; it dies near `vm.max_map_count`."""
    return Path("/proc/self/maps").read_bytes().count(b"\n")


def sizes(count: int = FITS) -> dict[str, Any]:
    """Train and posterior of networks of four units on tables of `count` different sizes, and what the process holds."""
    import jax.random as jr
    from gpjax.kernels import RBF

    import fsplaplace as fsp

    prior, likelihood = fsp.Prior(RBF(lengthscale=0.5)), fsp.likelihoods.Gaussian(0.1)
    context = fsp.context.Uniform([-1.0], [1.0])
    model = fsp.as_model(fsp.mlp([4], prior=prior, context=context, key=jr.key(0)))
    points = context.sample(20, key=jr.key(1))

    def fit(X, y):
        trained = fsp.train(
            model, prior, likelihood, context, X, y, key=jr.key(2), steps=1, num_context=8, progress=False
        )
        fsp.laplace(trained.model, prior, trained.likelihood, X, y, context_points=points).predict(
            X
        ).mean.block_until_ready()

    return _many(fit, count)


def tables(count: int = FITS) -> dict[str, Any]:
    """The same for `FSPRegressor`."""
    import fsplaplace as fsp

    def fit(X, y):
        fsp.FSPRegressor(network=[4], steps=1, num_context=20, fit_prior=False).fit(X, y).predict(X)

    return _many(fit, count)


def _many(fit: Callable[[np.ndarray, np.ndarray], None], count: int) -> dict[str, Any]:
    """Fit tables of 20 rows, 21 rows and so on, and see what the process holds after each."""
    generator, records, began = np.random.default_rng(0), [], time.perf_counter()
    for number in range(count):
        X = generator.uniform(-1, 1, (20 + number, 1)).astype(np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit(X, np.sin(3 * X[:, 0]))
        gc.collect()
        records.append((resident_bytes(), memory_maps()))
    later = records[count // 4 :]
    return {
        "fits": count, "seconds": round(time.perf_counter() - began, 1),
        "most_bytes": max(resident for resident, _ in records), "most_maps": max(maps for _, maps in records),
        "bytes_per_fit": _slope([resident for resident, _ in later]), "maps_per_fit": _slope([maps for _, maps in later]),
        "limit_of_maps": int(Path("/proc/sys/vm/max_map_count").read_text()),
        "course": [
            {"fit": number, "bytes": records[number][0], "maps": records[number][1]}
            for number in range(0, count, max(1, count // 20))
        ],
    }  # fmt: skip


def _slope(values: list[int]) -> float:
    return round(float(np.polyfit(np.arange(len(values)), values, 1)[0]), 1) if len(values) > 1 else 0.0


def soak(requests: int = REQUESTS, *, clients: int = 8) -> dict[str, Any]:
    """The HTTP example, each request in a thread of its own, compared with `predict`; one in ten is no table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = runpy.run_path(str(_EXAMPLE))
    generator = np.random.default_rng(0)
    inputs = generator.uniform(-1, 1, (500, 2)).astype(np.float32)
    wanted = np.asarray(example["posterior"].predict(inputs).mean)[:, 0]
    server = ThreadingHTTPServer(("127.0.0.1", 0), example["Handler"])
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"

    def ask(number: int) -> str:
        rows = np.random.default_rng(number).choice(500, 1 + number % 40, replace=False)
        body: Any = {"rows": inputs[rows].tolist()}
        if number % 10 == 0:
            body = [{"rows": [[1.0]]}, {"rows": "x"}, {"rows": [[float("nan"), 1.0]]}, 3, {"rows": []}][
                number // 10 % 5
            ]
        try:
            request = urllib.request.Request(address, data=json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = np.asarray(json.load(answer)["mean"])
        except urllib.error.HTTPError as error:
            return "refused" if error.code == 400 and number % 10 == 0 else "wrong"
        if number % 10 == 0:
            return "wrong"
        return "right" if found.shape == rows.shape and np.allclose(found, wanted[rows], atol=1e-4) else "wrong"

    began, records = time.perf_counter(), []
    answers: list[str] = []
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        for part in np.array_split(np.arange(requests), 10):
            answers += pool.map(ask, part.tolist())
            gc.collect()
            records.append((resident_bytes(), memory_maps()))
    server.shutdown()
    # The first fifth compiles one program for each power of two.
    later = records[2:]
    return {
        "requests": requests, "clients": clients, "seconds": round(time.perf_counter() - began, 1),
        "answers": {kind: answers.count(kind) for kind in ("right", "refused", "wrong")},
        "bytes_grown": later[-1][0] - later[0][0], "maps_grown": later[-1][1] - later[0][1], "most_bytes": max(b for b, _ in records),
    }  # fmt: skip
