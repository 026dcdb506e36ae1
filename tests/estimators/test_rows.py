"""Rows as a set: merged, sorted, padded; and the scale of their columns."""

import warnings

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from fsplaplace.estimators._rows import Scale, WeightedRows, check_weights
from fsplaplace.host import padded_size


@pytest.fixture
def table():
    generator = np.random.default_rng(0)
    return generator.normal(size=(20, 3)), generator.normal(size=(20, 1)), generator.integers(0, 4, 20).astype(float)


def test_whole_weights_are_repetitions(table):
    X, y, weights = table
    counts = weights.astype(int)
    once = WeightedRows.collect(X, y, weights)
    often = WeightedRows.collect(X.repeat(counts, axis=0), y.repeat(counts, axis=0), np.ones(counts.sum()))
    for left, right in zip(once, often, strict=True):
        np.testing.assert_array_equal(left, right)
    assert once.weights.sum() == counts.sum()


def test_order_does_not_matter(table):
    X, y, weights = table
    order = np.random.default_rng(1).permutation(20)
    for left, right in zip(
        WeightedRows.collect(X, y, weights), WeightedRows.collect(X[order], y[order], weights[order]), strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_padding_adds_rows_without_weight(table):
    rows = WeightedRows.collect(*table).padded()
    assert rows.X.shape[0] == padded_size(rows.X.shape[0])
    assert rows.weights.sum() == table[2].sum()


def test_padded_sizes_grow_by_a_quarter_at_most_and_keep_themselves():
    sizes = [padded_size(count) for count in range(1, 5000)]
    assert all(size >= count for count, size in enumerate(sizes, start=1))
    assert all(size <= 1.25 * count + 16 for count, size in enumerate(sizes, start=1))
    assert all(padded_size(size) == size for size in set(sizes))
    assert len(set(sizes)) < 50


def test_scale_is_that_of_scikit_learn(table):
    X, _, weights = table
    X = np.column_stack([X, np.full(20, 7.0)])
    scale, peer = Scale.of(X, weights), StandardScaler().fit(X, sample_weight=weights)
    np.testing.assert_allclose(scale.apply(X), peer.transform(X), atol=1e-12)
    np.testing.assert_allclose(scale.invert(scale.apply(X)), X, atol=1e-12)


def test_the_scale_of_numbers_whose_squares_are_zero(table):
    X, _, _ = table
    plain, tiny = Scale.of(X, np.ones(20)), Scale.of(1e-300 * X, np.ones(20))
    np.testing.assert_allclose(tiny.std, 1e-300 * plain.std, rtol=1e-12)
    np.testing.assert_array_equal(Scale.of(np.full((5, 1), 0.1), np.ones(5)).std, 1.0)


def test_weights_that_are_no_numbers_of_observations_are_said():
    with pytest.raises(ValueError, match=r"sample_weight has values up to 1e\+30; .* divide sample_weight by its mean"):
        check_weights(np.full(4, 1e30), caller="FSPRegressor")
    with pytest.warns(UserWarning, match="sample_weight sums to 1 over 40 rows"):
        check_weights(np.full(40, 1 / 40), caller="FSPRegressor")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_weights(np.array([0.0, 1.0, 3.0, 0.2]), caller="FSPRegressor")
