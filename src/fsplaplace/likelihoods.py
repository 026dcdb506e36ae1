r"""Likelihoods: $\log p(y \mid f)$ for one network output, and its curvature $H = -\partial^2 \log p / \partial f^2 \succeq 0$.

Your own likelihood is a subclass of `Likelihood` with one method, `log_density(output, target)`, for one example.
"""

import abc
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Shaped
from numpy.typing import ArrayLike
from paramax import non_trainable, unwrap

from fsplaplace.arguments import check_fields, check_finite, check_numbers, checked
from fsplaplace.host import take_rows, to_device

# Precisions, the inverse squares of smaller scales, times the squares of residuals are beyond float32.
_LEAST_SCALE = 1e-17


class Noise(NamedTuple):
    """Gaussian noise of n targets with q outputs: what has a closed form needs nothing else of the likelihood.

    Attributes:
        variance: of each target around the output, (n, q).
        log_normaliser: the log density of all targets if each equals its output.
        num_observations: how many targets these count for.
    """

    variance: Float[np.ndarray, "n q"]
    log_normaliser: float
    num_observations: float


class Likelihood(eqx.Module):
    r"""A density over targets given the network's outputs, independent between data.

    Subclasses define `log_density`; the rest follows by automatic differentiation. Where the second derivative is
    not negative semi-definite (a likelihood that is not log-concave, such as Student's t), `curvature` keeps its
    positive part only, which is what makes the Laplace covariance exist.
    """

    @abc.abstractmethod
    def log_density(self, output: Float[Array, " q"], target: Shaped[Array, "..."]) -> Float[Array, ""]:
        r"""$\log p(y \mid f)$ of one target given one output."""

    def log_prob(
        self, outputs: Float[Array, "n q"], targets: Shaped[Array | np.ndarray, "n ..."]
    ) -> Float[Array, " n"]:
        r"""$\log p(y_i \mid f_i)$ for each row."""
        values = jax.vmap(self.log_density)(outputs, jnp.asarray(targets))
        if values.ndim != 1:
            raise ValueError(
                f"{type(self).__name__}: log_density must return one number per example, but it returned an array of "
                f"shape {values.shape[1:]}; sum over the outputs"
            )
        return values

    def curvature(
        self, outputs: Float[Array, "n q"], targets: Shaped[Array | np.ndarray, "n ..."]
    ) -> Float[Array, "n q q"]:
        r"""$H_i = -\partial^2 \log p(y_i \mid f) / \partial f^2$ at $f_i$, positive semi-definite, for each row.

        Time $O(n q^3)$, memory $O(n q^2)$.
        """
        hessians = -jax.vmap(jax.hessian(self.log_density))(outputs, jnp.asarray(targets))
        eigenvalues, eigenvectors = jnp.linalg.eigh(hessians)
        return (eigenvectors * jnp.maximum(eigenvalues, 0.0)[:, None, :]) @ eigenvectors.mT

    def curvature_product(
        self, outputs: Float[Array, "n q"], targets: Shaped[Array | np.ndarray, "n ..."], vectors: Float[Array, "n q r"]
    ) -> Float[Array, "n q r"]:
        r"""$H_i V_i$ for each row."""
        return self.curvature(outputs, targets) @ vectors

    def num_outputs(self, targets: Shaped[Array | np.ndarray, "n ..."]) -> int | None:
        """The width the network's output must have for these (checked) targets; None if any width will do."""
        return None

    def check_targets(self, targets: ArrayLike, *, num_rows: int) -> Shaped[np.ndarray, "n ..."]:
        """Targets in the shape and dtype that `log_density` expects, or an error that says what is wrong."""
        if np.asarray(targets).dtype.kind in "iub":  # a density over labels indexes with them
            return np.asarray(_finite_targets(targets, num_rows, name=type(self).__name__), dtype=np.int32)
        return _finite_targets(targets, num_rows, name=type(self).__name__)

    def check_density(self, outputs: Float[Array, "n q"], targets: Shaped[Array | np.ndarray, "n ..."]) -> None:
        """Refuse a log density that is NaN, or that grows with the distance of the output from every target.

        A density falls off at least to one side. One that rises to both is usually its own negative: a loss.
        """
        try:
            at = np.asarray(self.log_prob(outputs, targets))
        except TypeError as error:  # JAX's own are that, too
            reason = str(error).splitlines()[0]
            raise TypeError(
                f"{type(self).__name__}: the log density cannot be computed by JAX ({reason}); write it with jax.numpy, and return "
                "one number"
            ) from error
        if np.any(np.isnan(at)):
            raise ValueError(
                f"{type(self).__name__}: the log density is NaN at the network's outputs; check its formula"
            )
        far = 1e3 * (1 + jnp.max(jnp.abs(outputs)) + np.max(np.abs(np.asarray(targets, dtype=float))))
        above, below = (np.asarray(self.log_prob(outputs + shift, targets)) for shift in (far, -far))
        if np.all(above > at) and np.all(below > at):
            raise ValueError(
                f"{type(self).__name__}: the log density grows without bound as the output moves away from y; return log p(y | f), "
                "not the loss -log p(y | f)"
            )

    def noise_variance(self, outputs: Float[Array, "n q"]) -> Float[Array, "n t"] | None:
        """Variance of the target given the outputs at new inputs; None where variance is not its language."""
        return None

    def noise(self, shape: tuple[int, int]) -> Noise | None:
        """The likelihood of the training targets as Gaussian noise around outputs of shape (n, q); None if it is not that."""
        return None

    def rows(self, index: Shaped[Array, " b"] | Shaped[np.ndarray, " b"] | slice) -> "Likelihood":
        """The likelihood of a subset of the training rows; itself unless a parameter belongs to single rows."""
        return self

    def of_one(self) -> "Likelihood":
        """The likelihood of one new observation; itself unless training rows stand for several."""
        return self


