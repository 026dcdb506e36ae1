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
from fsplaplace._cache import cache_programs as cache_programs
from fsplaplace._diagnostics import Diagnostics as Diagnostics
from fsplaplace._laplace import laplace as laplace
from fsplaplace._model import Model as Model
from fsplaplace._model import as_model as as_model
from fsplaplace._network import MLP as MLP
from fsplaplace._network import match_first_layer as match_first_layer
from fsplaplace._network import matched_first_layer as matched_first_layer
from fsplaplace._network import mlp as mlp
from fsplaplace._plan import Plan as Plan
from fsplaplace._plan import plan as plan
from fsplaplace._posterior import Posterior as Posterior
from fsplaplace._posterior import Prediction as Prediction
from fsplaplace._prior import Prior as Prior
from fsplaplace._prior_factor import PriorFactor as PriorFactor
from fsplaplace._train import History as History
from fsplaplace._train import Trained as Trained
from fsplaplace._train import train as train
from fsplaplace._version import __version__ as __version__

if TYPE_CHECKING:
    from fsplaplace._describe import describe as describe
    from fsplaplace._plot_prior import plot_prior as plot_prior
    from fsplaplace.estimators import FSPClassifier as FSPClassifier
    from fsplaplace.estimators import FSPRegressor as FSPRegressor
    from fsplaplace.io import FileFormatError as FileFormatError
    from fsplaplace.io import load as load
    from fsplaplace.io import save as save
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
    "describe": "fsplaplace._describe",
    "dirichlet_labels": "fsplaplace.tuning",
    "fit_prior": "fsplaplace.tuning",
    "load": "fsplaplace.io",
    "plot_prior": "fsplaplace._plot_prior",
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
