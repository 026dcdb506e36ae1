"""Regression with scikit-learn's conventions."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from gpjax.kernels import AbstractKernel
from jaxtyping import Float
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, check_random_state

from fsplaplace.arguments import check_numbers, check_squares, checked
from fsplaplace.estimators._base import FSPEstimator, Method, whole_or_nothing
from fsplaplace.estimators._effort import FEW_ROWS, Effort
from fsplaplace.estimators._noise import LEAST_GAIN, NoiseProfile
from fsplaplace.estimators._noise_network import Misses, NoiseNetworks
from fsplaplace.estimators._outliers import warn_of_outliers
from fsplaplace.estimators._rows import WeightedRows
from fsplaplace.estimators._summary import LeaveOneOutScores
from fsplaplace.estimators._weighted import weighted
from fsplaplace.host import phase
from fsplaplace.laplace import HeldOut, Posterior, Prediction
from fsplaplace.likelihoods import Gaussian

# The noise, relative to the targets, where there is nothing to fit it to.
_UNFITTED_NOISE = 0.1
NoiseKind = Literal["constant", "varying", "auto"]
# Of many rows so many say how the noise varies: five seconds of leave-one-out.
_MOST_TELLING = 4000
# A standard normal number is within so much of zero nine times of ten.
_Z90 = 1.6448536269514722


class _LeftOut(NamedTuple):
    """Residuals of rows predicted from all others, and the variances of the function and of the noise there, (n, q) each."""

    off: Float[np.ndarray, "n q"]
    variance: Float[np.ndarray, "n q"]
    noise: Float[np.ndarray, "n q"]

    @property
    def std(self) -> Float[np.ndarray, "n q"]:
        """Of a new target."""
        return np.sqrt(self.variance + self.noise)

    @property
    def squares(self) -> Float[np.ndarray, "n q"]:
        """In units of their variances: one on average if the noise is what it is thought to be."""
        return (self.off / self.std) ** 2

    def misses(self, weights: Float[np.ndarray, " n"]) -> tuple[Misses, ...]:
        """Of each target, in units of the noise."""
        parts = zip((self.off**2 / self.noise).T, (self.variance / self.noise).T, strict=True)
        return tuple(Misses(squares, variance, weights / np.mean(weights)) for squares, variance in parts)


class FSPRegressor(MultiOutputMixin, RegressorMixin, FSPEstimator):
    r"""A neural network with a Gaussian-process prior over functions, for regression.

    Inputs and targets are standardised; kernel and noise maximise the marginal likelihood; a network whose features
    match the kernel is trained under that prior; its Laplace posterior gives the uncertainty. The noise follows the evidence
    of the network's features where that differs from the kernel's. Of more than 2,000 rows a tenth (at most 500) are held out
    of the training to choose the mean, the noise and what becomes of prior variance that the network cannot hold.

    Args:
        kernel: "auto" for "matern32", or, if the evidence of at most 300 rows is higher, the smoother "matern52" (tried where less
            than a twentieth of the targets' standard deviation is noise), either with a linear part ("linear + matern32"); "rbf",
            "matern12", "matern32", "matern52", "rational_quadratic", "periodic", "linear"; sums and products of these such as
            "linear + periodic(1) * rbf", whose numbers are in the units of the columns (a period, else a length scale) and are
            kept, and which may name columns, as in `rbf("age")`; or a GPJax kernel.
        ard: one length scale per input.
        noise: "constant"; "varying" for a scale that is a function of the inputs; "auto" for the better of the two; None for "constant" up
            to 2,000 rows and "auto" beyond. "fsp-laplace" only. Up to 2,000 rows a process for the scale's logarithm is fitted to the
            squared leave-one-out residuals of a first fit, and the fit is repeated with it; their evidence decides. It is not the default
            there: where it finds almost no noise it can be far too sure (one fold of energy: log density .26 instead of 1.51), because
            the scale's own uncertainty is not averaged over. Beyond, small networks for the logarithm are fitted to leave-one-out
            residuals of 4,000 rows, and rows that they have not seen decide.
        effort: what `network`, `steps` and `num_context` are where they are left out; `plan(X)` says what a fit will cost.
            "fast": two layers of 50, 2,000 steps, 1,000 context points. "normal": the same up to 2,000 rows; beyond, two
            layers of 100 and a step for each row, at most 10,000. "thorough": two layers of 100 and 5,000 steps; beyond
            2,000 rows two layers of 200, a step for each row up to 20,000, and every training input, up to 10,000, in the
            context. With more than 25 columns layers have two units for each column, as far as 50,000 weights go.
        network: widths of the hidden layers; "auto" for two layers of 50 to 200, the narrowest that is large enough for the
            fitted prior (see `fsplaplace.holds`); or any network that `fsplaplace.as_model` accepts, with one output per target.
        method: "fsp-laplace", or a method it is compared with: "gp", "sparse-gp", "map", "ensemble", "laplace", "kfac",
            "diagonal", "last-layer", "fvi", "gfsvi".
        steps: of the optimiser; by `effort` if None.
        num_context: points at which the prior is enforced, half of them training inputs where there are enough; by `effort` if
            None.
        standardize: inputs and targets to mean 0 and standard deviation 1. Without, kernel parameters are in your
            units.
        fit_prior: fit kernel and noise; False keeps the kernel as given and takes a noise of a tenth of the targets'
            standard deviation, or what the evidence prefers.
        random_state: a number for results that repeat.
        progress: a line for each phase with its time and what was chosen, and progress bars in a terminal.

    Attributes:
        posterior_: the posterior over functions, in standardised units (see `input_scale_` and `target_scale_`).
        prior_: the fitted prior, and `prior_report_`: how it was fitted, as a table.
        verdict_: whether the posterior can be trusted, why, and what to do, with what the fit of the prior said
            (`fsplaplace.Verdict`); None for methods other than "fsp-laplace".
        log_evidence_: log evidence of the targets, in their own units.
        feature_relevance_: how much the function changes when a column moves by its standard deviation, one number per column.
        leave_one_out_: log density, RMSE and coverage of rows predicted from all others, in closed form.
        noise_: standard deviation of the noise in the targets' units; one per target where there are several. Of noise that varies the
            root of the mean square over rows; `noise_std(X)` says it at any inputs.
        noise_profile_: how the noise varies; None if it is constant.
        held_: how much of the fitted prior the network holds, with `network="auto"`: print it.
        n_features_in_, feature_names_in_: as in scikit-learn.

    A fit takes $O(n^3)$ for the marginal likelihood up to 1,500 rows, `steps` passes through the network, and
    $O(m^3)$ for m context points.

    Examples:
        >>> regressor = fsp.FSPRegressor(kernel="rbf", network=(20,), steps=20, num_context=50).fit(X, y)
        >>> mean, std = regressor.predict(X, return_std=True)
        >>> mean.shape, std.shape
        ((20,), (20,))
    """

    def __init__(
        self,
        *,
        kernel: str | AbstractKernel = "auto",
        ard: bool = True,
        noise: NoiseKind | None = None,
        effort: Effort = "normal",
        network: Sequence[int] | Literal["auto"] | Any = None,
        method: Method = "fsp-laplace",
        steps: int | None = None,
        num_context: int | None = None,
        standardize: bool = True,
        fit_prior: bool = True,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = False,
    ):
        super().__init__(
            kernel=kernel, ard=ard, effort=effort, network=network, method=method, steps=steps, num_context=num_context,
            standardize=standardize, fit_prior=fit_prior, random_state=random_state, progress=progress,
        )  # fmt: skip
        self.noise = noise

    @checked
    @whole_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None):
        """Fit to inputs (n, d) and targets (n,) or (n, q); a weight is the number of observations a row stands for."""
        self._check_readable(X=X, y=y)
        valid = self._validated(X, y, y_numeric=True, multi_output=True, ensure_min_samples=2)
        X, y = map(np.asarray, valid)
        targets = check_numbers(y, f"{type(self).__name__}: y").astype(np.float64).reshape(len(y), -1)
        num_outputs = targets.shape[1]
        targets_named = ["y"] if num_outputs == 1 else [f"y[:, {column}]" for column in range(num_outputs)]
        check_squares(targets, f"{type(self).__name__}: y")
        warn_of_outliers(targets, targets_named, caller=type(self).__name__)
        noise = Gaussian(_UNFITTED_NOISE if num_outputs == 1 else np.full(num_outputs, _UNFITTED_NOISE))
        if self.noise == "varying" and self.method != "fsp-laplace":
            raise ValueError(
                f"FSPRegressor: noise is 'varying', which method={self.method!r} has not; use method='fsp-laplace' or noise='constant'"
            )
        self.noise_profile_ = None
        self._fit(X, targets, sample_weight, noise, num_outputs=num_outputs, scale_targets=True)
        fitted = self.posterior_.likelihood
        assert isinstance(fitted, Gaussian)
        noise = np.asarray(fitted.scale, np.float64) * self.target_scale_.std
        if self.noise_profile_ is not None:
            noise = noise * np.sqrt(np.mean(self.noise_profile_.relative(self._rows.X) ** 2, axis=0))
        self._target_shape = y.shape[1:]
        self.noise_ = noise if self._target_shape else float(noise[0])
        return self

    def _refit(self, fit, rows: WeightedRows, held: HeldOut | None) -> None:
        """With noise that varies, if it is asked for or predicts rows better."""
        many = rows.X.shape[0] > FEW_ROWS
        kind = self.noise or ("auto" if many else "constant")
        if kind == "constant" or not isinstance(self.posterior_, Posterior):
            return
        generator = np.random.default_rng(0)
        telling = rows.some(_MOST_TELLING, generator) if many else self._rows
        left = self._left_out(telling)
        if left is None:
            return
        with phase("noise") as chose:
            if many:
                networks = NoiseNetworks.of(telling.X, left.misses(telling.weights), generator)
                if held is not None:
                    networks = networks.levelled(held.X, self._held_misses(held))
                profile, varies, said = networks, networks.varies, "{:+.3f} +- {:.3f} nats a row".format(*networks.gain)
            else:
                process = NoiseProfile.of(telling.X, left.squares)
                profile, varies, said = process, process.gain > LEAST_GAIN, f"{process.gain:+.4g} nats"
            varies = varies or kind == "varying"
            chose(f"{'varying' if varies else 'constant'}, {said} for varying noise")
        if varies:
            self.noise_profile_ = profile
            if profile.in_fit:
                self.posterior_ = fit(relative=profile.relative).posterior

    def _held_misses(self, held: HeldOut) -> tuple[Misses, ...]:
        """What rows held out say about the noise of single observations; a row that stands for several has less."""
        fitted = self.posterior_.likelihood
        assert isinstance(fitted, Gaussian)
        noise = np.broadcast_to(np.asarray(fitted.scale, np.float64) ** 2, held.off.shape)
        return _LeftOut(held.off, held.variance, noise).misses((noise / held.noise)[:, 0])

    def _left_out(self, rows: WeightedRows) -> "_LeftOut | None":
        """Each of these rows predicted from all others; None if the noise is too small to tell."""
        profile, known = self.noise_profile_, None
        relative = np.ones(1) if profile is None else profile.relative(rows.X)
        if profile is not None and profile.in_fit:
            known = relative
        with jax.enable_x64(True):
            posterior = self._double_posterior()
            assert isinstance(posterior, Posterior)
            try:
                likelihood = weighted(posterior.likelihood, rows.weights, known)
                left = posterior.leave_one_out(rows.X, rows.targets, likelihood)
            except ValueError:  # the noise is too small to tell a datum's own weight from 1
                return None
            noise = np.asarray(posterior.likelihood.noise_variance(left.mean), np.float64) * relative**2
        variance = np.asarray(left.variance, np.float64)
        return _LeftOut(rows.y - np.asarray(left.mean, np.float64), variance, np.broadcast_to(noise, variance.shape))

    @property
    def leave_one_out_(self) -> LeaveOneOutScores | None:
        """Scores of rows (at most 1,000) that are predicted from all others, in closed form; None for methods without one.

        The features, kernel and noise are those of all rows. Computed when asked for. Time: that of `predict`.
        """
        check_is_fitted(self)
        if not isinstance(self.posterior_, Posterior):
            return None
        rows, left = self._rows, self._left_out(self._rows)
        if left is None:
            return None
        off, std = left.off, left.std
        scale = self.target_scale_.std
        density = -0.5 * (off / std) ** 2 - np.log(std * scale) - 0.5 * np.log(2 * np.pi)
        mean = lambda values: float(np.average(values, axis=0, weights=rows.weights).mean())  # noqa: E731
        inside = np.abs(off) <= _Z90 * std
        return LeaveOneOutScores(
            mean(density.sum(axis=1)[:, None]), float(np.sqrt(mean((off * scale) ** 2))), mean(inside), rows.X.shape[0]
        )

    def _said(self) -> list[str]:
        noise = ", ".join(f"{value:.3g}" for value in np.ravel(self.noise_))
        spread = ", ".join(f"{value:.3g}" for value in self.target_scale_.std)
        against = f" (the targets' standard deviation: {spread})" if self.standardize else ""
        varies = "" if self.noise_profile_ is None else f", {self._noise_range()}"
        report = getattr(self, "prior_report_", None)
        free = report is not None and any(row.is_smallest_noise for row in report.rows)
        least = ", the smallest that is tried: the targets look free of noise" if free else ""
        said, left = [f"noise: standard deviation {noise}{varies}{against}{least}"], self.leave_one_out_
        if left is not None:
            some = f" over {left.num_rows} of the rows" if left.num_rows < self._counts[0] else ""
            said.append(
                f"leave-one-out{some}: log density {left.log_density:.4g}, RMSE {left.rmse:.4g}, 90 % intervals hold "
                f"{100 * left.coverage:.0f} %"
            )
        first, second, *rest = [*super()._said(), ""]
        return [line for line in (first, second, *said, *rest) if line]

    def _noise_range(self) -> str:
        """Where most of the varying noise lies, in the targets' units."""
        assert self.noise_profile_ is not None
        each = self._noise_std(self._rows.X).mean(axis=1)
        return "varying from {:.3g} to {:.3g} in nine of ten rows".format(*np.quantile(each, [0.05, 0.95]))

    def _noise_std(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n q"]:
        """At scaled inputs, in the targets' units."""
        likelihood = self.posterior_.likelihood
        assert isinstance(likelihood, Gaussian)
        common = np.asarray(likelihood.scale, np.float64) * self.target_scale_.std
        relative = 1.0 if self.noise_profile_ is None else self.noise_profile_.relative(x)
        return np.broadcast_to(common * relative, (len(x), self.target_scale_.std.size))

    @checked
    def noise_std(self, X: Any) -> Float[np.ndarray, "n ..."]:
        """Standard deviation of the noise at the inputs, in the targets' units: the same everywhere unless it varies."""
        x, count = self._points(X)
        return self._shaped(self._noise_std(x[:count]))

    @checked
    def condition(self, X: Any, y: Any) -> "FSPRegressor":
        """A new regressor that knows these rows as well, in milliseconds: kernel, noise, network and units stay as they are.

        Equal to a new fit of the last, linear step on all rows (`Posterior.condition`); many rows far from the first call for a
        new `fit`. This regressor does not change.
        """
        check_is_fitted(self)
        self._check_readable(X=X, y=y)
        X, y = map(np.asarray, self._validated(X, y, reset=False, y_numeric=True, multi_output=True))
        if y.shape[1:] != self._target_shape:
            raise ValueError(
                f"FSPRegressor.condition: y has shape {y.shape}, but the first y had {('n', *self._target_shape)}; pass as many targets"
            )
        if not isinstance(self.posterior_, Posterior):
            raise ValueError(f"FSPRegressor.condition: method={self.method!r} cannot; use 'fsp-laplace', or fit anew")
        targets = self.target_scale_.apply(y.astype(np.float64).reshape(len(y), -1))
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        x, likelihood = self.input_scale_.apply(X), None
        if self.noise_profile_ is not None:
            likelihood = weighted(self.posterior_.likelihood, np.ones(len(x)), self.noise_profile_.relative(x))
        other.posterior_ = self.posterior_.condition(x, targets, likelihood)
        other._counts = (self._counts[0] + len(y), self._counts[1] + len(y))
        return other

    @checked
    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False):
        """The mean of new targets at the inputs (n, d), with their standard deviations or their covariance.

        Both include the noise; the covariance is between inputs, for each target. Shapes (n,), (n,) and (n, n), or (n, q), (n, q) and (n, n, q) for several targets.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        prediction, count = self._prediction(X)
        mean = self._shaped(self.target_scale_.invert(np.asarray(prediction.mean, np.float64)[:count]))
        if return_std:
            variance = np.asarray(prediction.variance, np.float64)[:count] + self._noise_at(X, prediction, count)
            return mean, self._shaped(np.sqrt(variance) * self.target_scale_.std)
        if return_cov:
            covariance = self._covariance(X, self._noise_at(X, prediction, count))
            return mean, covariance[:, :, 0] if not self._target_shape else covariance
        return mean

    @checked
    def sample_y(self, X: Any, n_samples: int = 1, random_state=0, *, noise: bool = True):
        """Targets drawn from the posterior, (n, n_samples) or (n, q, n_samples); functions where `noise` is False."""
        draws = self.target_scale_.invert(self._functions(X, n_samples, random_state))
        if noise:
            # Another stream than the functions', which use the first number of this one.
            generator = check_random_state(random_state)
            generator.randint(np.iinfo(np.int32).max)
            prediction, count = self._prediction(X)
            std = np.sqrt(self._noise_at(X, prediction, count)) * self.target_scale_.std
            draws = draws + generator.normal(size=draws.shape) * std
        samples = np.moveaxis(draws, 0, 2)
        return samples if self._target_shape else samples[:, 0]

    def _prediction(self, X) -> tuple[Prediction, int]:
        """The predictive distribution in standardised units, at the inputs and padding, and the number of the former."""
        x, count = self._points(X)
        with jax.enable_x64(True):
            return self._double_posterior().predict(x), count

    def _noise_at(self, X, prediction: Prediction, count: int) -> Float[np.ndarray, "n q"]:
        """Variance of the noise in standardised units."""
        noise = np.asarray(prediction.noise_variance, np.float64)[:count]
        if self.noise_profile_ is None:
            return noise
        return noise * self.noise_profile_.relative(self._points(X)[0][:count]) ** 2

    def _covariance(self, X, noise: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n n q"]:
        x, count = self._points(X)
        with jax.enable_x64(True):
            covariance = getattr(self._double_posterior(), "covariance", None)
            joint = None if covariance is None else np.asarray(covariance(x[:count]), np.float64)
        if joint is None:
            raise ValueError(
                f"return_cov: method={self.method!r} gives no covariance between inputs; pass return_std=True, "
                "or draw with sample_y"
            )
        return (np.einsum("nqmq->nmq", joint) + np.eye(count)[:, :, None] * noise) * self.target_scale_.std**2

    def _shaped(self, values: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n ..."]:
        return values.reshape(len(values), *self._target_shape)