class Gaussian(Likelihood):
    r"""$p(y \mid f) = \mathcal N(y;\, f,\, \sigma^2)$, with its normaliser.

    Args:
        scale: $\sigma > 0$: a number, an array of shape (q,) with one scale per output, or of shape (n, 1) or (n, q)
            with one scale per training row.
        learnable: whether `train` fits the scale. The scale is better tuned by evidence (`fsplaplace.tune`): fitted
            with the weights it can collapse when the network interpolates.

    Examples:
        >>> round(float(fsp.likelihoods.Gaussian(scale=0.1).noise_variance(jnp.zeros((1, 1)))[0, 0]), 4)
        0.01
    """

    log_scale: Array

    @checked(traceable=True)
    def __init__(self, scale: ArrayLike = 1.0, *, learnable: bool = False):
        scale = np.asarray(scale, dtype=float)
        if scale.ndim > 2:
            raise ValueError(
                f"Gaussian: scale has shape {scale.shape}; pass a number, (q,) for one scale per output, or "
                "(n, 1) or (n, q) for one scale per training row"
            )
        if not np.all(np.isfinite(scale) & (scale > 0)):
            raise ValueError(f"Gaussian: scale must be positive and finite, but its smallest is {scale.min():g}")
        check_finite(scale, "Gaussian: scale")
        if scale.min() < _LEAST_SCALE:
            raise ValueError(
                f"Gaussian: scale is as small as {scale.min():g}, whose inverse square float32 cannot hold; divide scale and y by a "
                "typical size of y"
            )
        log_scale = to_device(np.log(scale))
        self.log_scale = log_scale if learnable else non_trainable(log_scale)

    @property
    def scale(self) -> Float[Array, "..."]:
        r"""$\sigma$."""
        log_scale = unwrap(self.log_scale)
        # Through NumPy outside of a trace, so that nothing is compiled for a single number.
        return jnp.exp(log_scale) if isinstance(log_scale, Tracer) else to_device(np.exp(np.asarray(log_scale)))

    @property
    def per_row(self) -> bool:
        """Whether each training row has a scale of its own."""
        return jax.tree.leaves(self.log_scale)[0].ndim == 2

    def log_density(self, output, target):
        return jnp.sum(_normal_log_density(target, output, self.scale))

    def log_prob(self, outputs, targets):
        return jnp.sum(_normal_log_density(targets, outputs, self.scale.astype(outputs.dtype)), axis=-1)

    def curvature(self, outputs, targets):
        return self._precision(outputs)[:, :, None] * jnp.eye(outputs.shape[1], dtype=outputs.dtype)

    def curvature_product(self, outputs, targets, vectors):
        return self._precision(outputs)[:, :, None] * vectors

    def num_outputs(self, targets):
        return targets.shape[1]

    def check_targets(self, targets, *, num_rows):
        targets = _finite_targets(targets, num_rows, name="Gaussian")
        targets = targets[:, None] if targets.ndim == 1 else targets.reshape(num_rows, -1)
        wanted = {(), (targets.shape[1],), (num_rows, 1), (num_rows, targets.shape[1])}
        if (seen := jax.tree.leaves(self.log_scale)[0].shape) not in wanted:
            raise ValueError(
                f"Gaussian: scale has shape {seen}, but y has {num_rows} rows and {targets.shape[1]} outputs; pass a "
                f"number, ({targets.shape[1]},) or ({num_rows}, {targets.shape[1]})"
            )
        return targets

    def noise_variance(self, outputs):
        if self.per_row:
            return None
        return jnp.broadcast_to(self.scale.astype(outputs.dtype) ** 2, outputs.shape)

    def noise(self, shape):
        variance = np.broadcast_to(np.asarray(self.scale, dtype=np.float64) ** 2, shape)
        return Noise(variance, -0.5 * float(np.sum(np.log(2 * np.pi * variance))), float(np.prod(shape)))

    @checked(traceable=True)
    def scaled(self, factor: float) -> "Gaussian":
        """The likelihood with every scale times a factor, as learnable as it was."""
        leaves = lambda tree: jax.tree.leaves(tree.log_scale)  # noqa: E731
        return eqx.tree_at(leaves, self, replace_fn=lambda log_scale: log_scale + math.log(factor))

    def rows(self, index):
        if not self.per_row:
            return self
        return eqx.tree_at(lambda tree: jax.tree.leaves(tree), self, replace_fn=lambda scale: take_rows(scale, index))

    def _precision(self, outputs):
        return jnp.broadcast_to(self.scale.astype(outputs.dtype) ** -2, outputs.shape)


