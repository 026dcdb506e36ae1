"""Methods by name, for switches such as `FSPRegressor(method="gp")`."""

import functools
from collections.abc import Callable

from fsplaplace.arguments import checked
from fsplaplace.methods._method import Method
from fsplaplace.methods.ensemble import Ensemble
from fsplaplace.methods.fsp_laplace import FSPLaplace
from fsplaplace.methods.fvi import FVI
from fsplaplace.methods.gfsvi import GFSVI
from fsplaplace.methods.gp import ExactGP
from fsplaplace.methods.map import MAP
from fsplaplace.methods.sparse_gp import SparseGP
from fsplaplace.methods.weight_laplace import WeightLaplace

METHODS: dict[str, Callable[..., Method]] = {
    "fsp-laplace": FSPLaplace,
    "map": MAP,
    "ensemble": Ensemble,
    "laplace": WeightLaplace,
    "kfac": functools.partial(WeightLaplace, structure="kfac"),
    "diagonal": functools.partial(WeightLaplace, structure="diagonal"),
    "last-layer": functools.partial(WeightLaplace, structure="last_layer"),
    "fvi": FVI,
    "gfsvi": GFSVI,
    "gp": ExactGP,
    "sparse-gp": SparseGP,
}


def names() -> tuple[str, ...]:
    """The names that `by_name` knows."""
    return tuple(METHODS)


@checked(computes=False)
def by_name(name: str, **options) -> Method:
    """The method of this name with its defaults, or with the options given.

    >>> by_name("kfac", prior_precision=1.0).structure
    'kfac'
    """
    if name not in METHODS:
        raise ValueError(f"method is {name!r}; pass one of {', '.join(map(repr, METHODS))}")
    return METHODS[name](**options)
