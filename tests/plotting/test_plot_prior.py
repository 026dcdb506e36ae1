"""What `plot_prior` draws: the numbers in the figure against the prior."""

import sys

import jax.random as jr
import matplotlib as mpl
import numpy as np
import pytest
from gpjax.kernels import RBF

from fsplaplace import Prior
from fsplaplace.plotting._prior import plot_prior

mpl.use("Agg")
from matplotlib import pyplot

KEY = jr.key(0)


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


def test_one_dimension_shows_draws_band_and_data():
    X, y = np.linspace(-1, 1, 20)[:, None], np.linspace(0, 1, 20)
    ax = plot_prior(Prior(RBF(lengthscale=0.5, variance=4.0), mean=1.0), X, y, key=KEY, num_samples=3)
    *draws, data = ax.lines
    assert len(draws) == 3
    np.testing.assert_allclose(data.get_ydata(), y)
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    # Mean 1, two standard deviations of 2.
    assert band.min() == pytest.approx(-3.0, rel=1e-5)
    assert band.max() == pytest.approx(5.0, rel=1e-5)
    low, high = draws[0].get_xdata()[[0, -1]]
    assert low == pytest.approx(-1.4)
    assert high == pytest.approx(1.4)


def test_slices_pass_through_the_median_and_show_one_function():
    X = np.random.default_rng(0).normal(size=(31, 3))
    axes = plot_prior(Prior(RBF(lengthscale=3.0)), X, key=KEY, num_samples=1)
    assert len(axes) == 3
    centre = np.median(X, axis=0)
    values = [np.interp(centre[column], *axes[column].lines[0].get_data()) for column in range(3)]
    # All slices meet at the centre.
    np.testing.assert_allclose(values, values[0], atol=5e-3)


def test_at_most_six_panels():
    axes = plot_prior(Prior(RBF()), np.random.default_rng(0).normal(size=(5, 8)), key=KEY, num_samples=1)
    assert len(axes) == 6


def test_given_axes_are_used_and_counted():
    _, ax = pyplot.subplots()
    assert plot_prior(Prior(RBF()), key=KEY, ax=ax) is ax
    with pytest.raises(ValueError, match="ax holds 1 axes, but 2 panels"):
        plot_prior(Prior(RBF()), np.zeros((3, 2)), key=KEY, ax=ax)


def test_bad_arguments_are_refused():
    prior = Prior(RBF())
    with pytest.raises(ValueError, match="num_samples is 0"):
        plot_prior(prior, key=KEY, num_samples=0)
    with pytest.raises(ValueError, match="output is 1"):
        plot_prior(prior, key=KEY, output=1)
    with pytest.raises(ValueError, match="y has 3 rows, but X has 4"):
        plot_prior(prior, np.zeros((4, 1)), np.zeros(3), key=KEY)


def test_a_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"fsplaplace\[plots\]"):
        plot_prior(Prior(RBF()), key=KEY)
