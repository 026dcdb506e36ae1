"""Lets `fsplaplace.save` and `fsplaplace.load` handle what the methods return."""

from fsplaplace.io import register
from fsplaplace.methods._posterior import LinearisedPosterior, WeightSamples
from fsplaplace.methods._sparse_process import SparseProcess
from fsplaplace.methods._weight_covariance import (
    DiagonalCovariance,
    KroneckerBlock,
    KroneckerCovariance,
    LowRankUpdateCovariance,
)
from fsplaplace.methods.gp import GPPosterior
from fsplaplace.methods.sparse_gp import SparseGPPosterior

for _kind in (
    LinearisedPosterior, WeightSamples, GPPosterior, SparseGPPosterior, SparseProcess,
    DiagonalCovariance, LowRankUpdateCovariance, KroneckerBlock, KroneckerCovariance,
):  # fmt: skip
    register(_kind, name=f"fsplaplace.baselines.{_kind.__name__}")
