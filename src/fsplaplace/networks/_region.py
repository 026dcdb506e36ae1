"""A prior in a region, and how well a network's features reproduce it there: a test that needs no data and no training."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray
from scipy.linalg import cho_factor, cho_solve

from fsplaplace.context import Sampler
from fsplaplace.host import host_generator, to_device
from fsplaplace.networks._normalise import normalise
from fsplaplace.prior import Prior, moments

# Points of a region: as many context points as `laplace` has by default, and enough others for a mean.
NUM_POINTS = 700
# Of these, the share at which the network is told the prior; it is tested at the others.
_TOLD = 5 / 7
# Rows (points times outputs) in all: eigenproblems of a second. With many outputs at least so many points, and ten outputs.
_MOST_ROWS, _FEWEST_POINTS, _MOST_OUTPUTS = 2100, 140, 10
# Points at which targets are imagined.
_NUM_TARGETS = 100
# Directions of the prior below this relative size are dropped.
_CUT = 1e-9
# Exponents of the ridges to choose from, as `laplace` does.
_SMALLEST_RIDGE = {"float32": -10, "float64": -13}
_LARGEST_RIDGE = -4


class Fit(NamedTuple):
    """How well features reproduce a prior; see `Region.fit`.

    Attributes:
        share: of the prior variance.
        loss: in nats.
        missed: share of the prior variance that the features lack.
        covariance_error: of the implied covariance, relative, in the Frobenius norm.
    """

    share: float
    loss: float
    missed: float
    covariance_error: float


# A number above this is a mistake: matrices of all points with all points are factored.
_MOST_POINTS = 10**6


class Region(NamedTuple):
    r"""A prior at points of a region, outputs in units of their standard deviation there.

    Attributes:
        points: those at which the network is told the prior, then those at which it is tested, (m + g, ...).
        num_told: m.
        outputs: which of the prior's; all up to ten, else ten of them, evenly spaced.
        units: the standard deviation of each row, points first.
        covariance: $\Sigma$ between all rows.
        columns: $B$ with $B B^\top \approx \Sigma(C, C)$ at the points told, C.
        exact: the prior's own features at the tested points G, $\Sigma(G, C) B (B^\top B)^{-1}$.
        noise: standard deviation of imagined targets.
    """

    points: Float[np.ndarray, "k ..."]
    num_told: int
    outputs: Int[np.ndarray, " q"]
    units: Float[np.ndarray, " kq"]
    covariance: Float[np.ndarray, "kq kq"]
    columns: Float[np.ndarray, "mq r"]
    exact: Float[np.ndarray, "gq r"]
    noise: float

    @classmethod
    def of(
        cls, prior: Prior, context: Sampler, num_points: int = NUM_POINTS, *,
        key: PRNGKeyArray, noise: float, caller: str,
    ) -> "Region":  # fmt: skip
        """Points of the context sampler, five sevenths of them told.

        Args:
            prior: the prior.
            context: the region.
            num_points: told and tested together; fewer if the prior has more than three outputs.
            key: for the points.
            noise: standard deviation of imagined targets, in standard deviations of the prior.
            caller: for messages.
        """
        if num_points < 10:
            raise ValueError(f"{caller}: num_points is {num_points}; pass 10 or more")
        if num_points > _MOST_POINTS:
            raise ValueError(
                f"{caller}: num_points is {num_points}; pass at most {_MOST_POINTS}, only some thousands are used"
            )
        if not (noise > 0 and np.isfinite(noise)):
            raise ValueError(
                f"{caller}: noise is {noise}; pass a positive number of prior standard deviations, for instance 0.1"
            )
        few, outputs = _few_outputs(prior)
        count = min(num_points, max(_MOST_ROWS // outputs.size, _FEWEST_POINTS))
        points = _scattered(context, count, key)
        if points.shape[0] < 4:
            raise ValueError(
                f"{caller}: context has {points.shape[0]} different points; pass a sampler of a region with four or more"
            )
        told = int(_TOLD * points.shape[0])
        covariance = moments.covariance(few, points)
        variance = np.mean(np.diagonal(covariance).reshape(-1, outputs.size), axis=0)
        units = np.tile(np.sqrt(np.where(variance > 0, variance, 1.0)), points.shape[0])
        columns = np.asarray(few.factor(to_device(points[:told]), rtol=_CUT).matrix, np.float64)
        size = columns.shape[0]
        # Columns of one eigendecomposition are orthogonal, and so are those of independent outputs.
        exact = covariance[size:, :size] @ (columns / np.sum(columns**2, axis=0)) / units[size:, None]
        covariance, columns = covariance / np.outer(units, units), columns / units[:size, None]
        return cls(points, told, outputs, units, covariance, columns, exact, float(noise))

    @property
    def determined(self) -> float:
        """The share of the prior variance at the tested points that its values at the points told determine."""
        return float(np.sum(self.exact**2) / np.sum(np.diagonal(self.covariance)[self.columns.shape[0] :]))

    def fit(self, kernel: Float[np.ndarray, "kq kq"], *, dtype) -> Fit:
        r"""How well the features of a network reproduce the prior at the tested points.

        The prior is pulled back through the Jacobian at the points told, $\phi(x) = J(x) J_C^\top (J_C J_C^\top + \delta
        \lVert J_C \rVert^2 I)^{-1} B$, with the ridge of the least loss, and normalised as `laplace` does.
        - The share is $1 - \sum \lVert a \phi - \psi \rVert^2 / \sum k$ with the prior's own features $\psi$: of a function
          drawn from the prior, what the network gets right where it was not told.
        - The loss is the expected divergence of the network's process from the exact one, for a new target at a tested point
          given targets at 100 of the points told: what the log predictive density will lose to a network that is too small.

        Args:
            kernel: the network's tangent kernel between all rows.
            dtype: of the network's weights.

        Time $O((k q)^3)$.
        """
        # Rows of outputs of one size, so that a ridge means the same to all of them.
        told = self.columns.shape[0]
        size = np.sqrt(np.mean(np.diagonal(kernel)[:told].reshape(-1, self.outputs.size), axis=0))
        sizes = np.tile(np.where(size > 0, size, 1.0), self.points.shape[0])
        kernel = kernel / np.outer(sizes, sizes)
        eigenvalues, eigenvectors = np.linalg.eigh(kernel[:told, :told])
        eigenvalues = np.maximum(eigenvalues, 0.0)
        rotated = eigenvectors.T @ (self.columns * (self.units / sizes)[:told, None])
        # Features are needed where targets are imagined, and at the tested points.
        rows = np.concatenate([np.arange(told)[self._targets], np.arange(told, sizes.size)])
        seen = (kernel[rows, :told] @ eigenvectors) * (sizes / self.units)[rows, None]
        stated, count = self.covariance[np.ix_(rows, rows)], rows.size - (sizes.size - told)
        exponents = range(_SMALLEST_RIDGE[np.dtype(dtype).name], _LARGEST_RIDGE + 1)
        fits = [
            self._fit_of(seen @ (rotated * _inverse(eigenvalues, 10.0**exponent)[:, None]), stated, count)
            for exponent in exponents
        ]
        return min(fits, key=lambda each: each.loss)

    @property
    def _targets(self) -> slice:
        return slice(0, min(_NUM_TARGETS, self.num_told) * self.outputs.size)

    def _fit_of(self, features: Float[np.ndarray, "s r"], stated: Float[np.ndarray, "s s"], count: int) -> Fit:
        """Of features where `count` targets are imagined, and then at the tested points; `stated` is the covariance there."""
        variances, noise = np.diagonal(stated), self.noise**2
        features, unexplained = normalise(features, variances)
        wrong = np.sum((features[count:] - self.exact) ** 2) / np.sum(variances[count:])
        implied = features @ features.T
        carried, missed = np.diagonal(implied)[count:], unexplained[count:]
        exact = _Conditional.of(stated, count, noise)
        losses = []
        # Missed variance is of the function, or as unrelated between points as noise: `laplace` takes the better, too.
        for as_noise in (False, True):
            found = _Conditional.of(implied, count, noise + as_noise * unexplained[:count])
            left = np.divide(found.variance, carried, out=np.ones_like(carried), where=carried > 0)
            variance = found.variance + missed * (1.0 if as_noise else left) + noise
            away = exact.gain - found.gain
            squared = np.sum(away * (stated[:count, :count] @ away + noise * away), axis=0)
            wanted = exact.variance + noise
            losses.append(0.5 * float(np.mean((squared + wanted) / variance - 1 + np.log(variance / wanted))))
        tested = stated[count:, count:]
        return Fit(
            share=float(max(0.0, 1.0 - wrong)),
            loss=min(losses),
            missed=float(np.sum(missed) / np.sum(variances[count:])),
            covariance_error=float(np.linalg.norm(implied[count:, count:] - tested) / np.linalg.norm(tested)),
        )


class _Conditional(NamedTuple):
    """A process of mean zero given noisy targets: their weights in its mean at each other point, and its variance."""

    gain: Float[np.ndarray, "t g"]
    variance: Float[np.ndarray, " g"]

    @classmethod
    def of(cls, covariance: Float[np.ndarray, "s s"], count: int, noise) -> "_Conditional":
        """Given the first `count` values with noise of this variance, a number or one for each."""
        cross, own = covariance[:count, count:], covariance[:count, :count]
        gain = cho_solve(cho_factor(own + np.diag(np.broadcast_to(noise, count))), cross)
        return cls(gain, np.maximum(np.diagonal(covariance)[count:] - np.sum(cross * gain, axis=0), 0.0))


def _few_outputs(prior: Prior) -> tuple[Prior, Int[np.ndarray, " q"]]:
    """The prior of at most ten of many independent outputs."""
    q = prior.num_outputs
    if q <= _MOST_OUTPUTS or prior.structure == "joint":
        return prior, np.arange(q)
    chosen = np.linspace(0, q - 1, _MOST_OUTPUTS).astype(int)
    if isinstance(prior.kernel, tuple):
        return Prior([prior.kernel[each] for each in chosen]), chosen
    return Prior(prior.kernel, num_outputs=_MOST_OUTPUTS), chosen


def _scattered(context: Sampler, count: int, key: PRNGKeyArray) -> Float[np.ndarray, "k ..."]:
    """Different points of a region in random order: those told and those tested come from every part of a mixture."""
    generator = host_generator(key)
    points = np.asarray(context.draw(count, generator))
    _, first = np.unique(points.reshape(points.shape[0], -1), axis=0, return_index=True)
    return points[generator.permutation(np.sort(first))]


def _inverse(eigenvalues: Float[np.ndarray, " k"], ridge: float) -> Float[np.ndarray, " k"]:
    damped = eigenvalues + ridge * np.max(eigenvalues)
    # A network that no weight moves has no features.
    return np.divide(1.0, damped, out=np.zeros_like(damped), where=damped > 0)
