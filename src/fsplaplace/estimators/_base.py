"""What both estimators share: from checked arrays to a posterior, and from a posterior to numbers."""

import io
import pickle
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import AbstractKernel
from jaxtyping import Array, Float, PRNGKeyArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_random_state, validate_data

from fsplaplace.arguments import check_parameters, check_readable, check_squares
from fsplaplace.context import Data, Mixture, Sampler, around
from fsplaplace.estimators._approximate import MOST_STEP_CONTEXT, approximate, batch_size
from fsplaplace.estimators._effort import Choices, Effort, FitPlan, choices, cost
from fsplaplace.estimators._kernels import kernel_by_name
from fsplaplace.estimators._pickle import FunctionPickler
from fsplaplace.estimators._rows import Scale, WeightedRows, padded_size
from fsplaplace.host import host_generator, ready_to_compute, to_double
from fsplaplace.laplace import Posterior, Verdict
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.methods import FunctionPosterior
from fsplaplace.networks import Model, as_model, choose_width, mlp
from fsplaplace.prior import Prior, moments
from fsplaplace.tuning import fit_prior

# Training inputs near which context points are drawn; a step shuffles them all.
_MOST_CONTEXT_ROWS = 1024
# The most weights of a network chosen here: 2x200 in up to 40 dimensions. 2x400 would train and solve ten times as long.
_MOST_WEIGHTS = 50_000
# Relative noise that a network is chosen for: with less of it no network would do, and labels tell about as much as this.
_NOISE_RANGE, _LABEL_NOISE = (0.03, 1.0), 0.3
# The one harmless warning of `fit_prior`: all that ended at a bound are length scales, at the upper one.
_IRRELEVANT_INPUTS = (
    r"fit_prior: these parameters ended at a bound, so the data did not choose their values: "
    r"([\w.\[\]]*lengthscale[\w.\[\]]* = \S+ \(upper\)(, )?)+;"
)


