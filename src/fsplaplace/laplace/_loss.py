"""What a posterior loses against the exact process with the same prior, in nats for a new target."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from scipy.spatial import KDTree
from scipy.special import expit, softmax, xlogy

from fsplaplace.host import in_float64, scattered, to_device
from fsplaplace.laplace import _choices
from fsplaplace.laplace._choices import Treatment
from fsplaplace.laplace._exact_process import Moments
from fsplaplace.laplace._features import Block, Known
from fsplaplace.laplace._mode import posterior_mode
from fsplaplace.laplace._observed import Observed
from fsplaplace.laplace._operator_loss import loss_on_sample
from fsplaplace.laplace._problem import Places, Problem
from fsplaplace.laplace._pull_back import PulledBack
from fsplaplace.laplace._reference import Extremes, Reference, divergence, extremes
from fsplaplace.likelihoods import Bernoulli, Categorical, Likelihood
from fsplaplace.prior import moments


class Loss(NamedTuple):
    """A posterior beside the exact process, at inputs like those to come.

    Attributes:
        nats: mean loss of log predictive density for each new target; NaN if nothing was there to compare with.
        extremes: of a new target; of the latent function with labels and counts. None if the exact process has only some of many
            data, or saw them through operators.
        latent: whether the extremes are those of the latent function.
    """

    nats: float
    extremes: Extremes | None = None
    latent: bool = False


def loss_to_exact(
    problem: Problem, observed: tuple[Observed, ...], places: Places, reference: Reference, found: Moments, at_guards: Moments,
    pulled: PulledBack | None = None, known: Known | None = None,
) -> Loss:  # fmt: skip
    r"""$E[\log p_{\mathrm{exact}}(y) - \log p(y)]$ for a new target $y$ of the exact process, the mean over the place "new".

    With Gaussian noise both processes are given all data. With labels and counts the exact one is the Laplace approximation
    of the latent Gaussian process given the data, or some of them; then the features are given the same few.

    Args:
        problem: the data.
        observed: kinds of observations, with the tangents that the posterior has.
        places: where the posterior was looked at.
        reference: has the exact process for Gaussian noise.
        found: the posterior of the function at the place "new", flattened over points and outputs.
        at_guards: the same at the judged guard points, where only extremes are looked for: where no data are, too.
        pulled: the directions, and features in all places; None for a posterior without features.
        known: what is known in all places.

    NaN if nothing is there to compare with. Time cubic in a few hundred points.
    """
    if reference.new is not None:
        exact, q = reference.new, problem.prior.num_outputs
        loss = divergence(exact, found, _new_noise(problem, reference, exact.mean.size // q)).forward
        if reference.complete and reference.at_guards is not None:
            exact, found = exact.beside(reference.at_guards), found.beside(at_guards)
        return Loss(loss, extremes(exact, found, _new_noise(problem, reference, exact.mean.size // q)))
    if not problem.of_values:
        return Loss(float("nan") if pulled is None else loss_on_sample(problem, observed, reference, pulled))
    q = problem.prior.num_outputs
    rows = scattered(len(places.training), max(1, _choices.LATENT_TARGETS // q))
    if rows.size < problem.data.num_rows and known is None:
        return Loss(float("nan"))
    latent = _Latent(problem, places, rows, np.concatenate([places.new, reference.points]))
    exact, everywhere, size = latent.exact(), found.beside(at_guards), found.mean.size
    if rows.size < problem.data.num_rows and known is not None:
        everywhere = latent.of_features(known, reference.compared_rows(places)[: len(reference.points)])
    loss = _loss_of_targets(
        problem.likelihood.of_one(), exact.first(size), everywhere.first(size), latent.targets_near(places.new)
    )
    # A standard deviation of a tenth of the prior's is as good as none.
    resolved = _choices.LATENT_RESOLVED * np.mean(moments.variance(problem.prior, places.new))
    return Loss(loss, extremes(exact, everywhere, float(resolved)), latent=True)


def _new_noise(problem: Problem, reference: Reference, count: int) -> Float[np.ndarray, " kq"]:
    """Variance of the noise of new targets; if every training row has its own, for each output that of rows at random that tell it."""
    if problem.noise is None:
        return np.tile(reference.noise, count)
    q, one = problem.prior.num_outputs, problem.likelihood.of_one()
    noise = None if one.rows(slice(0, 1)) is not one else one.noise((1, q))
    if noise is not None:
        return np.tile(noise.variance[0], count)
    generator = np.random.default_rng(0)
    telling = [each[each < _choices.UNTELLING * np.min(each)] for each in problem.noise.variance.T]
    return np.stack([generator.choice(each, count) for each in telling], axis=1).ravel()


def moments_at(
    features: Float[np.ndarray, "k q r"],
    unexplained: Float[np.ndarray, "k q"],
    precision: Float[np.ndarray, "r r"],
    mean: Float[np.ndarray, "k q"],
    missed: Treatment,
) -> Moments:
    """The posterior of the function from normalised features: what `Posterior.predict` computes."""
    flat, missing = features.reshape(-1, features.shape[2]), unexplained.ravel()
    carried = np.sum(flat * np.linalg.solve(precision, flat.T).T, axis=1)
    if missed == "function":
        stated = np.sum(flat**2, axis=1)
        missing = missing * np.divide(carried, stated, out=np.ones_like(stated), where=stated > 0)
    return Moments(mean.ravel(), carried + missing)


class _Latent:
    """A latent function at some points given some of the training rows: by the exact process, and by features."""

    def __init__(
        self, problem: Problem, places: Places, rows: Shaped[np.ndarray, " s"], points: Float[np.ndarray, "k ..."]
    ):
        self.problem, self.places, self.rows, self.points = problem, places, rows, points
        self.likelihood = problem.likelihood
        if self.likelihood.rows(slice(0, 1)) is not self.likelihood:
            # A likelihood with a part for each row of the data: the places are some of them.
            index = scattered(problem.data.num_rows, _choices.MOST_POINTS)[rows]
            self.likelihood = self.likelihood.rows(index)
        self.at_rows = places.slice("training").start + rows

    def exact(self) -> Moments:
        """Its features are the Cholesky factor of the prior's covariance: the Newton iteration is that of the posterior."""
        inputs, count = np.concatenate([self.points, self.places.training[self.rows]]), len(self.points)
        covariance, q = moments.covariance(self.problem.prior, inputs), self.problem.prior.num_outputs
        jitter = _choices.LATENT_JITTER * np.mean(np.diagonal(covariance))
        # Rows first, so that the new points need no features to find the mode.
        order = np.concatenate([np.arange(count * q, len(covariance)), np.arange(count * q)])
        covariance = covariance[np.ix_(order, order)] + jitter * np.eye(len(covariance))
        factor, size = np.linalg.cholesky(covariance), self.rows.size * q
        given, new = factor[:size, :size], factor[size:]
        mode, offset = (
            self._mode(given.reshape(self.rows.size, q, size)),
            moments.mean(self.problem.prior, self.points),
        )
        rest = np.sum(new[:, size:] ** 2, axis=1)
        found = moments_at(new[:, None, :size], rest[:, None], mode.precision, new[:, :size] @ mode.z[:, None], "noise")
        return Moments(found.mean + offset.ravel(), found.variance)

    def of_features(self, known: Known, guards: Shaped[np.ndarray, " g"]) -> Moments:
        """By the linear model with these features, at the place "new" and then at the guard points at these positions."""
        new = self.places.slice("new")
        mode, new = self._mode(known.features[self.at_rows]), known.rows(np.r_[new.start : new.stop, guards])
        return moments_at(new.features, new.unexplained, mode.precision, new.mean + new.features @ mode.z, "function")

    def targets_near(self, new: Float[np.ndarray, "k ..."]) -> Shaped[np.ndarray, "k ..."]:
        """The target of the nearest row to each new input."""
        flat = (values.reshape(len(values), -1) for values in (self.places.training[self.rows], new))
        rows, points = flat
        return self.places.targets[self.rows][np.asarray(KDTree(rows).query(points)[1])]

    def _mode(self, features: Float[np.ndarray, "s q r"]):
        offset = moments.mean(self.problem.prior, self.places.training[self.rows])
        block = Block(offset, offset, features, self.places.targets[self.rows], self.likelihood, None)
        return posterior_mode(lambda: iter([block]), features.shape[2])


