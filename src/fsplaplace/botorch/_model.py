"""A surrogate for BoTorch: a network with a Gaussian-process prior, joint over points and outputs, with gradients."""

# torch types the attributes of its modules, and BoTorch those of its posteriors, too loosely to be checked.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportIncompatibleMethodOverride=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false, reportReturnType=false

import copy
import dataclasses
import inspect
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError, UnsupportedError
from botorch.models.model import FantasizeMixin, Model
from botorch.models.transforms.outcome import OutcomeTransform, Standardize
from botorch.posteriors import GPyTorchPosterior, Posterior
from botorch.utils.datasets import SupervisedDataset
from gpjax.kernels import AbstractKernel
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from linear_operator import to_linear_operator
from linear_operator.utils.cholesky import psd_safe_cholesky
from scipy.stats import chi2
from torch import Tensor

from fsplaplace import io
from fsplaplace.arguments import Range, checked
from fsplaplace.botorch._checks import (
    check_bounds,
    check_data,
    check_inputs,
    check_noise,
    check_observations,
    check_prior,
    check_size,
    check_transformed,
)
from fsplaplace.botorch._conditioning import Observed, moments, nothing_observed, observe
from fsplaplace.botorch._features import Features, Process
from fsplaplace.botorch._fit import Data, Last, Settings, fit_surrogate, refit_with
from fsplaplace.laplace import Posterior as FunctionPosterior
from fsplaplace.likelihoods import Gaussian
from fsplaplace.prior import Prior

# GPyTorch wants a bound below the noise variance; BoTorch's own hides noise that is really there.
_SMALLEST_NOISE = 1e-10
# New rows are taken as they come while their surprise is within this share of its distribution, and rows since the last fit
# have not grown by this factor: hyper-parameters move with the logarithm of the number of rows. So long is a ridge kept, too.
_USUAL, _GROWTH = 0.95, 1.5


