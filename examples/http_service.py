# %% [markdown]
# # A small HTTP service
#
# A posterior is exported to one file, and a server of the standard library answers from it. The server needs jax alone: not this
# library, not the network's code. It says no to what is not a table of numbers.

# %%
import hashlib
import json
import tempfile
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import jax
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp

# %% [markdown]
# ## At home: fit and export

# %%
generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (60, 2)).astype(np.float32)
y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.05 * generator.normal(size=60)

prior, likelihood = fsp.Prior(RBF(lengthscale=0.8)), fsp.likelihoods.Gaussian(scale=0.05)
context = fsp.context.around(X)
network = fsp.mlp([100], prior=prior, context=context, key=jr.key(0))
posterior = fsp.laplace(
    fsp.as_model(network), prior, likelihood, X, y, context_points=context.sample(200, key=jr.key(1))
)

path = Path(tempfile.mkdtemp()) / "posterior.jaxprogram"
print("serves", ", ".join(fsp.export(posterior, path)))

# %% [markdown]
# ## At work: the service
#
# Only `jax`, `numpy` and the standard library from here on. Rows are padded to a power of two, so that a handful of programs is
# compiled, whatever the clients send.

# %%
data = path.read_bytes()
if hashlib.sha256(data[:-32]).digest() != data[-32:]:
    raise SystemExit(f"{path} is damaged")
program = jax.export.deserialize(bytearray(data))
columns = program.in_avals[0].shape[1]
MOST_ROWS = 4096


def answer(body: bytes) -> dict:
    """Mean and standard deviation of new targets for the rows of a JSON request; ValueError for anything else."""
    try:
        rows = np.asarray(json.loads(body)["rows"], np.float32)
    except (ValueError, KeyError, TypeError):
        raise ValueError('send {"rows": [[...], ...]} with numbers') from None
    if rows.ndim != 2 or rows.shape[1] != columns or not 0 < len(rows) <= MOST_ROWS or not np.isfinite(rows).all():
        raise ValueError(f"rows must be 1 to {MOST_ROWS} lists of {columns} finite numbers")
    padded = np.zeros((1 << (len(rows) - 1).bit_length(), columns), np.float32)
    padded[: len(rows)] = rows
    found = program.call(padded)
    return {name: np.asarray(found[name])[: len(rows), 0].tolist() for name in ("mean", "total_std")}


class Handler(BaseHTTPRequestHandler):
    """POST a table, get a table."""

    def do_POST(self):
        try:
            status, reply = 200, answer(self.rfile.read(min(int(self.headers["Content-Length"]), 1 << 20)))
        except ValueError as error:
            status, reply = 400, {"error": str(error)}
        content = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Say nothing."""


# %% [markdown]
# ## A client

# %%
server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()


def ask(body: str) -> dict:
    """What the service says."""
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}", data=body.encode())
    return json.load(urllib.request.urlopen(request))


reply = ask(json.dumps({"rows": X[:3].tolist()}))
for mean, std in zip(reply["mean"], reply["total_std"], strict=True):
    print(f"{mean:.3f} ± {std:.3f}")
assert np.allclose(reply["mean"], np.asarray(posterior.predict(X[:3]).mean)[:, 0], atol=1e-4)

# %% [markdown]
# What is not a table is refused:

# %%
try:
    ask('{"rows": [[1.0]]}')
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)["error"])
server.shutdown()
