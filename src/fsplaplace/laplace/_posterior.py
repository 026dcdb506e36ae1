"""The posterior over functions: predictive, samples, covariance."""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any, ClassVar, Literal, cast, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from fsplaplace.arguments import KeyLike, Range, check_squares, checked
from fsplaplace.host import check_fits, from_pickled, itemsize, resolve_budget, to_device, to_pickled
from fsplaplace.laplace import _choices
from fsplaplace.laplace._diagnostics import Diagnostics, Verdict, VerdictWarning
from fsplaplace.laplace._leave_one_out import LeaveOneOut, Told, leave_each_out
from fsplaplace.laplace._linear_model import Later, LinearModel, Local, assembled, local_at
from fsplaplace.laplace._observed import say_outside
from fsplaplace.laplace._predictive import (
    Joint,
    PredictedMean,
    Prediction,
    by_convolutions,
    condition_on,
    covariance_of,
    joint_of,
    mean_block,
    predict_block,
    predict_seen,
    reaches_outside,
    sample_of,
    see,
)
from fsplaplace.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from fsplaplace.networks import (
    Model,
    PointFunction,
    linear_model,
    map_rows,
    rows_per_block,
)
from fsplaplace.operators import Operator, Tangent, Value, as_operator, follows_shifts
from fsplaplace.prior import Prior, SeenPrior
from fsplaplace.training import is_stated, not_shifted, settle

_WHOSE_LIKELIHOOD = "Posterior.{}: likelihood is None, but the posterior's own is of values; pass the likelihood of what the operator sees"


# The class has no public name; a likelihood is the nearest module with a method.
_BoundMethod: type[eqx.Module] = type(cast(eqx.Module, Gaussian(1.0).noise))
_OF_LINEAR_MODEL = ("model", "prior", "likelihood", "scale", "shift", "information", "context_points", "later")


