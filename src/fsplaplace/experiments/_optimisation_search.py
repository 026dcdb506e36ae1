"""One search for the maximum of a function: fit a surrogate, ask it for points, evaluate them."""

import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.optim import optimize_acqf
from botorch.sampling.get_sampler import get_sampler
from jaxtyping import Float
from scipy.stats import qmc

from fsplaplace.experiments._experiment import Cell
from fsplaplace.experiments._optimisation_names import SOBOL
from fsplaplace.experiments._optimisation_problems import problem
from fsplaplace.experiments._optimisation_surrogates import fit

# The paper's acquisition function: samples of q-EI, and the effort of its optimisation. Its logarithm is what is climbed: q-EI itself
# is flat where no sample improves, and searches with any surrogate, the Gaussian processes' too, then stop after a few iterations.
_SAMPLES, _RESTARTS, _RAW_SAMPLES, _MOST_ITERATIONS = 128, 2, 16, 10


def sobol_points(dimension: int, count: int, seed: int) -> Float[np.ndarray, "n d"]:
    """The first points of a scrambled Sobol sequence."""
    with warnings.catch_warnings():
        # A number of points that is no power of two loses a balance that nothing here needs.
        warnings.simplefilter("ignore", UserWarning)
        return qmc.Sobol(dimension, rng=seed).random(count)


class Search:
    """One run: points and values so far, and what the iterations took.

    Args:
        cell: problem, surrogate and seed.
        settings: of the preset.
    """

    def __init__(self, cell: Cell, settings: Mapping[str, Any]):
        self.cell, self.settings, self.task = cell, settings, problem(cell.task)
        self.X = sobol_points(self.task.dimension, self.task.num_initial, cell.seed)
        self.y = self.task.function(self.X)
        self.seconds: list[float] = []
        self._last = None

    def step(self, number: int) -> None:
        """Fit, ask, evaluate."""
        began = time.process_time()
        candidates = self._random(number) if self.cell.method == SOBOL else self._asked(number)
        self.seconds.append(time.process_time() - began)
        self.X = np.concatenate([self.X, candidates])
        self.y = np.concatenate([self.y, self.task.function(candidates)])

    def _random(self, number: int) -> Float[np.ndarray, "q d"]:
        count = self.task.num_initial + (number + 1) * self.task.batch
        return sobol_points(self.task.dimension, count, self.cell.seed)[-self.task.batch :]

    def _asked(self, number: int) -> Float[np.ndarray, "q d"]:
        X, Y, seed = torch.tensor(self.X), torch.tensor(self.y)[:, None], 1000 * self.cell.seed + number
        with warnings.catch_warnings():
            # BoTorch's advice, and what fits of few rows say of themselves.
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            model = self._last = fit(
                self.cell.method, self.cell.task, X, Y, self.settings, seed=self.cell.seed, last=self._last
            )
            sampler = get_sampler(model.posterior(X[:1]), torch.Size([_SAMPLES]), seed=seed)  # pyright: ignore[reportArgumentType] - registered for its class
            improvement = qLogExpectedImprovement(model, best_f=Y.max(), sampler=sampler)
            bounds = torch.stack([torch.zeros_like(X[0]), torch.ones_like(X[0])])
            found, _ = optimize_acqf(
                improvement, bounds, q=self.task.batch, num_restarts=_RESTARTS, raw_samples=_RAW_SAMPLES,
                options={"maxiter": _MOST_ITERATIONS, "seed": seed},
            )  # fmt: skip
        return found.detach().numpy()

    @property
    def running_best(self) -> Float[np.ndarray, " i"]:
        """Largest value before the first iteration and after each."""
        best = np.maximum.accumulate(self.y)
        return best[self.task.num_initial - 1 :: self.task.batch]