class FSPModel(Model, FantasizeMixin):
    r"""A Bayesian neural network as a BoTorch model.

    The prior's kernel is fitted to the data (marginal likelihood with weak hyper-priors), a network is given features that match it,
    and the posterior is `fsplaplace.laplace`'s. Posteriors are joint over q points and all outputs; conditioning on
    observations is closed-form.

    Args:
        train_X: inputs, (n, d).
        train_Y: targets, (n, m).
        train_Yvar: variance of each target's noise, (n, m); fitted, one for each output, if left out.
        input_transform: of BoTorch, applied to inputs.
        outcome_transform: of BoTorch, applied to targets; `Standardize` by default, None for none.
        kernel: "matern52", another name that `fsplaplace.FSPRegressor` takes, or a kernel of GPJax; each output has its own.
        network: widths of the hidden layers.
        prior: given, it is not fitted; it lives in the units of transformed inputs and targets.
        noise: standard deviation of the noise in these units, if it is known.
        bounds: (2, d), box of the transformed inputs that will be looked at; the unit cube by default, and at least the data. A
            column of data that are all outside the unit interval has their range by default.
        steps: of training. None by default: the features of the network at its start match the prior, and the mean is the
            mode of the linear model on them.
        num_context: points besides the data at which the prior is enforced, at least: on faces and corners of the box, around
            the best rows, and throughout the box.
        seed: decides the network and the points.
        last: a model of the same problem with fewer rows: the search for the prior starts from its prior, training from its
            weights. See `updated`.

    Time of the constructor: that of `fit_prior` and `laplace`, about a second; compiled programs are shared by data sets of
    similar size, so that only the first of a loop takes longer.

    Example:
        >>> model = FSPModel(train_X, train_Y)  # doctest: +SKIP
        >>> candidates, _ = optimize_acqf(qLogExpectedImprovement(model, best_f), bounds, q=4, ...)  # doctest: +SKIP
    """

    @checked(ranges={"steps": Range("0 or more", least=0, most=2**31 - 1)})
    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        input_transform: torch.nn.Module | None = None,
        outcome_transform: OutcomeTransform | Literal["standardize"] | None = "standardize",
        *,
        kernel: str | AbstractKernel = "matern52",
        network: Sequence[int] = (400,),
        prior: Prior | None = None,
        noise: float | None = None,
        bounds: Tensor | None = None,
        steps: int = 0,
        num_context: int = 384,
        seed: int = 0,
        last: "FSPModel | None" = None,
    ):
        super().__init__()
        check_data(train_X, train_Y, train_Yvar)
        with torch.no_grad():
            inputs = self.transform_inputs(train_X, input_transform)
        check_bounds(bounds, inputs.shape[-1])
        check_prior(prior, train_Y.shape[-1])
        if outcome_transform == "standardize":
            outcome_transform = Standardize(m=train_Y.shape[-1])
        targets, variance = train_Y, train_Yvar
        if isinstance(outcome_transform, OutcomeTransform):
            outcome_transform.train()
            targets, variance = outcome_transform(Y=train_Y, Yvar=train_Yvar, X=inputs)
            outcome_transform.eval()
            self.outcome_transform = outcome_transform
        check_transformed(inputs, targets, variance, before=train_Y, bounds=bounds)
        if input_transform is not None:
            self.input_transform = input_transform
        settings = Settings(
            kernel, network, prior, noise, None if bounds is None else _numpy(bounds).astype(_numpy(inputs).dtype),
            steps, num_context, seed,
        )  # fmt: skip
        self._data = Data(_numpy(inputs), _numpy(targets), None if variance is None else _numpy(variance))
        self._settings = settings
        self._ridge_rows, kept = train_X.shape[0], None
        if last is not None:
            kept = Last(last.fitted, apart=last._apart)
            if last._data.X.dtype == self._data.X.dtype and train_X.shape[0] < _GROWTH * last._ridge_rows:
                # Ridges depend on the prior and the network, as the prior itself on the logarithm of the number of rows.
                self._ridge_rows, kept = last._ridge_rows, kept._replace(delta=last.fitted.diagnostics.delta)
        posterior, self._apart = fit_surrogate(self._data, settings, kept)
        # What the next model of a loop is built with.
        self._options = {
            "kernel": kernel, "network": network, "prior": prior, "noise": noise, "bounds": bounds, "steps": steps,
            "num_context": num_context, "seed": seed,
        }  # fmt: skip
        self._fitted_rows, self._fitted_elsewhere = train_X.shape[0], False
        self.train_inputs = (train_X,)
        self.train_targets = targets.squeeze(-1) if targets.shape[-1] == 1 else targets.mT
        self._outputs: list[int] | None = None
        self._observed: Observed | None = None
        self._use(posterior)
        self.eval()

    @classmethod
    def construct_inputs(cls, training_data: SupervisedDataset, **options: Any) -> dict[str, Any]:
        """Arguments of the constructor from BoTorch's data sets, with further ones as they are (Ax: `model_options`)."""
        return {**super().construct_inputs(training_data), **options}

    def _use(self, posterior: FunctionPosterior) -> None:
        """Predict from this posterior."""
        assert isinstance(posterior.likelihood, Gaussian)
        noise = torch.as_tensor(np.array(posterior.likelihood.scale, dtype=float) ** 2).to(self.train_inputs[0])
        self._noise = noise
        self._posterior = posterior
        # Noise has as many rows as there are data: without it the next posterior has the same shapes.
        self._features = Features(dataclasses.replace(posterior, likelihood=Gaussian(1.0)))
        several = noise.shape[-1] > 1
        if noise.dim() == 2:
            self.likelihood = FixedNoiseGaussianLikelihood(noise=noise.mT if several else noise.squeeze(-1))
        else:
            self.likelihood = GaussianLikelihood(
                noise_constraint=GreaterThan(_SMALLEST_NOISE), batch_shape=noise.shape if several else torch.Size()
            )
            self.likelihood.noise = noise.unsqueeze(-1).clamp(min=2 * _SMALLEST_NOISE)
        self.likelihood.to(self.train_inputs[0])
        for parameter in self.likelihood.parameters():
            parameter.requires_grad_(False)
        self.likelihood.eval()

    @property
    def fitted(self) -> FunctionPosterior:
        """The posterior of fsplaplace before any `condition_on_observations`, in the units of transformed data."""
        return self._posterior

    @property
    def fitted_elsewhere(self) -> bool:
        """Whether prior, noise and network came by `load_state_dict`, and not from a fit to this model's data."""
        return self._fitted_elsewhere

    @property
    def num_outputs(self) -> int:
        """m."""
        return self._posterior.prior.num_outputs if self._outputs is None else len(self._outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """Of the hypothetical observations that it was conditioned on."""
        return torch.Size() if self._observed is None else self._observed.batch_shape

    @checked
    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
        **_: Any,
    ) -> Posterior:
        """The joint posterior at X.

        Args:
            X: (..., q, d).
            output_indices: some of the outputs; all by default.
            observation_noise: True adds the noise (its mean where each row has its own); or variances, (..., q, m) or (..., 1, m),
                in the units of transformed targets.
            posterior_transform: of BoTorch.
        """
        if output_indices is not None:
            if not output_indices:
                raise ValueError("FSPModel.posterior: output_indices is empty; pass at least one number of an output")
            return self.subset_output(output_indices).posterior(
                X, observation_noise=observation_noise, posterior_transform=posterior_transform
            )
        self.eval()
        check_inputs(X, self.train_inputs[0])
        inputs = self.transform_inputs(X)
        if isinstance(observation_noise, Tensor):
            check_noise(observation_noise, inputs, self.num_outputs)
        distribution = self._distribution(inputs, observation_noise)
        found: Posterior = GPyTorchPosterior(distribution=distribution)
        if hasattr(self, "outcome_transform"):
            found = self.outcome_transform.untransform_posterior(found, X=inputs)
        return found if posterior_transform is None else posterior_transform(posterior=found, X=inputs)

    def forward(self, X: Tensor) -> MultivariateNormal:
        """The posterior of the function at transformed inputs, in the units of transformed targets."""
        return self._distribution(X, False)

    @checked
    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **_: Any) -> "FSPModel":
        """The model given observations, without a new fit: `Posterior.condition`, batched and with gradients.

        Args:
            X: (..., k, d).
            Y: (..., k, m), in the units of the problem; leading axes that X has not are several hypothetical data sets.
            noise: variances in the units of transformed targets, broadcastable to Y; the model's own by default.
        """
        check_inputs(X, self.train_inputs[0])
        check_observations(X, Y, self.num_outputs)
        inputs = self.transform_inputs(X)
        if noise is not None:
            check_noise(noise, inputs, self.num_outputs)
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform(Y=Y, X=inputs)
        process, before = self.process_at(inputs), self.known()
        variance = self._noise_of(True if noise is None else noise, process)
        if self._missed_as_noise:
            variance = variance + process.unexplained
        conditioned = copy.copy(self)
        # A copy of a module shares its dictionaries; these two are changed.
        conditioned.__dict__ = {**self.__dict__}
        conditioned._observed = observe(before, process, Y, variance)
        batch = torch.broadcast_shapes(conditioned._observed.batch_shape, X.shape[:-2], Y.shape[:-2])
        old = self._original_inputs()
        parts = (part.expand(*batch, *part.shape[-2:]) for part in (old, X.detach()))
        joined = torch.cat(list(parts), dim=-2)
        conditioned._has_transformed_inputs, conditioned._original_train_inputs = False, None
        conditioned.train_inputs = (joined,)
        conditioned.eval()
        return conditioned

    @checked
    def updated(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        refit: Literal["every", "condition"] = "every",
    ) -> "FSPModel":
        r"""The model of the next iteration: with the same options, given all data so far.

        Args:
            train_X: inputs, (n + k, d), the n rows of this model first.
            train_Y: targets, (n + k, m).
            train_Yvar: as in the constructor.
            refit: "every": a new fit that starts from this one. "condition": the k new rows are added in closed form as long as
                the data say that the prior is still right; a new fit if their $\chi^2 = r^\top C^{-1} r$, with residuals r and
                predictive covariance C, is outside 95 % of its distribution, or if the rows are half as many again as at the last
                fit.

        Time: "every" about half that of a first fit; "condition" that of `condition_on_observations` if that is enough.

        Example:
            >>> model = model.updated(torch.cat([X, X_new]), torch.cat([Y, Y_new]), refit="condition")  # doctest: +SKIP
        """
        check_data(train_X, train_Y, train_Yvar)
        old = self._original_inputs()
        count = old.shape[-2]
        if self.batch_shape or self._outputs is not None:
            raise UnsupportedError(
                "FSPModel.updated: this is a model of fantasies or of some outputs; update the fitted one"
            )
        if train_X.shape[0] < count or not torch.equal(train_X[:count], old.to(train_X)):
            raise InputDataError(
                f"FSPModel.updated: the first {count} rows of train_X are not those of this model; pass all data, old rows first"
            )
        if refit == "condition" and train_X.shape[0] > count:
            noise = None if train_Yvar is None else train_Yvar[count:]
            later = self._conditioned(train_X[count:], train_Y[count:], noise)
            if later is not None:
                return later
        transforms = {
            name: copy.deepcopy(getattr(self, name, None)) for name in ("input_transform", "outcome_transform")
        }
        return FSPModel(train_X, train_Y, train_Yvar, **transforms, **self._options, last=self)

    def _conditioned(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> "FSPModel | None":
        """The model given new rows in closed form; None if they call for a new fit."""
        if X.shape[0] + self._original_inputs().shape[-2] >= _GROWTH * self._fitted_rows:
            return None
        with torch.no_grad():
            inputs, targets, noise = self.transform_inputs(X), Y, Yvar
            if hasattr(self, "outcome_transform"):
                targets, noise = self.outcome_transform(Y=Y, Yvar=Yvar, X=inputs)
            known = moments(self.process_at(inputs), self.known(), inputs, missed_as_noise=self._missed_as_noise)
            variance = self._noise_of(True if noise is None else noise, self.process_at(inputs)).flatten(-2)
            lower = psd_safe_cholesky(known.covariance + torch.diag_embed(variance))
            residual = (targets - known.mean).flatten(-2)[:, None]
            surprise = torch.linalg.solve_triangular(lower, residual, upper=False).square().sum()
        smallest, largest = chi2.interval(_USUAL, residual.shape[0])
        if not smallest <= float(surprise) <= largest:
            return None
        later = self.condition_on_observations(X, Y, noise)
        joined = torch.cat([self.train_targets, targets.squeeze(-1) if targets.shape[-1] == 1 else targets.mT], dim=-1)
        later.train_targets = joined
        return later

    @checked
    def subset_output(self, idcs: list[int]) -> "FSPModel":
        """The model of some of the outputs."""
        if not idcs:
            raise ValueError("FSPModel.subset_output: idcs is empty; pass at least one number of an output")
        if any(not -self.num_outputs <= index < self.num_outputs for index in idcs):
            raise ValueError(f"subset_output: idcs is {idcs}, but the model has {self.num_outputs} outputs")
        kept = list(range(self._posterior.prior.num_outputs)) if self._outputs is None else self._outputs
        if [index % self.num_outputs for index in idcs] == list(range(self.num_outputs)):
            return self
        subset = copy.copy(self)
        subset.__dict__ = {**self.__dict__, "_modules": dict(self._modules)}
        subset._outputs = [kept[index] for index in idcs]
        if hasattr(self, "outcome_transform"):
            subset.outcome_transform = self.outcome_transform.subset_output(idcs)
            subset.outcome_transform.eval()
        if self.train_targets.dim() > 1:
            chosen = self.train_targets[idcs]
            subset.train_targets = chosen.squeeze(0) if len(idcs) == 1 else chosen
        subset.likelihood = copy.deepcopy(self.likelihood)
        if isinstance(subset.likelihood, FixedNoiseGaussianLikelihood):
            noise = self.likelihood.noise[idcs]
            subset.likelihood = FixedNoiseGaussianLikelihood(noise=noise.squeeze(0) if len(idcs) == 1 else noise)
        else:
            raw = self.likelihood.noise_covar.raw_noise[idcs]
            subset.likelihood.noise_covar.raw_noise = torch.nn.Parameter(raw[0] if len(idcs) == 1 else raw, False)
        return subset

    def set_train_data(self, inputs: Tensor | None = None, targets: Tensor | None = None, strict: bool = True) -> None:
        """Inputs as BoTorch shows them to others, transformed or not; the fit stays as it is."""
        if targets is not None:
            raise UnsupportedError(
                "FSPModel.set_train_data: targets cannot be exchanged; build a new FSPModel, or condition_on_observations"
            )
        if inputs is not None:
            self.train_inputs = (inputs,)

    def refit(self) -> None:
        """Fit prior, noise and network to the model's data again, from where they are: after `load_state_dict`, for instance.

        In place, as `botorch.fit.fit_gpytorch_mll` fits a Gaussian process. Time: half that of the constructor.
        """
        posterior, self._apart = fit_surrogate(self._data, self._settings, Last(self._posterior))
        self._use(posterior)
        self._ridge_rows = self._data.X.shape[0]
        self._fitted_elsewhere = False

    def get_extra_state(self) -> dict[str, Any]:
        """Prior, noise and network, for `state_dict`: the bytes of a file of `fsplaplace.save`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "posterior.safetensors"
            io.save(path, self._posterior)
            return {"posterior": torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """The posterior given the model's own data, with prior, noise and network of another model."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "posterior.safetensors"
            path.write_bytes(state["posterior"].numpy().tobytes())
            with jax.enable_x64(self._data.X.dtype == np.float64):
                loaded = io.load(path, self._posterior.model)
            self._use(refit_with(self._data, self._settings, loaded))
        self._fitted_elsewhere = True

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, keep_transforms: bool = True, assign: bool = False
    ) -> None:
        """Prior, noise and network of another model; the data stay this model's own, as with BoTorch's Gaussian processes.

        Args:
            state_dict: of a model with a network of the same shape.
            strict: whether names that are missing or unknown are an error.
            keep_transforms: whether transforms stay as they were fitted to this model's data.
            assign: see torch.
        """
        kept = {name: copy.deepcopy(getattr(self, name, None)) for name in ("input_transform", "outcome_transform")}
        super().load_state_dict(state_dict, strict=strict, assign=assign)
        for name, transform in kept.items():
            if keep_transforms and transform is not None:
                setattr(self, name, transform)

    @property
    def _missed_as_noise(self) -> bool:
        return self._posterior.diagnostics.missed_as_noise

    def _original_inputs(self) -> Tensor:
        return self._original_train_inputs if self._has_transformed_inputs else self.train_inputs[0]

    def process_at(self, inputs: Tensor) -> Process:
        """As it was fitted, at transformed inputs."""
        if inputs.shape[-1] != self._posterior.context_points.shape[-1]:
            raise BotorchTensorDimensionError(
                f"FSPModel: X has {inputs.shape[-1]} columns, but train_X has {self._posterior.context_points.shape[-1]}"
            )
        check_size(inputs, self._posterior.prior.num_outputs, self._posterior.scale.shape[0])
        process = self._features(inputs)
        if self._outputs is None:
            return process
        index = self._outputs
        return Process(process.mean[..., index], process.features[..., index, :], process.unexplained[..., index])

    def known(self) -> Observed:
        """What observations since the fit have told."""
        if self._observed is not None:
            return self._observed
        return nothing_observed(self._features.posterior.scale.shape[0], like=self.train_inputs[0])

    def _noise_of(self, observation_noise: bool | Tensor, process: Process) -> Tensor:
        """Variances of the noise, (..., q, m) or fewer axes."""
        if isinstance(observation_noise, Tensor):
            return observation_noise.expand(*observation_noise.shape[:-2], *process.mean.shape[-2:])
        noise = self._noise.mean(dim=0) if self._noise.dim() == 2 else self._noise
        noise = noise if self._outputs is None else noise[self._outputs]
        return noise.expand(process.mean.shape[-2:])

    def _distribution(self, inputs: Tensor, observation_noise: bool | Tensor) -> MultivariateNormal:
        process = self.process_at(inputs)
        mean, covariance = moments(process, self.known(), inputs, missed_as_noise=self._missed_as_noise)
        if observation_noise is not False:
            noise = self._noise_of(observation_noise, process).flatten(-2)
            covariance = covariance + torch.diag_embed(noise)
        batch = torch.broadcast_shapes(mean.shape[:-2], covariance.shape[:-2])
        mean, covariance = mean.expand(*batch, *mean.shape[-2:]), covariance.expand(*batch, *covariance.shape[-2:])
        if self.num_outputs == 1:
            return MultivariateNormal(mean.squeeze(-1), to_linear_operator(covariance))
        return MultitaskMultivariateNormal(mean, to_linear_operator(covariance))


# Ax asks `inspect.getfullargspec`, which does not look behind decorators, whether there is an argument for transforms.
FSPModel.__signature__ = inspect.signature(FSPModel)


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().numpy()
