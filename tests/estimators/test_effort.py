"""The effort decides what the caller leaves open, and nothing else; a plan says what it costs."""

import itertools

import numpy as np
import pytest

from fsplaplace.estimators import FSPRegressor
from fsplaplace.estimators._effort import choices

_OPEN = {"network": None, "steps": None, "num_context": None}


@pytest.mark.parametrize("num_rows", [2, 2000, 2001, 9000, 1_000_000])
def test_more_effort_is_never_less_work_and_more_rows_are_never_fewer_steps(num_rows):
    found = [choices(effort, num_rows, 3, 1, **_OPEN) for effort in ("fast", "normal", "thorough")]
    for less, more in itertools.pairwise(found):
        assert less.network <= more.network
        assert less.steps <= more.steps
        assert less.num_context <= more.num_context
    fewer = choices("normal", num_rows // 2, 3, 1, **_OPEN)
    assert fewer.steps <= found[1].steps


def test_what_the_caller_gives_is_taken():
    given = {"network": (7,), "steps": 3, "num_context": 11}
    for effort in ("fast", "normal", "thorough"):
        assert choices(effort, 10_000, 100, 1, **given)._asdict() == given
    with pytest.raises(ValueError, match="effort is 'most'; pass one of 'fast', 'normal', 'thorough'"):
        choices("most", 10, 3, 1, **_OPEN)


@pytest.mark.parametrize("effort", ["fast", "normal", "thorough"])
def test_a_layer_has_two_units_for_each_column_as_far_as_the_weights_go(effort):
    """With fewer units than columns a network sees only the space that its units span."""
    for columns in (1, 25, 26, 100, 150):
        width = choices(effort, 100, columns, 1, **_OPEN).network[0]
        assert width >= min(2 * columns, 100)
        assert width * (columns + width) <= 50_000
    for outputs in (1, 10):
        assert choices(effort, 100, 5000, outputs, **_OPEN) == choices(effort, 100, 1, outputs, **_OPEN)
    assert FSPRegressor().plan(np.zeros((50, 100))).network == (150, 150)


def test_a_plan_grows_with_rows_and_effort_and_names_what_it_will_do():
    X, many = np.zeros((500, 4)), np.zeros((20_000, 4))
    small, large = FSPRegressor().plan(X), FSPRegressor().plan(many)
    assert (small.network, small.steps, small.num_context) == ((50, 50), 2000, 1000)
    assert (large.network, large.steps) == ((100, 100), 10_000)
    assert small.seconds < large.seconds < FSPRegressor(effort="thorough").plan(many).seconds
    assert small.bytes < large.bytes
    assert "100 x 100" in str(large)
    with pytest.raises(ValueError, match="network is 'auto'"):
        FSPRegressor(network="auto").plan(X)
