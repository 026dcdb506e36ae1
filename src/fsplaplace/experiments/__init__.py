"""The paper's experiments, one file each: `fsplaplace reproduce NAME`, or `reproduce(get(name), ...)` from Python.

An experiment is a set of cells (task, method, seed). Every finished cell is a file, so an interrupted run continues
where it stopped; the result is written only when all cells are there.
"""

import importlib

from fsplaplace.arguments import checked
from fsplaplace.experiments._experiment import Cell as Cell
from fsplaplace.experiments._experiment import Experiment as Experiment
from fsplaplace.experiments._experiment import Outcome as Outcome
from fsplaplace.experiments._experiment import Row as Row
from fsplaplace.experiments._mauna_loa_kernel import mauna_loa_kernel as mauna_loa_kernel
from fsplaplace.experiments._records import ResultFormatError as ResultFormatError
from fsplaplace.experiments._records import read_record as read_record
from fsplaplace.experiments._records import write_record as write_record
from fsplaplace.experiments._runner import reproduce as reproduce

_MODULES = {
    "sine": "sine",
    "two-moons": "two_moons",
    "null-space": "null_space",
    "mauna-loa": "mauna_loa",
    "ocean": "ocean",
    "uci": "uci",
    "uci-gap": "uci_gap",
    "mnist": "mnist",
    "fashion-mnist": "fashion_mnist",
    "bayesian-optimisation": "bayesian_optimisation",
}


def names() -> tuple[str, ...]:
    """Names that `get` accepts."""
    return tuple(_MODULES)


@checked(computes=False)
def get(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in _MODULES:
        raise ValueError(f"there is no experiment {name!r}; pass one of {', '.join(_MODULES)}")
    return importlib.import_module(f"fsplaplace.experiments.{_MODULES[name]}").EXPERIMENT