def _loss_of_targets(
    likelihood: Likelihood, exact: Moments, found: Moments, targets: Shaped[np.ndarray, "k ..."]
) -> float:
    """The divergence of predicted labels; for others than labels, of a Gaussian observation that tells as much as a target."""
    match likelihood:
        case Bernoulli():
            chances = [_label_probability(each) for each in (exact, found)]
            return _divergence(*(np.stack([1 - chance, chance], axis=1) for chance in chances))
        case Categorical():
            shape = (-1, likelihood.num_classes)
            shrunk = [(each.mean / np.sqrt(1 + np.pi / 8 * each.variance)).reshape(shape) for each in (exact, found)]
            return _divergence(*(softmax(logits, axis=1) for logits in shrunk))
    q = exact.mean.size // len(targets)
    means = exact.mean.reshape(-1, q)
    curvature = (
        np.asarray(in_float64(likelihood.curvature)(to_device(means), targets)).diagonal(axis1=1, axis2=2).ravel()
    )
    noise = 1.0 / np.maximum(curvature, _choices.LATENT_JITTER / np.maximum(exact.variance, 1e-300))
    return divergence(exact, found, noise).forward


def _label_probability(latent: Moments) -> Float[np.ndarray, " k"]:
    """The expected logistic function of a Gaussian variable, by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_choices.QUADRATURE_NODES)
    values = latent.mean[:, None] + np.sqrt(latent.variance)[:, None] * nodes
    return expit(values) @ weights / np.sum(weights)


def _divergence(wanted: Float[np.ndarray, "k c"], given: Float[np.ndarray, "k c"]) -> float:
    """Mean Kullback-Leibler divergence between distributions of labels."""
    given = np.maximum(given, np.finfo(float).tiny)
    return float(np.mean(np.sum(xlogy(wanted, wanted) - xlogy(wanted, given), axis=1)))
