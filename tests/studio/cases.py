"""Priors as the page writes them, data for them, and Python's answers: what the page must agree with."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import references
from gpjax import kernels as gpjax

import fsplaplace as fsp
from fsplaplace.host import in_float64
from fsplaplace.prior import describe

RADIAL = ["RBF", "Matern12", "Matern32", "Matern52", "RationalQuadratic", "PoweredExponential"]


def radial(kind: str, lengthscale: Any = 0.7, variance: float = 1.3) -> dict:
    shape = {"RationalQuadratic": {"alpha": 0.8}, "PoweredExponential": {"power": 1.4}}
    return {"kind": kind, "lengthscale": lengthscale, "variance": variance, **shape.get(kind, {})}


PERIODIC = {"kind": "Periodic", "period": 1.7, "lengthscale": 0.9, "variance": 0.6}
LINEAR = {"kind": "Linear", "variance": 0.4}
OTHERS = [
    PERIODIC,
    LINEAR,
    {"kind": "Polynomial", "degree": 3, "shift": 0.7, "variance": 0.3},
    {"kind": "Constant", "constant": 2.5},
    {"kind": "White", "variance": 0.2},
    *({"kind": "ArcCosine", "order": order, "variance": 1.5, "weight_variance": 2.0, "bias_variance": 0.5} for order in (0, 1, 2)),
]  # fmt: skip


def total(*parts: dict) -> dict:
    return {"kind": "sum", "parts": list(parts)}


def product(*parts: dict) -> dict:
    return {"kind": "product", "parts": list(parts)}


def field(potential: dict | None, stream: dict | None) -> dict:
    return {"kind": "Helmholtz", "potential": potential, "stream": stream}


def all_cases() -> dict[str, dict]:
    """Every kernel with one and with three inputs, sums, products, vector fields, contradictions with the data."""
    kernels: dict[str, tuple[dict, int]] = {}
    for kernel in [*(radial(kind) for kind in RADIAL), *OTHERS]:
        name = kernel["kind"] + str(kernel.get("order", ""))
        kernels[f"{name}, one input"] = (kernel, 1)
        kernels[f"{name}, three inputs"] = (kernel, 3)
    for kind in RADIAL:
        kernels[f"{kind}, a length scale for each input"] = (radial(kind, [0.5, 2.0, 3.7]), 3)
        kernels[f"{kind}, two of three inputs"] = (radial(kind, [0.5, 2.0]) | {"columns": [0, 2]}, 3)
    kernels["periodic in one of three"] = (PERIODIC | {"columns": [1]}, 3)
    kernels["many inputs"] = (radial("Matern32", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]), 6)
    kernels["sum"] = (total(radial("RBF", 0.3), PERIODIC, LINEAR), 1)
    kernels["product"] = (product(radial("Matern52"), PERIODIC), 2)
    kernels["sum of products"] = (
        total(product(radial("RBF", 3.0), PERIODIC), product(LINEAR, LINEAR), radial("Matern12", 0.2)),
        1,
    )
    kernels["product of sums"] = (product(total(radial("RBF"), LINEAR), total(PERIODIC, radial("Matern32"))), 2)
    kernels["long"] = (radial("RBF", 50.0), 1)
    kernels["short"] = (radial("RBF", 0.001), 1)
    kernels["all short"] = (radial("Matern32", [0.01, 0.02]), 2)
    kernels["small"] = (radial("RBF", 0.7, 1e-4), 1)
    kernels["large"] = (radial("RBF", 0.7, 1e4), 1)
    kernels["period beyond the data"] = (PERIODIC | {"period": 1.125e3}, 1)
    smooth = [kind for kind in RADIAL if kind not in ("Matern12", "PoweredExponential")]
    for kind in smooth:
        kernels[f"potential {kind}"] = (field(radial(kind), None), 2)
        kernels[f"stream {kind}"] = (field(None, radial(kind, [0.6, 1.1])), 2)
    kernels["both"] = (field(radial("RBF", 0.8), total(radial("Matern52"), LINEAR)), 2)
    kernels["field of products"] = (
        field(product(radial("RBF", 2.0), PERIODIC), product(radial("Matern32"), OTHERS[2])),
        2,
    )
    kernels["field with a constant"] = (field(total(radial("RBF"), {"kind": "Constant", "constant": 1.0}), None), 2)
    cases = {name: with_data(kernel, width, seed) for seed, (name, (kernel, width)) in enumerate(kernels.items())}
    cases["far from zero"] = with_data(radial("RBF"), 1, 0, shift=1000.0)
    for name in ("RBF, one input", "sum of products", "RBF, a length scale for each input", "both"):
        case = cases[name]
        cases[f"{name}, without data"] = {key: case[key] for key in ("kernel", "mean", "noise", "width")}
    return cases


def with_data(kernel: dict, width: int, seed: int, shift: float = 0.0) -> dict:
    generator = np.random.default_rng(seed)
    outputs = 2 if kernel["kind"] == "Helmholtz" else 1
    x = generator.uniform(-2, 2, (24, width))
    x[3] = x[2]
    y = np.sin(2 * x[:, :1]) + 0.2 * generator.normal(size=(24, outputs)) + shift
    mean = [0.0] if seed % 2 and outputs == 1 else [0.25, -0.5][:outputs]
    points = generator.uniform(-3, 3, (7, width))
    return {
        "kernel": kernel, "mean": mean, "noise": 0.2, "width": width,
        "x": x.tolist(), "y": y.tolist(), "points": points.tolist(),
    }  # fmt: skip


def gpjax_kernel(kernel: dict):
    """The same kernel in Python."""
    if kernel["kind"] == "Helmholtz":
        parts = {name: gpjax_kernel(kernel[name]) for name in ("potential", "stream") if kernel[name]}
        return fsp.kernels.Helmholtz(**parts)
    if kernel["kind"] in ("sum", "product"):
        combine = gpjax.SumKernel if kernel["kind"] == "sum" else gpjax.ProductKernel
        return combine(kernels=tuple(gpjax_kernel(part) for part in kernel["parts"]))
    given = {name: value for name, value in kernel.items() if name not in ("kind", "columns")}
    given = {name: jnp.asarray(value) if isinstance(value, list) else value for name, value in given.items()}
    return getattr(gpjax, kernel["kind"])(active_dims=kernel.get("columns"), **given)


@in_float64
def python_numbers(case: dict, prior: fsp.Prior | None = None) -> dict:
    """Kernel matrix, evidence, posterior and sentences by the library and by dense NumPy algebra."""
    mean = case["mean"][0] if len(case["mean"]) == 1 else np.asarray(case["mean"])
    prior = prior or fsp.Prior(gpjax_kernel(case["kernel"]), mean=mean)
    if "x" not in case:
        said = describe(prior, num_features=case["width"])
        return {"sentences": list(said.sentences), "warnings": list(said.warnings)}
    x, points, y = (jnp.asarray(case[name]) for name in ("x", "points", "y"))
    # One matrix of all points: a program is compiled for every new shape.
    whole = np.asarray(prior.gram(jnp.concatenate([x, points])))[0]
    rows = y.size
    gram, cross, test = whole[:rows, :rows], whole[rows:, :rows], whole[rows:, rows:]
    residual = np.ravel(y - prior.mean_at(x))
    exact = references.exact_gp(gram, cross, test, residual, np.array(case["noise"]))
    said = describe(prior, np.asarray(x), np.asarray(y))
    return {
        "gram": gram, "logEvidence": exact.log_evidence, "mean": exact.mean + np.ravel(prior.mean_at(points)),
        "covariance": exact.covariance, "sentences": list(said.sentences), "warnings": list(said.warnings),
    }  # fmt: skip
