"""The ranking of kernels against data whose kernel is known."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import paramax
import pytest
from gpjax.kernels import RBF, Matern12
from scipy.stats import multivariate_normal

from fsplaplace import Observation, operators
from fsplaplace.likelihoods import Gaussian
from fsplaplace.tuning import choose_prior

KEY = jr.key(0)


@pytest.fixture(scope="module")
def ranking():
    """Values of a rough (Ornstein-Uhlenbeck) path with little noise."""
    generator = np.random.default_rng(0)
    X = np.linspace(0, 4, 80)[:, None]
    gram = np.exp(-np.abs(X - X.T)) + 1e-4 * np.eye(80)
    y = np.linalg.cholesky(gram) @ generator.normal(size=80)
    return choose_prior(X, y, {"smooth": RBF(), "rough": Matern12()}, key=KEY, restarts=1)


def test_a_rough_path_is_given_the_rough_kernel(ranking):
    assert ranking.names == ("rough", "smooth")
    assert isinstance(ranking.prior.kernel, Matern12)
    assert ranking.fits[0].report.value > ranking.fits[1].report.value + 2


def test_the_ranking_prints_every_candidate(ranking):
    assert "rough" in str(ranking)
    assert "smooth" in str(ranking)
    assert ranking.likelihood is ranking.best.likelihood


def test_slopes_count_in_the_ranking():
    """Against the density written out with the kernel's derivatives; functions without slopes cannot have any."""
    X, slopes = np.linspace(0, 3, 6)[:, None], np.array([0.5, 0.1, -0.4])
    also = [Observation(X[:3], slopes, Gaussian(0.2), of=operators.partial(0))]
    candidates = {"rough": Matern12(), "smooth": RBF()}
    ranking = choose_prior(X, np.sin(X[:, 0]), candidates, also=also, key=KEY, restarts=1)
    assert ranking.names == ("smooth", "rough")
    assert ranking.log_evidence[1] == -np.inf
    kernel, noise = ranking.prior.kernel, float(np.asarray(ranking.likelihood.scale).ravel()[0])
    length, variance = (float(np.asarray(paramax.unwrap(each))) for each in (kernel.lengthscale, kernel.variance))
    d = X - X.T
    values = variance * np.exp(-0.5 * (d / length) ** 2)
    of_slopes, both = (1 - (d / length) ** 2) / length**2 * values, -d / length**2 * values
    matrix = np.block([[values, both[:3].T], [both[:3], of_slopes[:3, :3]]])
    matrix += np.diag([*np.full(6, noise**2), *np.full(3, 0.04)])
    mean = float(np.asarray(ranking.prior.mean_at(X[:1]))[0, 0])
    wanted = multivariate_normal([*np.full(6, mean), 0, 0, 0], matrix).logpdf([*np.sin(X[:, 0]), *slopes])
    assert ranking.log_evidence[0] == pytest.approx(wanted, abs=1e-3)
    curved = [Observation(X, X[:, 0], Gaussian(0.2), of=operators.value.map(jnp.sin))]
    with pytest.raises(ValueError, match=r"also\[0\] .* is not a linear operator with Gaussian noise"):
        choose_prior(X, X[:, 0], {"smooth": RBF()}, also=curved, key=KEY, restarts=1)


def test_no_candidates_are_refused():
    with pytest.raises(ValueError, match="candidates is empty"):
        choose_prior(np.zeros((3, 1)), np.zeros(3), {}, key=KEY)
