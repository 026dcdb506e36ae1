"""Data in memory, in a file or in batches: the same posterior, and errors that name the batch."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.host import _memory
from fsplaplace.laplace import _choices
from fsplaplace.laplace import _data as _rows

rng = np.random.default_rng(0)
X, POINTS, TEST = (rng.uniform(-1, 1, (size, 2)).astype(np.float32) for size in (50, 40, 20))
PROBLEMS = {
    "Gaussian": (fsp.likelihoods.Gaussian(0.1), 1, np.sin(3 * X[:, 0])),
    "Categorical": (fsp.likelihoods.Categorical(3), 3, rng.integers(0, 3, 50)),
}


class Batches:
    """Starts anew each time it is iterated over."""

    def __init__(self, X, y, size):
        self.X, self.y, self.size = X, y, size

    def __iter__(self):
        for start in range(0, len(self.X), self.size):
            yield self.X[start : start + self.size], self.y[start : start + self.size]


def posterior(name, *data):
    likelihood, q, _ = PROBLEMS[name]
    network = eqx.nn.MLP(2, q, 20, 1, activation=jnp.tanh, key=jr.key(0))
    prior = fsp.Prior(RBF(lengthscale=0.7), num_outputs=q)
    return fsp.laplace(fsp.as_model(network), prior, likelihood, *data, context_points=POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_batches_and_files_give_the_posterior_of_the_array(name, tmp_path, monkeypatch, x64):
    y = PROBLEMS[name][2]
    expected = posterior(name, X, y)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    # Small enough that files are read in parts, and that blocks of features are not kept between passes.
    monkeypatch.setattr(_choices, "HELD", 160)
    monkeypatch.setattr(_memory, "_KEPT", 1000)
    monkeypatch.setattr(_memory, "_STREAMED", 6000)
    monkeypatch.setattr(_rows.Rows, "held", lambda rows: rows.spread(50))
    for data in ((mapped, y), (Batches(X, y, 7),), ([(X[:30], y[:30]), (X[30:], y[30:])],)):
        found = posterior(name, *data)
        np.testing.assert_allclose(found.predict(TEST).mean, expected.predict(TEST).mean, atol=1e-4)
        np.testing.assert_allclose(found.predict(TEST).variance, expected.predict(TEST).variance, atol=1e-5)
        assert float(found.log_evidence) == pytest.approx(float(expected.log_evidence), rel=1e-5)


@pytest.mark.parametrize("size", [1, 7, 20, 50, 60])
def test_blocks_of_any_size_and_rows_by_number_are_the_array(size):
    likelihood, _, y = PROBLEMS["Gaussian"]
    model = fsp.as_model(eqx.nn.MLP(2, 1, 4, 1, key=jr.key(0)))
    data = _rows.read_rows(model, likelihood, Batches(X, y, 20), None)
    blocks = list(data.blocks(size))
    assert [part.inputs.shape[0] for _, part in blocks[:-1]] == [size] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate([part.inputs for _, part in blocks]), X)
    np.testing.assert_array_equal(blocks[-1][1].inputs, X[blocks[-1][0]])
    index = np.array([49, 3, 21, 20, 0])
    np.testing.assert_array_equal(data.take(index).inputs, X[index])


def test_a_generator_is_refused_with_what_to_pass_instead():
    y = PROBLEMS["Gaussian"][2]
    for data in (((X, y) for _ in range(1)),), (iter([(X, y)]), None), ((row for row in X), y):
        with pytest.raises(TypeError, match=r"can be read only once, .* pass a list of \(X, y\) batches"):
            posterior("Gaussian", *data)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda: (np.full((5, 2), np.nan), np.zeros(5)), ValueError, "batch 1: X has NaN or infinite values"),
        (
            lambda: (np.zeros((5, 3)), np.zeros(5)),
            ValueError,
            r"batch 1 has rows of shape \(3,\), but batch 0 has \(2,\)",
        ),
        (lambda: (np.zeros((5, 2)), np.zeros(4)), ValueError, "batch 1: .*4"),
        (
            lambda: np.zeros((5, 2)),
            TypeError,
            r"X is a list whose batch 1 is a ndarray; pass pairs \(X, y\), or an array as X",
        ),
    ],
)
def test_a_bad_batch_is_named(change, error, message):
    y = PROBLEMS["Gaussian"][2]
    with pytest.raises(error, match=message):
        posterior("Gaussian", [(X, y), change()])


@pytest.mark.parametrize(
    ("values", "said"),
    [({1.0, 2.0}, "a set whose batch 0 is a float"), ({"X": X}, "a dict whose batch 0 is a str")],
    ids=["set", "dict"],
)
def test_what_is_neither_array_nor_batches_is_named(values, said):
    with pytest.raises(TypeError, match=rf"X is {said}; pass pairs \(X, y\), or an array as X and its targets as y"):
        posterior("Gaussian", values, PROBLEMS["Gaussian"][2])


def test_a_view_of_memory_is_an_array():
    y = PROBLEMS["Gaussian"][2]
    np.testing.assert_array_equal(
        posterior("Gaussian", memoryview(X), y).log_evidence, posterior("Gaussian", X, y).log_evidence
    )


def test_arrays_without_targets_and_empty_batches_are_refused():
    with pytest.raises(TypeError, match="y is missing"):
        posterior("Gaussian", X)
    with pytest.raises(ValueError, match="X has no batches"):
        posterior("Gaussian", [])


def test_the_plan_counts_the_rows_of_batches():
    prior = fsp.Prior(RBF(lengthscale=0.7))
    model = fsp.as_model(eqx.nn.MLP(2, 1, 20, 1, key=jr.key(0)))
    y = PROBLEMS["Gaussian"][2]
    assert str(fsp.plan(model, prior, Batches(X, y, 7), POINTS)) == str(fsp.plan(model, prior, X, POINTS))
