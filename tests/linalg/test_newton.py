"""Damped Newton: minima of convex functions, also where a whole step overshoots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fsplaplace.linalg import damped_newton


def newton(objective):
    return lambda x: x - jnp.linalg.solve(jax.hessian(objective)(x), jax.grad(objective)(x))


def test_a_parabola_takes_one_step(x64):
    matrix, right = jnp.asarray([[3.0, 1.0], [1.0, 2.0]]), jnp.asarray([1.0, -2.0])
    objective = lambda x: 0.5 * x @ matrix @ x - right @ x  # noqa: E731
    found = damped_newton(objective, newton(objective), jnp.zeros(2), max_steps=1)
    np.testing.assert_allclose(found, jnp.linalg.solve(matrix, right), rtol=1e-12)


@pytest.mark.parametrize("start", [0.5, 3.0, 5.0])
def test_a_step_that_overshoots_is_shortened(x64, start):
    """log cosh: from beyond 1.09 whole Newton steps diverge."""
    objective = lambda x: jnp.sum(jnp.logaddexp(x - 1, 1 - x))  # noqa: E731
    whole = newton(lambda x: objective(x) + 1e-9 * jnp.sum(x**2))
    found = jax.jit(lambda x: damped_newton(objective, whole, x))(jnp.asarray([start]))
    np.testing.assert_allclose(found, [1.0], atol=1e-4)


def test_values_that_are_not_numbers_are_never_taken(x64):
    objective = lambda x: jnp.sum(x - jnp.log(x))  # noqa: E731
    found = damped_newton(objective, newton(objective), jnp.asarray([30.0]))
    np.testing.assert_allclose(found, [1.0], rtol=1e-5)


def test_the_derivative_of_one_more_step_is_that_of_the_minimum(x64):
    """x = argmin exp(x) - t x = log t."""

    def minimum(t):
        whole = lambda x, t: x - (jnp.exp(x) - t) / jnp.exp(x)  # noqa: E731
        found = damped_newton(lambda x: jnp.sum(jnp.exp(x) - t * x), lambda x: whole(x, t), jnp.zeros(1))
        return whole(found, t)[0]

    value, slope = jax.value_and_grad(minimum)(2.5)
    np.testing.assert_allclose([value, slope], [np.log(2.5), 1 / 2.5], rtol=1e-9)


def test_a_point_from_which_no_step_improves_is_kept(x64):
    found = damped_newton(lambda x: jnp.sum(x**2), lambda x: x + 1.0, jnp.asarray([2.0]))
    np.testing.assert_array_equal(found, [2.0])
