r"""The evidence of labels, or of squared residuals, under one kernel for all outputs, by Laplace's method, with its derivative.

At n inputs with class counts $n_{ic}$, of sum $w_i$, the values f of the function have their mode at $f = K a$ with
$a = n - w\,p(f)$, and the curvature W of the likelihood there gives

$$\log p(y) \approx \log p(y \mid f) - \tfrac12 a^\top f - \tfrac12 \log\det(I + K W).$$

For softmax $W = D - D R\, \mathrm{diag}(w)^{-1} R^\top D$ with $D = \mathrm{diag}(w\,p)$ and R the sum over classes, so that all that
is needed are the n x n matrices $E_c = (K + D_c^{-1})^{-1}$, one for each class, and the inverse of their sum (Rasmussen and
Williams 2006, Algorithm 3.3, whose log determinant lacks that of the sum): time linear in the number of classes.
"""

import math
from typing import NamedTuple

import numpy as np
from gpjax.mean_functions import Zero
from jaxtyping import Float
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri  # pyright: ignore[reportAttributeAccessIssue] - compiled, without stubs
from scipy.special import expit, logsumexp, softmax

from fsplaplace.host import to_device
from fsplaplace.likelihoods import Bernoulli, Categorical, Likelihood
from fsplaplace.prior import Prior
from fsplaplace.tuning._hyperpriors import Penalty
from fsplaplace.tuning._kernel_tiles import KernelTiles
from fsplaplace.tuning._parameters import ParameterSpace
from fsplaplace.tuning._problem import Evaluation, Evidence
from fsplaplace.tuning._profile import NUGGET
from fsplaplace.tuning._repeats import DistinctRows

# Newton's method for the mode: most steps, and the gain in nats below which it has arrived.
_MOST_NEWTON_STEPS, _ARRIVED = 50, 1e-8
_LARGEST_EXPONENT = 300.0


def has_label_evidence(prior: Prior, likelihood: Likelihood) -> bool:
    """Whether `LabelEvidence` knows this problem: one kernel for all outputs, mean zero, classes or one yes or no."""
    classes = isinstance(likelihood, Categorical) or (isinstance(likelihood, Bernoulli) and prior.num_outputs == 1)
    return classes and prior.structure == "shared" and isinstance(prior.mean, Zero)


