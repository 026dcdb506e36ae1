"""The effort decides what the caller leaves open, and nothing else; a plan says what it costs."""

import itertools

import numpy as np
import pytest

from fsplaplace.estimators import FSPRegressor
from fsplaplace.estimators._effort import choices

_OPEN = {"network": None, "steps": None, "num_context": None}


@pytest.mark.parametrize("num_rows", [2, 2000, 2001, 9000, 1_000_000])
def test_more_effort_is_never_less_work_and_more_rows_are_never_fewer_steps(num_rows):
    found = [choices(effort, num_rows, **_OPEN) for effort in ("fast", "normal", "thorough")]
    for less, more in itertools.pairwise(found):
        assert less.network <= more.network
        assert less.steps <= more.steps
        assert less.num_context <= more.num_context
    fewer = choices("normal", num_rows // 2, **_OPEN)
    assert fewer.steps <= found[1].steps


def test_what_the_caller_gives_is_taken():
    given = {"network": (7,), "steps": 3, "num_context": 11}
    for effort in ("fast", "normal", "thorough"):
        assert choices(effort, 10_000, **given)._asdict() == given
    with pytest.raises(ValueError, match="effort is 'most'; pass one of 'fast', 'normal', 'thorough'"):
        choices("most", 10, **_OPEN)


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
