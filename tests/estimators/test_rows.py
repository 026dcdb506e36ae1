"""Rows as a set: merged, sorted, padded; and the scale of their columns."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from fsplaplace.estimators._rows import Scale, WeightedRows
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