class LabelEvidence(NamedTuple):
    """Log evidence and hyperprior of the parameters of a kernel; in the place of a `MarginalLikelihood` in a search.

    Attributes:
        gaussian: the parameters, their hyperprior and the rows of distinct inputs, from Gaussian stand-ins for the labels.
        data: what was seen at each input: labels of the classes, or squared residuals.
        tiles: of the rows.
        found: the coefficients a of the last mode, where the search for the next begins; changes nothing but its time.
    """

    gaussian: Evidence
    data: "Classes | YesOrNo | Squares"
    tiles: KernelTiles
    found: list[Float[np.ndarray, "n q"]]

    @classmethod
    def of(cls, gaussian: Evidence, data: "Classes | YesOrNo | Squares") -> "LabelEvidence":
        """Call it inside `in_float64`."""
        tiles = KernelTiles.of(gaussian.rows.X, gaussian.space.prior.blocks, separate=False)
        return cls(gaussian, data, tiles, [])

    def __call__(self, vector: Float[np.ndarray, " P"]) -> tuple[float, Float[np.ndarray, " P"]]:
        """Value with the hyperpriors, and its gradient."""
        at = to_device(vector)
        found = self.solved(vector, derivatives=True)
        if found.slope is None:
            return math.nan, np.full(vector.shape, np.nan)
        lower = np.tril(found.slope + found.slope.T)
        np.einsum("ii->i", lower)[:] *= 0.5
        gradient = self.tiles.pull_back(self.space, at, lower[None])
        return found.value + self.penalty(vector), gradient + self.penalty.gradient(vector)

    def evaluate(self, vector: Float[np.ndarray, " P"]) -> Evaluation:
        """The log evidence itself; the mean has no coefficients."""
        none = np.zeros(self.design.shape[2])
        return Evaluation(self.solved(vector, derivatives=False).value, none, none)

    def take(self, rows: np.ndarray) -> "LabelEvidence":
        """The evidence of some of the rows."""
        return LabelEvidence.of(self.gaussian.take(rows), type(self.data)(self.data[0][rows]))

    def with_precision(self, factor: Float[np.ndarray, " P"]) -> "LabelEvidence":
        """With the precision of each entry's hyperprior multiplied."""
        return self._replace(gaussian=self.gaussian.with_precision(factor))

    @property
    def space(self) -> ParameterSpace:
        """The parameters."""
        return self.gaussian.space

    @property
    def rows(self) -> DistinctRows:
        """Inputs, and Gaussian stand-ins for the labels."""
        return self.gaussian.rows

    @property
    def design(self) -> Float[np.ndarray, "n q k"]:
        """Of the mean."""
        return self.gaussian.design

    @property
    def penalty(self) -> Penalty:
        """Log density of the hyperpriors."""
        return self.gaussian.penalty

    @property
    def num_rows(self) -> int:
        """Number of distinct inputs."""
        return self.gaussian.num_rows

    def solved(self, vector: Float[np.ndarray, " P"], *, derivatives: bool = False) -> "LaplaceEvidence":
        """Laplace's approximation at these parameters."""
        lower = self.tiles.covariance(self.space, to_device(vector))[0]
        K = np.tril(lower) + np.tril(lower, -1).T
        np.einsum("ii->i", K)[:] *= 1 + NUGGET
        if not np.all(np.isfinite(K)):
            return LaplaceEvidence(math.nan, None, None)
        found = label_evidence(K, self.data, self.found[0] if self.found else None, derivatives=derivatives)
        if found.coefficients is not None:
            self.found[:] = [found.coefficients]
        return found


class LaplaceEvidence(NamedTuple):
    r"""Laplace's approximation at one covariance matrix.

    Attributes:
        value: log evidence; NaN if a matrix is not positive definite.
        slope: G with $\mathrm{d}\,\text{value} = \sum_{ij} G_{ij}\, \mathrm{d}K_{ij}$; None if not asked for or unknown.
        coefficients: a, (n, q); the mode is K a. None if unknown.
    """

    value: float
    slope: Float[np.ndarray, "n n"] | None
    coefficients: Float[np.ndarray, "n q"] | None


def label_evidence(
    K: Float[np.ndarray, "n n"],
    labels: "Classes | YesOrNo | Squares",
    start: Float[np.ndarray, "n q"] | None,
    *,
    derivatives: bool,
) -> LaplaceEvidence:
    """Newton's method for the mode, then the evidence and its slope.

    Args:
        K: covariance of the function's values, for each output.
        labels: counts of the classes.
        start: coefficients to begin with; zero if None or if that is nearer.
        derivatives: whether to compute the slope.

    Time $O(q n^3)$ for each Newton step, about as much again for the slope.
    """
    nothing = np.zeros((K.shape[0], labels.num_outputs))
    begins = [(_height(K, labels, each), each) for each in (nothing, *([] if start is None else [start]))]
    height, a = max(begins, key=lambda pair: pair[0])
    f = K @ a
    try:
        for _ in range(_MOST_NEWTON_STEPS):
            curvature = labels.curvature(K, f)
            right = curvature.product(f) + labels.slope(f)
            step = right - curvature.inner(K @ right) - a
            a, f, gained = _climbed(K, labels, a, step, height)
            height += gained
            if gained < _ARRIVED:
                break
        curvature = labels.curvature(K, f)
        value = height - 0.5 * curvature.log_determinant
        if not derivatives:
            return LaplaceEvidence(value, None, a)
        # At the mode, where a is the slope of the likelihood.
        at_mode = -0.5 * labels.curvature_slope(f, curvature.variances(K))
        pulled = at_mode - curvature.inner(K @ at_mode)
        slope = 0.5 * (a @ a.T - curvature.trace()) + 0.5 * (pulled @ a.T + a @ pulled.T)
    except np.linalg.LinAlgError:
        return LaplaceEvidence(math.nan, None, None)
    return LaplaceEvidence(value, slope, a)


