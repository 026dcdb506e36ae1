"""Classification with scikit-learn's conventions."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    check_random_state,
    column_or_1d,
)

from fsplaplace.arguments import checked
from fsplaplace.estimators._base import FSPEstimator, whole_or_nothing
from fsplaplace.estimators._calibration import averaged_probabilities, variance_share
from fsplaplace.host import pad_rows, padded_size
from fsplaplace.laplace import Posterior
from fsplaplace.likelihoods import Bernoulli, Categorical, Likelihood
from fsplaplace.prior import Prior
from fsplaplace.tuning import has_label_evidence


class FSPClassifier(ClassifierMixin, FSPEstimator):
    """A neural network with a Gaussian-process prior over functions, for classification.

    As `FSPRegressor`, with one logit for two classes and one per class for more. The kernel's parameters maximise the
    evidence of at most $600 / q^{1/3}$ labels for q outputs (`fit_prior(labels="laplace")`).

    Args:
        kernel, ard, effort, network, method, steps, num_context, fit_prior, random_state, progress: as in `FSPRegressor`; a
            network of your own needs one output for two classes, one per class for more.
        standardize: inputs to mean 0 and standard deviation 1.

    Attributes:
        classes_: the labels, sorted: the columns of `predict_proba`.
        variance_share_: share of the posterior's variance that probabilities are averaged over, chosen by the log score of training
            labels that are predicted from all others; 1 for methods other than "fsp-laplace".
        posterior_, prior_, prior_report_, verdict_, held_, log_evidence_, feature_relevance_, input_scale_, n_features_in_, feature_names_in_: as in `FSPRegressor`.

    Examples:
        >>> classifier = fsp.FSPClassifier(kernel="rbf", network=(20,), steps=20, num_context=50, fit_prior=False)
        >>> classifier.fit(X, np.where(y > 0, "up", "down")).predict_proba(X).shape
        (20, 2)
    """

    @checked
    @whole_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None):
        """Fit to inputs (n, d) and labels (n,); a weight is the number of observations a row stands for."""
        self._check_readable(X=X, y=y, sample_weight=sample_weight)
        X, y = map(np.asarray, self._validated(X, y, ensure_min_samples=2))
        y = column_or_1d(y, warn=True)
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}: y: {error}") from error
        self.classes_, labels = np.unique(y, return_inverse=True)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        seen = labels[weights > 0]
        if seen.size and np.unique(seen).size < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes in the data, but the data contains "
                f"only one class: {self.classes_[seen[0]].item()!r}; pass y with at least two"
            )
        count = self.classes_.size
        self._fit(
            X, labels[:, None].astype(np.float64), weights, Bernoulli() if count == 2 else Categorical(count),
            num_outputs=1 if count == 2 else count, scale_targets=False,
        )  # fmt: skip
        self.variance_share_ = 1.0
        if isinstance(self.posterior_, Posterior):
            rows = self._rows
            self.variance_share_ = variance_share(*self._outputs(rows.X), rows.y[:, 0].astype(int), rows.weights)
        return self

    def _prior_options(self, prior: Prior, likelihood: Likelihood) -> dict[str, Any]:
        # One start: an evaluation has a search for the mode in it.
        return {"labels": "laplace", "restarts": 1} if has_label_evidence(prior, likelihood) else {}

    @checked
    def predict_proba(self, X: Any) -> Float[np.ndarray, "n c"]:
        """Probabilities of the classes, averaged over functions of the posterior with `variance_share_` of its variance."""
        x, count = self._points(X)
        if isinstance(self.posterior_, Posterior):
            mean, covariance = self._outputs(x)
            return averaged_probabilities(mean[:count], self.variance_share_ * covariance[:count])
        with jax.enable_x64(True):
            probabilities = self._double_posterior().predict_proba(x)
        probabilities = np.asarray(probabilities, np.float64)[:count]
        if self.classes_.size == 2:
            return np.column_stack([1.0 - probabilities, probabilities])
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def _outputs(self, x: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "n q"], Float[np.ndarray, "n q q"]]:
        """Means of the outputs at scaled inputs and their covariance at each."""
        padded = pad_rows(x, padded_size(len(x)))
        with jax.enable_x64(True):
            posterior = self._double_posterior()
            assert isinstance(posterior, Posterior)
            mean, covariance = posterior.predict(padded).mean, posterior.covariance(padded, joint=False)
        return np.asarray(mean, np.float64)[: len(x)], np.asarray(covariance, np.float64)[: len(x)]

    @checked
    def predict_log_proba(self, X: Any) -> Float[np.ndarray, "n c"]:
        """Logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    @checked
    def predict(self, X: Any):
        """The most probable class of each input."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    @checked
    def sample_y(self, X: Any, n_samples: int = 1, random_state=0):
        """Labels (n, n_samples): each column from one function drawn from the posterior."""
        logits = self._functions(X, n_samples, random_state)
        if self.variance_share_ < 1:
            x, count = self._points(X)
            mean = self._outputs(x)[0][:count]
            logits = mean + np.sqrt(self.variance_share_) * (logits - mean)
        two = self.classes_.size == 2
        probabilities = np.concatenate([1 - expit(logits), expit(logits)], axis=2) if two else softmax(logits, axis=2)
        generator = check_random_state(random_state)
        generator.randint(np.iinfo(np.int32).max)
        levels = generator.uniform(size=logits.shape[:2])[:, :, None]
        drawn = np.minimum(np.sum(np.cumsum(probabilities, axis=2) < levels, axis=2), self.classes_.size - 1)
        return self.classes_[drawn.T]
