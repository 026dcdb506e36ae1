"""A posterior as one compiled program that runs with jax alone."""

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export as jax_export

from fsplaplace.arguments import checked
from fsplaplace.host import check_target, write_atomically
from fsplaplace.likelihoods import Bernoulli, Categorical

_PLATFORMS = ("cpu", "cuda", "tpu")


@checked
def export(posterior: Any, path: str | Path, *, platforms: Sequence[str] | None = None) -> tuple[str, ...]:
    r"""Write `predict` as a `jax.export` program: weights inside, one row or more, no code of ours or yours needed.

    The program maps inputs (n, ...) to a dictionary: `mean` and `std` of the function, (n, q); `total_std` of a new target, if
    the likelihood has a noise variance; `probability` by the probit approximation, if it has classes. To run it:

        data = open(path, "rb").read()
        assert hashlib.sha256(data[:-32]).digest() == data[-32:]    # whole, as it was written
        program = jax.export.deserialize(bytearray(data))
        found = program.call(x)                      # x of the weights' dtype

    The last 32 bytes are the SHA-256 of the others, and JAX does not read them. JAX itself notices no flipped bit.

    Args:
        posterior: what `fsplaplace.laplace` returned.
        path: the file; written beside the target and renamed.
        platforms: of "cpu", "cuda", "rocm" and "tpu"; by default those of cpu, cuda and tpu for which the program compiles.

    Returns the platforms that the file serves. All rows of a call are computed together, so memory is $O(n q r)$ for rank r: send
    many rows in parts. Reading the file takes jax and flatbuffers, which
    jax.export needs; a float64 posterior also JAX's 64-bit mode. File size: $O(r p)$.

    Examples:
        >>> fsp.export(posterior, directory / "posterior.jaxprogram", platforms=["cpu"])
        ('cpu',)
    """
    check_target(path)
    if not hasattr(posterior, "context_points"):
        raise TypeError(
            f"export: {type(posterior).__name__} is not a posterior of fsplaplace.laplace; pass one, or write others with save"
        )
    if posterior.model.origin is not None:
        raise ValueError(
            f"export: the inputs lie so far from zero that {posterior.scale.dtype} cannot tell them apart, and the program takes inputs "
            f"of that dtype; subtract {posterior.model.origin} from all inputs before train and laplace"
        )
    dtype = posterior.scale.dtype
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError(
            'export needs flatbuffers, as jax.export does; install it with `pip install "fsplaplace[export]"`'
        )
    wanted = _PLATFORMS if platforms is None else tuple(platforms)
    if not wanted:
        raise ValueError("export: platforms is empty; pass at least one, such as 'cpu'")
    with jax.enable_x64(dtype == jnp.float64):
        (rows,) = jax_export.symbolic_shape("rows")
        inputs = jax.ShapeDtypeStruct((rows, *posterior.context_points.shape[1:]), dtype)
        # Row by row and vectorised: no block size depends on the number of rows, which is not known yet.
        program = jax.jit(jax.vmap(lambda row: _predict_row(posterior, row)))
        exported, served = _lower(program, inputs, wanted, strict=platforms is not None)
    data = bytes(exported.serialize())
    write_atomically(Path(path), data + hashlib.sha256(data).digest())
    return served


def _predict_row(posterior, row) -> dict[str, jax.Array]:
    found = posterior.predict(row[None])
    outputs = {"mean": found.mean[0], "std": found.std[0]}
    if isinstance(posterior.likelihood, Bernoulli | Categorical):
        outputs["probability"] = posterior.predict_proba(row[None], method="probit")[0]
    elif found.noise_variance is not None:
        outputs["total_std"] = jnp.sqrt(found.total_variance[0])
    return outputs


def _lower(program, inputs, wanted: Sequence[str], *, strict: bool):
    """The program for all platforms, or for those that it can be compiled for."""
    try:
        return jax_export.export(program, platforms=wanted)(inputs), tuple(wanted)
    except NotImplementedError as error:
        if strict:
            raise ValueError(
                f"export: this posterior does not compile for all of {', '.join(wanted)} ({error}); pass fewer platforms"
            ) from error
    served = tuple(name for name in wanted if _compiles(program, inputs, name))
    return jax_export.export(program, platforms=served)(inputs), served


def _compiles(program, inputs, platform: str) -> bool:
    try:
        jax_export.export(program, platforms=(platform,))(inputs)
    except NotImplementedError:
        return False
    return True