class Posterior(eqx.Module):
    r"""A Gaussian process in closed form: the linearised network with the prior's variance at every input.

    Functions are $m(x) + a(x) J(x) S \epsilon + \sqrt{u(x)}\, \eta(x)$ with $\epsilon \sim \mathcal N(0, I)$ and $\eta$ white. The
    features imply a prior variance $i(x)$ where the kernel states $k(x)$: $a = \min(1, \sqrt{k / i})$ takes away what they
    have too much between context points, and $u$ is what remains of the variance $\max(0, k - i)$ that they miss. Outside the
    box of the context points they carry at most $\rho^2 k$, where $\rho(x)$ is the prior's correlation with the nearest point of
    the box: the prior returns as its kernel says. So prior variances are exact, and the posterior's are never larger, at any
    input.

    The mean $m(x)$ is the refined one, $\mu(x) + a(x) J(x) s$, or the network's own output, $f(x) + a(x) J(x) s$ with s = 0 until
    `condition` adds data. Both s and S enter through the linear model only: the network at shifted weights is another
    function. The precision form has a = 1, u = 0.

    A posterior is a pytree of arrays: it may be an argument of functions under `jax.jit`, and one program serves all posteriors
    of the same shapes (if the prior's mean is a plain Python function, use `equinox.filter_jit`).

    Attributes:
        model: the network that was linearised.
        prior: the prior over its function.
        likelihood: of the targets.
        scale: $S^\top$, one direction a row, then rows of zeros so that similar ranks share programs, (r, p).
        shift: s, (p,); zero if the mean is the network's.
        information: prior over posterior variance along each direction of `scale`, 1 for rows of zeros, (r,); None in the
            precision form.
        context_points: where the prior was enforced; minus `model.origin`, if the inputs lie so far from zero that the model has
            one.
        log_evidence: the Laplace approximation of $\log p(y)$.
        diagnostics: what was done, and how well the network holds the prior; prints as a table.
        later: what data say that `condition` added since: the coordinates along `scale` and their covariance; None at first.
    """

    model: Model
    prior: Prior
    likelihood: Likelihood
    scale: Float[Array, "r p"]
    shift: Float[Array, " p"]
    information: Float[Array, " r"] | None
    context_points: Float[Array, "m ..."]
    log_evidence: Float[Array, ""]
    diagnostics: Diagnostics
    later: Later | None = None
    # Not a field: no program depends on the data, no file contains them, and what JAX makes of a posterior has forgotten them.
    told: ClassVar[tuple[Told, ...]] = ()

    def __getattribute__(self, name: str) -> Any:
        """Methods are bound as pytrees, as Equinox does; its own way looks at every leaf, a tenth of what ten rows take."""
        found = object.__getattribute__(self, name)
        if not isinstance(found, MethodType) or name.startswith("__"):
            return found
        function = found.__func__
        named = {each: getattr(function, each) for each in functools.WRAPPER_ASSIGNMENTS}
        return assembled(_BoundMethod, named | {"__func__": function, "__self__": self})

    def __getstate__(self) -> dict[str, Any]:
        return to_pickled({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(from_pickled(state))

    @classmethod
    def refusal(cls, value) -> str:
        """What an error says of a value that is no posterior."""
        return f"must be a Posterior, but got {type(value).__name__}; call laplace first"

    @property
    def rank(self) -> int:
        """Number of directions with posterior variance; `scale` may have more rows, of zeros."""
        return int(self.diagnostics.rank)

    @overload
    def predict(
        self,
        x: ArrayLike,
        *,
        of: Operator | Callable | None = None,
        variance: Literal[True] = True,
        memory_budget: float | None = None,
    ) -> Prediction: ...

    @overload
    def predict(
        self,
        x: ArrayLike,
        *,
        of: Operator | Callable | None = None,
        variance: Literal[False],
        memory_budget: float | None = None,
    ) -> PredictedMean: ...

    @checked(traceable=True)
    def predict(
        self,
        x: ArrayLike,
        *,
        of: Operator | Callable | None = None,
        variance: bool = True,
        memory_budget: float | None = None,
    ) -> Prediction | PredictedMean:
        r"""Mean and marginal variance at inputs (n, ...), in blocks of rows that fit the budget.

        Args:
            x: where.
            of: what to predict of the function, an operator of `fsplaplace.operators` or `lambda f: lambda x: ...`: a
                derivative, a divergence, an integral. One that is not linear is linearised at the mean. Under `jax.jit` of a
                posterior, or of a number in the operator, it is not tried out first: state what it is, and the nodes of
                integrals.
            variance: False for the mean alone, as a `PredictedMean`. The network's own mean then takes one forward pass; the
                refined mean is scaled by what the features imply, and takes nearly as long as with the variance.
            memory_budget: bytes; a quarter of RAM by default.

        Works inside `jax.jit` and `jax.vmap`, and is differentiable in x. Time: one forward and r tangent passes (for one
        or two outputs a reverse pass and a matrix product); memory: $O(n q)$ and one block.
        """
        x, budget, linear = _check_inputs(self, x), resolve_budget(memory_budget), _through(self, of)
        if not variance and not linear.mean_needs_features:
            return map_rows(functools.partial(mean_block, linear), x, rows=rows_per_block(linear.model, x, 1, budget))
        if by_convolutions(linear, x):
            found = predict_seen(linear, x, see(linear, x, budget))
            return found if variance else PredictedMean(found.mean, found.map, found.outside)
        rows = rows_per_block(linear.model, x, self.scale.shape[0], budget)
        if not variance:
            return map_rows(functools.partial(mean_block, linear), x, rows=rows)
        return map_rows(functools.partial(predict_block, linear), x, rows=rows)

    @checked(traceable=True)
    def covariance(
        self, x: ArrayLike, *, joint: bool = True, of: Operator | Callable | None = None
    ) -> Float[Array, "n q n q"] | Float[Array, "n q q"]:
        """Covariance of the function between all points and outputs, or (`joint=False`) between outputs at each point.

        Of what an operator makes of the function, if `of` is one, as in `predict`.

        What the features cannot carry is unrelated between different inputs. Memory $O(n^2 q^2)$, or $O(n q^2)$.
        """
        x, linear = _check_inputs(self, x), _through(self, of)
        return covariance_of(linear, x, see(linear, x, resolve_budget(None)), joint)

    @checked(traceable=True)
    def joint(self, x: ArrayLike, *, of: Operator | Callable | None = None) -> Joint:
        """Mean and joint covariance at sets of inputs, (..., n, d), from one Jacobian: sets are independent of each other.

        Works inside `jax.jit` and `jax.vmap`, and is differentiable in x. Time: that of `predict`; memory: the features of all
        inputs and $O(n^2 q^2)$ for each set.
        """
        x, width = x if isinstance(x, Tracer) else np.asarray(x), self.context_points.ndim
        if x.ndim < width:
            raise ValueError(f"Posterior.joint: x has shape {x.shape}; pass sets of inputs, (..., n, d)")
        sets = x.shape[: x.ndim - width]
        rows, linear = _check_inputs(self, x.reshape(-1, *x.shape[x.ndim - width + 1 :])), _through(self, of)
        return joint_of(linear, rows, see(linear, rows, resolve_budget(None)), sets)

    @checked(traceable=True)
    def local(self, x: ArrayLike, *, of: Operator | Callable | None = None) -> Local:
        """Mean, features and unexplained variance at inputs (n, ...): all that is Gaussian about the function follows from them.

        The covariance between inputs is the product of their features, and at one input the unexplained variance is added.
        Works inside `jax.jit` and is differentiable in x. Time: that of `predict`; memory $O(n q r)$.
        """
        x, linear = _check_inputs(self, x), _through(self, of)
        return local_at(linear, x, see(linear, x, resolve_budget(None)))

    @checked(traceable=True)
    def condition(
        self, X: ArrayLike, y: ArrayLike, likelihood: Likelihood | None = None, *, of: Operator | Callable | None = None
    ) -> "Posterior":
        r"""The posterior given more data: in the linear model, without training and without new features.

        With Gaussian noise and the refined mean it equals `laplace` on all data with the same features, `log_evidence` included.
        With other likelihoods the new data's mode is found by Newton's method, the old data being summed up by their Gaussian
        posterior. The network's own mean is moved by the new data as the linear model says; `log_evidence` then adds the new
        data's density around that mean. The precision form keeps the directions that it has. The verdict, and all other
        diagnostics, stay those of the first fit. Features come from the network as it is, so that many new data far from the
        old ones call for a new `laplace`. New data with hardly any noise that contradict what the posterior knows are warned about
        (not under `jax.jit`), and so are inputs far outside the box of the context points, and observations through an operator
        that lie, or reach, outside it.

        Works inside `jax.jit` and `jax.vmap` (`equinox.filter_vmap` over X and y for several hypothetical data sets).

        Args:
            X: new inputs, (n, ...).
            y: their targets.
            likelihood: of these targets; the posterior's own by default. Predictions keep the posterior's.
            of: what was observed of the function, as in `predict`; then the likelihood must be given, in its units.

        Time $O(n q r (p + r))$ with Gaussian noise and fewer targets than directions, else with $r^3$ more; memory
        $O(n q (r + p) + r^2)$: the directions are shared with the posterior before. About a millisecond for ten rows and a
        hundred directions, once compiled.

        Example:
            >>> later = posterior.condition(X_new, y_new)  # doctest: +SKIP
        """
        of = None if isinstance(of, Value) else of
        own = likelihood is None
        if own and of is not None:
            raise ValueError(_WHOSE_LIKELIHOOD.format("condition"))
        chosen = self.likelihood if likelihood is None else likelihood
        if own and type(chosen).rows(chosen, slice(0, 1)) is not chosen:
            raise ValueError(
                f"Posterior.condition: {type(chosen).__name__} has a parameter for each training row; pass the likelihood of "
                "the new rows as likelihood"
            )
        x, linear = _check_on_host(self, X, argument="X"), _through(self, of)
        width = self.prior.num_outputs if of is None else linear.model.num_outputs(x)
        targets = _check_targets(y, chosen, x.shape[0], width, self.scale.dtype, caller="condition")
        if of is not None and not any(isinstance(leaf, Tracer) for leaf in (x, linear.scale)):
            say_outside(np.asarray(reaches_outside(linear, x)), f"Posterior.condition: {as_operator(of).name}")
        found = condition_on(linear, x, targets, chosen)
        changed: dict[str, Any] = {"later": found.later, "log_evidence": self.log_evidence + found.log_evidence}
        if isinstance(found.log_evidence, Tracer):
            changed["told"] = ()
        elif of is None:
            _warn_if_outside(self, np.asarray(x))
            if self.told:
                changed["told"] = (*self.told, Told.of(x, targets, chosen))
        return assembled(Posterior, vars(self) | changed)

    @checked
    def leave_one_out(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        likelihood: Likelihood | None = None,
        *,
        of: Operator | Callable | None = None,
    ) -> LeaveOneOut:
        """Each datum as all others predict it: means, variances and log densities in closed form, for Gaussian likelihoods.

        Equals a new fit of the linear model for every datum, with the same features. If the mean is the network's, that is
        taken for the mode of the linear model, which it is after training only approximately.

        Args:
            X: inputs that the posterior was fitted to or conditioned on, (n, ...); all of them or some. Left out: all values
                that it was fitted to, then those that it was conditioned on. A posterior remembers them until it goes through a
                file, a copy or a transformation of JAX.
            y: their targets; left out with X.
            likelihood: of these targets; the posterior's own by default.
            of: what was observed there, as in `condition`; then the likelihood must be given.

        Time: that of `predict`, and $O(n q^2 (q + r))$; memory: one block of rows.

        Example:
            >>> float(jnp.sum(posterior.leave_one_out().log_density)) > -100
            True
        """
        of = None if isinstance(of, Value) else of
        if X is None:
            if y is not None or likelihood is not None or of is not None:
                raise ValueError(
                    "Posterior.leave_one_out: X is None, but y, likelihood or of is not; pass X as well, or nothing"
                )
            if not self.told:
                raise ValueError(
                    "Posterior.leave_one_out: this posterior does not know its data (it was fitted to no values or to a share of them, "
                    "or went through a file, a copy or a transformation of JAX); pass X and y"
                )
            return leave_each_out(self._linear_model, self.told, self.prior.num_outputs)
        if y is None:
            raise ValueError("Posterior.leave_one_out: y is None, but X is not; pass both, or neither")
        if likelihood is None and of is not None:
            raise ValueError(_WHOSE_LIKELIHOOD.format("leave_one_out"))
        chosen = self.likelihood if likelihood is None else likelihood
        x, linear = _check_on_host(self, X, argument="X"), _through(self, of)
        q = self.prior.num_outputs if of is None else linear.model.num_outputs(x)
        targets = _check_targets(y, chosen, x.shape[0], q, self.scale.dtype, caller="leave_one_out")
        return leave_each_out(linear, (Told.of(x, targets, chosen),), q)

    @checked(traceable=True)
    def sample(
        self, x: ArrayLike, *, key: KeyLike, num_samples: int = 1, of: Operator | Callable | None = None
    ) -> Float[Array, "s n q"]:
        r"""Functions with the posterior's mean and covariance; the same key gives the same functions at any x.

        With `of`, as in `predict`, the same key gives what the operator makes of the same functions.

        What the features cannot carry, of variance u, shows as white noise that belongs to the input: rough where the network is
        too small for its prior. A difference of two samples over a distance h is therefore off by $\sqrt{2u} / h$ from the slope;
        ask for slopes with `of`, which has no such noise of values. Time: that of `predict`.
        """
        x, linear = _check_inputs(self, x), _through(self, of)
        # Functions, their smooth parts and their noise at n inputs, and coordinates.
        each = itemsize(self.scale.dtype) * (4 * x.shape[0] * linear.model.num_outputs(x) + self.scale.shape[0])
        check_fits(num_samples, each, "Posterior.sample: num_samples")
        seen = see(linear, x, resolve_budget(None))
        return jnp.moveaxis(sample_of(linear, x, seen, key, np.arange(num_samples)), 1, 0)

    @checked(traceable=True, ranges={"num_samples": Range("1 or more", least=1, most=10**7)})
    def predict_proba(
        self,
        x: ArrayLike,
        *,
        key: KeyLike | None = None,
        num_samples: int = 1000,
        method: Literal["monte-carlo", "probit"] = "monte-carlo",
    ) -> Float[Array, "n c"]:
        r"""Class probabilities $E[\mathrm{softmax}(f(x))]$, or $P(y = 1)$ for each label of a Bernoulli likelihood.

        By sampling (with a fixed key unless one is given), or by the probit approximation, which shrinks each logit by
        $(1 + \pi \sigma^2 / 8)^{-1/2}$.
        """
        if not isinstance(self.likelihood, Bernoulli | Categorical):
            raise ValueError(
                f"Posterior.predict_proba: {type(self.likelihood).__name__} has no classes; use predict, or a Bernoulli or "
                "Categorical likelihood"
            )
        x = _check_inputs(self, x)
        seen = see(self._linear_model, x, resolve_budget(None))
        link = jax.nn.sigmoid if isinstance(self.likelihood, Bernoulli) else functools.partial(jax.nn.softmax, axis=-1)
        if method == "probit":
            found = predict_seen(self._linear_model, x, seen)
            return link(found.mean / jnp.sqrt(1 + jnp.pi / 8 * found.variance))
        key, total = jr.key(0) if key is None else key, jnp.zeros_like(seen.network)
        for part in np.array_split(np.arange(num_samples), -(-num_samples // 100)):
            total += jnp.sum(link(sample_of(self._linear_model, x, seen, key, part)), axis=1)
        return total / num_samples

    @property
    def _linear_model(self) -> LinearModel:
        fields, given = vars(self), self.diagnostics
        found = {name: fields[name] for name in _OF_LINEAR_MODEL}
        return assembled(
            LinearModel, found | {"refined": given.mean == "refined", "missed_as_noise": given.missed_as_noise}
        )

    @checked(traceable=True)
    def tangent(self, operator: Operator) -> Tangent:
        """The operator, which need not be linear, to first order around the posterior's mean."""
        return Tangent(operator, PointFunction(self.mean_model))

    @property
    def mean_model(self) -> Model:
        """The linearised network whose outputs are the mean inside the context region, where no feature is too large."""
        shift = self.shift if self.later is None else self.shift + self.later.step @ self.scale
        return linear_model(self.model, self.prior if self.diagnostics.mean == "refined" else None, shift)

    @property
    def misfit_to_noise(self) -> float | None:
        r"""Prior variance that the network's features miss at the training inputs, over the noise variance.

        Well below 1 the posterior is the Gaussian process's. Above it the linearised model explains what it cannot
        represent as function, and may be overconfident, or (`diagnostics.missed_as_noise`) as noise, and follows the
        data less closely: use a wider network, more context points, or a larger noise. None unless the noise is Gaussian.
        """
        return self.diagnostics.misfit_to_noise

    @property
    def verdict(self) -> Verdict:
        """Whether this posterior can be trusted, why, and what to do; printed first."""
        return self.diagnostics.verdict

    def __str__(self) -> str:
        misfit, text = self.misfit_to_noise, f"Verdict: {self.verdict}\n{self.diagnostics}"
        if self.later is not None:
            text = f"{text}Conditioned since on {int(self.later.num_rows)} rows; all above is about the posterior before them.\n"
        if misfit is None or misfit < _choices.CAUTION:
            return text
        effect = "follows the data less closely" if self.diagnostics.missed_as_noise else "may be overconfident"
        return (
            f"{text}Caution: the features miss {misfit:.3g} times the noise variance at the training inputs, so this "
            f"posterior {effect}; use a wider network, more context points or a larger noise.\n"
        )

    def __repr__(self) -> str:
        return f"Posterior({self.model.name}, {self.model.num_params} weights, rank {self.diagnostics.rank}, {self.diagnostics.form} form)"


def remember(posterior: Posterior, told: tuple[Told, ...]) -> None:
    """Let a new posterior know the values that it was made of, for `Posterior.leave_one_out`."""
    object.__setattr__(posterior, "told", told)


# Functions, not methods: each look-up of a method of an Equinox module takes a tenth of a millisecond.
def _check_inputs(posterior: Posterior, x, *, argument: str = "x"):
    x = _check_on_host(posterior, x, argument=argument)
    return x if isinstance(x, Tracer) else to_device(x)


def _check_on_host(posterior: Posterior, x, *, argument: str):
    """The same without the copy to the device, which few rows need not take."""
    x = Model.check_on_host(posterior.model, x, argument=argument)
    if x.shape[1:] != (wanted := posterior.context_points.shape[1:]):
        raise ValueError(
            f"{argument} has rows of shape {x.shape[1:]}, but the model was fitted to {wanted}; pass the same columns"
        )
    return x


def _warn_if_outside(posterior: "Posterior", x: Float[np.ndarray, "n ..."]) -> None:
    """New data hardly change a posterior that has gone back to the prior: more than halfway, by its variance."""
    flat, points = (np.asarray(values).reshape(len(values), -1) for values in (x, posterior.context_points))
    nearest = np.clip(flat, points.min(axis=0), points.max(axis=0))
    beyond = np.any(nearest != flat, axis=1)
    if not np.any(beyond):
        return
    correlation = np.asarray(posterior.prior.correlation(to_device(flat[beyond]), to_device(nearest[beyond])))
    if count := int(np.sum(np.any(correlation**2 < 0.5, axis=1))):
        warnings.warn(
            f"condition: {count} of {len(x)} inputs lie so far outside the box of the context points that the posterior has gone back to the "
            "prior, and these data tell it little; call laplace with all data and context_points that cover them",
            VerdictWarning,
            stacklevel=4,
        )


def _check_targets(y, likelihood: Likelihood, num_rows: int, width: int, dtype, *, caller: str):
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"Posterior.{caller}: likelihood must be a Likelihood, but got {type(likelihood).__name__}")
    if isinstance(y, Tracer):
        return y
    # By the class: a bound method of an Equinox module is made anew at each access, which a small update would notice.
    kind = type(likelihood)
    targets = kind.check_targets(likelihood, y, num_rows=num_rows)
    wanted = kind.num_outputs(likelihood, targets)
    if wanted not in (None, width):
        raise ValueError(
            f"Posterior.{caller}: what is predicted has {width} outputs, but {type(likelihood).__name__} needs {wanted} for this "
            "y; change the shape of y"
        )
    if targets.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what is too large is refused in the next line
            check_squares(np.asarray(targets).astype(dtype), f"Posterior.{caller}: y")
    return targets


def _check_shift(posterior: Posterior, operator: Operator) -> None:
    """Refuse operators that depend on where x is, if the posterior works with inputs from which something was subtracted."""
    if (origin := posterior.model.origin) is None:
        return
    far = np.asarray(posterior.context_points, np.float64) + np.asarray(origin, np.float64)
    if not follows_shifts(operator, far, posterior.prior.num_outputs, np.asarray(origin)):
        raise ValueError(f"Posterior: {not_shifted(operator, np.asarray(origin))}")


def _through(posterior: Posterior, of: Operator | Callable | None) -> LinearModel:
    """The linear model of what an operator makes of the function."""
    linear, operator = posterior._linear_model, as_operator(of)
    if isinstance(operator, Value):
        return linear
    concrete, stated = not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((posterior, operator))), True
    # Also where x is traced: what is known of the operator does not depend on it.
    with jax.ensure_compile_time_eval() if concrete else contextlib.nullcontext():
        if concrete:
            operator = settle(operator, posterior.model, posterior.prior, np.asarray(posterior.context_points))
            _check_shift(posterior, operator)
        if not operator.linear:
            operator = posterior.tangent(operator)
        if concrete:
            stated = is_stated(posterior.prior, operator, np.asarray(posterior.context_points))
    return dataclasses.replace(
        linear,
        model=posterior.model.through(operator),
        prior=SeenPrior(posterior.prior, operator, stated),
        likelihood=None,
    )
