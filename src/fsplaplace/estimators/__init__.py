"""scikit-learn estimators: a kernel, a network and data in; predictions with uncertainty out."""

from fsplaplace.estimators._classifier import FSPClassifier as FSPClassifier
from fsplaplace.estimators._kernels import KERNELS as KERNELS
from fsplaplace.estimators._regressor import FSPRegressor as FSPRegressor
