"""One split of a table, every method of the paper's table fitted to it, and its scores."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gpjax.kernels import RBF, AbstractKernel, Matern12, Matern32, Matern52, RationalQuadratic
from jaxtyping import Float, Int
from sklearn.preprocessing import StandardScaler

import fsplaplace as fsp
from fsplaplace import datasets, metrics
from fsplaplace.context import Halton, LatinHypercube, Uniform
from fsplaplace.estimators import FSPRegressor
from fsplaplace.experiments._expected_score import left_out_of_estimator
from fsplaplace.experiments._experiment import Row
from fsplaplace.experiments._methods import baseline, keys, usual_mlp
from fsplaplace.methods import MAP, WeightLaplace
from fsplaplace.tuning import fit_prior

OURS = "FSP-Laplace"
AUTHORS = "FSP-Laplace, the paper's settings"
METHODS = (OURS, AUTHORS, "FVI", "Laplace", "MAP", "GP", "Sparse GP")
# A second row of the methods that predict each training row from all others in closed form: the same function, other noise.
FOR_EXPECTED = ", noise by the expected score"
WITH_FOR_EXPECTED = (OURS, "GP")
# Rows of a step beyond this many are a minibatch.
_BATCH = 500
# The authors' noise is never below this.
_AUTHORS_LEAST_NOISE = 1e-2
# The share of the training rows that decides when the networks without evidence stop, as the paper has it.
_HELD_OUT = 0.1


class AuthorsSettings(NamedTuple):
    """What the authors used for a table: kernel, training and posterior.

    Attributes:
        kernel: with one length scale for all inputs.
        num_context: context points of a training step, uniform in the box of the data widened by half on each side.
        learning_rate: of Adam.
        sampler: of the posterior's context points in that box.
        rows: which rows of the data join them: "", "validation" or "all".
        activation: of the network of two layers of 50.
    """

    kernel: Callable[[], AbstractKernel]
    num_context: int
    learning_rate: float
    sampler: Callable
    rows: str = ""
    activation: Callable = jnp.tanh


AUTHORS_SETTINGS = {
    "boston": AuthorsSettings(RationalQuadratic, 50, 1e-4, LatinHypercube),
    "concrete": AuthorsSettings(RBF, 432, 6.6e-4, LatinHypercube, "validation"),
    "energy": AuthorsSettings(Matern12, 223, 1.9e-4, LatinHypercube),
    "kin8nm": AuthorsSettings(Matern12, 205, 7.4e-4, Halton),
    "naval": AuthorsSettings(Matern52, 104, 1.5e-5, LatinHypercube, "validation"),
    "power": AuthorsSettings(RBF, 52, 1.3e-4, Halton),
    "protein": AuthorsSettings(RBF, 231, 8.1e-4, LatinHypercube, "all", jax.nn.leaky_relu),
    "wine": AuthorsSettings(RBF, 456, 1.6e-4, Halton, "all", jax.nn.leaky_relu),
    "yacht": AuthorsSettings(Matern52, 10_000, 7e-4, LatinHypercube),
    "denmark": AuthorsSettings(Matern32, 85, 1.4e-4, LatinHypercube, "validation"),
}


class Split(NamedTuple):
    """Inputs and targets, standardised by the training rows.

    Attributes:
        table: its name.
        X, y: training rows.
        X_test, y_test: test rows.
        unit: the targets' unit for each standardised one.
    """

    table: str
    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, "n 1"]
    X_test: Float[np.ndarray, "m d"]
    y_test: Float[np.ndarray, "m 1"]
    unit: float


class Predictive(NamedTuple):
    """Means, epistemic variances and noise variances at n inputs, all standardised."""

    mean: Float[np.ndarray, "n 1"]
    variance: Float[np.ndarray, "n 1"]
    noise: Float[np.ndarray, "n 1"]


class Fitted(NamedTuple):
    """A method fitted to training rows.

    Attributes:
        predict: from standardised inputs to a `Predictive`.
        choices: what was chosen.
        noise_for_expected: variance of the noise for which the expected log-likelihood of left-out training rows is highest; None
            for methods without leave-one-out in closed form.
    """

    predict: Callable[[Float[np.ndarray, "n d"]], Predictive]
    choices: dict[str, Any]
    noise_for_expected: float | None = None

    def rows(self, method: str, data: Split, more: Mapping[str, float]) -> tuple[Row, ...]:
        """Scores on the test rows and `more`; then, where there is one, those with the noise for the expected log-likelihood."""
        found = self.predict(data.X_test)
        plain = Row(method, scores(data, found) | dict(more))
        if self.noise_for_expected is None:
            return (plain,)
        other = found._replace(noise=np.full_like(found.noise, self.noise_for_expected))
        return plain, Row(method + FOR_EXPECTED, scores(data, other))


@functools.cache
def load(table: str) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n 1"]]:
    """Inputs and targets in original units."""
    data = datasets.load(table)
    return np.asarray(data.X, float), np.asarray(data.y, float).reshape(len(data.y), 1)


def split(table: str, train: Int[np.ndarray, " n"], test: Int[np.ndarray, " m"]) -> Split:
    """These rows of a table; a column that does not vary among the training rows is only centred."""
    X, y = load(table)
    inputs, targets = StandardScaler().fit(X[train]), StandardScaler().fit(y[train])
    scaled = (scaler.transform(part) for scaler, part in ((inputs, X), (targets, y)))
    X, y = map(np.asarray, scaled)
    return Split(table, X[train], y[train], X[test], y[test], float(np.asarray(targets.scale_)[0]))


def fit(method: str, data: Split, settings: Mapping[str, Any], seed: int) -> Fitted:
    """A method fitted to the training rows.

    Args:
        method: one of `METHODS`.
        data: its training rows are all that is used.
        settings: the preset's.
        seed: of the network and the optimiser.
    """
    if method in (OURS, "GP", "Sparse GP"):
        return _fit_estimator(method, data, settings, seed)
    network_key, fit_key = keys(seed, 2)
    authors = AUTHORS_SETTINGS[data.table]
    num_features = data.X.shape[1]
    if method in ("Laplace", "MAP"):
        model = fsp.as_model(usual_mlp((50, 50), num_features, 1, key=network_key))
        training = MAP(steps=int(settings["steps"]), batch_size=_batch(data), validation=_HELD_OUT)
        chosen = training if method == "MAP" else WeightLaplace(train=training)
        likelihood = fsp.likelihoods.Gaussian(0.5, learnable=True)
        posterior = chosen.fit(model, data.X, data.y, likelihood, key=fit_key, progress=False)
        return Fitted(_predictor(posterior), {"noise": _scale(posterior)})
    model = fsp.as_model(usual_mlp((50, 50), num_features, 1, key=network_key, activation=authors.activation))
    prior, noise = _authors_prior(data.table, data.X.tobytes(), data.X.shape, data.y.tobytes())
    likelihood = fsp.likelihoods.Gaussian(noise, learnable=True)
    box = _widened_box(data.X)
    if method == "FVI":
        posterior = baseline("FVI", settings).fit(
            model, data.X, data.y, likelihood, key=fit_key, prior=prior, context=Uniform(*box), progress=False
        )
        return Fitted(_predictor(posterior), {"noise": _scale(posterior)})
    return _fit_authors(model, prior, likelihood, box, data, settings, fit_key)


def scores(data: Split, found: Predictive) -> dict[str, float]:
    """Both log scores, error, coverage and CRPS; the expected log-likelihood standardised, as the paper has it."""
    total = found.variance + found.noise
    root = np.sqrt(total)
    error = float(metrics.rmse(data.y_test, found.mean))
    density = float(metrics.log_predictive_density(data.y_test, found.mean, found.variance, noise_variance=found.noise))
    expected = metrics.expected_log_likelihood(data.y_test, found.mean, found.variance, noise_variance=found.noise)
    return {
        "expected_log_likelihood": float(expected),
        "log_predictive_density": density - float(np.log(data.unit)),
        "rmse": error * data.unit,
        "crps": float(metrics.crps(data.y_test, found.mean, root)) * data.unit,
        "coverage_90": float(metrics.interval_coverage(data.y_test, found.mean, root, level=0.9)),
        "log_predictive_density_standardised": density,
        "rmse_standardised": error,
    }


SCORES = {
    "expected_log_likelihood": ("expected log-likelihood, standardised targets", "{:.3f}", "higher"),
    "ood_accuracy": ("OOD accuracy", "{:.3f}", "higher"),
    "log_predictive_density": ("log predictive density", "{:.3f}", "higher"),
    "rmse": ("RMSE", "{:.4g}", "lower"),
    "crps": ("CRPS", "{:.4g}", "lower"),
    "coverage_90": ("coverage of 90 % intervals", "{:.2f}", ""),
    "log_predictive_density_standardised": ("log predictive density, standardised", "{:.3f}", "higher"),
    "rmse_standardised": ("RMSE, standardised", "{:.4g}", "lower"),
}


def _fit_estimator(method: str, data: Split, settings: Mapping[str, Any], seed: int) -> Fitted:
    """The estimator with its defaults and their float32; both Gaussian processes have the prior that it fits."""
    options: dict[str, Any] = {} if method == OURS else {"method": method.lower().replace(" ", "-")}
    steps = settings.get("estimator_steps")
    options |= {} if steps is None else {"steps": int(steps)}
    with jax.enable_x64(False):
        fitted = FSPRegressor(random_state=seed, **options).fit(data.X, data.y[:, 0])
        left = left_out_of_estimator(fitted)
    unit = float(fitted.target_scale_.std[0]) ** 2

    def predict(x):
        with jax.enable_x64(False):
            found = fitted.posterior_.predict(fitted.input_scale_.apply(x))
        mean = fitted.target_scale_.invert(np.asarray(found.mean, float))
        noise = fitted.noise_std(x)[:, None] ** 2
        return Predictive(mean, unit * np.asarray(found.variance, float), noise)

    verdict = fitted.verdict_
    choices = {"noise": fitted.noise_, "verdict": None if verdict is None else verdict.level}
    return Fitted(predict, choices, None if left is None else unit * left.noise_variance)


def _fit_authors(model, prior, likelihood, box, data: Split, settings, key) -> Fitted:
    """Algorithm 1 with early stopping and learnt noise, then Algorithm 2, with the authors' numbers for this table."""
    authors = AUTHORS_SETTINGS[data.table]
    rate = settings.get("authors_learning_rates") and authors.learning_rate
    most = int(settings["posterior_context"])
    train_key, points_key, rows_key = jax.random.split(key, 3)
    order = np.asarray(jax.random.permutation(rows_key, data.X.shape[0]))
    held = order[: max(1, int(_HELD_OUT * order.size))]
    kept = np.setdiff1d(order, held)
    trained = fsp.train(
        model, prior, likelihood, Uniform(*box), data.X[kept], data.y[kept], key=train_key,
        steps=int(settings["steps"]), num_context=min(authors.num_context, int(settings["most_step_context"])),
        batch_size=_batch(data), validation=(data.X[held], data.y[held]), progress=False,
        optimizer=optax.adam(rate) if rate else None,
    )  # fmt: skip
    likelihood = fsp.likelihoods.Gaussian(max(_scale(trained), _AUTHORS_LEAST_NOISE))
    points = [np.asarray(authors.sampler(*box).sample(most, key=points_key))]
    points += [] if not authors.rows else [data.X[held if authors.rows == "validation" else order][:most]]
    posterior = fsp.laplace(
        trained.model, prior, likelihood, data.X[kept], data.y[kept], context_points=np.concatenate(points),
        form="precision", rank=int(settings["rank"]),
    )  # fmt: skip
    return Fitted(_predictor(posterior), {"noise": _scale(posterior), "rank": posterior.diagnostics.rank})


