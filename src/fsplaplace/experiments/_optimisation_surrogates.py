"""Every surrogate of the experiment as a model of BoTorch, fitted to points of the unit cube."""

# torch types the attributes of its modules, and BoTorch those of its posteriors, too loosely to be checked.
# pyright: reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false, reportArgumentType=false

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.ensemble import EnsembleModel
from botorch.models.model import Model
from botorch.models.transforms.outcome import Standardize
from botorch_community.models.vblls import VBLLModel
from gpjax.kernels import Matern52
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior
from numpy.typing import ArrayLike
from torch import Tensor
from torch.autograd.function import once_differentiable

import fsplaplace as fsp
from fsplaplace.botorch import FSPModel
from fsplaplace.context import LatinHypercube, Uniform
from fsplaplace.estimators import WeightedRows, weighted
from fsplaplace.experiments._methods import keys, usual_mlp
from fsplaplace.experiments._optimisation_names import AUTHORS, ENSEMBLE, GAMMA_GP, GP, LAPLACE, OURS, VARIATIONAL, VBLL
from fsplaplace.host import padded_size
from fsplaplace.likelihoods import Gaussian
from fsplaplace.methods import FVI, MAP, Ensemble, WeightLaplace
from fsplaplace.tuning import fit_prior

# Functions drawn from posteriors that BoTorch has no Gaussian for; as many as the acquisition function's samples.
_DRAWS = 128
_WIDTHS = (50, 50)
# Problems on which the paper's Laplace has Kronecker factors; a diagonal on the others.
_KFAC = ("Branin", "PDE")


def fit(
    method: str, task: str, X: Tensor, Y: Tensor, settings: Mapping[str, Any], *, seed: int, last: Model | None
) -> Model:
    """A surrogate of values Y, (n, 1), at points X of the unit cube.

    Args:
        method: one of `SURROGATES` but Sobol.
        task: the problem.
        X: (n, d).
        Y: to be maximised.
        settings: of the preset: steps of training, and points and rank of the paper's posterior.
        seed: of networks and points.
        last: the surrogate of the iteration before.
    """
    if method == OURS:
        return last.updated(X, Y) if isinstance(last, FSPModel) else FSPModel(X, Y, seed=seed)
    if method in (GP, GAMMA_GP):
        return _gaussian_process(X, Y, gamma=method == GAMMA_GP)
    torch.manual_seed(seed)
    if method == VBLL:
        return _last_layer(X, Y, int(settings["vbll_epochs"]))
    scale = Standardize(m=1)
    targets = scale(Y)[0].numpy()
    scale.eval()
    posterior = _FITS[method](task, X.numpy(), targets, settings, seed)
    return DrawnFunctions(posterior, scale, seed=seed)


def _gaussian_process(X: Tensor, Y: Tensor, *, gamma: bool) -> SingleTaskGP:
    """BoTorch's default; or Matern-5/2 with a length scale for each input, gamma priors as its default once were, mean zero."""
    options = {}
    if gamma:
        base = MaternKernel(nu=2.5, ard_num_dims=X.shape[1], lengthscale_prior=GammaPrior(3.0, 6.0))
        options = {
            "covar_module": ScaleKernel(base, outputscale_prior=GammaPrior(2.0, 0.15)), "mean_module": ZeroMean(),
        }  # fmt: skip
    model = SingleTaskGP(X, Y, **options)
    try:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except ModelFittingError:
        # With the values that its priors suggest, as a user's loop would go on.
        model.eval()
    return model


def _last_layer(X: Tensor, Y: Tensor, epochs: int) -> VBLLModel:
    """Variational Bayes in the last layer; its defaults on standardised targets, which it leaves to its user."""
    model = _StandardisedVBLL(X, Y)
    model.fit(X, model.standardised(Y), optimization_settings={"num_epochs": epochs})
    return model


class _StandardisedVBLL(VBLLModel):
    """Predicts in the units of the targets."""

    def __init__(self, X: Tensor, Y: Tensor):
        super().__init__(in_features=X.shape[1], hidden_features=64, num_layers=3, out_features=1)
        self._scale = Standardize(m=1)
        self._scale(Y)
        self._scale.eval()

    def standardised(self, Y: Tensor) -> Tensor:
        return self._scale(Y)[0]

    def posterior(self, X: Tensor, *args: Any, posterior_transform: Any = None, **options: Any):
        found = self._scale.untransform_posterior(super().posterior(X, *args, **options))
        return found if posterior_transform is None else posterior_transform(found)


class _Data(eqx.Module):
    """Standardised rows, padded with rows of no weight, and what the marginal likelihood of a Gaussian process says of them."""

    rows: WeightedRows
    prior: fsp.Prior
    likelihood: fsp.likelihoods.Likelihood


def _data(X: np.ndarray, y: np.ndarray) -> _Data:
    fitted = fit_prior(fsp.Prior(Matern52()), X, y, key=jr.key(0), standard_errors=False, hyperpriors=False)
    rows = WeightedRows(X, y, np.ones(len(X))).padded()
    return _Data(rows, fitted.prior, weighted(fitted.likelihood, rows.weights))


