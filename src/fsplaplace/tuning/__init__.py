"""Choosing and fitting a prior: marginal likelihood, Dirichlet labels, evidence of the Laplace approximation."""

from fsplaplace.tuning._choose import PriorRanking as PriorRanking
from fsplaplace.tuning._choose import choose_prior as choose_prior
from fsplaplace.tuning._fit_prior import FittedPrior as FittedPrior
from fsplaplace.tuning._fit_prior import fit_prior as fit_prior
from fsplaplace.tuning._label_evidence import has_label_evidence as has_label_evidence
from fsplaplace.tuning._log_variance import LogVariance as LogVariance
from fsplaplace.tuning._log_variance import fit_log_variance as fit_log_variance
from fsplaplace.tuning._marginal_likelihood import log_marginal_likelihood as log_marginal_likelihood
from fsplaplace.tuning._optimize import Box as Box
from fsplaplace.tuning._optimize import maximize as maximize
from fsplaplace.tuning._parameters import ParameterSpace as ParameterSpace
from fsplaplace.tuning._report import FitReport as FitReport
from fsplaplace.tuning._report import ParameterRow as ParameterRow
from fsplaplace.tuning._tune import Tuned as Tuned
from fsplaplace.tuning._tune import tune as tune
from fsplaplace.tuning._tune import tune_and_train as tune_and_train
from fsplaplace.tuning.labels import dirichlet_labels as dirichlet_labels
