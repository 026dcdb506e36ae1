"""Time to fit and to predict against laplace-torch, laplax, GPyTorch and GPJax: same network, data and machine, one run.

    python benchmarks/peers.py            # three rounds over all methods, interleaved; medians
    python benchmarks/peers.py --quick    # one round

One network (2 x 50 tanh, trained once on the sine task) is given to every method; Gaussian processes get the same kernel and
noise. Every measurement is a process of its own: its first fit and prediction are "cold", medians of five more are "warm".
"fsplaplace cached" finds the programs that an earlier process compiled on disk (`fsplaplace.cache_programs`).
The peers live in `.venv-peers` (PyTorch) and `.venv-laplax`, made on first use. Writes `benchmarks/results/peers.json` and
`peers.md`, with wins and losses.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
from laplace_torch_parity import PEERS, ROOT, ensure_peers, torch_network
from results import markdown_table, write_results

LAPLAX = ROOT / ".venv-laplax"
NOISE, LENGTHSCALE, POINTS, REPEATS, INDUCING, SVGP_STEPS = 0.1, 0.3, 10_000, 5, 50, 500
METHODS = {
    "fsplaplace": "ours",
    "fsplaplace cached": "ours",
    "laplace-torch full": "torch",
    "laplace-torch kron": "torch",
    "laplace-torch diag": "torch",
    "laplace-torch functional": "torch",
    "laplax full": "laplax",
    "laplax lanczos": "laplax",
    "GPyTorch exact": "torch",
    "GPyTorch SVGP": "torch",
    "GPJax exact": "ours",
    "GPJax SVGP": "ours",
}
FIELDS = ("fit, cold", "predict, cold", "fit, warm", "predict, warm")


def environments() -> dict[str, str]:
    """The Python of each environment, made if need be: torch first and exactly, the rest without its dependencies."""
    torch = ensure_peers()
    if subprocess.run([torch, "-c", "import gpytorch"], capture_output=True).returncode:
        packages = ["gpytorch", "scikit-learn", "joblib", "threadpoolctl", "mpmath"]
        subprocess.run([torch, "-m", "pip", "install", "--quiet", "--no-deps", *packages], check=True)
    laplax = str(LAPLAX / "bin" / "python")
    if not Path(laplax).exists() or subprocess.run([laplax, "-c", "import laplax"], capture_output=True).returncode:
        venv.create(LAPLAX, with_pip=True)
        subprocess.run([laplax, "-m", "pip", "install", "--quiet", "laplax==0.0.2"], check=True)
    assert str(PEERS) in torch
    return {"ours": sys.executable, "torch": torch, "laplax": laplax}


def train(path: Path) -> None:
    """The network every method gets."""
    import jax.random as jr
    from gpjax.kernels import RBF

    import fsplaplace as fsp
    from fsplaplace.experiments.demo import sine_data

    X, y = sine_data()
    prior, context = fsp.Prior(RBF(lengthscale=LENGTHSCALE)), fsp.context.Uniform([-2.0], [2.0])
    network = fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(1))
    likelihood = fsp.likelihoods.Gaussian(NOISE)
    trained = fsp.train(
        fsp.as_model(network), prior, likelihood, context, X, y, key=jr.key(2), steps=1000, progress=False
    )
    layers = trained.model.params.layers
    arrays = {f"weight{i}": np.asarray(layer.weight) for i, layer in enumerate(layers)}
    arrays |= {f"bias{i}": np.asarray(layer.bias) for i, layer in enumerate(layers)}
    np.savez(path, X=X, y=y[:, None], x=np.linspace(-2, 2, POINTS)[:, None], **arrays)


def fsplaplace_method(arrays, name: str):
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    from gpjax.kernels import RBF

    import fsplaplace as fsp

    if name == "cached":
        fsp.cache_programs(str(arrays["folder"]))
    layers = []
    for i in range(3):
        weight, bias = jnp.asarray(arrays[f"weight{i}"]), jnp.asarray(arrays[f"bias{i}"])
        layer = eqx.nn.Linear(weight.shape[1], weight.shape[0], key=jr.key(0))
        layers.append(eqx.tree_at(lambda tree: (tree.weight, tree.bias), layer, (weight, bias)))
    model = fsp.as_model(fsp.MLP(tuple(layers), jnp.tanh))
    prior, likelihood = fsp.Prior(RBF(lengthscale=LENGTHSCALE)), fsp.likelihoods.Gaussian(NOISE)
    points = np.linspace(-2, 2, 400)[:, None]

    def fit():
        return jax.block_until_ready(
            fsp.laplace(model, prior, likelihood, arrays["X"], arrays["y"], context_points=points)
        )

    return fit, lambda fitted: jax.block_until_ready(fitted.predict(arrays["x"]))


def laplace_torch_method(arrays, name: str):
    import torch
    from laplace import FunctionalLaplace, Laplace

    network = torch_network(arrays)
    X, y, x = (torch.tensor(arrays[key], dtype=torch.float32) for key in ("X", "y", "x"))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=len(X))

    def fit():
        if name == "functional":
            posterior = FunctionalLaplace(network, "regression", n_subset=len(X), sigma_noise=NOISE)
        else:
            options = {"subset_of_weights": "all", "hessian_structure": name, "sigma_noise": NOISE}
            posterior = Laplace(network, "regression", **options)
        posterior.fit(loader)
        return posterior

    def predict(posterior):
        # In batches: all points at once take more than 20 GiB.
        with torch.no_grad():
            return [posterior(part, pred_type="gp" if name == "functional" else "glm") for part in x.split(250)]

    return fit, predict


def laplax_method(arrays, name: str):
    import jax
    import jax.numpy as jnp
    from laplax import laplace
    from laplax.eval.pushforward import lin_pred_mean, lin_pred_var, lin_setup, set_lin_pushforward

    params = {key: jnp.asarray(value) for key, value in arrays.items() if key.startswith(("weight", "bias"))}

    def model(input, params):
        hidden = input
        for i in range(2):
            hidden = jnp.tanh(params[f"weight{i}"] @ hidden + params[f"bias{i}"])
        return params["weight2"] @ hidden + params["bias2"]

    data = {"input": jnp.asarray(arrays["X"], jnp.float32), "target": jnp.asarray(arrays["y"], jnp.float32)}
    x = jnp.asarray(arrays["x"], jnp.float32)
    options = {"key": jax.random.key(0), "rank": 30} if name == "lanczos" else {}

    def fit():
        posterior, curvature = laplace(model, params, data, loss_fn="mse", curv_type=name, num_curv_samples=100,
                                       num_total_samples=100, **options)  # fmt: skip
        jax.block_until_ready(curvature)
        predictive = set_lin_pushforward(
            model_fn=model,
            mean_params=params,
            posterior_fn=posterior,
            prior_arguments={"prior_prec": 1.0},
            pushforward_fns=[lin_setup, lin_pred_mean, lin_pred_var],
        )
        return jax.jit(jax.vmap(predictive))

    return fit, lambda predictive: jax.block_until_ready(predictive(x))


def gpytorch_method(arrays, name: str):
    import gpytorch
    import torch

    X, x = (torch.tensor(arrays[key], dtype=torch.float32) for key in ("X", "x"))
    y = torch.tensor(arrays["y"][:, 0], dtype=torch.float32)

    def settle(module, likelihood):
        module.covariance.lengthscale = LENGTHSCALE
        likelihood.noise = NOISE**2

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(X, y, likelihood)
            self.mean, self.covariance = gpytorch.means.ZeroMean(), gpytorch.kernels.RBFKernel()

        def forward(self, inputs):
            return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.covariance(inputs))

    class Sparse(gpytorch.models.ApproximateGP):
        def __init__(self):
            inducing = torch.linspace(-2, 2, INDUCING)[:, None]
            family = gpytorch.variational.CholeskyVariationalDistribution(INDUCING)
            super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, family))
            self.mean, self.covariance = gpytorch.means.ZeroMean(), gpytorch.kernels.RBFKernel()

        def forward(self, inputs):
            return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.covariance(inputs))

    def fit():
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        module = Exact(likelihood) if name == "exact" else Sparse()
        settle(module, likelihood)
        if name == "SVGP":
            bound = gpytorch.mlls.VariationalELBO(likelihood, module, len(X))
            optimiser = torch.optim.Adam(module.variational_strategy.parameters(), lr=0.05)
            for _ in range(SVGP_STEPS):
                optimiser.zero_grad()
                (-bound(module(X), y)).backward()
                optimiser.step()
        return module.eval()

    def predict(module):
        with torch.no_grad():
            return [(out.mean, out.variance) for out in (module(part) for part in x.split(1000))]

    return fit, predict


def gpjax_method(arrays, name: str):
    import gpjax as gpx
    import jax
    import jax.numpy as jnp
    import optax

    data = gpx.Dataset(jnp.asarray(arrays["X"], jnp.float32), jnp.asarray(arrays["y"], jnp.float32))
    parts = jnp.asarray(arrays["x"], jnp.float32).reshape(-1, 1000, 1)
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=gpx.kernels.RBF(lengthscale=LENGTHSCALE))
    process = prior * gpx.likelihoods.Gaussian(obs_stddev=NOISE)

    def moments(predict):
        def of(part):
            distribution = predict(part)
            return distribution.mean, distribution.variance

        return jax.jit(lambda rows: jax.lax.map(of, rows))

    def fit():
        if name == "exact":
            return moments(process.condition(data).predict)
        inducing = jnp.linspace(-2, 2, INDUCING)[:, None]
        family = gpx.variational_families.WhitenedVariationalGaussian(process, inducing)
        fitted, _ = gpx.fit(
            model=family, objective=lambda q, batch: -gpx.objectives.elbo(q, batch), train_data=data,
            optim=optax.adam(0.05), num_iters=SVGP_STEPS, key=jax.random.key(0), batch_size=100, verbose=False,
        )  # fmt: skip
        return moments(fitted.predict)

    return fit, lambda predictive: jax.block_until_ready(predictive(parts))


FAMILIES = {
    "fsplaplace": fsplaplace_method,
    "laplace-torch": laplace_torch_method,
    "laplax": laplax_method,
    "GPyTorch": gpytorch_method,
    "GPJax": gpjax_method,
}


def measure(path: str, method: str) -> dict[str, float]:
    """First and median times of one method in this process; importing libraries is not counted."""
    family, _, name = method.partition(" ")
    fit, predict = FAMILIES[family](dict(np.load(path)) | {"folder": str(Path(path).parent / "programs")}, name)

    def seconds(function):
        begin = time.perf_counter()
        result = function()
        return time.perf_counter() - begin, result

    first, fitted = seconds(fit)
    first_predict, _ = seconds(lambda: predict(fitted))
    again = statistics.median(seconds(fit)[0] for _ in range(REPEATS))
    predict_again = statistics.median(seconds(lambda: predict(fitted))[0] for _ in range(REPEATS))
    return dict(zip(FIELDS, (first, first_predict, again, predict_again), strict=True))


def tables(rows: list[dict]) -> str:
    ours = next(row for row in rows if row["method"] == "fsplaplace")
    peers = [row for row in rows if not row["method"].startswith("fsplaplace")]
    body = [[row["method"], *(f"{row[field]:.4f}" for field in FIELDS)] for row in rows]
    ratios = [[row["method"], *(f"{row[field] / ours[field]:.1f}" for field in FIELDS)] for row in peers]
    lost = [f"{row['method']} ({field})" for row in peers for field in FIELDS if row[field] < ours[field]]
    parts = [
        "# Seconds on the sine task: 100 data, 2 x 50 network, 10,000 predictions with variance\n",
        markdown_table(["method", *FIELDS], body),
        "\n# Times of each peer over ours (above 1: we are faster)\n",
        markdown_table(["method", *FIELDS], ratios),
    ]
    if (cached := [row for row in rows if row["method"] == "fsplaplace cached"]) and peers:
        again = [[row["method"], *(f"{row[field] / cached[0][field]:.1f}" for field in FIELDS[:2])] for row in peers]
        parts += ["\n# The same with our programs cached on disk\n", markdown_table(["method", *FIELDS[:2]], again)]
    return "\n".join([
        *parts,
        f"\nFaster than fsplaplace: {', '.join(lost) or 'none'}.\n",
        "GPyTorch conditions an exact process when it first predicts, so its fit costs nothing. A sparse process is trained for "
        f"{SVGP_STEPS} steps with {INDUCING} inducing points, kernel and noise fixed.",
    ])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", default="benchmarks/results", help="directory for the JSON and the table")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    begin, rounds, found = time.perf_counter(), 1 if arguments.quick else 3, {m: [] for m in arguments.methods}
    pythons = environments()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.npz"
        train(path)
        if "fsplaplace cached" in arguments.methods:
            subprocess.run([pythons["ours"], __file__, "--measure", str(path), "fsplaplace cached"], check=True)
        for _ in range(rounds):
            for method in arguments.methods:
                command = [pythons[METHODS[method]], __file__, "--measure", str(path), method]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[method].append(json.loads(done.stdout.splitlines()[-1]))
                print(method, found[method][-1], flush=True)
    rows = [
        {"method": method, **{field: statistics.median(time[field] for time in times) for field in FIELDS}}
        for method, times in found.items()
    ]
    settings = {"rounds": rounds, "repeats": REPEATS, "points": POINTS}
    write_results(arguments.out, "peers", rows, settings, seconds=time.perf_counter() - begin, tables=tables)


if __name__ == "__main__":
    main()
