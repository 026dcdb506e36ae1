"""Scores of predictions: Gaussian regression, classification, out-of-distribution detection.

Two likelihood scores are kept apart by name everywhere. The *expected log-likelihood* `E_q log p(y|f)` is
what the FSP-Laplace paper reports; in it the posterior variance is a penalty. The *log predictive density*
`log E_q p(y|f)` is the proper score. Jensen's inequality puts the first below the second.

Every function is pure and traceable. Nothing is clipped: a label of probability zero scores `-inf`, and
predictions of NaN give NaN, never a score. Regression arrays are (n,) or (n, q); (n,) and (n, 1) mean the
same. In the shapes, q counts outputs, s posterior samples and c classes.
"""

from fsplaplace.metrics._classification import accuracy as accuracy
from fsplaplace.metrics._classification import brier_score as brier_score
from fsplaplace.metrics._classification import expected_calibration_error as expected_calibration_error
from fsplaplace.metrics._classification import expected_entropy as expected_entropy
from fsplaplace.metrics._classification import (
    expected_log_likelihood_from_logits as expected_log_likelihood_from_logits,
)
from fsplaplace.metrics._classification import log_predictive_density_from_logits as log_predictive_density_from_logits
from fsplaplace.metrics._classification import (
    log_predictive_density_from_probabilities as log_predictive_density_from_probabilities,
)
from fsplaplace.metrics._classification import mutual_information as mutual_information
from fsplaplace.metrics._classification import predictive_entropy as predictive_entropy
from fsplaplace.metrics._classification import predictive_probabilities as predictive_probabilities
from fsplaplace.metrics._out_of_distribution import auroc as auroc
from fsplaplace.metrics._out_of_distribution import ood_accuracy as ood_accuracy
from fsplaplace.metrics._regression import crps as crps
from fsplaplace.metrics._regression import expected_log_likelihood as expected_log_likelihood
from fsplaplace.metrics._regression import interval_coverage as interval_coverage
from fsplaplace.metrics._regression import interval_width as interval_width
from fsplaplace.metrics._regression import log_predictive_density as log_predictive_density
from fsplaplace.metrics._regression import mse as mse
from fsplaplace.metrics._regression import rmse as rmse
