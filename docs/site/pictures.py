"""Pictures of the guides, drawn when the site is built."""

from pathlib import Path

import jax.random as jr
import numpy as np
from gpjax.kernels import RBF, Matern12, Matern52, Periodic
from matplotlib.figure import Figure

import fsplaplace as fsp


def write_pictures(directory: Path) -> None:
    """Write all of them."""
    _priors().savefig(directory / "priors.png", dpi=110)


def _priors() -> Figure:
    """Five functions from each of four priors."""
    kernels = {
        "RBF: smooth": RBF(lengthscale=0.5),
        "Matern-5/2: less smooth": Matern52(lengthscale=0.5),
        "Matern-1/2: kinks everywhere": Matern12(lengthscale=0.5),
        "Periodic: repeats": Periodic(lengthscale=0.7, period=1.0),
    }
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    x = np.linspace(-2, 2, 300)[:, None]
    for axis, (name, kernel) in zip(figure.subplots(1, 4, sharey=True), kernels.items(), strict=True):
        gram = np.asarray(fsp.Prior(kernel).gram(x)[0], dtype=float)
        draws = np.linalg.cholesky(gram + 1e-5 * np.eye(len(x))) @ np.asarray(jr.normal(jr.key(1), (len(x), 5)))
        axis.fill_between(x[:, 0], -2, 2, color="#009E73", alpha=0.12, lw=0)
        axis.plot(x[:, 0], draws, lw=1)
        axis.set(title=name, xlabel="x", ylim=(-3.2, 3.2))
    return figure