class HeteroscedasticGaussian(Likelihood):
    r"""$p(y \mid f) = \mathcal N(y;\, f_{1:t},\, e^{2 f_{t+1:2t}})$: the network returns means, then log scales.

    The curvature is the Fisher information, $\mathrm{diag}(e^{-2 f_{t+1:2t}}, 2)$: the Hessian itself is indefinite
    where a residual is small.
    """

    def log_density(self, output, target):
        mean, log_scale = jnp.split(output, 2)
        return jnp.sum(_normal_log_density(target, mean, jnp.exp(log_scale)))

    def curvature(self, outputs, targets):
        return self._fisher(outputs)[:, :, None] * jnp.eye(outputs.shape[1], dtype=outputs.dtype)

    def curvature_product(self, outputs, targets, vectors):
        return self._fisher(outputs)[:, :, None] * vectors

    def num_outputs(self, targets):
        return 2 * targets.shape[1]

    def check_targets(self, targets, *, num_rows):
        targets = _finite_targets(targets, num_rows, name="HeteroscedasticGaussian")
        return targets[:, None] if targets.ndim == 1 else targets

    def noise_variance(self, outputs):
        return jnp.exp(2 * jnp.split(outputs, 2, axis=1)[1])

    def _fisher(self, outputs):
        mean, log_scale = jnp.split(outputs, 2, axis=1)
        return jnp.concatenate([jnp.exp(-2 * log_scale), jnp.full_like(mean, 2.0)], axis=1)