@functools.lru_cache(maxsize=1)
def _authors_prior(table: str, X: bytes, shape: tuple[int, int], y: bytes) -> tuple[fsp.Prior, float]:
    """The authors' kernel and a noise by marginal likelihood; kept for the next method on the same rows."""
    inputs, targets = np.frombuffer(X).reshape(shape), np.frombuffer(y)
    fitted = fit_prior(
        fsp.Prior(AUTHORS_SETTINGS[table].kernel()), inputs, targets, key=jax.random.key(0), standard_errors=False,
        hyperpriors=False,
    )  # fmt: skip
    assert isinstance(fitted.likelihood, fsp.likelihoods.Gaussian)
    return fitted.prior, float(fitted.likelihood.scale)


def _widened_box(X: Float[np.ndarray, "n d"]):
    """The box of the rows, widened by half its width on each side."""
    low, high = X.min(axis=0), X.max(axis=0)
    # A column that does not vary still needs a box with an inside.
    margin = np.where(high > low, 0.5 * (high - low), 0.5)
    return low - margin, high + margin


def _batch(data: Split) -> int | None:
    return _BATCH if data.X.shape[0] > 2 * _BATCH else None


def _scale(fitted) -> float:
    """The noise of a posterior or of a trained network."""
    return float(np.asarray(fitted.likelihood.scale).mean())


def _predictor(posterior) -> Callable:
    def predict(x):
        found = posterior.predict(x)
        return Predictive(*(np.asarray(each, float) for each in (found.mean, found.variance, found.noise_variance)))

    return predict
