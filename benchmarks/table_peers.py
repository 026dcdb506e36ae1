"""Regressors with a predictive density that scikit-learn does not have, set up as their documentation advises.

Each takes standardised inputs (n, d) and targets (n,) and gives a function from inputs to means and standard deviations. What
has to be chosen (the number of trees, epochs, a kernel) is chosen on held-out training rows, or by the marginal likelihood.
NGBoost and CatBoost are not installed with anything else: `pip install ngboost catboost`.
"""

import itertools
import math
from collections.abc import Callable

import gpytorch
import numpy as np
import torch
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold, ShuffleSplit, train_test_split

Predict = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

# Numbers of trees to choose from.
TREES = (25, 50, 100, 200, 400)
# Up to so many rows trees are chosen by five-fold cross-validation, beyond by a tenth of the rows.
MOST_FOLDED_ROWS = 2000
# Epochs without a better score after which a training stops.
NETWORKS, WIDTH, MOST_STEPS, PATIENCE = 5, 50, 4000, 20
INDUCING, BATCH = 500, 256


def ngboost(X: np.ndarray, y: np.ndarray) -> Predict:
    """Natural-gradient boosting of a Gaussian, with steps of .02 and .1."""
    from ngboost import NGBRegressor

    def fit(X, y, trees, step):
        model = NGBRegressor(n_estimators=trees, learning_rate=step, verbose=False, random_state=0).fit(X, y)

        def predict(x, trees):
            found = model.pred_dist(x, max_iter=trees)
            return found.params["loc"], found.params["scale"]

        return predict

    return _chosen_trees(fit, (0.02, 0.1), X, y)


def catboost(X: np.ndarray, y: np.ndarray) -> Predict:
    """Boosted means and variances (`RMSEWithUncertainty`), in trees of depth 4 and 6."""
    from catboost import CatBoostRegressor

    def fit(X, y, trees, depth):
        model = CatBoostRegressor(
            iterations=trees, depth=depth, learning_rate=0.05, loss_function="RMSEWithUncertainty",
            verbose=False, random_seed=0, allow_writing_files=False, thread_count=1,
        ).fit(X, y)  # fmt: skip

        def predict(x, trees):
            found = model.predict(x, ntree_end=trees)
            return found[:, 0], np.sqrt(found[:, 1])

        return predict

    return _chosen_trees(fit, (4, 6), X, y)


def boosted_quantiles(X: np.ndarray, y: np.ndarray) -> Predict:
    """Histogram boosting of three quantiles; a Gaussian with the median and the width of the 90 % interval.

    Trees of two quantiles may meet, so a variance is added everywhere, chosen as the number of trees is.
    """
    probabilities = (0.05, 0.5, 0.95)

    def fit(X, y, trees, added):
        settings = {"loss": "quantile", "max_iter": trees, "learning_rate": 0.05, "early_stopping": False}
        models = [
            HistGradientBoostingRegressor(quantile=p, random_state=0, **settings).fit(X, y) for p in probabilities
        ]

        def predict(x, trees):
            low, middle, high = (list(itertools.islice(model.staged_predict(x), trees))[-1] for model in models)
            return middle, np.hypot((high - low) / (2 * norm.ppf(probabilities[-1])), added)

        return predict

    return _chosen_trees(fit, (0.03, 0.1, 0.3), X, y)


def _chosen_trees(fit, options, X, y) -> Predict:
    """The model fitted to all rows, with the number of trees and the option that score best on rows held out."""
    splits = (
        KFold(5, shuffle=True, random_state=0)
        if len(X) <= MOST_FOLDED_ROWS
        else ShuffleSplit(1, test_size=0.1, random_state=0)
    )
    scores = np.zeros((len(options), len(TREES)))
    for train, held in splits.split(X):
        for i, option in enumerate(options):
            predict = fit(X[train], y[train], TREES[-1], option)
            scores[i] += [norm.logpdf(y[held], *predict(X[held], trees)).mean() for trees in TREES]
    option, trees = np.unravel_index(np.argmax(scores), scores.shape)
    predict = fit(X, y, TREES[trees], options[option])
    return lambda x: predict(x, TREES[trees])


def _held_out(X, y):
    """Rows to learn from, and a tenth to stop by."""
    return train_test_split(X, y, test_size=0.1, random_state=0)


