"""Samplers of context points: inside their bounds, reproducible, and as even as they promise."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import qmc

from fsplaplace import context

LOWER, UPPER = np.array([-2.0, 0.5, 10.0]), np.array([2.0, 0.75, 11.0])
ROWS = np.random.default_rng(0).normal(size=(20, 3))
BOXES = [context.Uniform, context.Halton, context.Sobol, context.LatinHypercube, context.Grid]
SAMPLERS = {
    **{kind.__name__: kind(LOWER, UPPER) for kind in BOXES},
    "Data": context.Data(ROWS),
    "Data-jitter": context.Data(ROWS, jitter=[0.1, 0.0, 1.0]),
    "Mixture": context.Mixture([context.Uniform(LOWER, UPPER), context.Data(ROWS)]),
    "around": context.around(ROWS),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_key_decides_the_points(name):
    sampler = SAMPLERS[name]
    points = np.asarray(sampler.sample(64, key=jr.key(1)))
    assert points.shape == (64, 3)
    assert np.all(np.isfinite(points))
    np.testing.assert_array_equal(points, sampler.sample(64, key=jr.key(1)))
    if name != "Grid":
        assert not np.array_equal(points, sampler.sample(64, key=jr.key(2)))


@pytest.mark.parametrize("name", SAMPLERS)
def test_compiled_samplers_give_the_same_points_inside_jit(name):
    sampler = SAMPLERS[name]
    if not sampler.compiled:
        assert name in ("Halton", "Sobol", "LatinHypercube")
        return
    inside = jax.jit(lambda key: sampler.sample(27, key=key))(jr.key(3))
    np.testing.assert_allclose(inside, sampler.sample(27, key=jr.key(3)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", BOXES)
@pytest.mark.parametrize("num_points", [27, 100])
def test_points_lie_in_the_box_and_reach_its_corners(dtype, kind, num_points):
    points = np.asarray(kind(LOWER, UPPER).sample(num_points, key=jr.key(0)))
    assert points.dtype == dtype
    slack = 1e-5 * (UPPER - LOWER)
    assert np.all(points >= LOWER - slack)
    assert np.all(points <= UPPER + slack)
    assert np.all(np.ptp(points, axis=0) > 0.75 * (UPPER - LOWER))


@pytest.mark.parametrize("kind", [context.Halton, context.Sobol, context.LatinHypercube])
def test_quasi_random_points_are_more_even_than_uniform_ones(kind):
    lower, upper = np.zeros(2), np.ones(2)

    def discrepancy(sampler):
        unit = [np.clip(np.asarray(sampler(lower, upper).sample(128, key=jr.key(i)), float), 0, 1) for i in range(5)]
        return np.mean([qmc.discrepancy(points) for points in unit])

    assert discrepancy(kind) < 0.6 * discrepancy(context.Uniform)


def test_latin_hypercube_has_one_point_in_every_slice():
    points = np.asarray(context.LatinHypercube(LOWER, UPPER).sample(50, key=jr.key(4)), float)
    slices = np.floor((points - LOWER) / (UPPER - LOWER) * 50).astype(int)
    for column in slices.T:
        assert sorted(column) == list(range(50))


def test_grid_is_the_product_of_its_axes():
    points = np.asarray(context.Grid([0.0, -1.0], [1.0, 1.0]).sample(9))
    np.testing.assert_allclose(points, [[a, b] for a in (0, 0.5, 1) for b in (-1, 0, 1)])
    assert context.Grid(LOWER, UPPER).sample(63).shape == (27, 3), "the largest full grid below the number asked for"


def test_data_takes_each_row_once_before_any_twice():
    points = np.asarray(context.Data(ROWS).sample(50, key=jr.key(5)))
    _, counts = np.unique(points, axis=0, return_counts=True)
    assert sorted(counts) == [2] * 10 + [3] * 10
    assert {tuple(row) for row in points} == {tuple(row) for row in ROWS.astype(points.dtype)}


def test_data_jitter_moves_rows_by_its_standard_deviation():
    one_row = np.zeros((1, 2))
    points = np.asarray(context.Data(one_row, jitter=[0.5, 0.0]).sample(4000, key=jr.key(6)))
    assert points[:, 0].std() == pytest.approx(0.5, rel=0.05)
    assert not points[:, 1].any()


def test_data_keeps_the_shape_of_images():
    assert context.Data(np.zeros((4, 8, 8, 1))).sample(6, key=jr.key(0)).shape == (6, 8, 8, 1)


@pytest.mark.parametrize(("weights", "counts"), [(None, (3, 4)), ([3.0, 1.0], (5, 2)), ([0.0, 1.0], (0, 7))])
def test_mixture_counts_follow_the_weights_and_add_up(weights, counts):
    mixture = context.Mixture([context.Uniform(0.0, 1.0), context.Uniform(5.0, 6.0)], weights=weights)
    points = np.asarray(mixture.sample(7, key=jr.key(7)))
    assert points.shape == (7, 1)
    assert abs(np.sum(points < 2) - counts[0]) <= 1
    assert np.sum(points < 2) + np.sum(points > 4) == 7


def test_around_is_half_widened_box_and_half_jittered_data():
    X = np.array([[0.0, 0.0], [1.0, 10.0], [0.2, 3.0]])
    points = np.asarray(context.around(X, margin=0.5, jitter=0.0).sample(400, key=jr.key(8)))
    box, data = points[:200], points[200:]
    assert np.all(box >= [-0.5, -5.0])
    assert np.all(box <= [1.5, 15.0])
    assert np.all(np.ptp(box, axis=0) > 0.9 * np.array([2.0, 20.0]))
    assert {tuple(row) for row in data} == {tuple(row) for row in X.astype(points.dtype)}
    spread = np.asarray(context.around(X, jitter=0.2).sample(6000, key=jr.key(9)))[3000:, 0]
    assert spread.var() == pytest.approx((1 + 0.2**2) * X[:, 0].var(), rel=0.05)


def test_a_constant_column_keeps_its_value_around_the_data():
    X = np.column_stack([np.linspace(0, 1, 5), np.full(5, 3.0)])
    points = np.asarray(context.around(X).sample(40, key=jr.key(0)))
    np.testing.assert_array_equal(points[:, 1], 3.0)
    assert np.ptp(points[:, 0]) > 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: context.Uniform(1.0, 0.0), r"Uniform: lower exceeds upper in column 0 \(1 > 0\); swap them"),
        (lambda: context.Halton(0.0, np.inf), r"Halton: upper is \[inf\]; pass finite numbers"),
        (lambda: context.Sobol(np.nan, 1.0), r"Sobol: lower is \[nan\]; pass finite numbers"),
        (
            lambda: context.Uniform(0.0, 1e300),
            "Uniform: upper has values up to 1e\\+300, whose squares float32 cannot hold",
        ),
        (lambda: context.Uniform(np.zeros(0), 1.0), r"Uniform: lower has shape \(0,\); pass at least one"),
        (
            lambda: context.Uniform([0.0, 0.0], [1.0] * 3),
            r"lower has shape \(2,\), but upper has \(3,\); pass two points",
        ),
        (lambda: context.Grid(LOWER, UPPER).sample(7), "Grid: 7 points cannot make a grid .* ask for 8 or more"),
        (lambda: context.Data(np.zeros((0, 2))), r"Data: rows has shape \(0, 2\); pass at least one row"),
        (lambda: context.Data([[np.nan]]), "Data: rows has NaN or infinite values; remove those rows"),
        (lambda: context.Data([[0.0]], jitter=-1.0), "Data: jitter must be finite and not negative"),
        (lambda: context.Mixture([]), "Mixture: samplers is empty; pass at least one"),
        (lambda: context.Mixture([context.Uniform(0.0, 1.0)], weights=[-1]), "Mixture: weights must be 1 numbers"),
        (lambda: context.around([[1.0], [np.inf]]), "around: X has NaN or infinite values"),
        (lambda: context.around(np.zeros((3, 2, 2))), r"around: X has shape \(3, 2, 2\); pass \(n, d\), or use Data"),
        (lambda: context.around(np.ones((4, 2))), "around: all 4 rows of X are equal, .* pass bounds, as in Uniform"),
    ],
)
def test_impossible_regions_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_integer_rows_become_floating_point():
    assert jnp.issubdtype(context.Data(np.arange(6).reshape(3, 2)).sample(3, key=jr.key(0)).dtype, jnp.floating)


def test_segments_lie_between_two_rows_and_near_ones_only_between_neighbours():
    """Rows on a circle: chords between neighbours stay near it, chords between any two do not."""
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    rows = np.column_stack([np.cos(angle), np.sin(angle)])
    near = np.asarray(context.Segments(rows, neighbours=2).sample(300, key=jr.key(0)))
    any_two = np.asarray(context.Segments(rows).sample(300, key=jr.key(0)))
    assert np.linalg.norm(near, axis=1).min() > np.cos(np.pi / 60) - 1e-6  # the middle of the shortest chord
    assert np.linalg.norm(any_two, axis=1).min() < 0.2
    assert max(np.linalg.norm(near, axis=1).max(), np.linalg.norm(any_two, axis=1).max()) <= 1 + 1e-6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(rows=np.zeros((1, 2))), r"Segments: rows has shape \(1, 2\); pass at least two rows"),
        (dict(rows=np.zeros((3, 2)), neighbours=0), r"Segments: neighbours is 0; pass 1 or more, or None for any row"),
    ],
)
def test_segments_refuse_what_has_no_lines(arguments, message):
    with pytest.raises(ValueError, match=message):
        context.Segments(**arguments)


@pytest.mark.parametrize(
    "sampler",
    [SAMPLERS[name] for name in ("Uniform", "Data-jitter", "around")],
    ids=["Uniform", "Data-jitter", "around"],
)
def test_points_drawn_on_the_host_have_the_same_distribution(sampler):
    """First two moments of 20,000 points; 0.05 standard deviations are 5 standard errors of the difference of means."""
    drawn = sampler.draw(20_000, np.random.default_rng(2))
    sampled = np.asarray(sampler.sample(20_000, key=jr.key(0)))
    assert drawn.dtype == sampled.dtype
    spread = sampled.std(axis=0)
    np.testing.assert_allclose(drawn.mean(axis=0) / spread, sampled.mean(axis=0) / spread, atol=0.05)
    np.testing.assert_allclose(np.cov((drawn / spread).T), np.cov((sampled / spread).T), atol=0.05)


def test_data_drawn_on_the_host_are_not_repeated_while_they_last():
    rows = np.arange(30.0)[:, None]
    drawn = context.Data(rows).draw(30, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(drawn, axis=0), rows)


def test_points_throughout_the_data_compile_nothing(compilations):
    """As `laplace` takes them where it is given none: a first call would spend more time on random numbers than on the rest."""
    sampler, key = context.throughout(np.random.default_rng(3).normal(size=(43, 3))), jr.key(0)
    jr.key_data(key)
    compilations.clear()
    sampler.sample(123, key=key)
    assert not compilations


@pytest.mark.parametrize("shift", [0.0, 1e3, 1e5])
def test_the_region_around_data_far_from_zero_is_as_wide(shift):
    """Spread and bounds are those of the data in float64: sums of float32 would lose them."""
    region, near = context.around(ROWS + shift), context.around(ROWS)
    (box, data), (near_box, near_data) = region.samplers, near.samplers
    np.testing.assert_allclose(data.jitter, near_data.jitter, rtol=1e-6)
    rounding = 2 * np.spacing(np.float32(shift + 10))
    for name in ("lower", "upper"):
        np.testing.assert_allclose(
            np.asarray(getattr(box, name), float) - shift, getattr(near_box, name), atol=rounding + 1e-6
        )


@pytest.mark.parametrize("kind", [context.Uniform, context.Halton, context.Sobol, context.LatinHypercube])
def test_boxes_have_the_shape_of_a_point(kind):
    """A box of images is the box of their pixels: the same points, in their shape."""
    lower, upper = np.zeros((2, 3, 1)), np.arange(1.0, 7.0).reshape(2, 3, 1)
    images, rows = kind(lower, upper), kind(lower.ravel(), upper.ravel())
    np.testing.assert_array_equal(
        images.sample(5, key=jr.key(0)), np.asarray(rows.sample(5, key=jr.key(0))).reshape(5, 2, 3, 1)
    )
    drawn = [each.draw(5, np.random.default_rng(0)) for each in (images, rows)]
    np.testing.assert_array_equal(drawn[0], drawn[1].reshape(5, 2, 3, 1))
    with pytest.raises(ValueError, match=r"lower exceeds upper in column \(1, 2, 0\)"):
        kind(lower, np.where(upper == 6, -1.0, upper))
