"""Context points of the estimators: the same distribution wherever they are drawn."""

import jax
import jax.random as jr
import numpy as np

from fsplaplace.estimators._context import MOST_CONTEXT_ROWS, OnHost, context_around


def test_points_drawn_on_the_host_are_the_samplers_own_and_compile_nothing():
    X = np.random.default_rng(0).normal(size=(70, 3))
    context = context_around(X, jr.key(0))
    host = OnHost(context)
    points = np.asarray(host.sample(40, key=jr.key(1)))
    np.testing.assert_array_equal(points, np.asarray(host.sample(40, key=jr.key(1))))
    assert not np.array_equal(points, np.asarray(host.sample(40, key=jr.key(2))))
    other = host.minus(jax.device_put(np.ones(3, np.float32)))
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    moved = np.asarray(other.sample(40, key=jr.key(1)))
    host.sample(41, key=jr.key(1))
    assert not [event for event in compiled if "backend_compile" in event]
    np.testing.assert_allclose(moved, points - 1.0, atol=1e-6)


def test_half_of_the_points_are_near_training_inputs_however_many_there_are():
    generator = np.random.default_rng(1)
    for count in (5, MOST_CONTEXT_ROWS + 200):
        X = generator.normal(size=(count, 2))
        points = np.asarray(OnHost(context_around(X, jr.key(0))).sample(200, key=jr.key(1)))
        away = np.sqrt(((points[100:, None] - X[None]) ** 2).sum(axis=2)).min(axis=1)
        assert points.shape == (200, 2)
        assert np.median(away) < 0.5 * X.std()
