"""Weight-space Laplace against laplace-torch: same weights, same data, float64.

    python benchmarks/laplace_torch_parity.py

makes the environment `.venv-peers` (PyTorch, laplace-torch and what it needs, without its torchvision) on first use,
runs laplace-torch there, compares, prints a table and writes `benchmarks/results/laplace_torch_parity.json`. Fails if
any log marginal likelihood, predictive mean or predictive variance differs by more than 1e-4, relatively.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv-peers"
RESULTS = ROOT / "benchmarks" / "results" / "laplace_torch_parity.json"
TOLERANCE = 1e-4
# torch first, then the rest without dependencies: laplace-torch's own would bring torchvision and with it another torch.
FIRST = ["torch==2.13.0", "numpy", "scipy"]
REST = [
    "laplace-torch==0.3", "backpack-for-pytorch", "curvlinops-for-pytorch>=3.0.1", "asdfghjkl==0.1a4", "linear-operator",
    "einops", "einconv", "unfoldNd", "opt-einsum", "tqdm", "torchmetrics", "lightning-utilities", "packaging", "jaxtyping",
    "wadler-lindig",
]  # fmt: skip
STRUCTURES = {"full": "full", "kfac": "kron", "diagonal": "diag"}
TASKS = {"regression": (0.3, 2.0), "classification": (None, 0.7)}


def main() -> None:
    python = ensure_peers()
    problems = {task: make_problem(task) for task in TASKS}
    with tempfile.TemporaryDirectory() as folder:
        for task, arrays in problems.items():
            np.savez(Path(folder) / f"{task}.npz", **arrays)
        subprocess.run([python, __file__, "--peer", folder], check=True)
        rows = []
        for task, arrays in problems.items():
            for structure, peer_name in STRUCTURES.items():
                peer = np.load(Path(folder) / f"{task}_{peer_name}.npz")
                rows.append(compare(task, structure, run_ours(task, structure, arrays), peer))
    report(rows)


def ensure_peers() -> str:
    python = PEERS / "bin" / "python"
    works = python.exists() and subprocess.run([python, "-c", "import laplace"], capture_output=True).returncode == 0
    if not works:
        venv.create(PEERS, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, *FIRST], check=True)
        subprocess.run([*install, "--no-deps", *REST], check=True)
    return str(python)


def make_problem(task: str) -> dict[str, np.ndarray]:
    """Data, and a network 3-12-8-q with tanh units at fixed random weights."""
    generator = np.random.default_rng(7)
    widths = (3, 12, 8, 2 if task == "regression" else 4)
    X, x_test = generator.normal(size=(60, 3)), 1.5 * generator.normal(size=(25, 3))
    y = generator.normal(size=(60, 2)) if task == "regression" else generator.integers(0, 4, 60)
    arrays = {"X": X, "y": y, "x_test": x_test}
    for index, (i, o) in enumerate(itertools.pairwise(widths)):
        arrays[f"weight{index}"] = generator.normal(size=(o, i)) / np.sqrt(i)
        arrays[f"bias{index}"] = 0.3 * generator.normal(size=o)
    return arrays


def run_ours(task: str, structure: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    import fsplaplace as fsp
    from fsplaplace.methods import WeightLaplace

    noise, precision = TASKS[task]
    with jax.enable_x64(True):
        layers = []
        for index in range(3):
            weight, bias = jnp.asarray(arrays[f"weight{index}"]), jnp.asarray(arrays[f"bias{index}"])
            layer = eqx.nn.Linear(weight.shape[1], weight.shape[0], key=jr.key(0))
            layers.append(eqx.tree_at(lambda tree: (tree.weight, tree.bias), layer, (weight, bias)))
        model = fsp.as_model(fsp.MLP(tuple(layers), jnp.tanh))
        likelihood = fsp.likelihoods.Gaussian(noise) if noise else fsp.likelihoods.Categorical(4)
        method = WeightLaplace(structure, precision, train=None)
        posterior = method.fit(model, arrays["X"], arrays["y"], likelihood, key=jr.key(0))
        prediction = posterior.predict(arrays["x_test"])
        return {
            "log_evidence": np.asarray(posterior.log_evidence),
            "mean": np.asarray(prediction.mean),
            "variance": np.asarray(prediction.variance),
        }


def torch_network(arrays):
    """The tanh network whose three layers were written as `weight0`, `bias0` and so on."""
    import torch

    modules = []
    for index in range(3):
        weight, bias = torch.tensor(arrays[f"weight{index}"]), torch.tensor(arrays[f"bias{index}"])
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data, layer.bias.data = weight, bias
        modules += [layer, torch.nn.Tanh()]
    return torch.nn.Sequential(*modules[:-1])


def run_peer(folder: Path) -> None:
    """Inside the other environment."""
    import torch
    from laplace import Laplace
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_default_dtype(torch.float64)
    for task, (noise, precision) in TASKS.items():
        arrays = np.load(folder / f"{task}.npz")
        network = torch_network(arrays)
        X, y = torch.tensor(arrays["X"]), torch.tensor(arrays["y"])
        for structure in STRUCTURES.values():
            options = {"sigma_noise": noise} if noise else {}
            approximation = Laplace(
                network,
                task,
                subset_of_weights="all",
                hessian_structure=structure,
                prior_precision=precision,
                **options,
            )
            approximation.fit(DataLoader(TensorDataset(X, y), batch_size=len(X)))
            mean, covariance = approximation._glm_predictive_distribution(torch.tensor(arrays["x_test"]))
            np.savez(
                folder / f"{task}_{structure}.npz",
                log_evidence=approximation.log_marginal_likelihood().item(),
                mean=mean.detach().numpy(),
                variance=covariance.diagonal(dim1=1, dim2=2).detach().numpy(),
            )


def compare(task: str, structure: str, ours, peer) -> dict:
    differences = {
        name: float(np.max(np.abs(ours[name] - peer[name])) / np.max(np.abs(peer[name])))
        for name in ("log_evidence", "mean", "variance")
    }
    return {
        "task": task,
        "structure": structure,
        "log_evidence": float(ours["log_evidence"]),
        "difference": differences,
    }


def report(rows: list[dict]) -> None:
    print(f"{'task':<15}{'structure':<11}{'log evidence':>14}  relative difference: log evidence, mean, variance")
    for row in rows:
        numbers = "  ".join(f"{value:.1e}" for value in row["difference"].values())
        print(f"{row['task']:<15}{row['structure']:<11}{row['log_evidence']:>14.6f}  {numbers}")
    worst = max(value for row in rows for value in row["difference"].values())
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"tolerance": TOLERANCE, "worst": worst, "rows": rows}, indent=1) + "\n")
    print(f"largest relative difference {worst:.1e} (wanted below {TOLERANCE:g})")
    if worst > TOLERANCE:
        raise SystemExit("parity with laplace-torch is lost")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        run_peer(Path(sys.argv[2]))
    else:
        main()
