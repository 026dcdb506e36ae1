"""Some of many rows, whatever order they come in."""

import numpy as np
import pytest

from fsplaplace.host import scattered


@pytest.mark.parametrize(
    ("count", "most"), [(0, 5), (1, 1), (7, 7), (7, 100), (8, 7), (1000, 500), (1001, 500), (4000, 1)]
)
def test_positions_rise_are_no_more_than_asked_for_and_all_where_these_are_enough(count, most):
    found = scattered(count, most)
    assert len(found) <= most
    assert np.all(np.diff(found) > 0)
    if count <= most:
        np.testing.assert_array_equal(found, np.arange(count))
    else:
        assert len(found) >= count // -(-count // most)
        assert np.all((found >= 0) & (found < count))


@pytest.mark.parametrize("turns", [2, 3, 4, 5, 8, 10])
def test_rows_that_come_in_turns_are_seen_alike_and_sorted_ones_from_end_to_end(turns):
    found = scattered(4000, 1000)
    seen = np.bincount(found % turns, minlength=turns) / len(found)
    # Of 1,000 draws a share of 1 / turns is off by less than five standard deviations.
    np.testing.assert_allclose(seen, 1 / turns, atol=5 * np.sqrt((1 - 1 / turns) / turns / 1000))
    np.testing.assert_allclose(found, np.linspace(0, 4000, 1001)[:-1], atol=4)
