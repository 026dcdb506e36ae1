"""BoTorch's contract as a test that any surrogate can be put to."""

# torch types the attributes of its modules, and BoTorch those of its posteriors, too loosely to be checked.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportIncompatibleMethodOverride=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false, reportReturnType=false

import warnings

import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.model import FantasizeMixin, Model
from botorch.sampling import SobolQMCNormalSampler
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from fsplaplace.arguments import checked


@checked
def check_model(model: Model, bounds: Tensor, *, gradient_tolerance: float = 1e-4) -> None:
    """Raise an AssertionError that names what a model does not do as acquisition functions expect it.

    Checked are shapes for any batch shape, that points of one batch are joint, that batches are independent, gradients against
    finite differences, subsets of outputs, transforms of the posterior, observation noise, and if the model can fantasise,
    conditioning: variances fall, and several hypothetical data sets are those done one by one.

    Args:
        model: with m outputs, fitted.
        bounds: (2, d), the box to try points in.
        gradient_tolerance: relative; float64 is needed for finite differences.

    Example:
        >>> check_model(SingleTaskGP(train_X, train_Y), bounds)  # doctest: +SKIP
    """
    generator = torch.Generator().manual_seed(0)
    unit = torch.rand(3, 2, 4, bounds.shape[1], generator=generator, dtype=bounds.dtype)
    X = bounds[0] + unit * (bounds[1] - bounds[0])
    with torch.no_grad():
        _check_shapes(model, X)
        _check_joint(model, X)
        _check_outputs(model, X)
        _check_noise(model, X)
    _check_gradient(model, X, gradient_tolerance)
    if isinstance(model, FantasizeMixin):
        with torch.no_grad():
            _check_conditioning(model, X)


def _check_shapes(model: Model, X: Tensor) -> None:
    m = model.num_outputs
    for inputs in (X, X[0], X[0, 0], X[0, 0, :1]):
        found = model.posterior(inputs)
        for name in ("mean", "variance"):
            seen, wanted = tuple(getattr(found, name).shape), (*inputs.shape[:-1], m)
            assert seen == wanted, f"posterior({tuple(inputs.shape)}).{name} has shape {seen}, wanted {wanted}"
        seen, wanted = tuple(found.rsample(torch.Size([2])).shape), (2, *inputs.shape[:-1], m)
        assert seen == wanted, f"posterior({tuple(inputs.shape)}).rsample has shape {seen}, wanted {wanted}"
        assert (found.variance >= 0).all(), "a variance is negative"


def _check_joint(model: Model, X: Tensor) -> None:
    whole, one = model.posterior(X), model.posterior(X[1, 1])
    assert torch.allclose(whole.mean[1, 1], one.mean, atol=1e-6), "a batch changes the mean of its members"
    with warnings.catch_warnings():
        # The covariance of repeated points is singular by intention.
        warnings.simplefilter("ignore", NumericalWarning)
        joint = model.posterior(torch.cat([X[0, 0], X[0, 0]], dim=-2)).rsample(torch.Size([16]))
    half = X.shape[-2]
    spread = (joint[:, :half] - joint[:, half:]).abs().max()
    scale = model.posterior(X[0, 0]).variance.sqrt().max()
    assert spread < 0.05 * scale + 1e-3, "samples at a repeated point differ: points of a batch are not joint"


def _check_outputs(model: Model, X: Tensor) -> None:
    m = model.num_outputs
    if m == 1:
        return
    whole = model.posterior(X[0])
    for index in range(m):
        alone = model.subset_output([index]).posterior(X[0])
        assert torch.allclose(alone.mean, whole.mean[..., [index]], atol=1e-6), (
            f"subset_output([{index}]) has another mean"
        )
        some = model.posterior(X[0], output_indices=[index])
        assert torch.allclose(some.variance, whole.variance[..., [index]], atol=1e-6), (
            "output_indices changes a variance"
        )
    weights = torch.arange(1.0, m + 1, dtype=X.dtype)
    combined = model.posterior(X[0], posterior_transform=ScalarizedPosteriorTransform(weights))
    assert torch.allclose(combined.mean[..., 0], whole.mean @ weights, atol=1e-5), "posterior_transform is not applied"


def _check_noise(model: Model, X: Tensor) -> None:
    without = model.posterior(X[0]).variance
    with_noise = model.posterior(X[0], observation_noise=True).variance
    assert (with_noise > without).all(), "observation_noise=True adds no variance"


def _check_gradient(model: Model, X: Tensor, tolerance: float) -> None:
    def score(inputs: Tensor) -> Tensor:
        found = model.posterior(inputs)
        return found.mean.sum() + found.variance.sqrt().sum()

    inputs = X[0, 0].clone().requires_grad_()
    (slope,) = torch.autograd.grad(score(inputs), inputs)
    step = 1e-5 * (X.max() - X.min())
    with torch.no_grad():
        for index in range(X.shape[-1]):
            shift = torch.zeros_like(X[0, 0])
            shift[0, index] = step
            numeric = (score(X[0, 0] + shift) - score(X[0, 0] - shift)) / (2 * step)
            seen = slope[0, index]
            off = (seen - numeric).abs()
            assert off <= tolerance * (1 + numeric.abs()), (
                f"slope in input {index} is {seen:g}, by differences {numeric:g}"
            )


def _check_conditioning(model: Model, X: Tensor) -> None:
    at, test = X[0], X[1]
    sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
    fantasy = model.fantasize(at, sampler)  # pyright: ignore[reportAttributeAccessIssue]
    batch = torch.Size([3, *at.shape[:-2]])
    assert fantasy.batch_shape == batch, f"fantasies have batch_shape {fantasy.batch_shape}, wanted {batch}"
    assert (fantasy.posterior(at).variance <= model.posterior(at).variance * (1 + 1e-4) + 1e-8).all(), "variances rise"
    found = fantasy.posterior(test)
    assert found.mean.shape == (*batch, *test.shape[-2:-1], model.num_outputs), "fantasies have another shape"
    Y = model.posterior(at[0]).mean + 0.1
    alone = model.condition_on_observations(at[0], Y).posterior(test[0])
    several = model.condition_on_observations(at, torch.stack([Y, Y + 1.0])).posterior(test[:1].expand_as(test))
    assert torch.allclose(several.mean[0], alone.mean, atol=1e-5), "conditioning a batch differs from one by one"
    assert torch.allclose(several.variance[0], alone.variance, atol=1e-5), (
        "conditioning a batch differs from one by one"
    )
