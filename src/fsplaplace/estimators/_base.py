"""What both estimators share: from checked arrays to a posterior, and from a posterior to numbers."""

import functools
import html
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import AbstractKernel
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_random_state, validate_data

from fsplaplace.arguments import check_numbers, check_parameters, check_readable, check_squares
from fsplaplace.context import Sampler
from fsplaplace.estimators._approximate import MOST_STEP_CONTEXT, Approximated, approximate, batch_size
from fsplaplace.estimators._context import MOST_CONTEXT_ROWS, OnHost, context_around
from fsplaplace.estimators._effort import (
    MOST_EXACT_ROWS,
    MOST_WEIGHTS,
    Choices,
    Effort,
    FitPlan,
    choices,
    cost,
)
from fsplaplace.estimators._evidence import PriorCandidate, fit_best
from fsplaplace.estimators._kernels import Columns, candidates, kernel_by_name
from fsplaplace.estimators._outliers import warn_of_outliers
from fsplaplace.estimators._rows import Scale, WeightedRows, check_weights
from fsplaplace.estimators._summary import feature_relevance, kernel_name, kernel_words, paragraphs, relevance_words
from fsplaplace.host import (
    check_fits,
    from_pickled,
    host_generator,
    padded_size,
    phase,
    ready_to_compute,
    saying_phases,
    to_double,
    to_pickled,
)
from fsplaplace.laplace import HeldOut, Posterior, Verdict
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.methods import FunctionPosterior
from fsplaplace.networks import Model, as_model, choose_width, mlp
from fsplaplace.prior import Prior, moments

# Relative noise that a network is chosen for: with less of it no network would do, and labels tell about as much as this.
_NOISE_RANGE, _LABEL_NOISE = (0.03, 1.0), 0.3
# Harmless warnings of `fit_prior`, which the estimator's own words repeat: all that ended at a bound are length scales, at the upper
# one; targets that look free of noise.
_HARMLESS = (
    r"fit_prior: (these parameters ended at a bound, so the data did not choose their values: "
    r"([\w.\[\]]*lengthscale[\w.\[\]]* = \S+ \(upper\)(, )?)+|the targets look free of noise);"
)


Method = Literal[
    "fsp-laplace", "gp", "sparse-gp", "map", "ensemble", "laplace", "kfac", "diagonal", "last-layer", "fvi", "gfsvi"
]
# Rows that are kept for the leave-one-out score and the relevance of columns.
_MOST_KEPT_ROWS = 1000


def whole_or_nothing(fit: Callable) -> Callable:
    """Decorator of `fit`: an error or Ctrl-C leaves the estimator as it was before, and an interrupt says so."""

    @functools.wraps(fit)
    def call(self, *args, **kwargs):
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException as error:
            vars(self).clear()
            vars(self).update(before)
            if isinstance(error, KeyboardInterrupt):
                kept = "the earlier fit is kept" if "posterior_" in before else "nothing was kept, it is not fitted"
                error.add_note(f"{type(self).__name__}.fit: interrupted; {kept}")
            raise

    return call


