"""The ranking of kernels against data whose kernel is known."""

import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern12

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


def test_no_candidates_are_refused():
    with pytest.raises(ValueError, match="candidates is empty"):
        choose_prior(np.zeros((3, 1)), np.zeros(3), {}, key=KEY)
