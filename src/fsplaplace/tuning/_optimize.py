"""Bounded maximisation with gradients: L-BFGS-B, and Adam where that fails or the objective is random."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

Objective = Callable[[Float[np.ndarray, " P"]], tuple[float, Float[np.ndarray, " P"]]]


class Box(NamedTuple):
    """Bounds, and the unit in which each entry is moved."""

    lower: Float[np.ndarray, " P"]
    upper: Float[np.ndarray, " P"]
    unit: Float[np.ndarray, " P"]

    def clip(self, vector):
        return np.clip(vector, self.lower, self.upper)

    @property
    def fixed(self):
        return self.lower == self.upper


class Optimum(NamedTuple):
    """The best vector found, its value, who found it, after how many evaluations, and the values on the way."""

    vector: Float[np.ndarray, " P"]
    value: float
    method: str
    evaluations: int
    trace: tuple[float, ...] = ()


def maximize(
    objective: Objective, start: Float[np.ndarray, " P"], box: Box, *, max_steps: int = 200, gain: float = 1e-11
) -> Optimum:
    """A local maximum inside the box by L-BFGS-B; by Adam if that ends without a finite improvement.

    Never returns a point worse than the start. NaN counts as minus infinity. `gain` is that of a step, relative to the value, below
    which the climb has ended.
    """
    start = box.clip(start)
    best = _Best(objective, start)
    if start.size == 0:
        return Optimum(start, best.value, "nothing to fit", 1)

    def negative(position):
        value, gradient = best(box.clip(start + box.unit * position))
        if not np.isfinite(value):
            return 1e10 + 1e3 * float(position @ position), 2e3 * position
        return -value, -gradient * box.unit

    bounds = np.stack([(box.lower - start) / box.unit, (box.upper - start) / box.unit], axis=1)
    initial = best.value
    trace = [initial]
    result = minimize(
        negative, np.zeros_like(start), jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": max_steps, "ftol": gain, "gtol": 1e-6},
        callback=lambda intermediate_result: trace.append(-float(intermediate_result.fun)),
    )  # fmt: skip
    stuck = best.value <= initial and np.linalg.norm(result.jac) > 1e-3 * (1 + abs(initial))
    if np.isfinite(best.value) and not stuck:
        return Optimum(best.vector, best.value, "L-BFGS", best.evaluations, tuple(trace))
    adam(best, start, box, steps=max_steps)
    return Optimum(best.vector, best.value, "Adam", best.evaluations, (initial, best.value))


def adam(
    objective: Objective, start: Float[np.ndarray, " P"], box: Box, *, steps: int, step_size: float = 0.05
) -> Float[np.ndarray, " P"]:
    """Projected Adam, its step size falling to zero along a cosine; returns the mean of its last quarter."""
    vector, first, second = box.clip(start), np.zeros_like(start), np.zeros_like(start)
    tail = []
    for step in range(1, steps + 1):
        gradient = np.nan_to_num(objective(vector)[1]) * box.unit
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        move = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-12)
        size = 0.5 * step_size * (1 + np.cos(np.pi * step / steps))
        vector = box.clip(vector + size * box.unit * move)
        if step > steps - max(1, steps // 4):
            tail.append(vector)
    return np.mean(tail, axis=0)


class _Best:
    """The objective, remembering the best point it saw."""

    def __init__(self, objective: Objective, start):
        self._objective = objective
        self.vector, self.value, self.evaluations = start, -np.inf, 0
        self(start)

    def __call__(self, vector):
        value, gradient = self._objective(vector)
        self.evaluations += 1
        if np.isfinite(value) and np.all(np.isfinite(gradient)) and value > self.value:
            self.vector, self.value = np.array(vector), value
        return (value if np.all(np.isfinite(gradient)) else np.nan), gradient


def curvature(objective: Objective, vector: Float[np.ndarray, " P"], free: np.ndarray, box: Box) -> np.ndarray:
    """Minus the Hessian over the free entries, by central differences of the gradient."""
    indices = np.flatnonzero(free)
    matrix = np.zeros((indices.size, indices.size))
    for row, index in enumerate(indices):
        step = np.zeros_like(vector)
        step[index] = 1e-3 * box.unit[index]
        difference = objective(vector - step)[1] - objective(vector + step)[1]
        matrix[row] = difference[indices] / (2 * step[index])
    return (matrix + matrix.T) / 2
