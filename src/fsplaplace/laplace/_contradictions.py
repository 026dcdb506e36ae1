r"""Observations that contradict each other: with hardly any noise, each a statement that the others make false.

Every observation is predicted from all others, in closed form: with C the covariance of what is observed, N the variance of its
noise and $P = (C + N)^{-1}$, the residual of datum i given the others is $(P \rho)_i / P_{ii}$ and its variance $1 / P_{ii}$
(Rasmussen and Williams, 2006, Section 5.4.2). Values, slopes and integrals are all functionals of one function, so that this
compares them with each other. All is in units of the prior's standard deviation of each.
"""

import itertools
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from fsplaplace.host import one_blas_thread, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._linear_model import LinearModel, Local
from fsplaplace.laplace._observed import Observed
from fsplaplace.likelihoods import Likelihood
from fsplaplace.networks import Model
from fsplaplace.operators import Tangent
from fsplaplace.prior import Prior, moments


class Clash(NamedTuple):
    """A datum that the others make impossible.

    Attributes:
        datum: which.
        told: how much each of the others tells about it, (n,).
        apart: how far it is from what all others predict, in prior standard deviations.
        expected: the standard deviation of that difference.
    """

    datum: int
    told: Float[np.ndarray, " n"]
    apart: float
    expected: float


def clash_among(
    covariance: Float[np.ndarray, "n n"], noise: Float[np.ndarray, " n"], residual: Float[np.ndarray, " n"]
) -> Clash | None:
    """The worst contradiction, or None.

    A datum counts if the others predict it to a twentieth of the prior's standard deviation, it is ten standard deviations from
    that, and the difference is no detail: a tenth of the prior's standard deviation, or of the residuals if they are larger.
    Smaller ones come from functions that are rougher than the prior, whose values dense noiseless data predict too boldly.

    Args:
        covariance: of what is observed, in prior standard deviations.
        noise: its variance, in the same units.
        residual: targets minus mean, in the same units.

    Time $O(n^3)$.
    """
    precision = np.linalg.inv(covariance + np.diag(noise + _choices.LATENT_JITTER))
    variance = 1.0 / np.diagonal(precision)
    apart = np.abs(precision @ residual) * variance
    expected = np.sqrt(np.maximum(variance, 0.0))
    known = variance - noise <= _choices.DETERMINED**2
    large = _choices.NO_DETAIL * max(1.0, float(np.sqrt(np.mean(residual**2))))
    clash = known & (variance > 0) & (apart > _choices.CONTRADICTION * expected) & (apart > large)
    if not np.any(clash):
        return None
    worst = int(np.argmax(np.where(clash, apart / np.maximum(expected, 1e-300), 0.0)))
    told = np.abs(precision[worst]) * np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    told[worst] = 0.0
    return Clash(worst, told, float(apart[worst]), float(expected[worst]))


class _Told(NamedTuple):
    """Rows of one kind that are observed with hardly any noise, flattened over outputs.

    Attributes:
        kind: what was observed.
        rows: which rows.
        inputs: where.
        size: the prior's standard deviation.
        residual: target minus prior mean, over `size`.
        noise: its variance, over the prior's.
    """

    kind: Observed
    rows: Int[np.ndarray, " k"]
    inputs: Float[np.ndarray, "k ..."]
    size: Float[np.ndarray, " kq"]
    residual: Float[np.ndarray, " kq"]
    noise: Float[np.ndarray, " kq"]


def warn_if_kinds_contradict(kinds: Sequence[Observed], prior: Prior) -> None:
    """Say if observations contradict each other.

    Rows with a twentieth of the prior's standard deviation as noise, or less, are compared: at most 1,000 targets, evenly spaced, of
    linear operators that the kernel can be taken through. A tangent at a network that is not trained to its end would contradict
    what is true.

    Args:
        kinds: all observations.
        prior: over the function.
    """
    able = [kind for kind in kinds if kind.noise is not None and kind.stated and not kind.tangent]
    total = sum(kind.num_targets for kind in able)
    told = [_told(kind, total) for kind in able]
    told = [each for each in told if each.rows.size]
    if sum(each.size.size for each in told) < 2:
        return
    size = np.concatenate([each.size for each in told])
    with one_blas_thread():
        covariance = moments.covariance_of(prior, [(each.kind.operator, each.inputs) for each in told])
        residual, noise = (
            np.concatenate(part) for part in zip(*((each.residual, each.noise) for each in told), strict=True)
        )
        clash = clash_among(covariance / np.outer(size, size), noise, residual)
    if clash is None:
        return
    names = [name for each in told for name in _names(each)]
    unit = float(size[clash.datum])
    warnings.warn(
        f"laplace: {names[clash.datum]} is {clash.apart * unit:.3g} from what the other observations say, which is known to "
        f"{clash.expected * unit:.2g}; most is said by {' and '.join(names[each] for each in _most_telling(clash, told))}. With the "
        "noise that is stated they contradict each other under this prior; correct or remove one, state the noise that they have, "
        "or use a rougher prior",
        UserWarning,
        stacklevel=4,
    )


def _most_telling(clash: Clash, told: list[_Told]) -> list[int]:
    """Of each kind that tells a tenth or more about the datum, the target that tells most; the most telling kind first."""
    ends = np.cumsum([0, *(each.size.size for each in told)])
    parts = [clash.told[start:stop] for start, stop in itertools.pairwise(ends)]
    sums = np.array([np.sum(part) for part in parts])
    order = [kind for kind in np.argsort(-sums) if sums[kind] >= 0.1 * np.sum(sums)]
    return [int(ends[kind] + np.argmax(parts[kind])) for kind in order]


