"""`FSPRegressor()` with no argument against scikit-learn's regressors and other libraries' on UCI tables, five folds.

    python benchmarks/estimators.py [--datasets boston yacht] [--directory benchmarks/results]

Each finished fold is written at once, and a second run continues where the first one stopped. Every regressor but ours and
`BayesianRidge` gets standardised inputs from a pipeline. Those without a predictive density get a Gaussian whose variance is
the mean squared out-of-bag residual (random forest) or the mean squared residual of a five-fold cross-validation on the
training rows (MLP). The exact processes (scikit-learn's and GPyTorch's) have one length scale per input and are fitted to at most
1,000 training rows. NGBoost, CatBoost (means and variances), boosted quantiles, a deep ensemble, and GPyTorch's exact and sparse
processes are set up as their documentation advises; what they leave open is chosen on training rows (`benchmarks/table_peers.py`).

NGBoost and CatBoost come with nothing else: `pip install ngboost catboost` first, or name the other methods by `--methods`.
"""

import time
import warnings

import numpy as np
from folds import Comparison
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from table_peers import PEERS

from fsplaplace import datasets
from fsplaplace.estimators import FSPRegressor

DATASETS = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power")
OURS = "FSPRegressor"
METHODS = (OURS, "GaussianProcessRegressor", "MLPRegressor", "BayesianRidge", "RandomForestRegressor", *PEERS)
EXACT, MOST_GP_ROWS = ("GaussianProcessRegressor", "GPyTorch exact"), 1000
FOLDS = 5


def fit(method: str, X: np.ndarray, y: np.ndarray):
    """A function from inputs to means and standard deviations of new targets."""
    if method == OURS:
        model = FSPRegressor(random_state=0).fit(X, y)
        return lambda x: model.predict(x, return_std=True)
    scaler = StandardScaler().fit(X)
    mean, spread = y.mean(), y.std()
    inputs, targets = scaler.transform(X), (y - mean) / spread
    if method in EXACT:
        rows = np.random.default_rng(0).permutation(len(X))[:MOST_GP_ROWS]
        inputs, targets = inputs[rows], targets[rows]
    match method:
        case "GaussianProcessRegressor":
            kernel = ConstantKernel() * RBF(np.full(X.shape[1], X.shape[1] ** 0.5)) + WhiteKernel(0.1)
            model = GaussianProcessRegressor(kernel, random_state=0).fit(inputs, targets)
            predict = lambda x: model.predict(x, return_std=True)  # noqa: E731
        case "BayesianRidge":
            model = BayesianRidge().fit(inputs, targets)
            predict = lambda x: model.predict(x, return_std=True)  # noqa: E731
        case "MLPRegressor":
            model = MLPRegressor(hidden_layer_sizes=(50, 50), max_iter=1000, random_state=0).fit(inputs, targets)
            residual = targets - cross_val_predict(make_pipeline(StandardScaler(), model), X, targets, cv=5)
            predict = _with_constant_std(model, residual)
        case "RandomForestRegressor":
            model = RandomForestRegressor(200, oob_score=True, random_state=0).fit(inputs, targets)
            predict = _with_constant_std(model, targets - model.oob_prediction_)
        case _:
            predict = PEERS[method](inputs, targets)

    def in_units(x):
        centre, std = predict(scaler.transform(x))
        return centre * spread + mean, std * spread

    return in_units


def _with_constant_std(model, residual: np.ndarray):
    std = float(np.sqrt(np.mean(residual**2)))
    return lambda x: (model.predict(x), np.full(len(x), std))


def one_fold(dataset: str, method: str, fold: int) -> dict:
    """Root mean squared error, log predictive density, coverage of the 90 % interval and seconds of the fit."""
    data = datasets.load(dataset)
    X, y = data.X, data.y.ravel()
    train, test = list(KFold(FOLDS, shuffle=True, random_state=0).split(X))[fold]
    began, worked = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        predict = fit(method, X[train], y[train])
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - worked
    mean, std = predict(X[test])
    inside = np.abs(y[test] - mean) <= norm.ppf(0.95) * std
    return {
        "dataset": dataset, "method": method, "fold": fold, "rows": len(train),
        "rmse": float(np.sqrt(np.mean((y[test] - mean) ** 2))),
        "log_predictive_density": float(np.mean(norm.logpdf(y[test], mean, std))),
        "coverage": float(np.mean(inside)), "seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds, 2),
    }  # fmt: skip


COMPARISON = Comparison(
    name="estimators",
    datasets=DATASETS,
    methods=METHODS,
    folds=FOLDS,
    measures={
        "log_predictive_density": "Log predictive density (higher is better)",
        "rmse": "RMSE",
        "coverage": "Coverage of the 90 % interval",
        "cpu_seconds": "CPU seconds of a fit",
    },
    one_fold=one_fold,
    settings={"folds": FOLDS, "most_gp_rows": MOST_GP_ROWS, "estimator": str(FSPRegressor().get_params())},
    introduction=" ".join((__doc__ or "").split("\n\n")[2].split()),
)
main = COMPARISON.main

if __name__ == "__main__":
    main()