class FSPEstimator(BaseEstimator):
    """The constructor and the fit that `FSPRegressor` and `FSPClassifier` share."""

    def __init__(
        self,
        *,
        kernel: str | AbstractKernel = "auto",
        ard: bool = True,
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
        check_parameters(type(self).__init__, self.get_params(deep=False), caller=type(self).__name__)
        self._check_network()
        for name in ("prior_report_", "held_"):  # of an earlier fit with other parameters
            vars(self).pop(name, None)
        check_squares(X, f"{type(self).__name__}: X")
        check_squares(y, f"{type(self).__name__}: y")
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        self._check_readable(sample_weight=sample_weight)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        check_weights(weights, caller=type(self).__name__)
        named = [f"column {name} of X" for name in self._names_of(X.shape[1])]
        warn_of_outliers(X, named, caller=type(self).__name__)
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
        with saying_phases(self.progress):
            with phase("prior") as chose:
                prior, likelihood, notes = self._prior(rows, likelihood, num_outputs, prior_key)
                chose(self._prior_words(prior, likelihood))
            context, chosen = (
                context_around(rows.X, prior_key),
                self._choices(rows.X.shape[0], rows.X.shape[1], num_outputs),
            )
            spread = Scale.of(rows.y, rows.weights).std if scale_targets else np.ones(num_outputs)
            with phase("network") as chose:
                model = self._model(chosen.network, prior, likelihood, OnHost(context), rows.X, spread, network_key)
                chose(_network_words(model))
            self.prior_ = prior
            fit = functools.partial(
                approximate, self.method, model, prior, likelihood, context, rows,
                steps=chosen.steps, num_context=chosen.num_context, key=fit_key, progress=self.progress,
                noise_fitted=hasattr(self, "prior_report_") and rows.X.shape[0] <= MOST_EXACT_ROWS,
            )  # fmt: skip
            found = fit()
            self.posterior_ = found.posterior
            self._rows = rows.some(_MOST_KEPT_ROWS, host_generator(fit_key))
            self._counts = (rows.X.shape[0], float(np.sum(rows.weights)))
            self._refit(fit, rows, found.held)
        self.verdict_ = _verdict(self.posterior_, notes)

    def _refit(self, fit: Callable[..., Approximated], rows: WeightedRows, held: HeldOut | None) -> None:
        """Set `posterior_` anew if the first one says that something else is better; `fit` takes options of `approximate`."""

    def _prior(self, rows: WeightedRows, likelihood: Likelihood, num_outputs: int, key: PRNGKeyArray):
        """The prior, the likelihood's noise, and what was said: by marginal likelihood unless there is nothing to fit."""
        columns = self._columns()

        def prior(kernel: str | AbstractKernel) -> Prior:
            found = kernel_by_name(kernel, rows.X.shape[1], ard=self.ard, columns=columns)
            return Prior(found, num_outputs=num_outputs)

        ways = [
            PriorCandidate(prior(each.kernel), None if each.trended is None else prior(each.trended))
            for each in candidates(self.kernel)
        ]
        first = ways[0].prior
        varies = np.ptp(rows.y, axis=0) > 0
        if not (self.fit_prior and np.any(varies)):
            return first, likelihood, ()
        if isinstance(likelihood, Gaussian) and not np.all(varies):
            return self._prior_of_some(varies, rows, likelihood, key)
        best = fit_best(
            ways, rows, likelihood, key=key, ard=self.ard, progress=self.progress,
            **self._prior_options(first, likelihood),
        )  # fmt: skip
        # An input that does not matter has a length scale at its upper bound: what `ard` is for. The report says it.
        heard = [each for each in best.said if not re.match(_HARMLESS, str(each.message))]
        said = tuple(_with_names(str(each.message), best.fitted.prior.kernel, self._names()) for each in heard)
        for text, each in zip(said, heard, strict=True):
            warnings.warn(text, each.category, stacklevel=2)
        self.prior_report_ = best.fitted.report
        return best.fitted.prior, best.fitted.likelihood, said

    def _prior_of_some(
        self, varies: Bool[np.ndarray, " q"], rows: WeightedRows, likelihood: Gaussian, key: PRNGKeyArray
    ):
        """The prior of the targets that vary: one that is constant would ask for a kernel that is flat, which all share."""
        count = int(varies.sum())
        scale = np.broadcast_to(np.asarray(likelihood.scale, np.float64), varies.shape).copy()
        fitted, found, said = self._prior(
            rows._replace(y=rows.y[:, varies]), Gaussian(scale[varies] if count > 1 else scale[varies][0]), count, key
        )
        assert isinstance(found, Gaussian)
        scale[varies] = np.asarray(found.scale, np.float64)
        return Prior(fitted.kernel, num_outputs=varies.size), Gaussian(scale), said

    def _prior_options(self, prior: Prior, likelihood: Likelihood) -> dict[str, Any]:
        """Further options of `fit_prior`."""
        return {}

    def plan(self, X: Any) -> FitPlan:
        """What `fit` will do with inputs of this shape, and about how long and in how much memory; print it.

        Of the method "fsp-laplace" with a network that is made here. Time: a fraction of a second.
        """
        values = check_numbers(X, f"{type(self).__name__}.plan: X")
        shape = values.shape
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"{type(self).__name__}.plan: X has shape {shape}; pass at least one row, as (n, d)")
        # What `fit` would refuse is refused before it.
        check_squares(values, f"{type(self).__name__}.plan: X")
        count, num_features = shape
        found = self._choices(count, num_features, 1)
        if not _is_widths(found.network):
            raise ValueError(
                f"{type(self).__name__}.plan: network is {self.network!r}; pass widths of hidden layers, or leave it out"
            )
        prior = Prior(kernel_by_name(candidates(self.kernel)[0].kernel, num_features, ard=self.ard))
        batch, step_context = batch_size(count) or count, min(found.num_context, MOST_STEP_CONTEXT)
        return cost(found, prior, count, num_features, batch, step_context)

    def _choices(self, num_rows: int, num_columns: int, num_outputs: int) -> Choices:
        """Network, steps and context points: the caller's, or those of the effort."""
        options = {"network": self.network, "steps": self.steps, "num_context": self.num_context}
        return choices(self.effort, num_rows, num_columns, num_outputs, **options)

    def _model(
        self,
        network: Any,
        prior: Prior,
        likelihood: Likelihood,
        context: Sampler,
        X: Float[np.ndarray, "n d"],
        spread: Float[np.ndarray, " q"],
        key: PRNGKeyArray,
    ) -> Model:
        """The network; sets `held_` if its width is chosen by the prior.

        Its outputs are in standard deviations of the targets (`spread`). A fitted prior's may be far larger: on yacht it has 13 of them,
        and a network in those units scores 1.65 nats instead of 2.96.
        """
        if isinstance(network, str):
            noise = _relative_noise(prior, likelihood, X)
            chosen = choose_width(prior, context, tanh, MOST_WEIGHTS, noise, key=key, output_scale=spread)
            self.held_ = chosen.held
            return as_model(chosen.network)
        if not _is_widths(network):
            return as_model(network)
        made = mlp(list(network), prior=prior, context=context, key=key, activation=tanh, output_scale=spread)
        return as_model(made)

    def _check_network(self) -> None:
        """Refuse what is no network before anything is computed."""
        given = self.network
        empty = isinstance(given, Sequence) and not isinstance(given, str) and not _is_widths(given)
        if (isinstance(given, str) and given != "auto") or empty or (_is_widths(given) and np.min(given) < 1):
            raise ValueError(
                f"{type(self).__name__}: network is {given!r}; pass widths of hidden layers, 'auto', or a network"
            )

    @property
    def log_evidence_(self) -> float | None:
        """Log evidence of the targets in their own units; None for methods that have none."""
        check_is_fitted(self)
        found = getattr(self.posterior_, "log_evidence", None)
        return None if found is None else float(found) - self._counts[1] * float(np.sum(np.log(self.target_scale_.std)))

    @property
    def feature_relevance_(self) -> Float[np.ndarray, " d"]:
        r"""How much the function changes under the fitted prior when one column alone moves by its standard deviation.

        $\sqrt{E\,(f(x + s_j e_j) - f(x))^2}$ over rows x, in the targets' units: one number per column, near zero if it does
        not matter.
        """
        check_is_fitted(self)
        return feature_relevance(self.prior_, self._rows.X, self.target_scale_.std)

    def __str__(self) -> str:
        """The parameters before a fit, what was found after it."""
        if not hasattr(self, "posterior_"):
            return repr(self)
        return paragraphs(
            [
                f"{type(self).__name__}, fitted to {self._counts[0]} rows x {self._rows.X.shape[1]} columns",
                *self._said(),
            ]
        )

    def _said(self) -> list[str]:
        """Lines of a summary."""
        said = [] if self.verdict_ is None else [f"verdict: {self.verdict_}"]
        said += [f"kernel: {kernel_words(self.prior_.kernel, self._columns())}"]
        if self._rows.X.shape[1] > 1:
            said += [f"relevant columns: {relevance_words(self.feature_relevance_, self._names())}"]
        evidence = self.log_evidence_
        return said if evidence is None else [*said, f"log evidence: {evidence:.6g}"]

    def _html_repr(self) -> str:
        """What a notebook shows."""
        if not hasattr(self, "posterior_"):
            return super()._html_repr()
        return f"<pre>{html.escape(str(self))}</pre>"

    def _prior_words(self, prior: Prior, likelihood: Likelihood) -> str:
        """What was chosen, in half a line."""
        said = kernel_name(prior.kernel)
        if hasattr(self, "prior_report_"):
            said += f", log evidence {self.prior_report_.value:.5g}"
        if isinstance(likelihood, Gaussian):
            noise = np.ravel(np.asarray(likelihood.scale, np.float64) * self.target_scale_.std)
            said += f", noise {', '.join(f'{value:.3g}' for value in noise[:3])}" + ", ..." * (noise.size > 3)
        return said

    def _columns(self) -> Columns:
        return Columns(self._names(), self.input_scale_.std, float(np.mean(self.target_scale_.std)))

    def _names(self) -> tuple[str, ...]:
        """Of the columns; x0, x1 and so on if they have none."""
        return self._names_of(self.input_scale_.std.size)

    def _names_of(self, count: int) -> tuple[str, ...]:
        given = getattr(self, "feature_names_in_", None)
        return Columns.numbered(count).names if given is None else tuple(map(str, given))

    def _validated(self, X: Any, y: Any = "no_validation", **options: Any) -> Any:
        """scikit-learn's own checks; what NumPy says to them does not name an argument, so that it is put in front."""
        try:
            return validate_data(self, X, y, dtype=np.float64, **options)
        except Exception as error:  # whatever a foreign type raises when it is asked for its numbers
            kind = ValueError if isinstance(error, ValueError) else TypeError
            alone = isinstance(y, str) and y == "no_validation"
            said = str(error) if len(str(error)) < 600 else f"{str(error)[:300]} ..."
            raise kind(f"{type(self).__name__}: {'X' if alone else 'X or y'}: {said}") from error

    def _check_readable(self, **arrays: Any) -> None:
        """Refuse what scikit-learn would take for numbers without a word: dates, texts, and values under a mask."""
        for name, values in arrays.items():
            argument = f"{type(self).__name__}: {name}"
            foreign = isinstance(values, np.ma.MaskedArray) or type(values).__module__.partition(".")[0] == "torch"
            # Of a data frame each column has a dtype of its own.
            columns: Any = getattr(values, "dtypes", None)
            dtypes = list(columns) if hasattr(columns, "__iter__") else [getattr(values, "dtype", None)]
            kinds = {getattr(dtype, "kind", "f") for dtype in dtypes}
            if foreign or kinds & set("mMV"):
                check_readable(values, argument)
            if kinds & set("mM"):
                raise ValueError(
                    f"{argument} has columns of dates; pass numbers, for instance days since a date of your choice"
                )
            if name == "X" and kinds & set("SU"):
                raise ValueError(f"{argument} holds texts; pass numbers, for instance X.astype(float)")

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
        check_fits(n_samples, 64 * len(x), f"{type(self).__name__}.sample_y: n_samples")
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        with jax.enable_x64(True):
            draws = self._double_posterior().sample(x, key=jr.key(seed), num_samples=n_samples)
        return np.asarray(draws, np.float64)[:, :count]

    def __getstate__(self):
        return to_pickled(super().__getstate__())

    def __setstate__(self, state):
        super().__setstate__(from_pickled(state))