def _height(K, labels: "Classes | YesOrNo | Squares", a) -> float:
    """What the mode maximises."""
    f = K @ a
    return labels.log_density(f) - 0.5 * float(np.sum(a * f))


def _climbed(K, labels: "Classes | YesOrNo | Squares", a, step, height: float):
    """a and f after the step, halved until it does not go down, and what was gained."""
    for halving in range(12):
        to = a + 0.5**halving * step
        gained = _height(K, labels, to) - height
        if gained >= 0:
            return to, K @ to, gained
    return a, K @ a, 0.0


class _OneCurvature(NamedTuple):
    r"""$B = (K + W^{-1})^{-1}$ of a single output.

    Attributes:
        weight: W, (n,).
        B: the matrix.
        log_determinant: of I + K W.
    """

    weight: Float[np.ndarray, " n"]
    B: Float[np.ndarray, "n n"]
    log_determinant: float

    def product(self, f):
        return self.weight[:, None] * f

    def inner(self, values):
        return self.B @ values

    def trace(self):
        return self.B

    def variances(self, K):
        """Posterior variance of each value, (n, 1, 1)."""
        return (np.diagonal(K) - np.einsum("ij,ji->i", K, self.B @ K))[:, None, None]


class YesOrNo(NamedTuple):
    """Two classes by the logistic function of one output."""

    counts: Float[np.ndarray, "n 2"]

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        return self.counts.sum(axis=1)

    def log_density(self, f: Float[np.ndarray, "n 1"]) -> float:
        return float(np.sum(self.counts[:, 1] * f[:, 0] - self.weights * np.logaddexp(0.0, f[:, 0])))

    def slope(self, f: Float[np.ndarray, "n 1"]) -> Float[np.ndarray, "n 1"]:
        return self.counts[:, 1:] - self.weights[:, None] * expit(f)

    def curvature(self, K: Float[np.ndarray, "n n"], f: Float[np.ndarray, "n 1"]) -> _OneCurvature:
        weight = self.weights * expit(f[:, 0]) * expit(-f[:, 0])
        return _OneCurvature(weight, *_inverse_with(K, weight))

    def curvature_slope(self, f: Float[np.ndarray, "n 1"], variances: Float[np.ndarray, "n 1 1"]):
        """The derivative of tr(Σ W) in f."""
        p = expit(f[:, 0])
        return (variances[:, 0, 0] * self.weights * p * (1 - p) * (1 - 2 * p))[:, None]


class _ClassCurvature(NamedTuple):
    r"""$B = E - E R (\sum_c E_c)^{-1} R^\top E$ of several outputs.

    Attributes:
        weights: w, labels at each input, (n,).
        p: probabilities, (n, c).
        E: one matrix for each class.
        root: the Cholesky factor of their sum.
        log_determinant: of I + K W.
    """

    weights: Float[np.ndarray, " n"]
    p: Float[np.ndarray, "n c"]
    E: Float[np.ndarray, "c n n"]
    root: Float[np.ndarray, "n n"]
    log_determinant: float

    def product(self, f):
        return self.weights[:, None] * self.p * (f - np.sum(self.p * f, axis=1, keepdims=True))

    def inner(self, values):
        each = self._times(values)
        shared = solve_triangular(self.root, each.sum(axis=1), lower=True)
        shared = solve_triangular(self.root, shared, lower=True, trans=1)
        return each - self._times(np.broadcast_to(shared[:, None], each.shape))

    def trace(self):
        """The sum of the diagonal blocks."""
        total = self.E.sum(axis=0)
        for part in self.E:
            half = solve_triangular(self.root, part, lower=True)
            total = total - half.T @ half
        return total

    def variances(self, K):
        """Posterior covariance of the outputs at each input, (n, c, c)."""
        through = self.E @ K
        own = np.diagonal(K)[:, None] - np.einsum("ij,cji->ic", K, through)
        halves = np.stack([solve_triangular(self.root, part, lower=True) for part in through])
        shared = np.einsum("cji,dji->icd", halves, halves, optimize=True)
        return shared + own[:, :, None] * np.eye(own.shape[1])

    def _times(self, values):
        return np.einsum("cij,jc->ic", self.E, values, optimize=True)


