# %% [markdown]
# # A prior from physics: currents without sources
#
# A flow in the plane splits into a part without curl and a part without divergence. The Helmholtz kernel puts a Gaussian
# process on a potential and a stream function; leave the potential out, and every function the prior allows conserves mass.

# %%
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF

import fsplaplace as fsp
from fsplaplace.kernels import Helmholtz

# %% [markdown]
# Twelve drifters in a vortex, their velocities measured with noise:

# %%
generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (12, 2))


def velocity(x):
    """Of a vortex around the origin; its divergence is zero."""
    return np.stack([-x[:, 1], x[:, 0]], axis=1) * np.exp(-np.sum(x**2, axis=1, keepdims=True))


y = velocity(X) + 0.02 * generator.normal(size=(12, 2))

# %% [markdown]
# Two priors with the same length scale and size: one for flows without sources, one that treats the components as unrelated.
# The kernel of the stream function has its variance in units of the potential: v / l^2 is that of a velocity.

# %%
likelihood = fsp.likelihoods.Gaussian(scale=0.02)
context = fsp.context.Uniform([-1.5, -1.5], [1.5, 1.5])
context_points = context.sample(250, key=jr.key(0))
x = generator.uniform(-1, 1, (200, 2))

posteriors, errors = {}, {}
for name, prior in {
    "without divergence": fsp.Prior(Helmholtz(stream=RBF(lengthscale=0.8, variance=0.1))),
    "unrelated components": fsp.Prior(RBF(lengthscale=0.8, variance=0.15), num_outputs=2),
}.items():
    network = fsp.mlp([80], prior=prior, context=context, key=jr.key(1))
    trained = fsp.train(
        fsp.as_model(network),
        prior,
        likelihood,
        context,
        X,
        y,
        key=jr.key(2),
        steps=300,
        num_context=50,
        progress=False,
    )
    posterior = fsp.laplace(trained.model, prior, likelihood, X, y, context_points=context_points)
    errors[name] = float(jnp.sqrt(jnp.mean((posterior.predict(x).mean - velocity(x)) ** 2)))
    posteriors[name] = posterior
    print(f"{name}: RMSE {errors[name]:.3f}")

# %% [markdown]
# Predictions are differentiable in x, so the divergence of the mean can be checked:


# %%
def divergence(posterior, place):
    jacobian = jax.jacobian(lambda at: posterior.predict(at[None]).mean[0])(place)
    return jnp.trace(jacobian)


size = {}
for name, posterior in posteriors.items():
    values = jax.vmap(lambda place, posterior=posterior: divergence(posterior, place))(jnp.asarray(x[:50]))
    size[name] = float(jnp.sqrt(jnp.mean(values**2)))
    print(f"{name}: root mean squared divergence {size[name]:.3f}")

assert size["without divergence"] < 0.1 * size["unrelated components"]

# %%
from fsplaplace import plotting

axes = plotting.plot_vector_field(posteriors["without divergence"], X, y)
