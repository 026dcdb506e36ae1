"""scikit-learn estimators: a kernel, a network and data in; predictions with uncertainty out."""

from fsplaplace.estimators._classifier import FSPClassifier as FSPClassifier
from fsplaplace.estimators._effort import FitPlan as FitPlan
from fsplaplace.estimators._kernels import KERNELS as KERNELS
from fsplaplace.estimators._kernels import Columns as Columns
from fsplaplace.estimators._kernels import candidates as candidates
from fsplaplace.estimators._kernels import kernel_by_name as kernel_by_name
from fsplaplace.estimators._language import Expression as Expression
from fsplaplace.estimators._language import Product as Product
from fsplaplace.estimators._language import Quantity as Quantity
from fsplaplace.estimators._language import Single as Single
from fsplaplace.estimators._language import Sum as Sum
from fsplaplace.estimators._language import read_kernel as read_kernel
from fsplaplace.estimators._noise_network import NoiseNetworks as NoiseNetworks
from fsplaplace.estimators._outliers import OutlierWarning as OutlierWarning
from fsplaplace.estimators._regressor import FSPRegressor as FSPRegressor
from fsplaplace.estimators._rows import WeightedRows as WeightedRows
from fsplaplace.estimators._summary import LeaveOneOutScores as LeaveOneOutScores
from fsplaplace.estimators._weighted import weighted as weighted
