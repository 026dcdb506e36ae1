"""Neural networks with Gaussian-process priors over functions (FSP-Laplace).

State a prior as a kernel, train a network under it, and get a posterior over functions that obeys it:
`Prior`, `train`, `laplace`. For tables, `FSPRegressor` and `FSPClassifier` do all of it behind scikit-learn's interface.
"""

from typing import TYPE_CHECKING, Any

from fsplaplace import context as context
from fsplaplace import kernels as kernels
from fsplaplace import likelihoods as likelihoods
from fsplaplace import means as means
from fsplaplace import metrics as metrics
from fsplaplace import operators as operators
from fsplaplace._version import __version__ as __version__
from fsplaplace.host import cache_programs as cache_programs
from fsplaplace.laplace import Diagnostics as Diagnostics
from fsplaplace.laplace import Plan as Plan
from fsplaplace.laplace import Posterior as Posterior
from fsplaplace.laplace import Prediction as Prediction
from fsplaplace.laplace import Verdict as Verdict
from fsplaplace.laplace import VerdictWarning as VerdictWarning
from fsplaplace.laplace import laplace as laplace
from fsplaplace.laplace import plan as plan
from fsplaplace.networks import MLP as MLP
from fsplaplace.networks import CapacityWarning as CapacityWarning
from fsplaplace.networks import Held as Held
from fsplaplace.networks import Model as Model
from fsplaplace.networks import PrecisionWarning as PrecisionWarning
from fsplaplace.networks import as_model as as_model
from fsplaplace.networks import holds as holds
from fsplaplace.networks import match_first_layer as match_first_layer
from fsplaplace.networks import matched_first_layer as matched_first_layer
from fsplaplace.networks import mlp as mlp
from fsplaplace.observations import Observation as Observation
from fsplaplace.prior import Prior as Prior
from fsplaplace.prior import PriorFactor as PriorFactor
from fsplaplace.training import History as History
from fsplaplace.training import Trained as Trained
from fsplaplace.training import train as train

if TYPE_CHECKING:
    from fsplaplace.estimators import FSPClassifier as FSPClassifier
    from fsplaplace.estimators import FSPRegressor as FSPRegressor
    from fsplaplace.io import FileFormatError as FileFormatError
    from fsplaplace.io import export as export
    from fsplaplace.io import load as load
    from fsplaplace.io import save as save
    from fsplaplace.plotting import plot_prior as plot_prior
    from fsplaplace.prior import describe as describe
    from fsplaplace.tuning import choose_prior as choose_prior
    from fsplaplace.tuning import dirichlet_labels as dirichlet_labels
    from fsplaplace.tuning import fit_prior as fit_prior
    from fsplaplace.tuning import tune as tune

# What needs scikit-learn, optimisers or files is imported when first used: `import fsplaplace` stays quick.
_LAZY = {
    "FSPClassifier": "fsplaplace.estimators",
    "FSPRegressor": "fsplaplace.estimators",
    "FileFormatError": "fsplaplace.io",
    "choose_prior": "fsplaplace.tuning",
    "describe": "fsplaplace.prior",
    "dirichlet_labels": "fsplaplace.tuning",
    "export": "fsplaplace.io",
    "fit_prior": "fsplaplace.tuning",
    "load": "fsplaplace.io",
    "plot_prior": "fsplaplace.plotting",
    "save": "fsplaplace.io",
    "tune": "fsplaplace.tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fsplaplace' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
