import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.methods import FSPLaplace


def test_the_method_is_train_and_then_laplace():
    X = np.linspace(-1, 1, 8)[:, None].astype(np.float32)
    y = np.sin(3 * X[:, 0])
    prior, likelihood, context = (
        fsp.Prior(RBF(lengthscale=0.5)),
        fsp.likelihoods.Gaussian(0.2),
        fsp.context.Uniform(-2, 2),
    )
    model = fsp.as_model(fsp.mlp([5], prior=prior, context=context, key=jr.key(0)))
    method = FSPLaplace(steps=20, num_context=10, num_posterior_context=6)
    seen = method.fit(model, X, y, likelihood, key=jr.key(1), prior=prior, context=context, progress=False)

    train_key, context_key, laplace_key = jr.split(jr.key(1), 3)
    trained = fsp.train(
        model, prior, likelihood, context, X, y, key=train_key, steps=20, num_context=10, progress=False
    )
    inputs = jnp.asarray(X)[jr.permutation(laplace_key, 8)[:6]]
    points = jnp.concatenate([context.sample(6, key=context_key), inputs])
    wanted = fsp.laplace(trained.model, prior, trained.likelihood, X, y, context_points=points, key=laplace_key)
    x = np.linspace(-2, 2, 9)[:, None]
    np.testing.assert_array_equal(seen.predict(x).mean, wanted.predict(x).mean)
    np.testing.assert_array_equal(seen.predict(x).variance, wanted.predict(x).variance)
    np.testing.assert_array_equal(seen.log_evidence, wanted.log_evidence)
    assert float(jnp.max(jnp.abs(trained.model.weights - model.weights))) > 0