class StudentT(Likelihood):
    r"""Student's t around the output, $p(y \mid f) \propto (1 + r^2 / \nu)^{-(\nu + 1) / 2}$ with $r = (y - f) / \sigma$:
    noise with heavy tails, for targets among which some are far off.

    A target far from the function hardly moves it: the slope of the log density falls as $1 / r$. It is not log-concave;
    the curvature $(\nu + 1)(\nu - r^2) / (\sigma (\nu + r^2))^2$ is cut at zero, where such a target says nothing.

    Args:
        scale: $\sigma > 0$: a number, or an array of shape (q,) with one scale per output. The standard deviation of a new
            target is $\sigma \sqrt{\nu / (\nu - 2)}$.
        degrees: $\nu > 2$; the smaller, the heavier the tails.
        learnable: whether `train` fits the scale.

    Examples:
        >>> round(float(fsp.likelihoods.StudentT(1.0, degrees=4.0).log_density(jnp.zeros(1), jnp.zeros(1))), 4)
        -0.9808
    """

    log_scale: Array
    degrees: float = eqx.field(static=True)

    @checked(traceable=True)
    def __init__(self, scale: ArrayLike = 1.0, *, degrees: float = 4.0, learnable: bool = False):
        scale = np.asarray(scale, dtype=float)
        check_finite(scale, "StudentT: scale")
        if scale.ndim > 1 or not np.all(scale > 0):
            raise ValueError(
                f"StudentT: scale has shape {scale.shape} and values from {scale.min():g}; pass a positive number, or (q,) of them"
            )
        if not (math.isfinite(degrees) and degrees > 2):
            raise ValueError(f"StudentT: degrees is {degrees}; pass more than 2, where the noise has a variance")
        log_scale = to_device(np.log(scale))
        self.log_scale = log_scale if learnable else non_trainable(log_scale)
        self.degrees = float(degrees)

    @property
    def scale(self) -> Float[Array, "..."]:
        r"""$\sigma$."""
        return jnp.exp(unwrap(self.log_scale))

    def log_density(self, output, target):
        return jnp.sum(jax.scipy.stats.t.logpdf(target, self.degrees, output, self.scale.astype(output.dtype)))

    def curvature(self, outputs, targets):
        return self._bend(outputs, targets)[:, :, None] * jnp.eye(outputs.shape[1], dtype=outputs.dtype)

    def curvature_product(self, outputs, targets, vectors):
        return self._bend(outputs, targets)[:, :, None] * vectors

    def num_outputs(self, targets):
        return targets.shape[1]

    def check_targets(self, targets, *, num_rows):
        targets = _finite_targets(targets, num_rows, name="StudentT")
        return targets[:, None] if targets.ndim == 1 else targets.reshape(num_rows, -1)

    def noise_variance(self, outputs):
        variance = self.scale.astype(outputs.dtype) ** 2 * (self.degrees / (self.degrees - 2))
        return jnp.broadcast_to(variance, outputs.shape)

    def _bend(self, outputs, targets):
        scale, nu = self.scale.astype(outputs.dtype), self.degrees
        square = ((jnp.asarray(targets, outputs.dtype) - outputs) / scale) ** 2
        return (nu + 1) * jnp.maximum(nu - square, 0.0) / (scale * (nu + square)) ** 2


class Bernoulli(Likelihood):
    r"""$p(y = 1 \mid f) = 1 / (1 + e^{-f})$ for labels 0 and 1; several outputs are independent labels.

    Examples:
        >>> round(float(fsp.likelihoods.Bernoulli().log_density(jnp.zeros(1), jnp.ones(1, int))), 4)
        -0.6931
    """

    def log_density(self, output, target):
        return jnp.sum(-jax.nn.softplus(jnp.where(target > 0, -output, output)))

    def curvature(self, outputs, targets):
        return self._weights(outputs)[:, :, None] * jnp.eye(outputs.shape[1], dtype=outputs.dtype)

    def curvature_product(self, outputs, targets, vectors):
        return self._weights(outputs)[:, :, None] * vectors

    def num_outputs(self, targets):
        return targets.shape[1]

    def check_targets(self, targets, *, num_rows):
        labels = _whole_targets(targets, num_rows, name="Bernoulli")
        if labels.min() < 0 or labels.max() > 1:
            raise ValueError(
                f"Bernoulli: y must hold 0 and 1, but it has values from {labels.min()} to {labels.max()}; recode the "
                "labels, or use Categorical for more than two classes"
            )
        return labels[:, None] if labels.ndim == 1 else labels

    def _weights(self, outputs):
        return jax.nn.sigmoid(outputs) * jax.nn.sigmoid(-outputs)


