"""Products with the Jacobian: convolutional networks, blocks of rows, and what a pass is said to cost."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import fsplaplace as fsp
from fsplaplace.networks._jacobian import (
    jacobian_matrix,
    linearisation,
    map_rows,
    pull_back,
    push_forward,
    route,
    rows_per_block,
)


class Convolutional(eqx.Module):
    convolution: eqx.nn.Conv2d
    last: eqx.nn.Linear

    def __call__(self, x):
        return self.last(jnp.tanh(self.convolution(x)).ravel())


@pytest.fixture(scope="module")
def convolutional():
    first, second = jr.split(jr.key(0))
    network = Convolutional(eqx.nn.Conv2d(1, 2, 3, key=first), eqx.nn.Linear(2 * 4 * 4, 3, key=second))
    return fsp.as_model(network), jr.normal(jr.key(1), (5, 1, 6, 6))


@pytest.mark.parametrize("rank", [2, 4, 6])
def test_products_of_a_convolutional_network_are_those_of_its_jacobian(convolutional, rank):
    """Directions go through it a few at a time; six are no multiple of that."""
    model, x = convolutional
    J = np.asarray(jacobian_matrix(model, x), dtype=float)
    generator = np.random.default_rng(0)
    V, U = generator.normal(size=(rank, model.num_params)), generator.normal(size=(5, 3, rank))
    budget = 8.0 * linearisation(model, x).bytes_of_products(rank)
    assert rows_per_block(model, x, rank, budget) == 2
    pushed = push_forward(model, x, jnp.asarray(V, jnp.float32), budget=budget)
    np.testing.assert_allclose(np.reshape(pushed, (15, rank)), J @ V.T, atol=1e-4)
    pulled = pull_back(model, x, jnp.asarray(U, jnp.float32), budget=budget)
    np.testing.assert_allclose(pulled, U.reshape(15, rank).T @ J, atol=1e-4)
    inside = jax.jit(lambda x: push_forward(model, x, jnp.asarray(V, jnp.float32), budget=budget))(x)
    np.testing.assert_allclose(inside, pushed, atol=1e-5)


def test_convolutions_are_found_and_what_a_row_keeps_is_counted(convolutional):
    model, x = convolutional
    found = linearisation(model, x)
    assert found.convolutional
    # At least the input and both layers' activations, 36 + 32 numbers, of four bytes.
    assert found.bytes_per_row >= 4 * (36 + 32)
    dense = fsp.as_model((lambda w, x: jnp.tanh(x @ w), jnp.ones((3, 2))))
    assert linearisation(dense, jnp.ones((4, 3))).convolutional is False


def test_map_rows_gives_the_same_in_blocks_inside_and_outside_of_jit():
    x = jnp.arange(14.0).reshape(7, 2)
    function = lambda rows: (rows**2, rows.sum(axis=1))  # noqa: E731
    for mapped in (map_rows(function, x, rows=3), jax.jit(lambda x: map_rows(function, x, rows=3))(x)):
        for part, whole in zip(mapped, function(x), strict=True):
            np.testing.assert_array_equal(part, whole)


@pytest.mark.parametrize(("rank", "wanted"), [(99, "directions"), (100, "rows")])
def test_many_directions_take_the_rows_of_a_small_jacobian_and_give_the_same(rank, wanted):
    model = fsp.as_model((lambda w, x: jnp.tanh(x @ w["a"]) @ w["b"], {"a": jnp.ones((3, 4)), "b": jnp.ones((4, 1))}))
    generator = np.random.default_rng(0)
    x, V, U = (generator.normal(size=shape).astype(np.float32) for shape in ((7, 3), (rank, 16), (7, 1, rank)))
    assert route(model, x, rank) == wanted
    J = np.asarray(jacobian_matrix(model, x), dtype=float)
    pushed, pulled = push_forward(model, x, V, budget=2e4), pull_back(model, x, U, budget=2e4)
    np.testing.assert_allclose(pushed[:, 0], J @ V.T, atol=1e-4)
    np.testing.assert_allclose(pulled, U[:, 0].T @ J, atol=1e-4)
