"""The methods that FSP-Laplace is compared with, behind one call shape.

`method.fit(model, X, y, likelihood, key=key, prior=prior, context=context)` returns a posterior with `predict`,
`sample` and `predict_proba`, whatever the method, that `fsplaplace.save` can write.
"""

from fsplaplace.methods import _saving as _saving
from fsplaplace.methods._method import Method as Method
from fsplaplace.methods._posterior import FunctionPosterior as FunctionPosterior
from fsplaplace.methods._registry import by_name as by_name
from fsplaplace.methods._registry import names as names
from fsplaplace.methods.ensemble import Ensemble as Ensemble
from fsplaplace.methods.fsp_laplace import FSPLaplace as FSPLaplace
from fsplaplace.methods.fvi import FVI as FVI
from fsplaplace.methods.gfsvi import GFSVI as GFSVI
from fsplaplace.methods.gp import ExactGP as ExactGP
from fsplaplace.methods.map import MAP as MAP
from fsplaplace.methods.sparse_gp import SparseGP as SparseGP
from fsplaplace.methods.weight_laplace import WeightLaplace as WeightLaplace
from fsplaplace.methods.weight_laplace import last_layer as last_layer