def _fit_authors(task, X, y, settings, seed) -> fsp.Posterior:
    """Algorithms 1 and 2 with the authors' numbers, as far as the preset allows."""
    data, (network_key, train_key, points_key) = _data(X, y), keys(seed, 3)
    model = fsp.as_model(usual_mlp(_WIDTHS, X.shape[1], 1, key=network_key))
    box = np.zeros(X.shape[1]), np.ones(X.shape[1])
    trained = fsp.train(
        model, data.prior, data.likelihood, Uniform(*box), data.rows.X, data.rows.y, key=train_key,
        steps=int(settings["steps"]), num_context=int(settings["train_context"]), optimizer=optax.adam(5e-3),
        progress=False,
    )  # fmt: skip
    points = LatinHypercube(*box).sample(int(settings["posterior_context"]), key=points_key)
    posterior = fsp.laplace(
        trained.model, data.prior, data.likelihood, data.rows.X, data.rows.y, context_points=points, form="precision",
        rank=int(settings["rank"]),
    )  # fmt: skip
    return _with_rank(posterior, int(settings["rank"]))


def _with_rank(posterior: fsp.Posterior, rank: int) -> fsp.Posterior:
    """With rows of zeros up to this rank, so that the next iteration has the same shapes."""
    more = ((0, rank - posterior.scale.shape[0]), (0, 0))
    return dataclasses.replace(posterior, scale=jnp.asarray(np.pad(np.asarray(posterior.scale), more)))


def _fit_laplace(task, X, y, settings, seed):
    data, (network_key, fit_key) = _data(X, y), keys(seed, 2)
    model = fsp.as_model(usual_mlp(_WIDTHS, X.shape[1], 1, key=network_key))
    method = WeightLaplace(structure="kfac" if task in _KFAC else "diagonal", train=MAP(steps=int(settings["steps"])))
    return method.fit(model, data.rows.X, data.rows.y, data.likelihood, key=fit_key, progress=False)


def _fit_fvi(task, X, y, settings, seed):
    data, (network_key, fit_key) = _data(X, y), keys(seed, 2)
    model = fsp.as_model(usual_mlp(_WIDTHS, X.shape[1], 1, key=network_key))
    context = Uniform(np.zeros(X.shape[1]), np.ones(X.shape[1]))
    method = FVI(steps=int(settings["fvi_steps"]), predict_samples=_DRAWS)
    return method.fit(
        model, data.rows.X, data.rows.y, data.likelihood, key=fit_key, prior=data.prior, context=context, progress=False
    )


def _fit_ensemble(task, X, y, settings, seed):
    data, (network_key, fit_key) = _data(X, y), keys(seed, 2)
    model = fsp.as_model(usual_mlp(_WIDTHS, X.shape[1], 1, key=network_key))
    method = Ensemble(member=MAP(steps=int(settings["steps"])))
    return method.fit(model, data.rows.X, data.rows.y, data.likelihood, key=fit_key, progress=False)


_FITS: dict[str, Callable] = {
    AUTHORS: _fit_authors, LAPLACE: _fit_laplace, VARIATIONAL: _fit_fvi, ENSEMBLE: _fit_ensemble,
}  # fmt: skip


class DrawnFunctions(EnsembleModel):
    """Functions drawn from a posterior, equally likely: joint over any number of points, with gradients in them.

    Args:
        posterior: of standardised targets; an ensemble's members are the functions themselves.
        scale: of the targets.
        seed: of the draw.
    """

    def __init__(self, posterior: Any, scale: Standardize, *, seed: int):
        super().__init__()
        self._num_outputs = 1
        self.outcome_transform = scale
        # Without noise for each row, so that the next posterior has the same shapes.
        self._posterior = dataclasses.replace(posterior, likelihood=Gaussian(1.0))
        self._seed = seed

    def forward(self, X: Tensor) -> Tensor:
        """(..., q, d) to (..., s, q, 1)."""
        draws = _Drawn.apply(X.reshape(-1, X.shape[-1]), self)
        return draws.reshape(-1, *X.shape[:-1], 1).movedim(0, -3)


class _Drawn(torch.autograd.Function):
    """From torch to JAX and back: (n, d) to (s, n)."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, model: DrawnFunctions):
        ctx.model = model
        ctx.save_for_backward(X)
        with jax.enable_x64(True):
            values = _draws(model._posterior, _padded(X.detach().numpy()), model._seed)
        return torch.tensor(np.asarray(values))[:, : X.shape[0]]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor):
        (X,), model = ctx.saved_tensors, ctx.model
        with jax.enable_x64(True):
            rows = _padded(X.detach().numpy())
            above = np.zeros((cotangents[0].shape[0], rows.shape[0]))
            above[:, : X.shape[0]] = cotangents[0].detach().numpy()
            slope = _pulled(model._posterior, rows, model._seed, above)
        return torch.tensor(np.asarray(slope))[: X.shape[0]], None


@eqx.filter_jit
def _draws(posterior: Any, x: ArrayLike, seed: int):
    return _functions(posterior, x, seed)


@eqx.filter_jit
def _pulled(posterior: Any, x: ArrayLike, seed: int, above: ArrayLike):
    return jax.vjp(lambda rows: _functions(posterior, rows, seed), x)[1](above)[0]


def _functions(posterior, x, seed: int):
    if hasattr(posterior, "weights"):
        return jax.vmap(lambda row: posterior.model.evaluate(posterior.model.unravel(row), x)[:, 0])(posterior.weights)
    return posterior.sample(x, key=jr.key(seed), num_samples=_DRAWS)[..., 0]


def _padded(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.repeat(rows[-1:], padded_size(len(rows)) - len(rows), axis=0)])