class FSPEstimator(BaseEstimator):
    """The constructor and the fit that `FSPRegressor` and `FSPClassifier` share."""

    def __init__(
        self,
        *,
        kernel: str | AbstractKernel = "matern32",
        ard: bool = True,
        effort: Effort = "normal",
        network: Sequence[int] | Literal["auto"] | Any = None,
        method: str = "fsp-laplace",
        steps: int | None = None,
        num_context: int | None = None,
        standardize: bool = True,
        fit_prior: bool = True,
        random_state: int | np.random.RandomState | None = None,
        progress: bool = False,
    ):
        self.kernel = kernel
        self.ard = ard
        self.effort = effort
        self.network = network
        self.method = method
        self.steps = steps
        self.num_context = num_context
        self.standardize = standardize
        self.fit_prior = fit_prior
        self.random_state = random_state
        self.progress = progress

    def _fit(
        self,
        X: Float[np.ndarray, "n d"],
        y: Float[np.ndarray, "n q"],
        sample_weight,
        likelihood: Likelihood,
        *,
        num_outputs: int,
        scale_targets: bool,
    ) -> None:
        """Set `posterior_`, `prior_`, `verdict_`, `input_scale_` and `target_scale_` from data that has been checked."""
        check_parameters(FSPEstimator.__init__, self.get_params(deep=False), caller=type(self).__name__)
        check_squares(X, f"{type(self).__name__}: X")
        check_squares(y, f"{type(self).__name__}: y")
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        rows = WeightedRows.collect(X, y, weights)
        if rows.X.shape[0] < 2:
            raise ValueError(
                f"{type(self).__name__}: n_samples=1: all rows with a weight above zero are the same; pass at least "
                "two different ones"
            )
        self.input_scale_ = Scale.of(rows.X, rows.weights) if self.standardize else Scale.none(X.shape[1])
        scaled = self.standardize and scale_targets
        self.target_scale_ = Scale.of(rows.y, rows.weights) if scaled else Scale.none(y.shape[1])
        rows = rows._replace(X=self.input_scale_.apply(rows.X), y=self.target_scale_.apply(rows.y))

        prior_key, network_key, fit_key = jr.split(jr.key(seed), 3)
        prior, likelihood, notes = self._prior(rows, likelihood, num_outputs, prior_key)
        context = _context(rows.X, prior_key)
        chosen = self._choices(rows.X.shape[0])
        model = self._model(chosen.network, prior, likelihood, context, rows.X, network_key)
        self.prior_ = prior
        self.posterior_ = approximate(
            self.method, model, prior, likelihood, context, rows, steps=chosen.steps, num_context=chosen.num_context,
            width=self._width(chosen.network), key=fit_key, progress=self.progress,
        )  # fmt: skip
        self.verdict_ = _verdict(self.posterior_, notes)

    def _prior(self, rows: WeightedRows, likelihood: Likelihood, num_outputs: int, key: PRNGKeyArray):
        """The prior, the likelihood's noise, and what was said: by marginal likelihood unless there is nothing to fit."""
        kernel = kernel_by_name(self.kernel, rows.X.shape[1], ard=self.ard)
        prior = Prior(kernel, num_outputs=num_outputs)
        if not (self.fit_prior and np.any(np.ptp(rows.y, axis=0) > 0)):
            return prior, likelihood, ()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # An input that does not matter has a length scale at its upper bound: what `ard` is for. The report says it.
            warnings.filterwarnings("ignore", message=_IRRELEVANT_INPUTS, category=UserWarning)
            fitted = fit_prior(
                prior, rows.X, rows.targets, likelihood,
                key=key, ard=self.ard, standard_errors=False, weights=rows.weights,
            )  # fmt: skip
        for each in caught:
            warnings.warn(each.message, each.category, stacklevel=2)
        self.prior_report_ = fitted.report
        return fitted.prior, fitted.likelihood, tuple(str(each.message) for each in caught)

    def plan(self, X: Any) -> FitPlan:
        """What `fit` will do with inputs of this shape, and about how long and in how much memory; print it.

        Of the method "fsp-laplace" with a network that is made here. Time: a fraction of a second.
        """
        count, num_features = np.shape(X)
        found = self._choices(count)
        if not _is_widths(found.network):
            raise ValueError(
                f"{type(self).__name__}.plan: network is {self.network!r}; pass widths of hidden layers, or leave it out"
            )
        prior = Prior(kernel_by_name(self.kernel, num_features, ard=self.ard))
        batch, step_context = batch_size(count) or count, min(found.num_context, MOST_STEP_CONTEXT)
        return cost(found, prior, count, num_features, batch, step_context)

    def _choices(self, num_rows: int) -> Choices:
        """Network, steps and context points: the caller's, or those of the effort."""
        options = {"network": self.network, "steps": self.steps, "num_context": self.num_context}
        return choices(self.effort, num_rows, **options)

    def _model(
        self, network: Any, prior: Prior, likelihood: Likelihood, context: Sampler, X: Float[np.ndarray, "n d"],
        key: PRNGKeyArray,
    ) -> Model:  # fmt: skip
        """The network; sets `held_` if its width is chosen by the prior."""
        if isinstance(network, str):
            if network != "auto":
                raise ValueError(
                    f"{type(self).__name__}: network is {network!r}; pass widths of hidden layers, 'auto', or a network"
                )
            noise = _relative_noise(prior, likelihood, X)
            chosen = choose_width(prior, context, tanh, _MOST_WEIGHTS, noise, key=key)
            self.held_ = chosen.held
            return as_model(chosen.network)
        if not _is_widths(network):
            return as_model(network)
        return as_model(mlp(list(network), prior=prior, context=context, key=key, activation=tanh))

    def _width(self, network: Any) -> int | None:
        """Of a network that was chosen here."""
        if isinstance(network, str):
            return self.held_.hidden[0] if self.held_.hidden else None
        return network[0] if self.network is None else None

    def _validated(self, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        """scikit-learn's own checks; what NumPy says to them does not name an argument, so that it is put in front."""
        try:
            return validate_data(self, X, y, dtype=np.float64, **options)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{type(self).__name__}: {'X' if isinstance(y, str) else 'X or y'}: {error}") from error

    def _check_readable(self, **arrays: Any) -> None:
        """Refuse what scikit-learn would take for numbers without a word: dates, and values under a mask."""
        for name, values in arrays.items():
            foreign = isinstance(values, np.ma.MaskedArray) or type(values).__module__.partition(".")[0] == "torch"
            if foreign or getattr(getattr(values, "dtype", None), "kind", "f") in "mMV":
                check_readable(values, f"{type(self).__name__}: {name}")

    def _points(self, X) -> tuple[Float[np.ndarray, "k d"], int]:
        """Checked and scaled inputs, padded to a round number of rows, and how many of them there are."""
        check_is_fitted(self)
        ready_to_compute(may_drop=False)
        self._check_readable(X=X)
        x = np.asarray(self._validated(X, reset=False))
        check_squares(x, f"{type(self).__name__}: X")
        x = self.input_scale_.apply(x)
        return np.concatenate([x, np.repeat(x[:1], padded_size(len(x)) - len(x), axis=0)]), len(x)

    def _double_posterior(self):
        """The posterior in float64: predictions are then the same to nine digits in whatever batches they are made.

        Call it inside `jax.enable_x64(True)`.
        """
        return to_double(self.posterior_)

    def _functions(self, X, n_samples: int, random_state) -> Float[np.ndarray, "s n q"]:
        """Functions drawn from the posterior, in the network's units."""
        x, count = self._points(X)
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        with jax.enable_x64(True):
            draws = self._double_posterior().sample(x, key=jr.key(seed), num_samples=n_samples)
        return np.asarray(draws, np.float64)[:, :count]

    def __getstate__(self):
        buffer = io.BytesIO()
        FunctionPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(super().__getstate__())
        return {"pickled": buffer.getvalue()}

    def __setstate__(self, state):
        super().__setstate__(pickle.loads(state["pickled"]))


def _verdict(posterior: Posterior | FunctionPosterior, notes: tuple[str, ...]) -> Verdict | None:
    """The posterior's verdict with what the fit of the prior said; None for methods without one."""
    if not isinstance(posterior, Posterior):
        return None
    verdict = posterior.verdict
    for note in notes:
        seen, _, remedy = note.partition("; ")
        verdict = verdict.with_caution(seen, remedy or "fix those parameters, or pass more rows")
    return verdict


def tanh(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The default activation, as a function that pickle can name."""
    return jnp.tanh(x)


def _context(X: Float[np.ndarray, "n d"], key: PRNGKeyArray) -> Mixture:
    """`around(X)` with a round number of training inputs in it, so that data sets of similar size share programs."""
    box, data = around(X).samplers
    assert isinstance(data, Data)
    generator = host_generator(key)
    chosen = generator.permutation(len(X))[:_MOST_CONTEXT_ROWS]
    return Mixture([box, Data(np.resize(X[chosen], (padded_size(len(chosen)), X.shape[1])), jitter=data.jitter)])


def _relative_noise(prior: Prior, likelihood: Likelihood, X: Float[np.ndarray, "n d"]) -> float:
    """Standard deviation of the noise in standard deviations of the prior, as far as it matters for a network's width."""
    if not isinstance(likelihood, Gaussian):
        return _LABEL_NOISE
    spread = np.sqrt(np.mean(moments.variance(prior, X[:_MOST_CONTEXT_ROWS]), axis=0))
    relative = np.asarray(likelihood.scale, np.float64) / np.where(spread > 0, spread, 1.0)
    return float(np.clip(np.min(relative), *_NOISE_RANGE))


def _is_widths(network) -> bool:
    return (
        isinstance(network, Sequence)
        and len(network) > 0
        and all(isinstance(item, int | np.integer) for item in network)
    )
