"""Bayesian optimisation: a network with a Gaussian-process prior as a model for BoTorch. Needs `pip install fsplaplace[bo]`."""

import importlib.util

if importlib.util.find_spec("botorch") is None:
    raise ImportError("fsplaplace.botorch needs BoTorch and PyTorch; install fsplaplace[bo]")

from fsplaplace.botorch._ax import register_with_ax as register_with_ax
from fsplaplace.botorch._contract import check_model as check_model
from fsplaplace.botorch._model import FSPModel as FSPModel
from fsplaplace.botorch._paths import FunctionPath as FunctionPath
