"""The linearised Laplace approximation in weight space."""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from fsplaplace.arguments import check_fields, checked
from fsplaplace.host import one_blas_thread, resolve_budget
from fsplaplace.likelihoods import Gaussian, Likelihood
from fsplaplace.methods._curvature import check_memory, curvature
from fsplaplace.methods._evidence import Evidence, maximise_evidence
from fsplaplace.methods._kfac import check_layers
from fsplaplace.methods._method import Method, has_learnable_scale
from fsplaplace.methods._posterior import LinearisedPosterior
from fsplaplace.methods.map import MAP
from fsplaplace.networks import Model, layer_order
from fsplaplace.training import check_problem

_STRUCTURES = ("full", "kfac", "diagonal", "last_layer")
_EXACT = ("full", "last_layer")


class WeightLaplace(Method):
    r"""$w \sim \mathcal N(w_{\mathrm{MAP}}, (\sum_i J_i^\top H_i J_i + \delta I)^{-1})$, predictions linearised at the MAP.

    The log evidence is $\sum_i \log p(y_i \mid f_i) - \frac{\delta}{2} \lVert w \rVert^2 - \frac12 \log\det(I + \Lambda / \delta)$.

    Args:
        structure: of the curvature $\Lambda$: "full" (exact, $O(\min(nq, p)\, p)$ memory), "kfac" (a Kronecker product per
            layer), "diagonal", or "last_layer" (exact over the last layer's weights, the others fixed).
        prior_precision: $\delta$: a number; "evidence" for the maximiser of the log evidence; or "layerwise" for one per
            layer, by evidence. With either, a learnable scale of a `Gaussian` likelihood is fitted along where the
            curvature is exact ("full", "last_layer"); K-FAC and the diagonal overstate the complexity, for which more noise
            would make up (boston: 1.7 standard deviations of the target), and keep the noise of the training.
        rounds: with the evidence, how often training and tuning alternate: each later round trains again, from where
            the last ended, under the precision and noise just found.
        train: how the MAP is found; None takes the model as trained already. Under a fixed `prior_precision` it is
            trained with that.
        memory_budget: bytes; a quarter of RAM by default.

    Time beyond training: $O(\min(nq, p)^2 p)$ for "full", q reverse passes per row for the others.
    """

    structure: Literal["full", "kfac", "diagonal", "last_layer"] = "full"
    prior_precision: float | Literal["evidence", "layerwise"] = "evidence"
    rounds: int = 1
    train: MAP | None = MAP()
    memory_budget: float | None = None

    def __check_init__(self):
        check_fields(self)
        if self.structure not in _STRUCTURES:
            raise ValueError(
                f"WeightLaplace: structure is {self.structure!r}; pass one of {', '.join(map(repr, _STRUCTURES))}"
            )
        named = self.prior_precision in ("evidence", "layerwise")
        if not named and (isinstance(self.prior_precision, str) or not self.prior_precision > 0):
            raise ValueError(
                f"WeightLaplace: prior_precision is {self.prior_precision!r}; pass a positive number, 'evidence' or 'layerwise'"
            )
        if self.rounds < 1:
            raise ValueError(f"WeightLaplace: rounds is {self.rounds}; pass 1 or more")

    @checked
    def fit(self, model, X, y, likelihood, *, key, prior=None, context=None, progress=True) -> LinearisedPosterior:
        X, targets = check_problem(model, None, likelihood, X, y)
        budget = resolve_budget(self.memory_budget)
        part = last_layer(model, X) if self.structure == "last_layer" else model
        if self.structure == "kfac":
            check_layers(model)
        check_memory(self.structure, part, X, budget)

        tuned = isinstance(self.prior_precision, str)
        train = self.train
        if train is not None and not tuned:
            train = dataclasses.replace(train, prior_precision=self.prior_precision)
        for turn in range(self.rounds if tuned and train is not None else 1):
            if train is not None:
                trained = train.fit(model, X, y, likelihood, key=jax.random.fold_in(key, turn), progress=progress)
                model, likelihood = trained.model, trained.likelihood
            posterior, groups = self._approximate(model, likelihood, X, targets, budget)
            likelihood = posterior.likelihood
            if train is not None and groups.size == model.num_params:
                precision = jnp.asarray(posterior.prior_precision)[jnp.asarray(groups)]
                train = dataclasses.replace(train, prior_precision=precision)
        return posterior  # pyright: ignore[reportPossiblyUnboundVariable] - there is at least one round

    def _approximate(
        self, model: Model, likelihood: Likelihood, X, targets, budget: float
    ) -> tuple[LinearisedPosterior, Int[np.ndarray, " p"]]:
        part = last_layer(model, X) if self.structure == "last_layer" else model
        groups = layer_groups(part, X) if self.prior_precision == "layerwise" else np.zeros(part.num_params, int)
        with one_blas_thread():
            data_curvature = curvature(self.structure, part, likelihood, X, targets, groups, budget=budget)
            squared_norms = np.bincount(groups, np.asarray(part.weights, dtype=np.float64) ** 2)
            evidence = Evidence(data_curvature, squared_norms, *_fit_statistics(model, likelihood, X, targets))
            if isinstance(self.prior_precision, str):
                tune_noise = self.structure in _EXACT and has_learnable_scale(likelihood)
                best = maximise_evidence(evidence, tune_noise=tune_noise)
            else:
                best = evidence.at(np.full(data_curvature.num_groups, float(self.prior_precision)))
            covariance = data_curvature.covariance(best.precision, best.noise_factor, model.dtype)
        if best.noise_factor != 1.0:
            likelihood = _rescale_noise(likelihood, best.noise_factor)
        posterior = LinearisedPosterior(
            model=part,
            likelihood=likelihood,
            weight_covariance=covariance,
            log_evidence=jnp.asarray(best.value, model.dtype),
            prior_precision=jnp.asarray(best.precision, model.dtype),
        )
        return posterior, groups


