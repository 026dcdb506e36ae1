"""Neural networks with Gaussian-process priors over functions (FSP-Laplace)."""

from fsplaplace import context as context
from fsplaplace import kernels as kernels
from fsplaplace import likelihoods as likelihoods
from fsplaplace._diagnostics import Diagnostics as Diagnostics
from fsplaplace._laplace import laplace as laplace
from fsplaplace._model import Model as Model
from fsplaplace._model import as_model as as_model
from fsplaplace._network import MLP as MLP
from fsplaplace._network import match_first_layer as match_first_layer
from fsplaplace._network import matched_first_layer as matched_first_layer
from fsplaplace._network import mlp as mlp
from fsplaplace._posterior import Posterior as Posterior
from fsplaplace._posterior import Prediction as Prediction
from fsplaplace._prior import Prior as Prior
from fsplaplace._prior import PriorFactor as PriorFactor
from fsplaplace._train import History as History
from fsplaplace._train import Trained as Trained
from fsplaplace._train import train as train
from fsplaplace._version import __version__ as __version__