def _verdict(posterior: Posterior | FunctionPosterior, notes: tuple[str, ...]) -> Verdict | None:
    """The posterior's verdict with what the fit of the prior said; None for methods without one."""
    if not isinstance(posterior, Posterior):
        return None
    verdict = posterior.verdict
    for note in notes:
        seen, _, remedy = note.partition("; ")
        verdict = verdict.with_caution(seen, remedy or "fix those parameters, or pass more rows")
    return verdict


def _with_names(note: str, kernel: AbstractKernel | tuple[AbstractKernel, ...], names: tuple[str, ...]) -> str:
    """The note with the names of columns in place of their numbers, if every part of the kernel sees all columns."""
    note = re.sub(
        r"^(fit_prior: columns? )([\d, ]+)( .*of X (?:is|are) constant)",
        lambda found: found[1] + ", ".join(names[int(number)] for number in found[2].split(",")) + found[3],
        note,
    )
    parts = jax.tree.leaves(
        kernel, is_leaf=lambda node: isinstance(node, AbstractKernel) and not hasattr(node, "kernels")
    )
    if any(isinstance(getattr(part, "active_dims", None), list) for part in parts):
        return note
    return re.sub(r"lengthscale\[(\d+)\]", lambda found: f"lengthscale[{names[int(found[1])]}]", note)


def _network_words(model: Model) -> str:
    layers = getattr(model.params, "layers", None)
    widths = [str(layer.weight.shape[0]) for layer in layers[:-1]] if layers else []
    return (f"{' x '.join(widths)} units, " if widths else f"{model.name}, ") + f"{model.num_params:,} weights"


def tanh(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The default activation, as a function that pickle can name."""
    return jnp.tanh(x)


def _relative_noise(prior: Prior, likelihood: Likelihood, X: Float[np.ndarray, "n d"]) -> float:
    """Standard deviation of the noise in standard deviations of the prior, as far as it matters for a network's width."""
    if not isinstance(likelihood, Gaussian):
        return _LABEL_NOISE
    spread = np.sqrt(np.mean(moments.variance(prior, X[:MOST_CONTEXT_ROWS]), axis=0))
    relative = np.asarray(likelihood.scale, np.float64) / np.where(spread > 0, spread, 1.0)
    return float(np.clip(np.min(relative), *_NOISE_RANGE))


def _is_widths(network) -> bool:
    return (
        isinstance(network, Sequence)
        and len(network) > 0
        and all(isinstance(item, int | np.integer) for item in network)
    )
