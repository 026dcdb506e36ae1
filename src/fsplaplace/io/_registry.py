"""The classes a file may hold: a fixed list, and what the user adds to it."""

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

import gpjax.kernels as gpk
import gpjax.mean_functions as gpm
import gpjax.parameters as gpp
import jax.numpy as jnp
import paramax

from fsplaplace import kernels, likelihoods, means
from fsplaplace.host import FileFormatError
from fsplaplace.io._checks import check_posterior, check_trained
from fsplaplace.kernels.multi_output import BlockComputation
from fsplaplace.laplace import Diagnostics, Later, Posterior, Ratio, Stage, Verdict
from fsplaplace.networks import Moved
from fsplaplace.prior import Prior
from fsplaplace.training import History, Trained


@dataclasses.dataclass(frozen=True)
class Entry:
    """A class, its name in files, fields that are the same for every instance, and a check after loading."""

    kind: type
    name: str
    constants: dict[str, Any]
    check: Callable[[Any], None] | None


# How the names of the classes begin that `fsplaplace.methods` registers.
_OF_METHODS = "fsplaplace.baselines."
_BY_NAME: dict[str, Entry] = {}
_BY_KIND: dict[type, Entry] = {}


def register(
    kind: type,
    *,
    name: str | None = None,
    constants: dict[str, Any] | None = None,
    check: Callable[[Any], None] | None = None,
) -> type:
    """Let files hold instances of a frozen Equinox module (or another dataclass) of your own.

    Its fields must be arrays, numbers, strings, containers of them, models, or instances of registered classes. On
    load the fields are set as they were; `__init__` is not run. Usable as a decorator; call it before both
    `save` and `load`.

    Args:
        kind: the class.
        name: its name in files, which should outlive a move of the class; its import path by default.
        constants: values of fields that are not stored, such as functions that belong to the class.
        check: called on a loaded instance; raises ValueError where the fields do not fit together.
    """
    entry = Entry(kind, name or f"{kind.__module__}.{kind.__qualname__}", constants or {}, check)
    if (other := _BY_NAME.get(entry.name)) and other.kind is not kind:
        raise ValueError(f"register: the name {entry.name!r} belongs to {other.kind}; pass another name")
    _BY_NAME[entry.name] = _BY_KIND[kind] = entry
    return kind


def entry_of(kind: type) -> Entry:
    """The entry of a class, or an error that says how to make one."""
    if kind not in _BY_KIND:
        raise ValueError(
            f"{kind.__module__}.{kind.__qualname__} is not a class that files can hold; add it with "
            "fsplaplace.io.register"
        )
    return _BY_KIND[kind]


def is_known(kind: type) -> bool:
    """Whether files can hold instances of this class."""
    return kind in _BY_KIND


def entry_named(name: Any) -> Entry:
    """The entry of a class by its name in a file."""
    if isinstance(name, str) and name not in _BY_NAME and name.startswith(_OF_METHODS):
        # The room of the methods registers its classes when it is imported, which takes too long to do for every file.
        importlib.import_module("fsplaplace.methods")
    if not isinstance(name, str) or name not in _BY_NAME:
        raise FileFormatError(
            f"it holds a {name!r}, a class this process does not know; pass prior=, mean= or likelihood= to load, or "
            "add the class with fsplaplace.io.register"
        )
    return _BY_NAME[name]


def _register_all() -> None:
    for kind in (
        gpk.RBF, gpk.Matern12, gpk.Matern32, gpk.Matern52, gpk.Periodic, gpk.PoweredExponential, gpk.RationalQuadratic,
        gpk.White, gpk.ArcCosine, gpk.Linear, gpk.Polynomial, gpk.Constant, gpk.SumKernel, gpk.ProductKernel,
        gpk.ICMKernel, gpk.LCMKernel, gpk.DenseKernelComputation, gpk.DiagonalKernelComputation,
        gpk.ConstantDiagonalKernelComputation, gpk.EigenKernelComputation, gpk.MultiOutputKernelComputation,
    ):  # fmt: skip
        register(kind, name=f"gpjax.kernels.{kind.__name__}")
    for kind in (
        gpp.PositiveReal, gpp.NonNegativeReal, gpp.Real, gpp.SigmoidBounded, gpp.LowerTriangular,
        gpp.CoregionalizationMatrix,
    ):  # fmt: skip
        register(kind, name=f"gpjax.parameters.{kind.__name__}")
    register(paramax.NonTrainable, name="paramax.NonTrainable")
    register(gpm.Constant, name="gpjax.means.Constant")
    register(gpm.Zero, name="gpjax.means.Zero")
    for kind, reduce in ((gpm.SumMeanFunction, jnp.sum), (gpm.ProductMeanFunction, jnp.prod)):
        operator = functools.partial(reduce, axis=0)
        register(kind, name=f"gpjax.means.{kind.__name__}", constants={"operator": operator})
    register(means.Linear, name="fsplaplace.means.Linear")
    register(Moved, name="fsplaplace.means.Moved")
    for kind in (kernels.Helmholtz, kernels.GemmComputation, BlockComputation):
        register(kind, name=f"fsplaplace.kernels.{kind.__name__}")
    for kind in (
        likelihoods.Gaussian, likelihoods.HeteroscedasticGaussian, likelihoods.Bernoulli, likelihoods.Categorical,
        likelihoods.Poisson, likelihoods.StudentT, likelihoods.FromLogDensity,
    ):  # fmt: skip
        register(kind, name=f"fsplaplace.likelihoods.{kind.__name__}")
    for kind in (Prior, Diagnostics, Later, Ratio, Stage, Verdict, History):
        register(kind, name=f"fsplaplace.{kind.__name__}")
    register(Posterior, name="fsplaplace.Posterior", check=check_posterior)
    register(Trained, name="fsplaplace.Trained", check=check_trained)


_register_all()
