"""The methods that FSP-Laplace is compared with, behind one call shape.

`method.fit(model, X, y, likelihood, key=key, prior=prior, context=context)` returns a posterior with `predict`,
`sample` and `predict_proba`, whatever the method, that `fsplaplace.save` can write.
"""

from fsplaplace.baselines import _saving as _saving
from fsplaplace.baselines._method import Method as Method
from fsplaplace.baselines._posterior import FunctionPosterior as FunctionPosterior
from fsplaplace.baselines._registry import by_name as by_name
from fsplaplace.baselines._registry import names as names
from fsplaplace.baselines.ensemble import Ensemble as Ensemble
from fsplaplace.baselines.fsp_laplace import FSPLaplace as FSPLaplace
from fsplaplace.baselines.fvi import FVI as FVI
from fsplaplace.baselines.gfsvi import GFSVI as GFSVI
from fsplaplace.baselines.gp import ExactGP as ExactGP
from fsplaplace.baselines.map import MAP as MAP
from fsplaplace.baselines.sparse_gp import SparseGP as SparseGP
from fsplaplace.baselines.weight_laplace import WeightLaplace as WeightLaplace
from fsplaplace.baselines.weight_laplace import last_layer as last_layer
