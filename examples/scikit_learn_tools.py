# %% [markdown]
# # scikit-learn's own tools
#
# `FSPRegressor` and `FSPClassifier` are ordinary estimators, so what scikit-learn does with estimators works: columns with
# categories, permutation importance, partial dependence, calibration. Each is two lines.

# %%
import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import fsplaplace as fsp

generator = np.random.default_rng(0)
table = pd.DataFrame(
    {
        "size": generator.uniform(0, 1, 120),
        "colour": generator.choice(["red", "green"], 120),
        "noise": generator.uniform(0, 1, 120),
    }
)
price = np.sin(4 * table["size"]) + (table["colour"] == "red") + 0.05 * generator.normal(size=120)
settings = {"network": (50,), "steps": 300, "num_context": 200, "random_state": 0}

# %% [markdown]
# ## Columns with categories
#
# One-hot columns are inputs like any other: the kernel has a length scale for each.

# %%
columns = make_column_transformer((OneHotEncoder(drop="if_binary"), ["colour"]), remainder="passthrough")
pipeline = make_pipeline(columns, fsp.FSPRegressor(kernel="rbf", **settings)).fit(table, price)
mean, std = pipeline.predict(table.head(3), return_std=True)
print("predictions:", ", ".join(f"{m:.2f} ± {s:.2f}" for m, s in zip(mean, std, strict=True)))
print(f"R² on the training rows: {pipeline.score(table, price):.3f}")

# %% [markdown]
# ## Which column matters?

# %%
importance = permutation_importance(pipeline, table, price, n_repeats=5, random_state=0)
for name, value in zip(table.columns, importance.importances_mean, strict=True):
    print(f"{name:>8}: {value:.3f}")
assert importance.importances_mean[2] < 0.05 < importance.importances_mean[0]

# %% [markdown]
# ## What does a column do?

# %%
shape = partial_dependence(pipeline, table, ["size"], grid_resolution=5)
for size, value in zip(shape["grid_values"][0], shape["average"][0], strict=True):
    print(f"size {size:.2f}: {value:.2f}")

# %% [markdown]
# ## Calibrated probabilities
#
# The posterior's probabilities are averages over functions already; where the likelihood is wrong, held-out folds can correct them.

# %%
X = generator.uniform(-1, 1, (120, 2))
labels = (X[:, 0] * X[:, 1] + 0.1 * generator.normal(size=120) > 0).astype(int)
calibrated = CalibratedClassifierCV(fsp.FSPClassifier(**settings), method="sigmoid", cv=2).fit(X, labels)
print("probability in the corners:", np.round(calibrated.predict_proba([[0.9, 0.9], [0.9, -0.9]])[:, 1], 2))
assert calibrated.predict([[0.9, 0.9], [0.9, -0.9]]).tolist() == [1, 0]
