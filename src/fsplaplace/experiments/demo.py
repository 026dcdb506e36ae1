"""The paper's sine task under four priors, against the exact Gaussian process: `python -m fsplaplace.experiments.demo`."""

# Equinox and GPJax modules take numbers and lists by converters that pyright cannot see.
# pyright: reportArgumentType=false

import argparse
import json
import time
from pathlib import Path

import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, Matern12, Matern52, Periodic
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

import fsplaplace as fsp
from fsplaplace.host import check_target
from fsplaplace.methods import ExactGP

NOISE = 0.1
BOUND = 2.0
PRIORS = {
    "RBF": RBF(lengthscale=0.3),
    "Matern-1/2": Matern12(lengthscale=0.5),
    "Matern-5/2": Matern52(lengthscale=0.5),
    "Periodic": Periodic(lengthscale=1.0, period=1.0),
}
# Okabe and Ito's vermillion and bluish green: the paper's red and green, for every reader.
_MEAN, _SAMPLES = "#D55E00", "#009E73"


def sine_data(*, seed: int = 0, num_points: int = 100) -> tuple[Float[np.ndarray, "n 1"], Float[np.ndarray, " n"]]:
    """Noisy values of sin(2 pi x) on [-1, -0.5] and [0.5, 1]."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 1.0, num_points) * rng.choice([-1.0, 1.0], num_points)
    return x[:, None], np.sin(2 * np.pi * x) + NOISE * rng.normal(size=num_points)


def run(out: str | Path, *, steps: int = 5000, progress: bool = True) -> list[dict]:
    """Fit the task under each prior; write `demo.png` and `demo.json` to `out`; return the rows of the table."""
    Path(out).mkdir(parents=True, exist_ok=True)
    check_target(Path(out) / "demo.json")
    X, y = sine_data()
    x = np.linspace(-BOUND, BOUND, 401)[:, None]
    likelihood = fsp.likelihoods.Gaussian(NOISE)
    context = fsp.context.Uniform([-BOUND], [BOUND])
    grid = fsp.context.Grid([-BOUND], [BOUND]).sample(400)
    rows, curves = [], {}
    for name, kernel in PRIORS.items():
        start = time.perf_counter()
        prior = fsp.Prior(kernel)
        model = fsp.as_model(fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(1)))
        trained = fsp.train(model, prior, likelihood, context, X, y, key=jr.key(2), steps=steps, progress=progress)
        posterior = fsp.laplace(trained.model, prior, likelihood, X, y, context_points=grid)
        prediction = posterior.predict(x)
        seconds = time.perf_counter() - start
        exact = ExactGP(tune=False).fit(model, X, y, likelihood, key=jr.key(0), prior=prior, progress=False)
        reference = exact.predict(x)
        samples = posterior.sample(x, key=jr.key(4), num_samples=5)
        curves[name] = (prediction.mean, prediction.std, samples, reference.mean, reference.std)
        rows.append(
            {
                "prior": name,
                "rank": posterior.rank,
                "mean": posterior.diagnostics.mean,
                "network mean": _rms(prediction.map, reference.mean),
                "posterior mean": _rms(prediction.mean, reference.mean),
                "posterior std": _rms(prediction.std, reference.std),
                "log evidence": float(posterior.log_evidence),
                "log evidence, exact GP": float(exact.log_evidence),
                "seconds": round(seconds, 1),
            }
        )
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    _draw(X, y, x, curves, out / "demo.png")
    settings = {"noise": NOISE, "steps": steps, "context points": 400, "network": [50, 50], "seed": 1}
    record = {"settings": settings, "version": fsp.__version__, "rows": rows}
    (out / "demo.json").write_text(json.dumps(record, indent=1) + "\n")
    return rows


def _rms(values, reference) -> float:
    return float(np.sqrt(np.mean((np.asarray(values) - np.asarray(reference)) ** 2)))


def _draw(X, y, x, curves: dict, path: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('the demo draws a figure: pip install "fsplaplace[plots]"') from error

    figure = Figure(figsize=(12, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(curves), sharex=True, sharey=True)
    for ax, (name, (mean, std, samples, exact_mean, exact_std)) in zip(axes, curves.items(), strict=True):
        line, centre, width = x[:, 0], np.asarray(mean)[:, 0], 2 * np.asarray(std)[:, 0]
        exact, exact_width = np.asarray(exact_mean)[:, 0], 2 * np.asarray(exact_std)[:, 0]
        ax.fill_between(line, centre - width, centre + width, color=_SAMPLES, alpha=0.2, lw=0, label="2 std")
        for index, sample in enumerate(np.asarray(samples)[:, :, 0]):
            ax.plot(line, sample, color=_SAMPLES, lw=0.6, alpha=0.8, label="samples" if index == 0 else None)
        ax.plot(line, centre, color=_MEAN, lw=1.8, label="mean")
        for offset in (-exact_width, 0.0, exact_width):
            label = "exact GP" if np.ndim(offset) == 0 else None
            ax.plot(line, exact + offset, color="black", lw=0.9, ls=(0, (4, 3)), label=label)
        ax.plot(X[:, 0], y, "o", color="0.55", ms=2.5, mew=0, label="data")
        ax.set(title=f"{name} prior", xlabel="x", xlim=(-BOUND, BOUND), ylim=(-3.2, 3.2))
    axes[0].set_ylabel("f(x)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path, dpi=150)


def _cell(name: str, value) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1f}" if name == "seconds" else f"{value:.2f}" if "evidence" in name else f"{value:.4f}"


def main() -> None:
    """Run the demo, and print the table of differences to the exact Gaussian process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="out", help="directory for the figure and the numbers")
    parser.add_argument("--steps", type=int, default=5000, help="training steps")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    arguments = parser.parse_args()
    rows = run(arguments.out, steps=arguments.steps, progress=not arguments.quiet)
    table = Table(title="Root-mean-square difference to the exact Gaussian process (prior std = 1)")
    for name in rows[0]:
        table.add_column(name, justify="left" if name in ("prior", "mean") else "right")
    for row in rows:
        table.add_row(*map(_cell, row, row.values()))
    Console(width=140).print(table)
    print(f"Figure: {Path(arguments.out) / 'demo.png'}")


if __name__ == "__main__":
    main()
