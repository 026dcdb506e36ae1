"""Lets `fsplaplace.save` and `fsplaplace.load` handle what the methods return."""

from fsplaplace.baselines._posterior import LinearisedPosterior, WeightSamples
from fsplaplace.baselines._sparse_process import SparseProcess
from fsplaplace.baselines._weight_covariance import (
    DiagonalCovariance,
    KroneckerBlock,
    KroneckerCovariance,
    LowRankUpdateCovariance,
)
from fsplaplace.baselines.gp import GPPosterior
from fsplaplace.baselines.sparse_gp import SparseGPPosterior
from fsplaplace.io import register

for _kind in (
    LinearisedPosterior, WeightSamples, GPPosterior, SparseGPPosterior, SparseProcess,
    DiagonalCovariance, LowRankUpdateCovariance, KroneckerBlock, KroneckerCovariance,
):  # fmt: skip
    register(_kind, name=f"fsplaplace.baselines.{_kind.__name__}")
