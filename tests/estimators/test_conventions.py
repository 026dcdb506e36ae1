"""scikit-learn's own checks, for both estimators."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from fsplaplace.estimators import FSPClassifier, FSPRegressor

_SMALL = {"network": (16,), "steps": 200, "num_context": 48, "fit_prior": False, "ard": False, "random_state": 0}


# scikit-learn's data sets have a constant or repeated column here and there, which warnings name.
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@parametrize_with_checks([FSPRegressor(**_SMALL), FSPClassifier(**_SMALL)])
def test_scikit_learn_check_passes(estimator, check):
    check(estimator)
