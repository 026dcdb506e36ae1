"""Functions drawn from the posterior, for BoTorch's pathwise Thompson sampling: ours are paths by themselves."""

# torch types the attributes of its modules, and BoTorch those of its posteriors, too loosely to be checked.
# pyright: reportAttributeAccessIssue=false, reportIndexIssue=false, reportIncompatibleMethodOverride=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false, reportReturnType=false

from typing import Any

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from botorch.sampling.pathwise.utils import get_output_transform
from torch import Size, Tensor

from fsplaplace.botorch._model import FSPModel


class FunctionPath(SamplePath):
    """Functions m(x) + F(x) e with fixed coordinates e; smooth, so that they can be maximised by gradients.

    What the features miss of the prior's variance is left out: as white noise it has no maximum to find.

    Args:
        model: whose posterior is drawn from.
        coordinates: e, (*sample_shape, r).
    """

    def __init__(self, model: FSPModel, coordinates: Tensor):
        super().__init__()
        self.model = model
        self.input_transform = None
        self.output_transform = get_output_transform(model)
        self.register_buffer("coordinates", coordinates)

    def forward(self, x: Tensor, **_: Any) -> Tensor:
        """Values at x, (..., q, d), whose leading axes are broadcast with `sample_shape`, as BoTorch's paths do it.

        The last axis of the result is that of points, after that of outputs if there are several.
        """
        process = self.model.process_at(self.model.transform_inputs(x))
        values = process.mean + (process.features @ self.coordinates[..., None, :, None]).squeeze(-1)
        return values.squeeze(-1) if self.model.num_outputs == 1 else values.mT

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """There is no ensemble."""


@DrawMatheronPaths.register(FSPModel)
def draw_paths(model: FSPModel, *, sample_shape: Size, **_: Any) -> FunctionPath:
    """Functions drawn from the posterior of a model."""
    if len(model.batch_shape):
        raise UnsupportedError(
            f"draw_matheron_paths: the model has batch shape {tuple(model.batch_shape)}; draw from one model at a time"
        )
    known = model.known()
    rank = known.step.shape[-1]
    noise = torch.randn(*sample_shape, rank, dtype=known.step.dtype)
    # The root of I - W^T W.
    values, vectors = torch.linalg.eigh(torch.eye(rank, dtype=noise.dtype) - known.told.mT @ known.told)
    coordinates = known.step + (noise * values.clamp(min=0).sqrt()) @ vectors.mT
    return FunctionPath(model, coordinates.detach())
