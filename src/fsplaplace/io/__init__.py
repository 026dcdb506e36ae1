"""Save and load posteriors: arrays in safetensors, everything else in a JSON header, nothing executed on load."""

import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from fsplaplace._version import __version__
from fsplaplace.arguments import checked
from fsplaplace.host import FileFormatError as FileFormatError
from fsplaplace.host import checksum, read_tensors, signature, write_tensors
from fsplaplace.io._decoding import MALFORMED, Decoder
from fsplaplace.io._encoding import PARTS, Encoder
from fsplaplace.io._export import export as export
from fsplaplace.io._registry import entry_named, entry_of
from fsplaplace.io._registry import register as register
from fsplaplace.laplace import Posterior
from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import as_model, moved_prior
from fsplaplace.prior import Prior

FORMAT = 1
_KIND = "fsplaplace object"
_HEADER = {"kind", "format", "version", "object", "signature"}


@checked(computes=False)
def save(
    path: str | Path, posterior: Any, *, omit: str | Sequence[str] = (), secret: str | bytes | None = None
) -> None:
    """Write a posterior (or any registered object, such as a trained network) to one file.

    The file holds the arrays, and as JSON the library's and the format's version, shapes, dtypes, kernel, mean
    function, likelihood and diagnostics. It is written beside the target and renamed: a crash leaves the old file
    whole.

    Args:
        path: the file; `.safetensors` by custom.
        posterior: what `fsplaplace.laplace` or `fsplaplace.train` returned.
        omit: parts to leave out because they are code that a file cannot hold, and that `load` must be given again:
            "prior", "mean" or "likelihood". A part that cannot be stored is refused by name unless it is left out.
        secret: signs the file (HMAC-SHA-256), for files that others could change on their way: `load` with the same secret
            refuses every file that was not written with it. The checksum that every file has finds accidents only.

    Time and file size: that of the arrays, $O(r p)$ for rank r and p weights.

    Examples:
        >>> fsp.save(directory / "posterior.safetensors", posterior)
    """
    omitted = (omit,) if isinstance(omit, str) else tuple(omit)
    if unknown := set(omitted) - set(PARTS):
        raise ValueError(f"save: omit has {sorted(unknown)}; choose from {', '.join(map(repr, PARTS))}")
    entry_of(type(posterior))
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(posterior)):
        raise TypeError(
            "save: posterior is traced by jax.jit or jax.grad, but save is not a traceable function; call it outside"
        )
    encoder = Encoder(omitted, inputs=getattr(posterior, "context_points", None))
    header = {"kind": _KIND, "format": FORMAT, "version": __version__, "object": encoder.encode(posterior)}
    if secret is not None:
        header["signature"] = signature(_secret_bytes(secret, "save"), header, encoder.tensors)
    header["checksum"] = checksum(header, encoder.tensors)
    write_tensors(path, encoder.tensors, header)


@checked
def load(
    path: str | Path,
    model: Any = None,
    *,
    prior: Prior | None = None,
    mean: Any = None,
    likelihood: Likelihood | None = None,
    secret: str | bytes | None = None,
) -> Any:
    """Read what `save` wrote; a posterior predicts bit by bit as the one that was saved.

    Args:
        path: the file.
        model: the network, for its structure: a `Model`, or anything `fsplaplace.as_model` takes. Its weights, and the
            statistics it keeps fixed, are replaced by the stored ones and must have their shapes and dtypes.
        prior: takes the place of the stored one; needed if `save` left it out.
        mean: takes the place of the stored one; needed if `save` left it out.
        likelihood: takes the place of the stored one; needed if `save` left it out.
        secret: the one that the file was saved with; a file without that signature is refused.

    Raises `FileFormatError` with the reason for a file that is truncated, altered, of another kind or from a newer
    version, and for a network of another shape or another function. Nothing in a file is executed, and types, shapes and
    values are checked before anything is built of them; but whoever can write the file can choose its numbers, unless it is
    signed.

    Examples:
        >>> fsp.save(directory / "posterior.safetensors", posterior)
        >>> again = fsp.load(directory / "posterior.safetensors", network)
        >>> bool((again.predict(X).mean == posterior.predict(X).mean).all())
        True
    """
    tensors, header = _read(path)
    _check_signature(path, header, tensors, secret)
    given = {"prior": prior, "mean": mean, "likelihood": likelihood}
    decoder = Decoder(
        tensors,
        model=None if model is None else as_model(model),
        given={part: value for part, value in given.items() if value is not None},
    )
    try:
        # Stored dtypes are kept whatever the process computes in.
        with jax.enable_x64(True):
            restored = decoder.decode(header["object"], "")
        if isinstance(restored, Posterior) and restored.model.origin is not None:
            # A mean that was given here is a function of inputs as they are.
            near = moved_prior(restored.prior, np.asarray(restored.model.origin))
            restored = eqx.tree_at(lambda tree: tree.prior, restored, near)
        check = entry_named(header["object"]["class"]).check
        if check is not None:
            check(restored)
        if decoder.unused and not decoder.given:
            raise FileFormatError(f"it has arrays that nothing refers to, such as {min(decoder.unused)!r}")
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from error
    except MALFORMED as error:
        raise FileFormatError(f"{path} holds values that do not fit together: {error}") from error
    return restored


def _check_signature(path: str | Path, header: dict[str, Any], tensors, secret: str | bytes | None) -> None:
    signed = header.pop("signature", None)
    if secret is None:
        return
    if signed is None:
        raise FileFormatError(
            f"{path} is not signed, but secret was given; load it without, or save it with the secret"
        )
    if not hmac.compare_digest(str(signed), signature(_secret_bytes(secret, "load"), header, tensors)):
        raise FileFormatError(f"{path} was signed with another secret, or changed since")


def _secret_bytes(secret: str | bytes, caller: str) -> bytes:
    if not secret:
        raise ValueError(f"{caller}: secret is empty; pass a long random text, for instance secrets.token_hex()")
    return secret.encode() if isinstance(secret, str) else secret


def _read(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        tensors, header = read_tensors(path, kind=_KIND)
    except FileFormatError:
        raise
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise FileFormatError(f"{path} is not a readable {_KIND}: {error}") from error
    version, written = header.get("format"), header.get("version")
    if unknown := set(header) - _HEADER - {"checksum"}:
        raise FileFormatError(f"{path} has the unknown field {sorted(map(str, unknown))[0]!r} in its header")
    if not isinstance(version, int) or version < 1:
        raise FileFormatError(f"{path} has format version {version!r}; expected a number from 1 to {FORMAT}")
    if version > FORMAT:
        raise FileFormatError(
            f"{path} was written by fsplaplace {written} in format {version}, but fsplaplace {__version__} reads "
            f"formats up to {FORMAT}; upgrade fsplaplace"
        )
    if header.pop("checksum", None) != checksum(header, tensors):
        raise FileFormatError(f"{path} was altered or damaged: its contents do not match its checksum")
    return tensors, header
