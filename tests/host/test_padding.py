"""Rows that fill a compiled program's shape."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from fsplaplace.host import pad_points


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [6, 50, 127])
def test_points_between_rows_are_seldom_near_each_other_and_in_their_range(rows, dtype):
    """A kernel of many columns recomputes near pairs one by one, and gives up its fast way where they are many."""
    x = np.random.default_rng(1).normal(size=(rows, 40)).astype(dtype)
    padded = pad_points(x, 128)
    assert padded.shape == (128, 40)
    assert padded.dtype == dtype
    np.testing.assert_array_equal(padded[:rows], x)
    assert np.sum(pdist(padded) < 0.01 * pdist(x).max()) < 10
    assert np.all(padded >= x.min(axis=0) - 1e-6)
    assert np.all(padded <= x.max(axis=0) + 1e-6)


def test_a_single_row_is_repeated():
    np.testing.assert_array_equal(pad_points(np.ones((1, 2)), 4), np.ones((4, 2)))
