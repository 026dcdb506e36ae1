"""What a surrogate is given by BoTorch and its users, refused by name where it cannot be used; BoTorch's own exceptions where it has them."""

import torch
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError, UnsupportedError
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.utils import validate_input_scaling
from torch import Tensor

from fsplaplace.host import check_fits
from fsplaplace.prior import Prior

# Targets vary by at least the smallest number of their dtype to this power, and at most by the largest one to it: their squares,
# and products of those with noise, are numbers then.
_MAGNITUDE = 0.4


def check_data(X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
    """Training data: one set, on the CPU, finite, of one dtype and as many rows everywhere."""
    for name, values in (("train_X", X), ("train_Y", Y), ("train_Yvar", Yvar)):
        if values is not None and values.dtype not in (torch.float32, torch.float64):
            raise InputDataError(f"FSPModel: {name} is {values.dtype}; pass {name}.to(torch.float64)")
    GPyTorchModel._validate_tensor_args(X=X, Y=Y, Yvar=Yvar)
    if X.dim() != 2:
        raise UnsupportedError(
            f"FSPModel: train_X has shape {tuple(X.shape)}; pass one data set, (n, d), and one model for each data set"
        )
    if X.shape[0] != Y.shape[0]:
        raise BotorchTensorDimensionError(f"FSPModel: train_X has {X.shape[0]} rows, but train_Y has {Y.shape[0]}")
    if X.shape[0] == 0:
        raise InputDataError("FSPModel: train_X has no rows; pass at least one")
    for name, values in (("train_X", X), ("train_Y", Y), ("train_Yvar", Yvar)):
        if values is not None:
            _check_values(name, values)
    if Yvar is not None and not (Yvar > 0).all():
        raise InputDataError(
            "FSPModel: train_Yvar must be positive; pass a small variance, 1e-6, for targets without noise"
        )


def check_transformed(X: Tensor, Y: Tensor, Yvar: Tensor | None, *, before: Tensor, bounds: Tensor | None) -> None:
    """What the surrogate is fitted to: targets whose squares are numbers; BoTorch's warnings about scales.

    Args:
        X: transformed inputs.
        Y: transformed targets.
        Yvar: variances of their noise.
        before: the targets as they were passed: those that vary still do.
        bounds: given, inputs need not be in the unit cube.
    """
    size, spread = _range(before), _range(Y)
    limits = torch.finfo(Y.dtype)
    possible = (spread >= limits.tiny**_MAGNITUDE) & (spread <= limits.max**_MAGNITUDE) | (size == 0)
    if not possible.all():
        column = int(torch.nonzero(~possible)[0])
        raise InputDataError(
            f"FSPModel: output {column} of train_Y has a range of {float(size[column]):g}, whose square {Y.dtype} does not hold; "
            "divide it by a typical size"
        )
    inside = [] if bounds is None else list(range(X.shape[-1]))
    validate_input_scaling(train_X=X, train_Y=Y, train_Yvar=Yvar, ignore_X_dims=inside)


def check_prior(prior: Prior | None, num_outputs: int) -> None:
    """A prior that is given has the outputs of the targets."""
    if prior is not None and prior.num_outputs != num_outputs:
        raise BotorchTensorDimensionError(
            f"FSPModel: prior has {prior.num_outputs} outputs, but train_Y has {num_outputs} columns; pass a prior of as many"
        )


def check_bounds(bounds: Tensor | None, num_columns: int) -> None:
    """The box: two rows, the lower corner below the upper one in every column."""
    if bounds is None:
        return
    if tuple(bounds.shape) != (2, num_columns):
        raise BotorchTensorDimensionError(
            f"FSPModel: bounds has shape {tuple(bounds.shape)}; pass (2, {num_columns}): the lower corner of the box, then the upper one"
        )
    _check_values("bounds", bounds)
    if not (bounds[0] < bounds[1]).all():
        column = int(torch.nonzero(bounds[0] >= bounds[1])[0])
        raise InputDataError(
            f"FSPModel: bounds of column {column} are {float(bounds[0, column]):g} and {float(bounds[1, column]):g}; pass lower bounds "
            "below the upper ones"
        )


def check_inputs(X: Tensor, like: Tensor) -> None:
    """Where a posterior is asked for: points of the dtype and device of the training inputs."""
    if X.dim() < 2:
        raise BotorchTensorDimensionError(f"FSPModel: X has shape {tuple(X.shape)}; pass (..., q, d)")
    if X.dtype != like.dtype or X.device != like.device:
        raise InputDataError(
            f"FSPModel: X is {X.dtype} on {X.device}, but train_X is {like.dtype} on {like.device}; pass X.to(train_X)"
        )


def check_noise(noise: Tensor, X: Tensor, num_outputs: int) -> None:
    """Variances of the noise at X: for each point and output, or what can be repeated for them."""
    wanted = (X.shape[-2], num_outputs)
    if any(seen not in (1, size) for seen, size in zip(noise.shape[::-1], wanted[::-1], strict=False)):
        raise BotorchTensorDimensionError(
            f"FSPModel: variances of the noise have shape {tuple(noise.shape)}, but X has shape {tuple(X.shape)} and the model "
            f"{num_outputs} outputs; pass (..., {X.shape[-2]}, {num_outputs})"
        )
    if not (noise >= 0).all():
        raise InputDataError("FSPModel: variances of the noise are negative or NaN; pass zero or more")


def check_observations(X: Tensor, Y: Tensor, num_outputs: int) -> None:
    """Observations that a model is conditioned on: as many targets as points and outputs, all of them finite."""
    if Y.shape[-2:] != (X.shape[-2], num_outputs):
        raise BotorchTensorDimensionError(
            f"FSPModel.condition_on_observations: Y has shape {tuple(Y.shape)}, but X has shape {tuple(X.shape)} and the model "
            f"{num_outputs} outputs; pass Y of shape (..., {X.shape[-2]}, {num_outputs})"
        )
    _check_values("X", X)
    _check_values("Y", Y)


def check_size(X: Tensor, num_outputs: int, rank: int) -> None:
    """Features of all points, and the joint covariance of each set, must fit the memory budget: a quarter of the machine's."""
    points, together = X.shape[:-1].numel(), num_outputs * X.shape[-2]
    # Features come from JAX and go to torch, a copy each.
    check_fits(
        points, X.element_size() * num_outputs * (2 * rank + together), "FSPModel.posterior: the number of points in X"
    )


def _range(values: Tensor) -> Tensor:
    return values.amax(dim=0) - values.amin(dim=0)


def _check_values(name: str, values: Tensor) -> None:
    if values.device.type != "cpu":
        raise InputDataError(f"FSPModel: {name} is on {values.device}; move it to the CPU with .cpu()")
    if not torch.isfinite(values).all():
        raise InputDataError(f"FSPModel: {name} has NaN or infinite values; remove or impute those rows")
