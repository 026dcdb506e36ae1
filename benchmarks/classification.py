"""`FSPClassifier()` with no argument against scikit-learn's classifiers, five stratified folds.

    python benchmarks/classification.py [--datasets iris wine] [--methods FSPClassifier] [--directory benchmarks/results]

Tables of scikit-learn: iris, wine, breast cancer, digits, and 300 points of two moons with noise 0.3. Every classifier but ours gets
standardised inputs from a pipeline. `GaussianProcessClassifier` has an RBF kernel with one length scale per input (one for all on digits,
where it is fitted to at most 500 rows); the MLP has two layers of 50 and its probabilities are calibrated by a sigmoid in five-fold
cross-validation (`CalibratedClassifierCV`). The score is the mean log probability of the true class. The classifier's defaults
(hyperprior of logits, shares of the variance) were chosen within the training rows of the first folds.

Each finished fold is written at once, and a second run continues where the first one stopped.
"""

import time
import warnings
from typing import Any

import numpy as np
from folds import Comparison
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fsplaplace import metrics
from fsplaplace.estimators import FSPClassifier

DATASETS = ("iris", "wine", "breast cancer", "moons", "digits")
OURS, GP = "FSPClassifier", "GaussianProcessClassifier"
METHODS = (OURS, "LogisticRegression", "RandomForestClassifier", GP, "MLPClassifier")
FOLDS = 5
MOST_GP_ROWS = 500
# The least probability in a logarithm: a forest gives zeros.
LEAST = 1e-4


def load(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and the numbers of the classes."""
    if dataset == "moons":
        X, y = make_moons(300, noise=0.3, random_state=0)
        return np.asarray(X), np.asarray(y)
    loaders = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
    X, y = loaders[dataset](return_X_y=True)
    return np.asarray(X), np.asarray(y)


def classifier(method: str, num_features: int) -> Any:
    """A classifier that is not fitted yet."""
    if method == OURS:
        return FSPClassifier(random_state=0)
    lengths: Any = np.full(num_features, num_features**0.5) if num_features < 50 else num_features**0.5
    mlp = MLPClassifier((50, 50), max_iter=1000, random_state=0)
    peers = {
        "LogisticRegression": LogisticRegression(max_iter=1000),
        "RandomForestClassifier": RandomForestClassifier(200, random_state=0),
        GP: GaussianProcessClassifier(ConstantKernel(10.0) * RBF(lengths), random_state=0),
        "MLPClassifier": CalibratedClassifierCV(mlp, cv=5),
    }
    return make_pipeline(StandardScaler(), peers[method])


def one_fold(dataset: str, method: str, fold: int) -> dict:
    """Log score, calibration error, accuracy and CPU seconds of a fit."""
    X, y = load(dataset)
    train, test = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))[fold]
    if method == GP:
        train = np.random.default_rng(0).permutation(train)[:MOST_GP_ROWS]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = classifier(method, X.shape[1]).fit(X[train], y[train])
    seconds = time.process_time() - began
    probabilities = model.predict_proba(X[test])
    of_truth = np.maximum(probabilities[np.arange(len(test)), y[test]], LEAST)
    chosen = {} if method != OURS else {
        "chosen": f"{type(model.prior_.kernel).__name__}, share {model.variance_share_:g}, {model.posterior_.diagnostics.mean} mean"
    }  # fmt: skip
    return {
        "dataset": dataset, "method": method, "fold": fold, "rows": len(train), "log_score": float(np.mean(np.log(of_truth))),
        "ece": float(metrics.expected_calibration_error(y[test], probabilities)),
        "accuracy": float(np.mean(np.argmax(probabilities, axis=1) == y[test])), "cpu_seconds": round(seconds, 2), **chosen,
    }  # fmt: skip


COMPARISON = Comparison(
    name="classification",
    datasets=DATASETS,
    methods=METHODS,
    folds=FOLDS,
    measures={
        "log_score": "Log score (higher is better)",
        "accuracy": "Accuracy",
        "ece": "Expected calibration error, 15 bins",
        "cpu_seconds": "CPU seconds of a fit",
    },
    one_fold=one_fold,
    settings={"folds": FOLDS, "most_gp_rows": MOST_GP_ROWS, "least": LEAST},
    introduction=" ".join((__doc__ or "").split("\n\n")[2].split()),
)
main = COMPARISON.main

if __name__ == "__main__":
    main()
