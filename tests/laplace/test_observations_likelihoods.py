"""Every likelihood through an operator, in both forms, against dense algebra in the weights of a network that is linear in them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gpjax.kernels import AbstractKernel

import fsplaplace as fsp
from fsplaplace import likelihoods
from fsplaplace import operators as ops

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, size=(6, 1))
TEST = np.linspace(-0.97, 0.97, 9)[:, None]
# They determine the weights of each output, so that nothing is left to approximate.
POINTS = np.linspace(-1.5, 1.5, 12)[:, None]


def features(x):
    return jnp.stack([jnp.ones_like(x), x, jnp.sin(2 * x), jnp.tanh(2 * x)], axis=-1)


class FeatureKernel(AbstractKernel):
    """k(x, y) = features(x) . features(y): the prior that standard normal weights imply."""

    def __init__(self):
        super().__init__()

    def __call__(self, x, y):
        return features(x[0]) @ features(y[0])


def linear(weights, x):
    return features(x[:, 0]) @ weights.reshape(4, 3)


def rows(x, order: int, outputs):
    """The derivative of some outputs, by the rows that multiply the weights, (n, k, 12)."""
    derivative = features
    for _ in range(order):
        derivative = jax.jacfwd(derivative)
    columns = np.asarray(jax.vmap(derivative)(jnp.asarray(x[:, 0])))
    chosen = np.eye(3)[list(outputs)]
    return np.einsum("nf,kq->nkfq", columns, chosen).reshape(len(x), len(outputs), 12)


def logistic(output, target):
    """A density of the user's own."""
    off = target[0] - output[0]
    return -off - 2 * jax.nn.softplus(-off)


# What is observed (the operator, the order of its derivative, the outputs it sees), with which likelihood, and the targets.
KINDS = [
    (ops.partial(0) @ ops.output(0), 1, (0,), likelihoods.Gaussian(0.3), np.sin(X)),
    (ops.output(2) @ ops.partial(0), 1, (2,), likelihoods.Gaussian(np.linspace(0.2, 0.9, 6)[:, None]), np.cos(X)),
    (ops.partial(0) @ ops.output(1), 1, (1,), likelihoods.Bernoulli(), (X > 0).astype(int)),
    (ops.partial(0), 1, (0, 1, 2), likelihoods.Categorical(3), np.array([0, 1, 2, 2, 0, 1])),
    (ops.partial(0) @ ops.output(2), 1, (2,), likelihoods.Poisson(), np.array([0, 3, 1, 2, 0, 1])),
    (ops.partial(0, 0) @ ops.output(0), 2, (0,), likelihoods.StudentT(0.5, degrees=4.0), np.r_[np.cos(X[:5]), [[9.0]]]),
    (ops.partial(0) @ ops.output(0, 1), 1, (0, 1), likelihoods.HeteroscedasticGaussian(), np.cos(2 * X)),
    (ops.partial(0) @ ops.output(1), 1, (1,), likelihoods.FromLogDensity(logistic), np.cos(X)),
]


def dense_mode(kinds):
    """The mode and the precision in the space of the weights, by Newton's method on the sum of all densities."""
    seen = [(rows(X, order, outputs), likelihood, y) for _, order, outputs, likelihood, y in kinds]

    def objective(w):
        fits = sum(jnp.sum(likelihood.log_prob(row @ w, jnp.asarray(y))) for row, likelihood, y in seen)
        return 0.5 * w @ w - fits

    w, value = jnp.zeros(12), jax.jit(objective)
    slope, bend = jax.jit(jax.grad(objective)), jax.jit(jax.hessian(objective))
    for _ in range(60):
        values, vectors = np.linalg.eigh(bend(w))
        step = vectors @ ((vectors.T @ slope(w)) / np.maximum(np.abs(values), 0.1))
        size = next(size for size in 0.5 ** np.arange(40) if value(w - size * step) <= value(w) or size < 1e-11)
        w = w - size * step
    assert np.max(np.abs(slope(w))) < 1e-8
    curved = [(row, likelihood.curvature(row @ w, jnp.asarray(y))) for row, likelihood, y in seen]
    return np.asarray(w), np.eye(12) + sum(np.einsum("nka,nkl,nlb->ab", row, H, row) for row, H in curved), value(w)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "kinds"), [("covariance", KINDS), ("precision", KINDS[1:3])])
def test_every_likelihood_through_an_operator_all_at_once(x64, form, kinds):
    weights, precision, objective = dense_mode(kinds)
    also = [fsp.Observation(X, y, likelihood, of=of) for of, _, _, likelihood, y in kinds]
    # The precision form has the network's own mean, so it starts at the mode.
    model = fsp.as_model((linear, jnp.asarray(weights if form == "precision" else np.zeros(12))))
    exactly = {"rtol": 1e-13, "delta": 1e-15, "mean": "refined"} if form == "covariance" else {}
    posterior = fsp.laplace(
        model, fsp.Prior(FeatureKernel(), num_outputs=3), likelihoods.Gaussian(0.1), None, also=also, form=form,
        context_points=POINTS, **exactly,
    )  # fmt: skip
    for of, order in ((None, 0), (ops.partial(0), 1)):
        at = rows(TEST, order, (0, 1, 2))
        wanted = np.einsum("nka,nka->nk", at, np.linalg.solve(precision, at.reshape(-1, 12).T).T.reshape(at.shape))
        found = posterior.predict(TEST, of=of)
        np.testing.assert_allclose(found.mean, at @ weights, atol=1e-6)
        np.testing.assert_allclose(found.variance, wanted, atol=1e-7)
    log_evidence = -objective - 0.5 * np.linalg.slogdet(precision)[1]
    assert float(posterior.log_evidence) == pytest.approx(float(log_evidence), abs=1e-5)
