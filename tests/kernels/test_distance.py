"""Squared distances against differences formed in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fsplaplace.kernels._distance import EXPLICIT_WIDTH, _block_counts, _true_positions, squared_distance

WIDTHS = (EXPLICIT_WIDTH, EXPLICIT_WIDTH + 1, 100)


def exact(x, y, lengthscale=1.0):
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    return np.sum(((x[:, None] - y[None]) / np.asarray(lengthscale, np.float64)) ** 2, axis=-1)


def points(width, *, spread=1.0, shift=0.0, dtype=np.float32):
    """Points of which a third coincide, a third nearly coincide and a third are strangers."""
    rng = np.random.default_rng(0)
    x = shift + spread * rng.normal(size=(60, width))
    y = np.concatenate([x[:20], x[20:40] + 1e-4 * rng.normal(size=(20, width)), shift + x[::-1][:25]])
    return jnp.asarray(x, dtype), jnp.asarray(y, dtype)


@pytest.mark.parametrize("shift", [0.0, 50.0])
@pytest.mark.parametrize("width", WIDTHS)
def test_distances_are_accurate_relative_to_themselves_in_float32(width, shift):
    x, y = points(width, shift=shift)
    distance = np.asarray(jax.jit(squared_distance)(x, y), np.float64)
    # 5 eps / τ with τ = 1/32 bounds the error of the kept products, see _distance.py.
    np.testing.assert_allclose(distance, exact(x, y), rtol=2e-5)


@pytest.mark.parametrize("width", WIDTHS)
def test_distances_are_accurate_relative_to_themselves_in_float64(width):
    with jax.enable_x64(True):
        x, y = points(width, shift=3.0, dtype=np.float64)
        np.testing.assert_allclose(squared_distance(x, y), exact(x, y), rtol=1e-11)


@pytest.mark.parametrize("width", WIDTHS)
def test_coincident_points_are_at_distance_zero_exactly(width):
    x, _ = points(width, shift=10.0)
    assert np.all(np.diag(squared_distance(x, x)) == 0.0)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_column_is_divided_by_its_length_scale(width):
    x, y = points(width)
    lengthscale = jnp.linspace(0.1, 3.0, width)
    np.testing.assert_allclose(squared_distance(x, y, lengthscale), exact(x, y, lengthscale), rtol=2e-5)


def test_tight_clusters_with_too_many_near_pairs_stay_accurate():
    rng = np.random.default_rng(1)
    centres = 30.0 * rng.choice([-1.0, 1.0], size=(80, 1))
    x = jnp.asarray(centres + 0.01 * rng.normal(size=(80, 20)), np.float32)
    np.testing.assert_allclose(squared_distance(x, x[:50]), exact(x, x[:50]), rtol=2e-5)


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_give_the_rows_of_the_full_matrix(rows):
    x, y = points(100)
    full = squared_distance(x, y)
    np.testing.assert_allclose(squared_distance(x[:rows], y), full[:rows], rtol=2e-5)
    np.testing.assert_allclose(squared_distance(x, y[:rows]), full[:, :rows], rtol=2e-5)


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_gradients_equal_those_of_the_differences(width, clustered):
    with jax.enable_x64(True):
        x, y = points(width, dtype=np.float64)
        if clustered:
            x, y = jnp.sign(x[:, :1]) * 9.0 + 1e-3 * x, jnp.sign(y[:, :1]) * 9.0 + 1e-3 * y
        lengthscale = jnp.linspace(0.5, 2.0, width)
        weights = np.random.default_rng(2).normal(size=(len(x), len(y)))

        def by_differences(x, y, lengthscale):
            return jnp.sum(weights * jnp.sum(((x[:, None] - y[None]) / lengthscale) ** 2, axis=-1))

        def by_product(x, y, lengthscale):
            return jnp.sum(weights * squared_distance(x, y, lengthscale))

        arguments = (x, y, lengthscale)
        wanted = jax.grad(by_differences, argnums=(0, 1, 2))(*arguments)
        got = jax.jit(jax.grad(by_product, argnums=(0, 1, 2)))(*arguments)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), got, wanted)


@pytest.mark.parametrize("shape", [(3, 5), (7, 64), (10, 130)])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_positions_of_true_entries_are_those_of_numpy(shape, density):
    mask = np.random.default_rng(3).random(shape) < density
    rows, columns = np.nonzero(mask)
    size = mask.size + 4
    got_rows, got_columns = _true_positions(*_block_counts(jnp.asarray(mask)), rows=shape[0], size=size)
    np.testing.assert_array_equal(got_rows[: len(rows)], rows)
    np.testing.assert_array_equal(got_columns[: len(rows)], columns)
    assert np.all(np.asarray(got_rows[len(rows) :]) == shape[0])


def test_vmap_over_sets_of_points_equals_one_set_at_a_time():
    x, y = points(20)
    sets = jnp.stack([x, 2.0 * x, x + 1.0])
    batched = jax.vmap(squared_distance, in_axes=(0, None))(sets, y)
    one_by_one = np.stack([squared_distance(each, y) for each in sets])
    np.testing.assert_allclose(batched, one_by_one, rtol=1e-4)
