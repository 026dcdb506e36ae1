# %% [markdown]
# # Conformal intervals, distributions, forecasts
#
# Packages that speak scikit-learn's language take the regressor as it is: MAPIE for intervals with a guarantee, skpro for predictive
# distributions, sktime for time series. They are not dependencies of this library: `pip install "fsplaplace[neighbours]"`.

# %%
import numpy as np
import pandas as pd
from mapie.conformity_scores import StdConformityScore
from mapie.regression import SplitConformalRegressor
from skpro.regression.adapters.sklearn import SklearnProbaReg
from sktime.forecasting.compose import make_reduction

import fsplaplace as fsp

generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (200, 1))
y = np.sin(4 * X[:, 0]) + (0.05 + 0.2 * (X[:, 0] > 0)) * generator.normal(size=200)
settings = {"kernel": "rbf", "network": (50,), "steps": 300, "num_context": 200, "random_state": 0}

# %% [markdown]
# ## Intervals with a guarantee (MAPIE)
#
# The noise above is not the same everywhere, so the model is wrong. Conformal prediction corrects the intervals' size on rows that
# were held out: 90 % of new targets lie inside, whatever the model. The posterior's standard deviation decides where they are wide.

# %%
regressor = fsp.FSPRegressor(**settings).fit(X[:80], y[:80])
conformal = SplitConformalRegressor(regressor, confidence_level=0.9, conformity_score=StdConformityScore(), prefit=True)
conformal.conformalize(X[80:150], y[80:150])
_, intervals = conformal.predict_interval(X[150:])
inside = (intervals[:, 0, 0] <= y[150:]) & (y[150:] <= intervals[:, 1, 0])
print(f"{inside.mean():.0%} of 50 new targets inside")
assert inside.mean() > 0.75

# %% [markdown]
# ## Distributions (skpro)

# %%
distributions = SklearnProbaReg(fsp.FSPRegressor(**settings)).fit(
    pd.DataFrame(X[:80], columns=["x"]), pd.DataFrame(y[:80], columns=["y"])
)
predicted = distributions.predict_proba(pd.DataFrame(X[80:83], columns=["x"]))
print(predicted.quantile([0.05, 0.95]).round(2))

# %% [markdown]
# ## Forecasts (sktime)
#
# A series becomes a table of its last twelve values; the regressor predicts the next one from them, step by step.

# %%
months = pd.period_range("2020-01", periods=72, freq="M")
series = pd.Series(np.sin(2 * np.pi * np.arange(72) / 12) + 0.05 * generator.normal(size=72), index=months)
forecaster = make_reduction(fsp.FSPRegressor(**settings), window_length=12, strategy="recursive")
forecast = forecaster.fit(series[:60], fh=[1, 2, 3]).predict()
print(
    pd.DataFrame({"forecast": np.ravel(forecast), "observed": series[60:63].to_numpy()}, index=months[60:63]).round(2)
)
assert np.abs(np.ravel(forecast) - series[60:63].to_numpy()).max() < 0.3
