"""The posterior's process as torch sees it: mean, features and unexplained variance, with gradients in the inputs."""

# torch types the attributes of its modules, and BoTorch those of its posteriors, too loosely to be checked.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportIncompatibleMethodOverride=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false, reportReturnType=false

from typing import Any, NamedTuple

import jax
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fsplaplace.host import padded_size
from fsplaplace.laplace import Posterior

# Numbers of points that have programs of their own are powers of two from the first to the second of these: noisy acquisition
# functions look at all rows beside each candidate, a new number in each iteration, and most of a small evaluation is one pass
# over the directions.
_FEWEST, _MOST = 16, 1024


class Process(NamedTuple):
    """A Gaussian process at points: covariances are products of features, and `unexplained` is added at one point.

    Attributes:
        mean: (..., q, m).
        features: (..., q, m, r).
        unexplained: (..., q, m).
    """

    mean: Tensor
    features: Tensor
    unexplained: Tensor


class Features:
    """A posterior of fsplaplace as a function of tensors; it never changes, so that copies of a model share it.

    Args:
        posterior: whose process is evaluated, in the dtype of its network.
    """

    def __init__(self, posterior: Posterior):
        self.posterior = posterior
        self.dtype = torch.float64 if np.dtype(posterior.model.dtype) == np.float64 else torch.float32

    def __call__(self, X: Tensor) -> Process:
        """The process at X of shape (..., q, d). Time: that of `Posterior.predict`; memory: the features."""
        rows = X.reshape(-1, X.shape[-1]).to(self.dtype)
        if rows.shape[0] == 0:
            m, r = self.posterior.prior.num_outputs, self.posterior.scale.shape[0]
            return Process(*(X.new_zeros(*X.shape[:-1], *shape) for shape in ((m,), (m, r), (m,))))
        found = _Evaluate.apply(rows, self)
        return Process(*(part.reshape(*X.shape[:-1], *part.shape[1:]).to(X) for part in found))

    def evaluate(self, x: np.ndarray, *, slopes: bool = False) -> tuple[tuple[np.ndarray, ...], Any]:
        """Mean, features and unexplained variance at rows; their number is rounded up, so that few programs serve all.

        With `slopes` also what `pull_back` needs.
        """
        with jax.enable_x64(self.dtype == torch.float64):
            found, back = (
                _with_slopes(self.posterior, _padded(x)) if slopes else (_local(self.posterior, _padded(x)), None)
            )
            return tuple(np.array(part)[: x.shape[0]] for part in found), back

    def pull_back(self, back: Any, cotangents: tuple[np.ndarray, ...]) -> np.ndarray:
        """The slope in the rows of an evaluation of the sum of mean, features and unexplained variance times these."""
        count = cotangents[0].shape[0]
        with jax.enable_x64(self.dtype == torch.float64):
            return np.array(_pulled(back, tuple(_padded(part, repeat=False) for part in cotangents)))[:count]

    def __deepcopy__(self, memo: dict) -> "Features":
        return self


class _Evaluate(torch.autograd.Function):
    """From torch to JAX and back; the pull-back is a compiled program of its own."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, features: Features):
        found, ctx.back = features.evaluate(X.detach().numpy(), slopes=ctx.needs_input_grad[0])
        ctx.features = features
        return tuple(map(torch.from_numpy, found))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor):
        slope = ctx.features.pull_back(ctx.back, tuple(part.detach().numpy() for part in cotangents))
        return torch.from_numpy(slope), None


@jax.jit
def _local(posterior: Posterior, x):
    return tuple(posterior.local(x))


@jax.jit
def _with_slopes(posterior: Posterior, x):
    """Also the pull-back, with the features: their product takes as long as all else, all else is computed again."""
    keep = jax.checkpoint_policies.save_only_these_names("features")
    return jax.vjp(jax.checkpoint(lambda rows: tuple(posterior.local(rows)), policy=keep), x)


@jax.jit
def _pulled(back, cotangents):
    return back(cotangents)[0]


def _padded(values: np.ndarray, *, repeat: bool = True) -> np.ndarray:
    count = values.shape[0]
    size = max(_FEWEST, 1 << (count - 1).bit_length()) if count <= _MOST else padded_size(count)
    missing = size - count
    last = np.repeat(values[-1:], missing, axis=0)
    return np.concatenate([values, last if repeat else np.zeros_like(last)])