class Categorical(Likelihood):
    r"""$p(y = c \mid f) = \mathrm{softmax}(f)_c$ for whole-number labels 0, ..., `num_classes` - 1.

    Curvature $\mathrm{diag}(\pi) - \pi \pi^\top$; products with it never form a q x q block.

    Examples:
        >>> round(float(fsp.likelihoods.Categorical(3).log_density(jnp.zeros(3), 0)), 4)
        -1.0986
    """

    num_classes: int = eqx.field(static=True)

    @checked
    def __init__(self, num_classes: int):
        self.num_classes = int(num_classes)

    def log_density(self, output, target):
        return jax.nn.log_softmax(output)[target]

    def curvature(self, outputs, targets):
        probabilities = jax.nn.softmax(outputs, axis=1)
        outer = probabilities[:, :, None] * probabilities[:, None, :]
        return probabilities[:, :, None] * jnp.eye(outputs.shape[1], dtype=outputs.dtype) - outer

    def curvature_product(self, outputs, targets, vectors):
        probabilities = jax.nn.softmax(outputs, axis=1)[:, :, None]
        weighted = probabilities * vectors
        return weighted - probabilities * weighted.sum(axis=1, keepdims=True)

    def num_outputs(self, targets):
        return self.num_classes

    def check_targets(self, targets, *, num_rows):
        labels = _whole_targets(targets, num_rows, name="Categorical")
        if labels.ndim != 1:
            raise ValueError(
                f"Categorical: y has shape {labels.shape}; pass one whole-number label per row (of one-hot rows, y.argmax(axis=1))"
            )
        if labels.min() < 0 or labels.max() >= self.num_classes:
            raise ValueError(
                f"Categorical: y must lie in 0, ..., {self.num_classes - 1}, but it has values from {labels.min()} to "
                f"{labels.max()}; recode the labels or change num_classes"
            )
        return labels


class Poisson(Likelihood):
    r"""$p(y \mid f) = \mathrm{Poisson}(y;\, e^f)$ for counts.

    Examples:
        >>> round(float(fsp.likelihoods.Poisson().log_density(jnp.zeros(1), jnp.ones(1))), 4)
        -1.0
    """

    def log_density(self, output, target):
        return jnp.sum(target * output - jnp.exp(output) - jax.scipy.special.gammaln(target + 1.0))

    def curvature(self, outputs, targets):
        return jnp.exp(outputs)[:, :, None] * jnp.eye(outputs.shape[1], dtype=outputs.dtype)

    def curvature_product(self, outputs, targets, vectors):
        return jnp.exp(outputs)[:, :, None] * vectors

    def num_outputs(self, targets):
        return targets.shape[1]

    def check_targets(self, targets, *, num_rows):
        counts = _whole_targets(targets, num_rows, name="Poisson")
        if counts.min() < 0:
            raise ValueError(f"Poisson: y must hold counts, but its smallest value is {counts.min()}")
        return counts[:, None] if counts.ndim == 1 else counts


class FromLogDensity(Likelihood):
    """A likelihood from a function `log_density(output, target)` of one example.

    Examples:
        >>> robust = fsp.likelihoods.FromLogDensity(lambda output, target: -jnp.abs(target[0] - output[0]))
        >>> float(robust.log_density(jnp.zeros(1), jnp.ones(1)))
        -1.0
    """

    function: Callable[[Float[Array, " q"], Array], Float[Array, ""]] = eqx.field(static=True)

    def __check_init__(self):
        check_fields(self)

    def log_density(self, output, target):
        return self.function(output, target)


def _normal_log_density(target, mean, scale):
    return -0.5 * ((target - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi)


def _finite_targets(targets: ArrayLike, num_rows: int, *, name: str) -> Shaped[np.ndarray, "n ..."]:
    values = check_numbers(targets, f"{name}: y")
    if values.ndim == 0 or values.shape[0] != num_rows:
        raise ValueError(f"{name}: y has shape {values.shape}, but X has {num_rows} rows; pass one target per row")
    if values.size == 0:
        raise ValueError(f"{name}: y has shape {values.shape}, which is empty; pass one target per row")
    if not np.all(np.isfinite(values)):
        bad = int(np.argwhere(~np.isfinite(values.reshape(num_rows, -1)).all(axis=1))[0, 0])
        raise ValueError(f"{name}: y has NaN or infinite values (first in row {bad}); remove or impute those rows")
    return values if values.dtype.kind == "f" else values.astype(float)


def _whole_targets(targets: ArrayLike, num_rows: int, *, name: str) -> Int[np.ndarray, "n ..."]:
    values = _finite_targets(targets, num_rows, name=name)
    broken = values[values != np.round(values)]
    if broken.size:
        raise ValueError(f"{name}: y must hold whole numbers, but it has values such as {broken[0]:g}")
    if np.max(np.abs(values), initial=0) > np.iinfo(np.int32).max:
        raise ValueError(
            f"{name}: y has values up to {np.max(np.abs(values)):.10g}, above the largest count, {np.iinfo(np.int32).max}; divide y "
            "by a unit, or use Gaussian"
        )
    return values.astype(np.int32)