def _told(kind: Observed, total: int) -> _Told:
    assert kind.noise is not None
    share = min(1.0, _choices.MOST_CONTRADICTING / total)
    most = max(_choices.FEWEST_OF_A_KIND, round(share * kind.data.num_rows))
    most = max(1, min(most, _choices.MOST_EVALUATIONS // kind.operator.num_evaluations))
    rows = np.arange(kind.data.num_rows)[:: -(-kind.data.num_rows // most)]
    variance = np.broadcast_to(kind.noise.variance, (kind.data.num_rows, kind.num_outputs))[rows]
    part = kind.data.take(rows)
    stated = kind.variance(part.inputs)
    assert stated is not None
    near_zero = np.all((stated > 0) & (variance <= _choices.NEAR_ZERO_NOISE**2 * stated), axis=1)
    inputs, stated, variance = part.inputs[near_zero], stated[near_zero], variance[near_zero]
    targets = np.asarray(part.targets, np.float64).reshape(len(rows), -1)[near_zero]
    size = np.sqrt(stated)
    residual = (targets - kind.mean(inputs)) / size if len(inputs) else np.zeros_like(size)
    return _Told(kind, rows[near_zero], inputs, size.ravel(), residual.ravel(), (variance / stated).ravel())


def _names(told: _Told) -> list[str]:
    width = told.kind.num_outputs
    outputs = [f", output {output}" for output in range(width)] if width > 1 else [""]
    return [f"row {row} of {told.kind.name}{output}" for row in told.rows for output in outputs]


class Unmet(NamedTuple):
    """An observation of an operator that is not linear, which the posterior's mean does not meet.

    Attributes:
        name: which datum.
        apart: how far the mean is from its target.
        noise: the standard deviation that is stated.
    """

    name: str
    apart: float
    noise: float


def unmet_by(kind: Observed, base: Model) -> Unmet | None:
    r"""The datum of a tangent's operator that a function is farthest from, if it is no detail: or None.

    Whatever contradicts such a datum, another one, the values or the operator's own range, keeps the mode away from it. It counts from
    ten standard deviations of its noise on, and a tenth of the prior's standard deviation of what is observed (or of
    the targets' size, if the kernel does not say).

    Args:
        kind: the observations; linear ones, and those without Gaussian noise, are all met.
        base: the function.

    Time: one pass of the operator over at most 1,000 rows.
    """
    if kind.noise is None or not isinstance(kind.operator, Tangent):
        return None
    rows = np.arange(kind.data.num_rows)[:: -(-kind.data.num_rows // _choices.MOST_CONTRADICTING)]
    part, here = kind.data.take(rows), kind.around(base)
    targets = np.asarray(part.targets, np.float64).reshape(len(rows), -1)
    apart = np.abs(np.asarray(base.through(kind.operator.inner)(to_device(part.inputs)), np.float64) - targets)
    noise = np.sqrt(np.broadcast_to(kind.noise.variance, (kind.data.num_rows, kind.num_outputs))[rows])
    stated = here.variance(part.inputs)
    size = np.sqrt(stated) if stated is not None else np.sqrt(np.mean(targets**2))
    unmet = ~(apart <= _choices.CONTRADICTION * noise) & ~(apart <= _choices.NO_DETAIL * size)
    if not np.any(unmet):
        return None
    worst, output = np.unravel_index(np.argmax(np.where(unmet, apart / noise, 0.0)), apart.shape)
    place = f", output {output}" if kind.num_outputs > 1 else ""
    return Unmet(f"row {rows[worst]} of {kind.name}{place}", float(apart[worst, output]), float(noise[worst, output]))


def warn_if_contradicted(
    linear: LinearModel,
    x: Float[Array | np.ndarray, "n ..."],
    local: Local,
    targets: Shaped[Array | np.ndarray, "n ..."],
    likelihood: Likelihood,
) -> None:
    """Say if new data contradict what a posterior knows, or each other.

    Args:
        linear: the posterior so far.
        x: the new inputs.
        local: its process there.
        targets: the new targets.
        likelihood: theirs.
    """
    mean, features, unexplained = (np.asarray(part, np.float64) for part in local)
    if (noise := likelihood.noise(mean.shape)) is None:
        return
    stated = np.asarray(_prior_variance(linear, to_device(x)), np.float64)
    told = np.flatnonzero(((stated > 0) & (noise.variance <= _choices.NEAR_ZERO_NOISE**2 * stated)).ravel())
    told = told[:: -(-told.size // _choices.MOST_CONTRADICTING) or 1]
    if told.size == 0:
        return
    size = np.sqrt(stated.ravel()[told])
    flat = features.reshape(-1, features.shape[2])[told] / size[:, None]
    residual = (np.asarray(targets, np.float64).ravel() - mean.ravel())[told] / size
    covariance = flat @ flat.T + np.diag(unexplained.ravel()[told] / size**2)
    with one_blas_thread():
        clash = clash_among(covariance, noise.variance.ravel()[told] / size**2, residual)
    if clash is None:
        return
    row, output = divmod(int(told[clash.datum]), mean.shape[1])
    unit = float(size[clash.datum])
    place = f"row {row}" + (f", output {output}" if mean.shape[1] > 1 else "")
    warnings.warn(
        f"Posterior.condition: {place} of y is {clash.apart * unit:.3g} from what the posterior and the other new rows say, which "
        f"is known to {clash.expected * unit:.2g}: with the noise that is stated they contradict each other; correct or remove it, "
        "state the noise that it has, or fit anew",
        UserWarning,
        stacklevel=6,
    )


@eqx.filter_jit
def _prior_variance(linear: LinearModel, x) -> Float[Array, "n q"]:
    return linear.prior.variance(x)
