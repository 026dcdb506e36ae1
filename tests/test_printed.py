"""What `print` shows of a prior, a prediction and a trained network."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gpjax.kernels import RBF, Matern32, Periodic

import fsplaplace as fsp
from fsplaplace.laplace import Prediction
from fsplaplace.training import History


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (fsp.Prior(RBF(lengthscale=0.3)), ["RBF", "a distance of about 0.3", "infinitely smooth"]),
        (fsp.Prior(Matern32(lengthscale=jnp.array([1.0, 2.0])), num_outputs=3), ["(1, 2)", "once differentiable"]),
        (fsp.Prior([RBF(), Periodic(period=2.0)]), ["output 0", "output 1", "RBF, Periodic"]),
        (fsp.Prior(RBF(active_dims=[4])), ["a distance of about"]),
        (fsp.Prior(fsp.kernels.Helmholtz(potential=RBF(), stream=RBF())), ["Helmholtz"]),
    ],
)
def test_a_prior_prints_what_it_believes(prior, words):
    assert all(word in str(prior) for word in words)
    assert repr(prior).startswith("Prior(")


def test_a_prior_inside_a_compiled_function_can_be_printed():
    jax.jit(lambda scale: len(str(fsp.Prior(RBF(lengthscale=scale)))) * scale)(1.0)


def test_a_prediction_prints_its_first_and_last_rows():
    n = 30
    mean = jnp.arange(n, dtype=float)[:, None]
    prediction = Prediction(mean, mean, 4 * jnp.ones((n, 1)), 5 * jnp.ones((n, 1)), None, jnp.arange(n) == 0)
    text = str(prediction)
    assert "prediction at 30 inputs" in text
    assert [str(k) in text for k in (1, 4, 25, 29)] == [True] * 4
    assert " 12 " not in text
    assert "0*" in text
    assert "1 inputs lie outside" in text
    assert " 3 " in text  # the standard deviation of a target, √(4 + 5)
    assert max(map(len, text.splitlines())) <= 80
    several = Prediction(*(jnp.ones((2, 5)),) * 3, None)
    assert "and 2 more outputs" in str(several)
    assert "std of a target" not in str(several)
    assert "prediction at 0 inputs" in str(Prediction(*(jnp.zeros((0, 1)),) * 3, None))


def test_a_trained_network_prints_its_run():
    network = fsp.mlp([4], prior=fsp.Prior(RBF()), context=fsp.context.Uniform([0.0], [1.0]), key=jr.key(0))
    steps = np.linspace(3, 1, 50)
    history = History(*map(jnp.asarray, (steps, 2 * steps, np.array([50]), np.array([0.25]))))
    text = str(fsp.Trained(fsp.as_model(network), fsp.likelihoods.Gaussian(), history, 1e-4))
    assert "50 steps, objective 9 -> " in text
    assert "best validation loss 0.25" in text
    assert "13 weights" in text
    assert "Gaussian" in text