def deep_ensemble(X: np.ndarray, y: np.ndarray) -> Predict:
    """Five networks with a mean and a variance each, trained by the Gaussian score, each stopped at its best held-out epoch."""
    torch.manual_seed(0)
    inputs, x_held, targets, y_held = map(_tensor, _held_out(X, y))
    networks = [_mean_and_variance(inputs.shape[1]) for _ in range(NETWORKS)]
    for network in networks:
        parameters = list(network.parameters())
        optimizer = torch.optim.Adam(parameters, lr=1e-2)
        score = lambda x, t, network=network: _gaussian_loss(network(x), t)  # noqa: E731
        _best_epoch(network, optimizer, score, (inputs, targets), (x_held, y_held))

    def predict(x):
        with torch.no_grad():
            found = torch.stack([network(_tensor(x)) for network in networks])
        means, variances = found[..., 0].numpy(), _variance(found[..., 1]).numpy()
        mean = means.mean(0)
        return mean, np.sqrt((variances + means**2).mean(0) - mean**2)

    return predict


def gpytorch_exact(X: np.ndarray, y: np.ndarray) -> Predict:
    """Exact process: RBF or Matern-5/2 with one length scale per input, whichever has the larger marginal likelihood."""
    inputs, targets = _tensor(X), _tensor(y)
    fits = []
    for base in (gpytorch.kernels.RBFKernel, gpytorch.kernels.MaternKernel):
        model = _ExactProcess(inputs, targets, base(ard_num_dims=X.shape[1]))
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(100):
            optimizer.zero_grad()
            loss = -objective(model(inputs), targets)
            loss.backward()
            optimizer.step()
        fits.append((loss.item(), model.eval()))
    model = min(fits, key=lambda fit: fit[0])[1]
    return _of_process(model)


def gpytorch_svgp(X: np.ndarray, y: np.ndarray) -> Predict:
    """Sparse variational process: 500 inducing points from the rows, batches of 256, stopped at the best held-out epoch."""
    torch.manual_seed(0)
    inputs, x_held, targets, y_held = map(_tensor, _held_out(X, y))
    model = _SparseProcess(inputs[torch.randperm(len(inputs))[:INDUCING]].clone())
    objective = gpytorch.mlls.PredictiveLogLikelihood(model.likelihood, model, num_data=len(targets))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    score = lambda x, t: -objective(model(x), t)  # noqa: E731
    _best_epoch(model, optimizer, score, (inputs, targets), (x_held, y_held))
    return _of_process(model.eval())


# What `benchmarks/estimators.py` runs, by the name in its tables.
PEERS: dict[str, Callable[[np.ndarray, np.ndarray], Predict]] = {
    "NGBoost": ngboost,
    "CatBoost": catboost,
    "boosted quantiles": boosted_quantiles,
    "deep ensemble": deep_ensemble,
    "GPyTorch exact": gpytorch_exact,
    "GPyTorch SVGP": gpytorch_svgp,
}


def _tensor(values) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values), dtype=torch.float32)


def _mean_and_variance(num_features: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(num_features, WIDTH), torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, 2),
    )  # fmt: skip


def _variance(raw: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.softplus(raw) + 1e-6


def _gaussian_loss(found: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gaussian_nll_loss(found[:, 0], targets, _variance(found[:, 1]))


def _best_epoch(model, optimizer, score, learn, held) -> None:
    """Train in batches; leave the model with the weights of the epoch that had the least score of the held-out rows."""
    inputs, targets = learn
    best, weights, since = np.inf, model.state_dict(), 0
    for _ in range(MOST_STEPS // math.ceil(len(inputs) / BATCH)):
        model.train()
        for rows in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            score(inputs[rows], targets[rows]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            found = score(*held).item()
        since += 1
        if found < best:
            best, since = found, 0
            weights = {name: value.clone() for name, value in model.state_dict().items()}
        if since == PATIENCE:
            break
    model.load_state_dict(weights)


class _ExactProcess(gpytorch.models.ExactGP):
    def __init__(self, inputs, targets, kernel):
        super().__init__(inputs, targets, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class _SparseProcess(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, distribution))
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(ard_num_dims=inducing.shape[1]))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _of_process(model) -> Predict:
    model.likelihood.eval()

    def predict(x):
        with torch.no_grad():
            found = model.likelihood(model(_tensor(x)))
        return found.mean.numpy(), found.stddev.numpy()

    return predict
