"""The Laplace approximation under a Gaussian-process prior; README.md in this folder is the map of the room."""

from fsplaplace.laplace._diagnostics import Diagnostics as Diagnostics
from fsplaplace.laplace._diagnostics import Ratio as Ratio
from fsplaplace.laplace._diagnostics import Stage as Stage
from fsplaplace.laplace._diagnostics import Verdict as Verdict
from fsplaplace.laplace._diagnostics import VerdictWarning as VerdictWarning
from fsplaplace.laplace._fit import FitNoise as FitNoise
from fsplaplace.laplace._fit import Fitted as Fitted
from fsplaplace.laplace._fit import choose_context_points as choose_context_points
from fsplaplace.laplace._fit import fit_posterior as fit_posterior
from fsplaplace.laplace._held_out import HeldOut as HeldOut
from fsplaplace.laplace._laplace import laplace as laplace
from fsplaplace.laplace._leave_one_out import LeaveOneOut as LeaveOneOut
from fsplaplace.laplace._linear_model import Later as Later
from fsplaplace.laplace._linear_model import Local as Local
from fsplaplace.laplace._plan import Plan as Plan
from fsplaplace.laplace._plan import plan as plan
from fsplaplace.laplace._posterior import Posterior as Posterior
from fsplaplace.laplace._predictive import Joint as Joint
from fsplaplace.laplace._predictive import PredictedMean as PredictedMean
from fsplaplace.laplace._predictive import Prediction as Prediction