class Classes(NamedTuple):
    """Several classes by softmax of one output each."""

    counts: Float[np.ndarray, "n c"]

    @property
    def num_outputs(self) -> int:
        return self.counts.shape[1]

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        return self.counts.sum(axis=1)

    def log_density(self, f: Float[np.ndarray, "n c"]) -> float:
        return float(np.sum(self.counts * f) - np.sum(self.weights * logsumexp(f, axis=1)))

    def slope(self, f: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n c"]:
        return self.counts - self.weights[:, None] * softmax(f, axis=1)

    def curvature(self, K: Float[np.ndarray, "n n"], f: Float[np.ndarray, "n c"]) -> _ClassCurvature:
        p = softmax(f, axis=1)
        parts = [_inverse_with(K, weight) for weight in (self.weights[:, None] * p).T]
        E = np.stack([matrix for matrix, _ in parts])
        root = np.linalg.cholesky(E.sum(axis=0))
        log_determinant = sum(log for _, log in parts) + 2 * float(np.sum(np.log(np.diagonal(root))))
        return _ClassCurvature(self.weights, p, E, root, log_determinant - float(np.sum(np.log(self.weights))))

    def curvature_slope(self, f: Float[np.ndarray, "n c"], variances: Float[np.ndarray, "n c c"]):
        """The derivative of tr(Σ W) in f."""
        p = softmax(f, axis=1)
        h = np.einsum("icc->ic", variances) - 2 * np.einsum("icd,id->ic", variances, p)
        return self.weights[:, None] * p * (h - np.sum(p * h, axis=1, keepdims=True))


class Squares(NamedTuple):
    r"""Squared residuals $u_i \sim e^{f_i} \chi^2_1$ of a variance whose logarithm is the output."""

    squares: Float[np.ndarray, " n"]

    @property
    def num_outputs(self) -> int:
        return 1

    def log_density(self, f: Float[np.ndarray, "n 1"]) -> float:
        """Up to a term that depends on no parameter."""
        return -0.5 * float(np.sum(f[:, 0] + self._scaled(f)))

    def slope(self, f: Float[np.ndarray, "n 1"]) -> Float[np.ndarray, "n 1"]:
        return 0.5 * (self._scaled(f) - 1)[:, None]

    def curvature(self, K: Float[np.ndarray, "n n"], f: Float[np.ndarray, "n 1"]) -> _OneCurvature:
        weight = 0.5 * self._scaled(f)
        return _OneCurvature(weight, *_inverse_with(K, weight))

    def curvature_slope(self, f: Float[np.ndarray, "n 1"], variances: Float[np.ndarray, "n 1 1"]):
        """The derivative of tr(Σ W) in f."""
        return -0.5 * (variances[:, 0, 0] * self._scaled(f))[:, None]

    def _scaled(self, f: Float[np.ndarray, "n 1"]) -> Float[np.ndarray, " n"]:
        """The squares over their variances; a step that is far too long ends at a large number, not at infinity."""
        return self.squares * np.exp(np.minimum(-f[:, 0], _LARGEST_EXPONENT))


def _inverse_with(
    K: Float[np.ndarray, "n n"], weight: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "n n"], float]:
    r"""$(K + \mathrm{diag}(d)^{-1})^{-1}$ and the log determinant of $I + K\,\mathrm{diag}(d)$; d may be zero."""
    root = np.sqrt(weight)
    matrix = root[:, None] * K * root
    np.einsum("ii->i", matrix)[:] += 1.0
    factor, failed = dpotrf(matrix, lower=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("I + K W is not positive definite")
    log_determinant = 2 * float(np.sum(np.log(np.diagonal(factor))))
    inverse = dpotri(factor, lower=1)[0]
    lower = np.tril(inverse)
    return root[:, None] * (lower + np.tril(lower, -1).T) * root, log_determinant
