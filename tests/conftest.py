"""Fixtures shared by the suite: both floating-point widths, and the paper's sine task fitted once."""

import inspect
import os
from typing import NamedTuple

import jax
import jax.monitoring
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest
import references
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.host import _process

# Commands that tests run leave nothing in the user's cache directory.
os.environ["FSPLAPLACE_NO_CACHE"] = "1"
# Tests share compiled programs: they are dropped later than a user's are, and still before XLA would crash.
_process.SHARE_OF_MAPS = 0.4


@pytest.fixture(autouse=True)
def few_memory_maps():
    """Compiled programs are dropped before the process runs out of memory maps, also where no test calls the package."""
    yield
    _process.ready_to_compute()


@pytest.fixture(autouse=True)
def checked_annotations(request):
    """Shapes and types in annotations are checked, but for tests of what the package itself says of wrong arguments."""
    source = inspect.getsource(request.function)
    about_errors = "pytest.raises" in source or "check(estimator)" in source
    jaxtyping.config.update("jaxtyping_disable", about_errors)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def compilations():
    """A list that grows by one with every program that XLA compiles."""
    events = []

    def listen(event: str, _seconds: float, **_):
        if "backend_compile" in event:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """The test runs in this floating-point width."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture
def x64():
    """The test runs in float64."""
    with jax.enable_x64(True):
        yield


class SineTask(NamedTuple):
    """Data of the paper's sine task, a network trained on it, and the exact posterior at points off the context set."""

    X: np.ndarray
    y: np.ndarray
    prior: fsp.Prior
    likelihood: fsp.likelihoods.Gaussian
    context_points: np.ndarray
    x: np.ndarray
    exact: references.Reference
    trained: fsp.Trained


@pytest.fixture(scope="session")
def sine() -> SineTask:
    """100 points, noise 0.1, RBF of length scale 0.3, 2 x 50 tanh network, 1,000 steps of float32 training."""
    generator = np.random.default_rng(0)
    X = np.concatenate([generator.uniform(-1, -0.3, 50), generator.uniform(0.3, 1, 50)])[:, None]
    y = np.sin(2 * np.pi * X[:, 0]) + 0.1 * generator.normal(size=100)
    x = np.linspace(-1.95, 1.95, 79)[:, None]
    kernel = lambda a, b: references.rbf(a, b, 0.3)  # noqa: E731
    exact = references.exact_gp(kernel(X, X), kernel(x, X), kernel(x, x), y, np.array(0.1))
    prior, context = fsp.Prior(RBF(lengthscale=0.3)), fsp.context.Uniform(-2.0, 2.0)
    likelihood = fsp.likelihoods.Gaussian(scale=0.1)
    network = fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(0))
    trained = fsp.train(
        fsp.as_model(network), prior, likelihood, context, X, y, key=jr.key(1), steps=1000, progress=False
    )
    points = np.concatenate([np.linspace(-2, 2, 200)[:, None], X])
    return SineTask(X, y, prior, likelihood, points, x, exact, trained)


@pytest.fixture(scope="session")
def sine_posterior(sine: SineTask) -> fsp.Posterior:
    """The covariance form's posterior on the sine task, float32."""
    return fsp.laplace(
        sine.trained.model, sine.prior, sine.likelihood, sine.X, sine.y, context_points=sine.context_points
    )