def layer_groups(model: Model, X: Float[Array, "n ..."] | None = None) -> Int[np.ndarray, " p"]:
    """For each weight, the index of its layer, in the order in which the layers act.

    Args:
        model: the network.
        X: inputs, for their shape; found by trying for tabular ones.
    """
    leaves = jax.tree.leaves(model.params)
    layer_of = {array: index for index, layer in enumerate(layer_order(model, X).layers) for array in layer.arrays}
    return np.concatenate([np.full(leaf.size, layer_of[array]) for array, leaf in enumerate(leaves)])


def last_layer(model: Model, X: Float[Array, "n ..."] | None = None) -> Model:
    """The same function with only its last layer's weights Bayesian, and the others frozen.

    The last layer is the one whose weights act last, whatever it is called; layers that act side by side, as two heads do,
    are one. It is the `model` of a last-layer posterior: `fsplaplace.load(path, last_layer(model))` reads one back.

    Args:
        model: the network.
        X: inputs, for their shape; found by trying for tabular ones.
    """
    order = layer_order(model, X)
    stage = order.layers[-1].stage
    instead = "; choose the weights with the `mask` of fsplaplace.as_model and use structure='full'"
    if order.hidden_by is not None:
        raise ValueError(
            f"last_layer: {model.name} applies its last weights inside `{order.hidden_by}`, where their order cannot be seen{instead}"
        )
    if not order.every_output:
        raise ValueError(
            f"last_layer: some outputs of {model.name} do not depend on its last layer ({order.layers[-1].name}){instead}"
        )
    if stage < 1 and len(order.layers[-1].arrays) > 1:
        raise ValueError(
            f"last_layer: {model.name} has no matrix product of data and weights, so its layers cannot be told apart{instead}"
        )
    chosen = {array for layer in order.layers if layer.stage == stage for array in layer.arrays}
    leaves, structure = jax.tree.flatten(model.params)
    kept = [leaf if array in chosen else None for array, leaf in enumerate(leaves)]
    rest = [None if array in chosen else leaf for array, leaf in enumerate(leaves)]
    params, frozen = jax.tree.unflatten(structure, kept), jax.tree.unflatten(structure, rest)
    return Model(params, (frozen, model.frozen), _PartlyFrozen(model.call), model.name, model.origin)


@dataclasses.dataclass(frozen=True)
class _PartlyFrozen:
    """A network's call with some of its weights among the frozen parts."""

    call: Any

    def __call__(self, params, frozen, x):
        return self.call(eqx.combine(params, frozen[0]), frozen[1], x)


def _fit_statistics(model: Model, likelihood: Likelihood, X, targets) -> tuple[float, float, int]:
    """The log-likelihood at the weights and, for a Gaussian, the sum of squared standardised residuals and their number."""
    outputs = model(X)
    log_likelihood = float(jnp.sum(likelihood.log_prob(outputs, targets)))
    if not isinstance(likelihood, Gaussian):
        return log_likelihood, 0.0, 0
    residual = (np.asarray(targets, np.float64) - np.asarray(outputs, np.float64)) / np.asarray(likelihood.scale)
    return log_likelihood, float(np.sum(residual**2)), residual.size


def _rescale_noise(likelihood: Likelihood, factor: float) -> Likelihood:
    """The Gaussian with its precision multiplied by the factor."""
    shift: Float[Array, ""] = -0.5 * jnp.log(factor)
    return eqx.tree_at(lambda tree: tree.log_scale, likelihood, replace_fn=lambda value: value + shift)
