"""A single value that hides all others is named, with its row and the way out; wide distributions are not."""

import warnings

import numpy as np
import pytest

from fsplaplace.estimators import FSPRegressor
from fsplaplace.estimators._outliers import OutlierWarning, warn_of_outliers

_NAMES = ["column age of X", "y"]


@pytest.mark.parametrize(("column", "remedy"), [(0, "QuantileTransformer"), (1, "StudentT")])
def test_one_value_of_a_million_is_named_with_its_row(column, remedy):
    values = np.random.default_rng(0).normal(size=(60, 2))
    values[17, column] = 1e6
    with pytest.warns(OutlierWarning, match=rf"{_NAMES[column]} has 1e\+06 in row 17, .*{remedy}"):
        warn_of_outliers(values, _NAMES, caller="FSPRegressor")


def test_few_values_and_those_of_a_column_that_is_mostly_one_number_are_named():
    values = np.random.default_rng(0).normal(size=(40, 2))
    values[[3, 9], 1] = 1e6, -2e6
    with pytest.warns(OutlierWarning, match=r"y has -2e\+06 in row 9 and 1 more"):
        warn_of_outliers(values, _NAMES, caller="FSPRegressor")
    counts = np.random.default_rng(0).poisson(0.3, size=(40, 2)).astype(float)
    counts[5, 0] = 1e6
    with pytest.warns(OutlierWarning, match="column age of X has 1e\\+06 in row 5"):
        warn_of_outliers(counts, _NAMES, caller="FSPRegressor")


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(1).lognormal(sigma=1.0, size=(20_000, 2)),
        np.random.default_rng(2).standard_t(2, size=(2_000, 2)),
        np.repeat([[3.0, 1e300]], 10, axis=0),
        np.stack([1.0 + 1e-16 * np.arange(50), np.eye(50)[0]], axis=1),
        np.random.default_rng(3).normal(size=(50, 2)) * np.where(np.arange(50)[:, None] % 5, 1.0, 1e6),
        np.array([[0.0, 1.0], [1e9, 2.0]]),
    ],
    ids=["log-normal", "Student-t", "constant", "roundings and one hot", "a fifth of the rows", "two rows"],
)
def test_distributions_are_not_outliers(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_outliers(values, _NAMES, caller="FSPRegressor")


def test_a_fit_says_it_of_targets_and_of_columns():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(30, 2)), generator.normal(size=30)
    small = {"kernel": "rbf", "network": (5,), "steps": 5, "num_context": 20, "fit_prior": False, "method": "gp"}
    with pytest.warns(OutlierWarning, match="y has -1e\\+06 in row 3"):
        FSPRegressor(**small).fit(X, np.where(np.arange(30) == 3, -1e6, y))
    with pytest.warns(OutlierWarning, match="column x1 of X has 1e\\+06 in row 4"):
        FSPRegressor(**small).fit(np.where((np.arange(30) == 4)[:, None] & [False, True], 1e6, X), y)
