"""Lets `fsplaplace.save` and `fsplaplace.load` handle what the methods return."""

import equinox as eqx
import jax

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


def _check_weights(posterior: LinearisedPosterior | WeightSamples) -> None:
    """The distribution over weights is over as many weights as the network has; found out by shapes."""
    _check_likelihood(posterior)
    num_params = posterior.model.num_params
    if isinstance(posterior, WeightSamples):
        if posterior.weights.shape[1:] != (num_params,) or posterior.weights.shape[0] == 0:
            raise ValueError(f"weights have shape {posterior.weights.shape}, but the network has {num_params} weights")
        return
    covariance = posterior.weight_covariance
    if isinstance(covariance, KroneckerCovariance):
        for block in covariance.blocks:
            if not (0 <= block.weight_slot <= num_params - block.weight_scale.size and block.bias_slot < num_params):
                raise ValueError(f"a block begins at weight {block.weight_slot}, but the network has {num_params}")
    if covariance is not None:
        noise = jax.ShapeDtypeStruct((1, num_params), posterior.model.dtype)
        drawn = eqx.filter_eval_shape(lambda covariance, noise: covariance.draw(noise), covariance, noise)
        if drawn.shape != noise.shape:
            raise ValueError(f"the covariance is over {drawn.shape[1]} weights, but the network has {num_params}")


def _check_likelihood(posterior: LinearisedPosterior | WeightSamples) -> None:
    """Noise is of as many outputs as the network has, where its inputs can be told from its first weights."""
    widths = [leaf.shape[axis] for leaf in jax.tree.leaves(posterior.model.params) if leaf.ndim == 2 for axis in (1, 0)]
    for width in widths:
        try:
            inputs = jax.ShapeDtypeStruct((2, width), posterior.model.dtype)
            outputs = eqx.filter_eval_shape(posterior.model, inputs)
        except (TypeError, ValueError):
            continue
        zeros = jax.numpy.zeros(outputs.shape, outputs.dtype)
        eqx.filter_eval_shape(lambda likelihood, at: likelihood.noise_variance(at), posterior.likelihood, zeros)
        return


def _check_process(posterior: GPPosterior | SparseGPPosterior) -> None:
    """Coefficients or inducing values are as many as points times outputs."""
    if posterior.dtype not in ("float32", "float64"):
        raise ValueError(f"dtype is {posterior.dtype!r} instead of 'float32' or 'float64'")
    outputs = posterior.prior.num_outputs
    if isinstance(posterior, GPPosterior):
        points = posterior.X
        fits = points.shape[0] > 0 and posterior.coefficients.size == points.shape[0] * outputs
    else:
        points, process = posterior.process.inducing_inputs, posterior.process
        count = points.shape[0]
        fits = process.means.shape[0] == outputs and process.roots.shape[1] == count * (count + 1) // 2
    if not fits:
        raise ValueError(f"its arrays do not fit {points.shape[0]} points and {outputs} outputs")
    few = jax.ShapeDtypeStruct((2, points.shape[1]), points.dtype)
    with jax.enable_x64(True):
        eqx.filter_eval_shape(
            lambda prior, x: (prior.mean_at(x), prior.variance(x), prior.gram(x)), posterior.prior, few
        )


_CHECKS = {
    LinearisedPosterior: _check_weights, WeightSamples: _check_weights,
    GPPosterior: _check_process, SparseGPPosterior: _check_process,
}  # fmt: skip
for _kind in (
    LinearisedPosterior, WeightSamples, GPPosterior, SparseGPPosterior, SparseProcess,
    DiagonalCovariance, LowRankUpdateCovariance, KroneckerBlock, KroneckerCovariance,
):  # fmt: skip
    register(_kind, name=f"fsplaplace.baselines.{_kind.__name__}", check=_CHECKS.get(_kind))
